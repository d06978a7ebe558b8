"""Approvals, joined for the gate: the settings, the store that processes share, the webhook and the log."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, cast

from toolgate.errors import StoreUnavailable
from toolgate.gate.authority.approvals import Approvals
from toolgate.kit.conditions.approval import STORE
from toolgate.ledger.acts import Acts
from toolgate.ledger.files import KEY_FILE, derived_key
from toolgate.model.threads import Lazy
from toolgate.powers.secrets import SecretSources

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.gate.authority.answers import Recorded
    from toolgate.kit.conditions.approval import ApprovalStore
    from toolgate.ledger import LocalLedger
    from toolgate.model.call import Caller, Origin
    from toolgate.model.clock import Clock
    from toolgate.powers.approvals.tables import ApprovalTables
    from toolgate.powers.approvals.webhook import ApprovalWebhook
    from toolgate.settings import Settings


LOOK_S: Final = 60.0
"""Between two looks for requests whose time is over."""
MOST_ROUNDS: Final = 10
"""Of one look; each writes down as many as the store hands out at once."""


def make_approvals(
    settings: Settings,
    store: Lazy[ApprovalTables],
    webhook: ApprovalWebhook | None,
    clock: Clock,
    ledger: LocalLedger,
    record: Callable[[str, Mapping[str, Any]], bool],
) -> Approvals:
    """`record`: of an act of the server itself; whether it was written."""
    return Approvals(
        store=cast("ApprovalStore", store),
        key=Lazy(partial(derived_key, settings.paths.secrets / KEY_FILE, b"approvals")).made,
        clock=clock,
        new_id=partial(token_hex, 8),
        record=record,
        recorded=partial(_recorded, ledger),
        tell=None if webhook is None else webhook.tell,
    )


def _recorded(ledger: LocalLedger, caller: Caller, origin: Origin) -> Recorded:
    return Acts(ledger, caller, origin.address or "", way="http").recorded


def open_approvals(settings: Settings) -> ApprovalTables:
    """Raises: StartRefused. Nothing is opened yet."""
    from toolgate.powers.approvals.tables import ApprovalTables  # noqa: PLC0415 (SQL, for homes with approvals)

    return ApprovalTables(_place(settings), settings.limits.store_bytes)


def _place(settings: Settings) -> str | Path:
    return settings.stores.urls.get(STORE) or settings.paths.state / "stores" / f"{STORE}.sqlite3"


class ExpiryWatch:
    """Looks for requests and grants whose time is over, and writes them down: of all processes of a server one does."""

    def __init__(self, approvals: Approvals, settings: Settings, look_s: float = LOOK_S) -> None:
        """Side effects: a task on the running loop, until `stop`."""
        self._approvals = approvals
        self._place = _place(settings)
        self._look_s = look_s
        self._task = asyncio.get_running_loop().create_task(self._look(), name="approvals-expiry")

    async def start(self, context: Any) -> None:
        """As a service has it; this one has begun."""

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            # A home in which nobody has ever needed an approval has no file, and gets none.
            if isinstance(self._place, str) or self._place.exists():
                with suppress(StoreUnavailable):  # calls that need an approval are refused meanwhile, which says enough
                    await self._record()
            await asyncio.sleep(self._look_s)

    async def _record(self) -> None:
        for _ in range(MOST_ROUNDS):
            if not await self._approvals.record_expired():
                return


def open_webhook(settings: Settings, clock: Clock, store: Callable[[], ApprovalTables]) -> ApprovalWebhook | None:
    """Raises: StartRefused."""
    from toolgate.powers.approvals.webhook import open_webhook  # noqa: PLC0415 (TLS and names, for homes with one)

    return open_webhook(settings, SecretSources(settings.paths.secrets, os.environ), clock, store)
