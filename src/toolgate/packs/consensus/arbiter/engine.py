"""What an arbiter does, each as one transaction: open a round, vote, take in messages, seal, read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from toolgate.errors import ToolError
from toolgate.kit.sql import sql
from toolgate.packs.consensus.arbiter.guard import signed_vote
from toolgate.packs.consensus.arbiter.store import (
    MAX_OPEN_ROUNDS,
    SqlRounds,
    lock_replica,
    read_replica,
    record,
    unpack,
)
from toolgate.packs.consensus.domain.arbiters import MAX_ROUND
from toolgate.packs.consensus.domain.evidence import Level
from toolgate.packs.consensus.domain.messages import ACCEPT, MAX_LEAVES, SealingCheckpoint, Statement, Vote, decode
from toolgate.packs.consensus.domain.replica import checkpoint_for, may_accept, state_hash
from toolgate.packs.consensus.domain.rounds import OUTCOMES

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from toolgate.packs.consensus.arbiter.guard import VoteSigner
    from toolgate.packs.consensus.domain.arbiters import Network
    from toolgate.packs.consensus.domain.messages import Message
    from toolgate.packs.consensus.domain.replica import Replica
    from toolgate.packs.consensus.domain.rounds import Round

MAX_UNSEALED: Final = 8192
"""Rounds at QUORUM before we open another: the next checkpoint raises them all in one transaction, some 100 us each. With
ten times as many it would not end before the store's own time limit, and no later one would either."""
OWN: str = "self"
"""Where our own messages come from: a peer is never told what it told us."""


class RoundStanding(NamedTuple):
    """A round as it stands after what was done."""

    round: Round
    epoch: int
    vote: Vote | None = None


def propose(
    connection: Connection, network: Network, signer: VoteSigner, said: Statement, recorded: str
) -> RoundStanding:
    """Open a round with our own signed ACCEPT (ADR-0013). Raises: ToolError NOT_ARBITER, TOO_MANY_OPEN_ROUNDS."""
    _require_member(network, signer)
    replica = lock_replica(connection, network)
    if _shelf(replica).has_more_at(Level.QUORUM, MAX_UNSEALED - 1):
        raise ToolError(
            "TOO_MANY_OPEN_ROUNDS",
            f"{MAX_UNSEALED} rounds wait for a checkpoint; run `toolgate consensus seal`, or set seal_every_s",
        )
    return _open(connection, replica, signer, _next_round(connection, network, signer), said, recorded)


def _open(
    connection: Connection,
    replica: Replica,
    signer: VoteSigner,
    round_id: int,
    said: Statement,
    recorded: str,
    *more: Message,
) -> RoundStanding:
    shelf = _shelf(replica)
    if shelf.open_counts(replica.epoch).get(signer.sender, 0) >= MAX_OPEN_ROUNDS:
        raise ToolError(
            "TOO_MANY_OPEN_ROUNDS",
            f"{MAX_OPEN_ROUNDS} rounds of this arbiter wait for votes; let some be decided, or seal",
        )
    vote = signed_vote(connection, replica, signer, round_id, said, explicit=False)
    record(connection, replica, [*more, vote], source=OWN, recorded=recorded)
    return RoundStanding(shelf.get(round_id), replica.epoch, vote)


def _shelf(replica: Replica) -> SqlRounds:
    assert isinstance(replica.shelf, SqlRounds)
    return replica.shelf


def _next_round(connection: Connection, network: Network, signer: VoteSigner) -> int:
    """By our own messages alone: a stranger's vote for a far-away round must not use up our numbers."""
    highest = connection.execute(
        sql(
            # Not MAX: with the condition on the remainder it would look at every message this key ever signed.
            "SELECT round FROM consensus_message WHERE network = :network AND sender = :sender"
            " AND (round - 1) % :size = :index ORDER BY round DESC LIMIT 1"
        ),
        {
            "network": network.id.hex(),
            "sender": signer.sender.hex(),
            "size": network.size,
            "index": network.index_of(signer.sender),
        },
    ).scalar()
    number = network.next_round_of(signer.sender, highest or 0)
    if number > MAX_ROUND:
        raise ToolError("TOO_MANY_OPEN_ROUNDS", "this arbiter has used up its round numbers")
    return number


