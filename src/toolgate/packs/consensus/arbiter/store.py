"""Rounds on SQL. Everything here runs inside one transaction of the store; the domain decides, this file remembers.

Two processes on one store take turns: every writing transaction begins by updating the network's row.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolgate.kit.sql import sql
from toolgate.packs.consensus.domain.evidence import Level, decode_certificate
from toolgate.packs.consensus.domain.messages import Message, SealingCheckpoint, Vote, decode, decode_vote, message_hash
from toolgate.packs.consensus.domain.replica import Replica
from toolgate.packs.consensus.domain.rounds import Certified, Convicted, Dropped, Effect, KeptMessage, Rose, Round

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy.engine import Connection

    from toolgate.packs.consensus.domain.arbiters import Network
    from toolgate.packs.consensus.domain.evidence import Certificate

MAX_OPEN_ROUNDS: Final = 1024
"""Undecided rounds one arbiter may have opened here: its flood fills its own share and nobody else's."""
EXPIRES_AFTER: Final = 16
"""Epochs after which an undecided round no longer fills its opener's share. It can still be decided."""
_CHUNK: Final = 500
"""Values in one IN list, below every engine's limit."""


def pack(data: bytes) -> str:
    return b64encode(data).decode()


def unpack(text: str) -> bytes:
    return b64decode(text)


def lock_replica(connection: Connection, network: Network) -> Replica:
    """Take the network's lock for this transaction and return the replica as it stands."""
    values = {"id": network.id.hex()}
    row = connection.execute(
        sql(
            "UPDATE consensus_network SET used = (SELECT MAX(used) + 1 FROM consensus_network)"
            " WHERE id = :id RETURNING epoch, clock"
        ),
        values,
    ).first()
    if row is None:
        connection.execute(
            sql(
                "INSERT INTO consensus_network (id, public_keys, dispute_window, epoch, clock, seq, used)"
                " VALUES (:id, :keys, :window, 0, 0, 0, 0) ON CONFLICT (id) DO NOTHING"
            ),
            values | {"keys": " ".join(key.hex() for key in network.public_keys), "window": network.dispute_window},
        )
        return lock_replica(connection, network)
    return Replica(network, SqlRounds(connection, network), epoch=row.epoch, clock=row.clock)


def read_replica(connection: Connection, network: Network) -> Replica:
    """The replica for reading: no lock, and nothing can be kept."""
    row = connection.execute(
        sql("SELECT epoch, clock FROM consensus_network WHERE id = :id"), {"id": network.id.hex()}
    ).first()
    shelf = SqlRounds(connection, network)
    return Replica(network, shelf, epoch=row.epoch if row else 0, clock=row.clock if row else 0)


