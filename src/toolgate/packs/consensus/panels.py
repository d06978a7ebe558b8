"""What the console shows of the pack: the newest rounds, how final each is, how many votes stand behind it,
and the evidence of it."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal

from toolgate.model.tool import Panel, PanelCell, PanelTable
from toolgate.packs.consensus.arbiter.node import network_for_reading
from toolgate.packs.consensus.arbiter.store import newest_rises, newest_rounds, read_replica
from toolgate.packs.consensus.domain.evidence import Certificate, EvidenceFault, Level, Rise, decode
from toolgate.packs.consensus.domain.messages import KIND_NAMES, Vote
from toolgate.packs.consensus.tables import STORE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine import Connection

    from toolgate.model.tool import PanelContext
    from toolgate.packs.consensus.domain.evidence import Equivocation, Evidence
    from toolgate.packs.consensus.domain.messages import Statement
    from toolgate.packs.consensus.domain.rounds import Round

NEWEST: Final = 50
MOST_EVIDENCE: Final = 100
SHORT: Final = 16
"""Digits of a root: the evidence has all of them."""
EVIDENCE: Final = ("Round", "Proves", "Statement", "Signers", "Recorded", "SHA-256")
CHECKED: Final = (
    "What others can check with nothing but the arbiter set: toolgate consensus show ROUND --save FILE, then"
    " toolgate consensus verify FILE."
)
COLUMNS: Final = ("Round", "Level", "Votes", "Arbiters", "Certificates", "Sealed")

Row = list["str | int | float | PanelCell | None"]


async def rounds(ctx: PanelContext) -> Sequence[PanelTable]:
    def look(connection: Connection) -> tuple[list[Row], list[Row]]:
        network = network_for_reading(connection, ctx.settings)
        ids = [] if network is None else newest_rounds(connection, network, NEWEST)
        if network is None or not ids:
            return [], []
        shelf = read_replica(connection, network).shelf
        shelf.load(ids)
        found = [shelf.get(number) for number in ids]
        proofs = [_contradiction(each.id, proof) for each in found for proof in each.equivocations()]
        risen = newest_rises(connection, network, ids, MOST_EVIDENCE)
        return [_standing(each) for each in found], [*proofs, *(_risen(*each) for each in risen)]

    store = ctx.stores.get(STORE)
    standing, evidence = ([], []) if store.untouched else await store.run(look)
    ladder = f"The newest {NEWEST}. The ladder: {' → '.join(level.name for level in Level)}."
    return [
        PanelTable("Rounds", list(COLUMNS), standing, note=ladder, tool="consensus_propose"),
        PanelTable("Evidence", list(EVIDENCE), evidence, note=CHECKED, tool="consensus_finality"),
    ]


def _standing(each: Round) -> Row:
    return [
        str(each.id),
        PanelCell("FAULTED", "bad") if each.faulted else PanelCell(each.level.name, _tone(each.level)),
        len(each.votes),
        each.network.size,
        len(each.certificates),
        PanelCell("sealed", "good") if each.sealed else PanelCell("open"),
    ]


def _risen(round_id: int, recorded: str, data: bytes) -> Row:
    try:
        found = decode(data)
    except EvidenceFault as fault:
        return [str(round_id), PanelCell("cannot be read", "bad"), str(fault), None, recorded, sha256(data).hexdigest()]
    return [str(round_id), *_claim(found), recorded, sha256(data).hexdigest()]


def _claim(found: Evidence) -> Row:
    """What it proves, what was said, and by how many. It is shown as it stands in the store; checking it is for those who hold
    the arbiter set."""
    if isinstance(found, Rise):
        level, signed = Level(found.level), found.certificate
        return [PanelCell(level.name, "good"), _said(signed.statement), len(signed.signers)]
    if isinstance(found, Certificate):
        return [PanelCell(Level.QUORUM.name, "good"), _said(found.statement), len(found.signers)]
    if isinstance(found, Vote):
        return [PanelCell(Level.SOFT.name, "good"), _said(found.statement), 1]
    return [PanelCell("contradiction", "bad"), f"by {found.first.sender.hex()}", 1]


def _contradiction(round_id: int, proof: Equivocation) -> Row:
    return [str(round_id), *_claim(proof), None, sha256(proof.to_bytes()).hexdigest()]


def _said(statement: Statement) -> str:
    return f"{KIND_NAMES[statement.kind]} root {statement.root.hex()[:SHORT]}…"


def _tone(level: Level) -> Literal["good", "quiet"]:
    return "quiet" if level is Level.PENDING else "good"


PANELS: Final = (
    Panel(name="rounds", title="Rounds", summary="What arbiters have voted on, and how final it is.", make=rounds),
)