def cast(
    connection: Connection, network: Network, signer: VoteSigner, round_id: int, said: Statement, recorded: str
) -> RoundStanding:
    """Vote by name. Raises: ToolError ROUND_NOT_FOUND, NOT_ARBITER, ALREADY_VOTED, EQUIVOCATION_REFUSED, STALE_EPOCH."""
    _require_member(network, signer)
    replica = lock_replica(connection, network)
    round_ = _existing(replica, round_id)
    checkpoint = round_.checkpoints.get(said.rule)
    if checkpoint is not None and said.kind == ACCEPT and not round_.sealed:
        _require_acceptable(replica, checkpoint)
    vote = signed_vote(connection, replica, signer, round_id, said, explicit=True)
    record(connection, replica, [vote], source=OWN, recorded=recorded)
    return RoundStanding(round_, replica.epoch, vote)


def _require_acceptable(replica: Replica, checkpoint: SealingCheckpoint) -> None:
    fault = may_accept(checkpoint, replica.epoch, replica.shelf)
    if fault == "STALE_EPOCH":
        raise ToolError(
            "STALE_EPOCH", f"the checkpoint seals epoch {checkpoint.epoch}; this arbiter is in {replica.epoch}"
        )
    if fault:
        raise ToolError("ROUND_NOT_FOUND", "the checkpoint covers a round that is not certified here yet", missing=True)


def read_round(connection: Connection, network: Network, round_id: int) -> RoundStanding:
    """Raises: ToolError ROUND_NOT_FOUND."""
    replica = read_replica(connection, network)
    return RoundStanding(_existing(replica, round_id), replica.epoch)


def last_evidence(connection: Connection, network: Network, round_id: int) -> bytes | None:
    """The evidence of the round's last rise."""
    text = connection.execute(
        sql(
            "SELECT evidence FROM consensus_rise WHERE network = :network AND round = :round"
            " ORDER BY level DESC LIMIT 1"
        ),
        {"network": network.id.hex(), "round": round_id},
    ).scalar()
    return unpack(text) if text else None


def _existing(replica: Replica, round_id: int) -> Round:
    round_ = replica.shelf.get(round_id)
    if not round_.votes and not round_.checkpoints:
        raise ToolError("ROUND_NOT_FOUND", f"no vote of round {round_id} is known here", missing=True)
    return round_


def _require_member(network: Network, signer: VoteSigner) -> None:
    if signer.sender not in network.keys:
        raise ToolError("NOT_ARBITER", "this server's voting key is not in the arbiter set: it can only look on")


def seal(connection: Connection, network: Network, signer: VoteSigner, recorded: str) -> RoundStanding:
    """Propose a checkpoint over the certificates nearest to ABSOLUTE; it takes effect at its round's QUORUM.

    Raises: ToolError NOT_ARBITER, TOO_MANY_OPEN_ROUNDS, NOTHING_TO_SEAL.
    """
    _require_member(network, signer)
    replica = lock_replica(connection, network)
    covered = [replica.shelf.get(each) for each in _shelf(replica).ripest(MAX_LEAVES)]
    round_id = _next_round(connection, network, signer)
    made = checkpoint_for(network, signer.sender, round_id, replica.epoch, covered)
    if not made.leaves:
        raise ToolError("NOTHING_TO_SEAL", "no round has reached QUORUM since the last checkpoint")
    made = made._replace(signature=signer.sign(made.signed_bytes()))
    return _open(connection, replica, signer, round_id, made.statement(), recorded, made)


def accept_checkpoints(connection: Connection, network: Network, signer: VoteSigner, recorded: str) -> list[int]:
    """Vote for every open checkpoint whose certificates we all hold; the rounds voted in.

    An arbiter vouches for what it can check itself, so nobody needs to be asked.
    """
    if signer.sender not in network.keys or not _open_checkpoints(
        connection, read_replica(connection, network), signer
    ):
        return []
    replica = lock_replica(connection, network)
    voted: list[int] = []
    for opened in _open_checkpoints(connection, replica, signer):
        for checkpoint in sorted(opened.checkpoints.values()):
            said = checkpoint.statement()
            if opened.count(said) and may_accept(checkpoint, replica.epoch, replica.shelf) is None:
                vote = signed_vote(connection, replica, signer, opened.id, said, explicit=False)
                record(connection, replica, [vote], source=OWN, recorded=recorded)
                voted.append(opened.id)
                break
    return voted