class SqlRounds:
    """A replica's rounds, loaded when they are asked for."""

    def __init__(self, connection: Connection, network: Network) -> None:
        self._connection = connection
        self._network = network
        self._id = network.id.hex()
        self.loaded: dict[int, Round] = {}
        self.stored: set[int] = set()
        """Of the loaded ones, those that have a row already."""

    def get(self, round_id: int) -> Round:
        if round_id not in self.loaded:
            self.load([round_id])
        return self.loaded[round_id]

    def at_level(self, level: Level) -> list[int]:
        rows = self._connection.execute(
            sql("SELECT id FROM consensus_round WHERE network = :network AND level = :level"),
            {"network": self._id, "level": int(level)},
        )
        ids = [row.id for row in rows]
        self.load([each for each in ids if each not in self.loaded])
        return sorted(number for number, each in self.loaded.items() if each.level == level)

    def has_more_at(self, level: Level, number: int) -> bool:
        """Are more than `number` rounds at this level? Looks at no more than it must."""
        found = self._connection.execute(
            sql("SELECT 1 FROM consensus_round WHERE network = :network AND level = :level LIMIT 1 OFFSET :number"),
            {"network": self._id, "level": int(level), "number": number},
        )
        return found.first() is not None

    def ripest(self, limit: int) -> list[int]:
        """The accepted rounds nearest to ABSOLUTE, as many as a checkpoint covers: the rest need not be loaded."""
        rows = self._connection.execute(
            sql(
                "SELECT id FROM consensus_round WHERE network = :network AND level IN (:hard, :quorum)"
                " AND outcome = 'ACCEPTED' ORDER BY level DESC, hard_epoch, id LIMIT :limit"
            ),
            {"network": self._id, "hard": int(Level.HARD), "quorum": int(Level.QUORUM), "limit": limit},
        )
        ids = [row.id for row in rows]
        self.load(ids)
        return ids

    def load(self, ids: Iterable[int]) -> None:
        """Rounds with all their messages, a few hundred in each query."""
        wanted = [each for each in dict.fromkeys(ids) if each not in self.loaded]
        for start in range(0, len(wanted), _CHUNK):
            self._load_chunk(wanted[start : start + _CHUNK])

    def _load_chunk(self, ids: Sequence[int]) -> None:
        messages: dict[int, list[Message]] = {each: [] for each in ids}
        for row in select_in(
            self._connection,
            "SELECT round, data FROM consensus_message WHERE network = :network AND round IN :values",
            self._id,
            ids,
        ):
            messages[row.round].append(decode(unpack(row.data)))
        certificates: dict[int, list[Certificate]] = {each: [] for each in ids}
        for row in select_in(
            self._connection,
            "SELECT round, data FROM consensus_certificate WHERE network = :network AND round IN :values",
            self._id,
            ids,
        ):
            certificates[row.round].append(decode_certificate(unpack(row.data)))
        for row in select_in(
            self._connection,
            "SELECT id, level, quorum_epoch, hard_epoch, sealed FROM consensus_round"
            " WHERE network = :network AND id IN :values",
            self._id,
            ids,
        ):
            self.stored.add(row.id)
            self.loaded[row.id] = Round(self._network, row.id).restore(
                messages[row.id],
                certificates[row.id],
                level=Level(row.level),
                quorum_epoch=row.quorum_epoch,
                hard_epoch=row.hard_epoch,
                sealed=bool(row.sealed),
            )
        for each in ids:
            self.loaded.setdefault(each, Round(self._network, each))

    def open_counts(self, epoch: int) -> dict[bytes, int]:
        """Undecided, unexpired rounds by the arbiter whose message opened them here."""
        rows = self._connection.execute(
            sql(
                "SELECT opener, COUNT(*) AS number FROM consensus_round"
                " WHERE network = :network AND outcome = 'OPEN' AND opened_epoch > :expired GROUP BY opener"
            ),
            {"network": self._id, "expired": epoch - EXPIRES_AFTER},
        )
        return {bytes.fromhex(row.opener): row.number for row in rows}


class Recorded(NamedTuple):
    new: list[bytes]
    """Messages that were not known, in order."""
    deferred: list[bytes]
    """Messages that would open more rounds than their sender may have open."""
    effects: list[tuple[int, Effect]]


def record(
    connection: Connection, replica: Replica, messages: Sequence[Message], *, source: str, recorded: str
) -> Recorded:
    """Take in checked messages and keep what follows from them, all in this transaction."""
    shelf = replica.shelf
    assert isinstance(shelf, SqlRounds)
    shelf.load(message.round for message in messages)
    counts: dict[bytes, int] | None = None
    effects: list[tuple[int, Effect]] = []
    new: list[bytes] = []
    deferred: list[bytes] = []
    openers: dict[int, bytes] = {}
    for message in messages:
        if message.round not in shelf.stored and message.round not in openers:
            counts = shelf.open_counts(replica.epoch) if counts is None else counts
            if counts.get(message.sender, 0) >= MAX_OPEN_ROUNDS:
                deferred.append(message_hash(message.to_bytes()))
                continue
            counts[message.sender] = counts.get(message.sender, 0) + 1
            openers[message.round] = message.sender
        follows = replica.see(message)
        if follows:
            new.append(message_hash(message.to_bytes()))
        effects += follows
    _write(connection, replica, effects, openers, source=source, recorded=recorded)
    return Recorded(new, deferred, effects)


