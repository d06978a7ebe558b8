"""What the console shows of the pack: the newest rounds, how final each is, how many votes stand behind it,
and the evidence of it."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal

from toolgate.model.tool import Panel, PanelCell, PanelTable
from toolgate.packs.consensus.arbiter.node import network_for_reading
from toolgate.packs.consensus.arbiter.store import newest_rises, newest_rounds, read_replica, votes_of
from toolgate.packs.consensus.domain.evidence import Equivocation, EvidenceFault, Level, Rise, decode
from toolgate.packs.consensus.domain.messages import KIND_NAMES, Vote
from toolgate.packs.consensus.tables import STORE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine import Connection

    from toolgate.model.tool import PanelContext, PanelValue
    from toolgate.packs.consensus.arbiter.store import RecordedVote
    from toolgate.packs.consensus.domain.arbiters import Network
    from toolgate.packs.consensus.domain.evidence import Certificate, Evidence
    from toolgate.packs.consensus.domain.messages import Statement
    from toolgate.packs.consensus.domain.rounds import Round

NEWEST: Final = 50
MOST_EVIDENCE: Final = NEWEST * (len(Level) - 1)
"""All of these rounds: one for each level above the first."""
SHORT: Final = 16
"""Digits of a root, or a signature: the evidence has all of them."""
EVIDENCE: Final = ("Round", "Proves", "Statement", "Votes", "Recorded", "SHA-256")
RECORDED: Final = ("Arbiter", "Says", "Recorded", "Came from")
VOTES: Final = ("Arbiter", "Says", "Logical time", "Signature")
CHECKED: Final = (
    "What others can check with nothing but the arbiter set: toolgate consensus show ROUND --save FILE, then"
    " toolgate consensus verify FILE."
)
COLUMNS: Final = ("Round", "Level", "Votes", "Arbiters", "Certificates", "Sealed")

Row = list["PanelValue"]


async def rounds(ctx: PanelContext) -> Sequence[PanelTable]:
    def look(connection: Connection) -> tuple[list[Row], list[Row]]:
        network = network_for_reading(connection, ctx.settings)
        ids = [] if network is None else newest_rounds(connection, network, NEWEST)
        if network is None or not ids:
            return [], []
        shelf = read_replica(connection, network).shelf
        shelf.load(ids)
        found = [shelf.get(number) for number in ids]
        votes, arbiters = votes_of(connection, network, ids), _arbiters(network)
        proofs = [_contradiction(each.id, proof) for each in found for proof in each.equivocations()]
        risen = newest_rises(connection, network, ids, MOST_EVIDENCE)
        standing = [_standing(each, votes[each.id], arbiters) for each in found]
        return standing, [*proofs, *(_risen(*each) for each in risen)]

    store = ctx.stores.get(STORE)
    standing, evidence = ([], []) if store.untouched else await store.run(look)
    ladder = f"The newest {NEWEST}. The ladder: {' → '.join(level.name for level in Level)}."
    return [
        PanelTable("Rounds", COLUMNS, standing, note=ladder, tool="consensus_propose"),
        PanelTable("Evidence", EVIDENCE, evidence, note=CHECKED, tool="consensus_finality"),
    ]


def _standing(each: Round, votes: Sequence[RecordedVote], arbiters: PanelTable) -> Row:
    return [
        str(each.id),
        PanelCell("FAULTED", "bad") if each.faulted else PanelCell(each.level.name, _tone(each.level)),
        _recorded(each.id, votes),
        arbiters,
        _certificates(each),
        PanelCell("sealed", "good") if each.sealed else PanelCell("open"),
    ]


def _recorded(round_id: int, votes: Sequence[RecordedVote]) -> PanelTable:
    rows = [[each.vote.sender.hex(), _said(each.vote.statement), each.recorded, each.source] for each in votes]
    return PanelTable(f"Votes of round {round_id}", RECORDED, rows)


def _arbiters(network: Network) -> PanelTable:
    rows = [[sender.hex(), key.hex()] for sender, key in zip(network.senders, network.public_keys, strict=True)]
    return PanelTable("Arbiters", ("Arbiter", "Public key"), rows)


def _certificates(each: Round) -> PanelTable:
    rows = [_certified(found) for found in each.certificates.values()]
    return PanelTable(f"Certificates of round {each.id}", ("Statement", "Votes", "SHA-256"), rows)


def _certified(found: Certificate) -> Row:
    said, digest = _said(found.statement), sha256(found.to_bytes()).hexdigest()
    return [said, _votes(f"Votes of the certificate {digest[:SHORT]}… of round {found.round}", found.votes()), digest]


def _risen(round_id: int, recorded: str, data: bytes) -> Row:
    try:
        found = decode(data)
    except EvidenceFault as fault:
        return [str(round_id), PanelCell("cannot be read", "bad"), str(fault), None, recorded, sha256(data).hexdigest()]
    return [str(round_id), *_claim(round_id, found), recorded, sha256(data).hexdigest()]


def _claim(round_id: int, found: Evidence) -> Row:
    """What it proves, what was said, and the votes that say so. It is shown as it stands in the store; checking it is for those
    who hold the arbiter set."""
    if isinstance(found, Equivocation):
        by = f"by {found.first.sender.hex()}"
        votes = _votes(f"Contradiction in round {round_id} {by}", [found.first, found.second])
        return [PanelCell("contradiction", "bad"), by, votes]
    level, signed = _proved(found)
    title = f"Votes that prove {level.name} of round {round_id}"
    votes = _votes(title, [signed] if isinstance(signed, Vote) else signed.votes())
    return [PanelCell(level.name, "good"), _said(signed.statement), votes]


def _proved(found: Vote | Certificate | Rise) -> tuple[Level, Vote | Certificate]:
    if isinstance(found, Rise):
        return Level(found.level), found.certificate
    return (Level.SOFT if isinstance(found, Vote) else Level.QUORUM), found


def _votes(title: str, votes: Sequence[Vote]) -> PanelTable:
    rows = [
        [each.sender.hex(), _said(each.statement), str(each.logical), f"{each.signature.hex()[:SHORT]}…"]
        for each in votes
    ]
    return PanelTable(title, VOTES, rows)


def _contradiction(round_id: int, proof: Equivocation) -> Row:
    return [str(round_id), *_claim(round_id, proof), None, sha256(proof.to_bytes()).hexdigest()]


def _said(statement: Statement) -> str:
    return f"{KIND_NAMES[statement.kind]} root {statement.root.hex()[:SHORT]}…"


def _tone(level: Level) -> Literal["good", "quiet"]:
    return "quiet" if level is Level.PENDING else "good"


PANELS: Final = (
    Panel(name="rounds", title="Rounds", summary="What arbiters have voted on, and how final it is.", make=rounds),
)
