"""Approvals, joined for the gate: the settings, the store that processes share, the webhook and the log."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, cast

from toolgate.gate.authority.approvals import Approvals
from toolgate.ledger.acts import Acts
from toolgate.ledger.files import KEY_FILE, derived_key
from toolgate.model.threads import Lazy
from toolgate.powers.secrets import SecretSources

if TYPE_CHECKING:
    from toolgate.gate.authority.answers import Recorded
    from toolgate.kit.conditions.approval import ApprovalStore
    from toolgate.ledger import LocalLedger
    from toolgate.model.call import Caller, Origin
    from toolgate.model.clock import Clock
    from toolgate.powers.approvals.tables import ApprovalTables
    from toolgate.powers.approvals.webhook import ApprovalWebhook
    from toolgate.settings import Settings


def make_approvals(
    settings: Settings,
    store: Lazy[ApprovalTables],
    webhook: ApprovalWebhook | None,
    clock: Clock,
    ledger: LocalLedger,
    record: Callable[[str, Mapping[str, Any]], None],
) -> Approvals:
    """`record`: of an act of the server itself."""
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
    from toolgate.powers.approvals.tables import STORE, ApprovalTables  # noqa: PLC0415 (SQL, for homes with approvals)

    place = settings.stores.urls.get(STORE) or settings.paths.state / "stores" / f"{STORE}.sqlite3"
    return ApprovalTables(place, settings.limits.store_bytes)


def open_webhook(settings: Settings, clock: Clock, store: Callable[[], ApprovalTables]) -> ApprovalWebhook | None:
    """Raises: StartRefused."""
    from toolgate.powers.approvals.webhook import open_webhook  # noqa: PLC0415 (TLS and names, for homes with one)

    return open_webhook(settings, SecretSources(settings.paths.secrets, os.environ), clock, store)
