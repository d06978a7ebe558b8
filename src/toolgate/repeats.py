"""Idempotency keys, joined for the gate: the settings, the store that processes share, and whose run of the log goes on."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from toolgate.gate.idempotency import MIGRATIONS, STORE, Idempotency, KeyBounds
from toolgate.ledger.files import KEY_FILE, LOG_PATH, derived_key, run_state
from toolgate.powers.stores import OpenStore

if TYPE_CHECKING:
    from toolgate.ledger import LocalLedger
    from toolgate.model.clock import Clock
    from toolgate.settings import Settings


def open_idempotency(settings: Settings, clock: Clock, ledger: LocalLedger) -> Idempotency:
    """Nothing is opened before a call brings a key; `Idempotency.close` ends what was."""
    chosen, opened = settings.idempotency, list[OpenStore]()

    def store() -> OpenStore:
        if not opened:
            place = chosen.url or settings.paths.state / "stores" / f"{STORE}.sqlite3"
            opened.append(OpenStore(STORE, place, MIGRATIONS, settings.limits.store_bytes))
        return opened[0]

    def close() -> None:
        for each in opened:
            each.close()

    return Idempotency(
        store=store,
        close=close,
        secret=cache(partial(derived_key, settings.paths.secrets / KEY_FILE, b"idempotency")),
        clock=clock,
        bounds=KeyBounds(chosen.keep_seconds, chosen.keys_per_caller, chosen.bytes_per_caller),
        run=str(ledger.name),
        state_of=partial(run_state, settings.paths.runs / LOG_PATH),
    )