def _write(
    connection: Connection,
    replica: Replica,
    effects: Sequence[tuple[int, Effect]],
    openers: dict[int, bytes],
    *,
    source: str,
    recorded: str,
) -> None:
    network = replica.network.id.hex()
    common = {"network": network, "recorded": recorded}
    rows: dict[type, list[dict[str, Any]]] = {kind: [] for kind in _INSERT}
    for round_id, effect in effects:
        row: dict[str, Any] = {**common, "round": round_id}
        match effect:
            case KeptMessage(message):
                data = message.to_bytes()
                row |= {"hash": message_hash(data).hex(), "sender": message.sender.hex(), "source": source}
                rows[KeptMessage].append(
                    row | {"checkpoint": int(isinstance(message, SealingCheckpoint)), "data": pack(data)}
                )
            case Dropped(message):
                # One that came and went in this very transaction has no row yet: its insertion must be gone too.
                gone = message_hash(message.to_bytes()).hex()
                rows[KeptMessage] = [each for each in rows[KeptMessage] if each["hash"] != gone]
                rows[Dropped].append({"network": network, "hash": gone})
            case Certified(certificate):
                row |= {"leaf": certificate.leaf().hex(), "data": pack(certificate.to_bytes())}
                rows[Certified].append(row)
            case Convicted(proof):
                rows[Convicted].append(row | {"sender": proof.first.sender.hex(), "data": pack(proof.to_bytes())})
            case Rose():
                row |= {"level": int(effect.after), "epoch": effect.epoch, "evidence": pack(effect.evidence.to_bytes())}
                rows[Rose].append(row)
    _number(connection, replica, rows[KeptMessage])
    for kind, statement in _INSERT.items():
        if rows[kind]:
            connection.execute(sql(statement), rows[kind])
    _write_rounds(connection, replica, {round_id for round_id, _ in effects}, openers)


_INSERT: Final[dict[type, str]] = {
    Dropped: "DELETE FROM consensus_message WHERE network = :network AND hash = :hash",
    KeptMessage: "INSERT INTO consensus_message (network, seq, hash, round, sender, checkpoint, source, recorded, data)"
    " VALUES (:network, :seq, :hash, :round, :sender, :checkpoint, :source, :recorded, :data)",
    Certified: "INSERT INTO consensus_certificate (network, round, leaf, data) VALUES (:network, :round, :leaf, :data)",
    Convicted: "INSERT INTO consensus_equivocation (network, round, sender, data)"
    " VALUES (:network, :round, :sender, :data)"
    " ON CONFLICT (network, round, sender) DO UPDATE SET data = excluded.data",
    Rose: "INSERT INTO consensus_rise (network, round, level, epoch, recorded, evidence)"
    " VALUES (:network, :round, :level, :epoch, :recorded, :evidence)",
}


def _number(connection: Connection, replica: Replica, rows: list[dict[str, Any]]) -> None:
    """Give new messages their places in the log, and keep epoch and clock."""
    last: int = connection.execute(
        sql(
            "UPDATE consensus_network SET seq = seq + :new, epoch = :epoch, clock = :clock WHERE id = :id RETURNING seq"
        ),
        {"new": len(rows), "epoch": replica.epoch, "clock": replica.clock, "id": replica.network.id.hex()},
    ).scalar_one()
    for place, row in enumerate(rows, start=last - len(rows) + 1):
        row["seq"] = place


