"""Results of `contract check` in a store that machines share (`stores.contract_checks`), where `contract health` finds them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, TypeVar

from toolgate.kit.sql import sql
from toolgate.later import later
from toolgate.model.tool import Migration
from toolgate.policy.health import MAX_COMMIT, ContractRun

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from toolgate.settings import Settings

STORE: Final = "contract_checks"
KEPT: Final = timedelta(days=1000)
"""Longer than the longest window."""
MOST: Final = 100_000
"""Checks that one reading takes, the newest: a check every quarter of an hour for a thousand days."""
MIGRATIONS: Final = (
    Migration(
        STORE,
        1,
        (
            """CREATE TABLE contract_checks (
                id TEXT PRIMARY KEY,
                checked BIGINT NOT NULL,
                ok INTEGER NOT NULL CHECK (ok IN (0, 1)),
                digest TEXT NOT NULL,
                commit_id TEXT NOT NULL
            )""",
            "CREATE INDEX contract_checks_by_time ON contract_checks (checked)",
        ),
    ),
)
_KEEP: Final = (
    "INSERT INTO contract_checks (id, checked, ok, digest, commit_id) VALUES (:id, :now, :ok, :digest, :commit)"
)
_FORGET: Final = "DELETE FROM contract_checks WHERE checked < :before"
_READ: Final = (
    "SELECT checked, ok, commit_id FROM contract_checks WHERE checked >= :since ORDER BY checked DESC LIMIT :most"
)

_open_store: Final = later("toolgate.powers.stores:OpenStore")
"""Few deployments have such a store, and every check would wait for what it takes to open one."""

Out = TypeVar("Out")


def is_configured(settings: Settings) -> bool:
    return bool(settings.stores.urls.get(STORE))


def keep(settings: Settings, now: datetime, *, is_green: bool, digest: str, commit: str) -> None:
    """Side effects: also forgets what no window shows any more. Raises: StoreUnavailable, StartRefused."""
    row = {
        "id": token_hex(16),
        "now": _seconds(now),
        "ok": int(is_green),
        "digest": digest,
        "commit": commit[:MAX_COMMIT],
    }

    def work(connection: Connection) -> None:
        connection.execute(sql(_KEEP), row)
        connection.execute(sql(_FORGET), {"before": _seconds(now - KEPT)})

    _at(settings, work)


def kept(settings: Settings, since: datetime) -> list[ContractRun]:
    """The newest first. Raises: StoreUnavailable, StartRefused."""

    def work(connection: Connection) -> list[Any]:
        return list(connection.execute(sql(_READ), {"since": _seconds(since), "most": MOST}))

    return [
        ContractRun(datetime.fromtimestamp(row.checked, since.tzinfo), bool(row.ok), row.commit_id)
        for row in _at(settings, work)
    ]


def _at(settings: Settings, work: Callable[[Connection], Out]) -> Out:
    store = _open_store(STORE, settings.stores.urls[STORE], MIGRATIONS)
    try:
        done: Out = asyncio.run(store.run(work))
    finally:
        store.close()
    return done


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())
