"""What the console shows of the pack: the newest rounds, how final each is, and how many votes stand behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from toolgate.model.tool import Panel, PanelCell, PanelTable
from toolgate.packs.consensus.arbiter.node import network_for_reading
from toolgate.packs.consensus.arbiter.store import newest_rounds, read_replica
from toolgate.packs.consensus.domain.evidence import Level
from toolgate.packs.consensus.tables import STORE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine import Connection

    from toolgate.model.tool import PanelContext

NEWEST: Final = 50
COLUMNS: Final = ("Round", "Level", "Votes", "Arbiters", "Certificates", "Sealed")

Row = list["str | int | float | PanelCell | None"]


async def rounds(ctx: PanelContext) -> Sequence[PanelTable]:
    def look(connection: Connection) -> list[Row]:
        network = network_for_reading(connection, ctx.settings)
        if network is None:
            return []
        shelf = read_replica(connection, network).shelf
        ids = newest_rounds(connection, network, NEWEST)
        shelf.load(ids)
        found = [shelf.get(number) for number in ids]
        return [
            [
                each.id,
                PanelCell("FAULTED", "bad") if each.faulted else PanelCell(each.level.name, _tone(each.level)),
                len(each.votes),
                network.size,
                len(each.certificates),
                PanelCell("sealed", "good") if each.sealed else PanelCell("open"),
            ]
            for each in found
        ]

    store = ctx.stores.get(STORE)
    rows = [] if store.untouched else await store.run(look)
    note = f"The newest {NEWEST}. The ladder: {' → '.join(level.name for level in Level)}. Evidence: toolgate consensus verify."
    return [PanelTable("Rounds", list(COLUMNS), rows, note=note, tool="consensus_finality")]


def _tone(level: Level) -> Literal["good", "quiet"]:
    return "quiet" if level is Level.PENDING else "good"


PANELS: Final = (
    Panel(name="rounds", title="Rounds", summary="What arbiters have voted on, and how final it is.", make=rounds),
)