def _open_checkpoints(connection: Connection, replica: Replica, signer: VoteSigner) -> list[Round]:
    """Of each arbiter, its last undecided round with a checkpoint, if this key has not said anything in it.

    Whoever proposes again has given up its earlier ones; a liar's thousand open checkpoints must not be read every turn.
    """
    rows = connection.execute(
        sql(
            "SELECT MAX(c.round) AS round FROM consensus_message AS c JOIN consensus_round AS r"
            " ON r.network = c.network AND r.id = c.round"
            " WHERE c.network = :network AND c.checkpoint = 1 AND r.outcome = 'OPEN'"
            " AND NOT EXISTS (SELECT 1 FROM consensus_signed AS s"
            " WHERE s.network = c.network AND s.sender = :sender AND s.round = c.round)"
            " AND NOT EXISTS (SELECT 1 FROM consensus_message AS m WHERE m.network = c.network"
            " AND m.sender = :sender AND m.round = c.round) GROUP BY c.sender ORDER BY MAX(c.round)"
        ),
        {"network": replica.network.id.hex(), "sender": signer.sender.hex()},
    )
    return [replica.shelf.get(row.round) for row in rows.all()]


class ArbiterStatus(NamedTuple):
    epoch: int
    clock: int
    messages: int
    levels: dict[str, int]
    outcomes: dict[str, int]
    equivocators: list[str]
    state: bytes
    peers: dict[str, str]
    """Arbiters we exchange messages with, each with the code of the last failure or nothing."""


def status(connection: Connection, network: Network) -> ArbiterStatus:
    place = {"network": network.id.hex()}
    replica = read_replica(connection, network)
    rows = connection.execute(
        sql("SELECT id, level, outcome, digest FROM consensus_round WHERE network = :network"), place
    ).all()
    guilty = connection.execute(
        sql("SELECT DISTINCT sender FROM consensus_equivocation WHERE network = :network ORDER BY sender"), place
    )
    messages = connection.execute(sql("SELECT COUNT(*) FROM consensus_message WHERE network = :network"), place)
    peers = connection.execute(
        sql("SELECT peer, fault FROM consensus_peer WHERE network = :network ORDER BY peer"), place
    )
    return ArbiterStatus(
        replica.epoch,
        replica.clock,
        messages.scalar_one(),
        {level.name: sum(row.level == level for row in rows) for level in Level},
        {name: sum(row.outcome == name for row in rows) for name in OUTCOMES},
        [row.sender for row in guilty],
        state_hash(network, [(row.id, bytes.fromhex(row.digest)) for row in rows]),
        {row.peer: row.fault for row in peers},
    )


class LoggedMessage(NamedTuple):
    """One message of the log, for people."""

    seq: int
    recorded: str
    source: str
    message: Message


class LevelRise(NamedTuple):
    level: Level
    epoch: int
    recorded: str
    evidence: bytes


def history(connection: Connection, network: Network, round_id: int) -> tuple[list[LoggedMessage], list[LevelRise]]:
    """Who said what and when it rose, in the order this store learnt it."""
    place = {"network": network.id.hex(), "round": round_id}
    entries = connection.execute(
        sql(
            "SELECT seq, recorded, source, data FROM consensus_message"
            " WHERE network = :network AND round = :round ORDER BY seq"
        ),
        place,
    )
    rises = connection.execute(
        sql(
            "SELECT level, epoch, recorded, evidence FROM consensus_rise"
            " WHERE network = :network AND round = :round ORDER BY level"
        ),
        place,
    )
    return (
        [LoggedMessage(row.seq, row.recorded, row.source, decode(unpack(row.data))) for row in entries],
        [LevelRise(Level(row.level), row.epoch, row.recorded, unpack(row.evidence)) for row in rises],
    )
