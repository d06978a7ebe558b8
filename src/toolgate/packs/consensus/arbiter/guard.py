"""The signer guard: what a key of ours has said in a round is on disk before anybody hears it (ADR-0013).

One row per (network, key, round), written in the transaction that also keeps the vote. A repeated identical vote gets the
stored signature; another one is refused before anything is signed. The row belongs to the key, not to a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from toolgate.errors import ToolError
from toolgate.kit.sql import sql
from toolgate.packs.consensus.arbiter.store import pack, unpack
from toolgate.packs.consensus.domain.messages import KIND_NAMES, Statement, Vote, decode_vote
from toolgate.packs.consensus.domain.replica import merged_clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import Connection

    from toolgate.packs.consensus.domain.replica import Replica


class VoteSigner(NamedTuple):
    """A voting key: its name in messages, and a way to sign that never shows the key."""

    public_key: bytes
    sender: bytes
    sign: Callable[[bytes], bytes]


def signed_vote(
    connection: Connection, replica: Replica, signer: VoteSigner, round_id: int, statement: Statement, *, explicit: bool
) -> Vote:
    """This key's vote in this round: the stored one if it says the same, else a new one.

    `explicit`: a caller asked for this vote by name. The first such call adopts the vote that a proposal made; the next
    is told so. Raises: ToolError ALREADY_VOTED, EQUIVOCATION_REFUSED: nothing was signed.
    """
    place = {"network": replica.network.id.hex(), "sender": signer.sender.hex(), "round": round_id}
    row = connection.execute(
        sql(
            "SELECT explicit, data FROM consensus_signed"
            " WHERE network = :network AND sender = :sender AND round = :round"
        ),
        place,
    ).first()
    if row is not None:
        stored = decode_vote(unpack(row.data))
        _refuse_another(stored.statement, statement)
        if explicit and row.explicit:
            raise ToolError("ALREADY_VOTED", f"this arbiter has voted {KIND_NAMES[statement.kind]} in this round")
        if explicit:
            connection.execute(
                sql(
                    "UPDATE consensus_signed SET explicit = 1"
                    " WHERE network = :network AND sender = :sender AND round = :round"
                ),
                place,
            )
        return stored
    vote = _known(replica, signer, round_id, statement) or _new(replica, signer, round_id, statement)
    connection.execute(
        sql(
            "INSERT INTO consensus_signed (network, sender, round, root, rule, kind, explicit, data)"
            " VALUES (:network, :sender, :round, :root, :rule, :kind, :explicit, :data)"
        ),
        place
        | {
            "root": statement.root.hex(),
            "rule": statement.rule.hex(),
            "kind": statement.kind,
            "explicit": int(explicit),
            "data": pack(vote.to_bytes()),
        },
    )
    return vote


def _refuse_another(said: Statement, asked: Statement) -> None:
    if (said.root, said.rule) != (asked.root, asked.rule):
        raise ToolError(
            "EQUIVOCATION_REFUSED", "this arbiter has voted for another tuple in this round; open a new round instead"
        )
    if said.kind != asked.kind:
        raise ToolError("ALREADY_VOTED", f"this arbiter has voted {KIND_NAMES[said.kind]} on this tuple")


def _known(replica: Replica, signer: VoteSigner, round_id: int, statement: Statement) -> Vote | None:
    """A vote of this key that came back from a peer: the guard may be younger than the key (an adopted store)."""
    mine = replica.shelf.get(round_id).votes.get(signer.sender, {})
    for said in sorted(mine):
        _refuse_another(said, statement)
    return mine.get(statement)


def _new(replica: Replica, signer: VoteSigner, round_id: int, statement: Statement) -> Vote:
    replica.clock = merged_clock(replica.clock, replica.clock)
    vote = Vote(replica.network.id, round_id, statement, signer.sender, replica.clock)
    return vote._replace(signature=signer.sign(vote.signed_bytes()))