def _write_rounds(connection: Connection, replica: Replica, touched: set[int], openers: dict[int, bytes]) -> None:
    shelf = replica.shelf
    assert isinstance(shelf, SqlRounds)
    rows = []
    for number in sorted(touched):
        round_ = shelf.get(number)
        rows.append(
            {
                "network": replica.network.id.hex(),
                "id": number,
                "level": int(round_.level),
                "outcome": round_.outcome,
                "opener": openers.get(number, b"").hex(),
                "opened_epoch": replica.epoch,
                "quorum_epoch": round_.quorum_epoch,
                "hard_epoch": round_.hard_epoch,
                "sealed": int(round_.sealed),
                "digest": round_.digest().hex(),
            }
        )
    if rows:
        connection.execute(
            sql(
                "INSERT INTO consensus_round"
                " (network, id, level, outcome, opener, opened_epoch, quorum_epoch, hard_epoch, sealed, digest)"
                " VALUES (:network, :id, :level, :outcome, :opener, :opened_epoch, :quorum_epoch, :hard_epoch,"
                " :sealed, :digest)"
                " ON CONFLICT (network, id) DO UPDATE SET level = excluded.level, outcome = excluded.outcome,"
                " quorum_epoch = excluded.quorum_epoch, hard_epoch = excluded.hard_epoch, sealed = excluded.sealed,"
                " digest = excluded.digest"
            ),
            rows,
        )
        shelf.stored |= touched


def select_in(connection: Connection, statement: str, network: str, values: Sequence[Any]) -> list[Any]:
    """Rows of `statement` for `:network` and a list of `:values`."""
    # The engine waits for its first use (see toolgate.kit.sql).
    from sqlalchemy import bindparam  # noqa: PLC0415

    prepared = sql(statement).bindparams(bindparam("values", expanding=True))
    found: list[Any] = []
    for start in range(0, len(values), _CHUNK):
        found += connection.execute(prepared, {"network": network, "values": list(values[start : start + _CHUNK])})
    return found


def newest_rounds(connection: Connection, network: Network, most: int) -> list[int]:
    """Their numbers, the newest first."""
    rows = connection.execute(
        sql("SELECT id FROM consensus_round WHERE network = :network ORDER BY id DESC LIMIT :most"),
        {"network": network.id.hex(), "most": most},
    )
    return [row.id for row in rows]


def newest_rises(
    connection: Connection, network: Network, rounds: Sequence[int], most: int
) -> list[tuple[int, str, bytes]]:
    """(round, when it was recorded here, evidence) of every rise of these rounds, the newest first."""
    rows = connection.execute(
        sql(
            "SELECT round, recorded, evidence FROM consensus_rise WHERE network = :network AND round >= :first"
            " AND round <= :last ORDER BY round DESC, level DESC LIMIT :most"
        ),
        {"network": network.id.hex(), "first": min(rounds), "last": max(rounds), "most": most},
    )
    return [(row.round, row.recorded, unpack(row.evidence)) for row in rows]


class RecordedVote(NamedTuple):
    vote: Vote
    recorded: str
    source: str
    """From whom it came to this store."""


def votes_of(connection: Connection, network: Network, rounds: Sequence[int]) -> dict[int, list[RecordedVote]]:
    """The votes that are kept of these rounds, as they came."""
    found: dict[int, list[RecordedVote]] = {each: [] for each in rounds}
    statement = (
        "SELECT round, recorded, source, data FROM consensus_message"
        " WHERE network = :network AND checkpoint = 0 AND round IN :values ORDER BY seq"
    )
    for row in select_in(connection, statement, network.id.hex(), rounds):
        found[row.round].append(RecordedVote(decode_vote(unpack(row.data)), row.recorded, row.source))
    return found


def find_store_id(connection: Connection) -> str | None:
    """Which store this is; None: it was never used."""
    found: str | None = connection.execute(sql("SELECT id FROM consensus_store WHERE one = 1")).scalar()
    return found


def store_id(connection: Connection, proposed: str) -> str:
    """Which store this is; `proposed` becomes its name when it has none yet."""
    connection.execute(
        sql("INSERT INTO consensus_store (one, id) VALUES (1, :id) ON CONFLICT (one) DO NOTHING"), {"id": proposed}
    )
    found = find_store_id(connection)
    assert found is not None
    return found
