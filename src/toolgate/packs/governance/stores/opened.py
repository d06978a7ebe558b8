"""The pack's stores as it uses them, whatever they are kept in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from toolgate.packs.governance.stores.sql import SqlConsents, SqlFalsePositives
from toolgate.packs.governance.stores.table import TableConsents, TableFalsePositives
from toolgate.packs.governance.tables import CONSENT, FALSE_POSITIVES

if TYPE_CHECKING:
    from toolgate.model.powers import Stores
    from toolgate.packs.governance.stores.consents import Consents
    from toolgate.packs.governance.stores.reviews import FalsePositives

Out = TypeVar("Out")


def nothing_kept(stores: Stores) -> bool:
    """No review, suppression or baseline was ever kept: who only reads need not open the store."""
    return stores.get(FALSE_POSITIVES).untouched


async def false_positives(stores: Stores, work: Callable[[FalsePositives], Out]) -> Out:
    """`work` on the store: one transaction in SQL, atomic requests on a table. Raises: StoreUnavailable."""
    store = stores.get(FALSE_POSITIVES)
    if store.in_table:
        return await store.run_on_table(lambda table: work(TableFalsePositives(table)))
    return await store.run(lambda connection: work(SqlFalsePositives(connection)))


async def consents(stores: Stores, work: Callable[[Consents], Out]) -> Out:
    """The same with consent. Raises: StoreUnavailable."""
    store = stores.get(CONSENT)
    if store.in_table:
        return await store.run_on_table(lambda table: work(TableConsents(table)))
    return await store.run(lambda connection: work(SqlConsents(connection)))
