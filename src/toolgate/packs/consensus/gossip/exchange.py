"""Push and pull of signed messages between arbiters. Merging is set union, so order and repetition do not matter.

Each store numbers its messages; a peer asks for everything after the number it has read. A late joiner starts at zero.
What comes in is checked from cheap to dear: size, form, network, member, known already, quota, and only then signatures.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, field

from toolgate.errors import ToolError
from toolgate.kit.sql import sql
from toolgate.model.threads import in_thread
from toolgate.packs.consensus.arbiter.store import find_store_id, lock_replica, pack, record, select_in
from toolgate.packs.consensus.domain.messages import (
    MAX_MESSAGE_BYTES,
    Message,
    MessageFault,
    check,
    check_sender,
    decode,
    message_hash,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy.engine import Connection

    from toolgate.packs.consensus.arbiter.node import Node
    from toolgate.packs.consensus.domain.arbiters import Network

MAX_EVENTS: Final = 256
"""Messages in one exchange and direction: some 20 ms of signature checks."""
MAX_EVENT_CHARACTERS: Final = 4 * ((MAX_MESSAGE_BYTES + 2) // 3)
MAX_ANSWER_CHARACTERS: Final = 512 * 1024
"""Of messages in one answer: half of what an answer may hold at all."""
QUOTA_BURST: Final = 4 * MAX_EVENTS
QUOTA_PER_S: Final = 2 * MAX_EVENTS
"""Signature checks one caller may cost us: a tenth of a core at most."""
QUOTA_TOTAL: Final = 4
"""And all callers together, so many times as much: a bad caller leaves room for three good ones."""
MAX_CALLERS: Final = 1024
"""Callers remembered; the longest silent are forgotten first, with a full quota."""
DEFERRED: Final = "TOO_MANY_OPEN_ROUNDS"
UNKNOWN_PEER: Final = (
    "peer_id names no other arbiter of this network, so nothing was sent to it; an arbiter's id is the sender_id that"
    " `toolgate consensus status --json` lists, not its public key"
)


class GossipRequest(NamedTuple):
    """What one arbiter asks of another."""

    peer_id: str
    events: Sequence[str] = ()
    after: int = 0
    store: str = ""

    def to_json(self) -> dict[str, Any]:
        asked: dict[str, Any] = {"peer_id": self.peer_id, "events": list(self.events), "after": self.after}
        return asked | ({"store": self.store} if self.store else {})


class Merged(NamedTuple):
    received: list[str]
    """Hashes of messages that were new here."""
    rejected: list[dict[str, Any]]
    """{index, code} of those that were not taken."""
    told: Collection[bytes] = ()
    """Hashes of all that were messages, known or new: whoever told us need not be told."""
    checked: int = 0
    """How many signatures were checked."""

    @property
    def deferred(self) -> bool:
        return any(each["code"] == DEFERRED for each in self.rejected)

    @property
    def lied(self) -> bool:
        """Only a broken or lying peer sends these: it checked them before it kept them."""
        return any(each["code"] in {"BAD_SIGNATURE", "INVALID_INPUT", "NOT_ARBITER"} for each in self.rejected)


class LogPage(NamedTuple):
    """A stretch of our log."""

    events: list[str]
    cursor: int
    """The number of the last message looked at."""
    more: bool


class Quotas(Struct):
    """How many signature checks each caller, and all together, may still cost: buckets that fill with time."""

    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)
    _all: tuple[float, float] | None = None

    def left(self, caller: str, now: float) -> int:
        return int(min(_level(self._buckets.get(caller), now, 1), _level(self._all, now, QUOTA_TOTAL)))

    def take(self, caller: str, now: float, wanted: int) -> int:
        """So many, at most `wanted`. Beforehand: calls that run side by side must not all be given the same quota."""
        taken = min(self.left(caller, now), wanted)
        self._change(caller, now, taken, taken)
        return taken

    def settle(self, caller: str, now: float, taken: int, *, cost: int, checked: int) -> None:
        """What was not needed comes back. `cost` is the caller's own: nobody else pays for its bad messages."""
        self._change(caller, now, cost - taken, checked - taken)

    def _change(self, caller: str, now: float, own: int, together: int) -> None:
        self._buckets[caller] = (max(_level(self._buckets.pop(caller, None), now, 1) - own, 0.0), now)
        self._all = (max(_level(self._all, now, QUOTA_TOTAL) - together, 0.0), now)
        while len(self._buckets) > MAX_CALLERS:
            del self._buckets[next(iter(self._buckets))]


def _level(bucket: tuple[float, float] | None, now: float, times: int) -> float:
    if bucket is None:
        return float(times * QUOTA_BURST)
    level, since = bucket
    return max(0.0, min(times * QUOTA_BURST, level + (now - since) * times * QUOTA_PER_S))


async def answer(node: Node, request: GossipRequest, quotas: Quotas, caller: str) -> dict[str, Any]:
    """One exchange, seen from the one who is asked. Side effects: keeps what is new."""
    allowance = quotas.take(caller, node.clock.monotonic(), len(request.events))
    taken = await take_in(node, request.events, source=f"caller {caller}", allowance=allowance)
    cost = len(taken.received) + 10 * len(taken.rejected)
    quotas.settle(caller, node.clock.monotonic(), allowance, cost=cost, checked=taken.checked)
    peers = {sender.hex() for sender in node.network.senders} - {node.signer.sender.hex()}

    def read(connection: Connection) -> tuple[str, LogPage]:
        ours = find_store_id(connection) or ""
        after = request.after if request.store == ours else 0
        # Only another arbiter is sent anything: with one arbiter there is no other, so the answer is empty.
        page = page_after(connection, node.network, after, leave_out=taken.told)
        return ours, page if request.peer_id in peers else LogPage([], after, more=False)

    store, page = await node.run(read)
    known = request.peer_id in peers
    return {
        "events_sent": page.events,
        "events_received": taken.received,
        "rejected": taken.rejected,
        "cursor": page.cursor,
        "more": page.more,
        "store": store,
        "peer_known": known,
    } | ({} if known else {"note": UNKNOWN_PEER})


async def take_in(node: Node, events: Sequence[str], *, source: str, allowance: int) -> Merged:
    """Check messages of strangers, cheapest question first, and keep the new ones."""
    if not events or not allowance:
        return _taken([], dict.fromkeys(range(len(events)), "QUOTA_EXCEEDED"))
    # In threads, so that the event loop goes on serving: a thousand kilobytes of checkpoints are some 10 ms.
    read, rejected = await in_thread(_read, node.network, events)
    if not read:
        return _taken([], rejected)
    hashes = {index: hashed for index, (_, hashed) in read.items()}
    known = await node.run(lambda connection: _known(connection, node.network, list(hashes.values())))
    new = [index for index in read if hashes[index] not in known]
    rejected |= dict.fromkeys(new[allowance:], "QUOTA_EXCEEDED")
    new = new[:allowance]
    faults = await in_thread(_signature_faults, node.network, [read[index][0] for index in new])
    rejected |= {index: code for index, code in zip(new, faults, strict=True) if code}
    good = [read[index][0] for index, code in zip(new, faults, strict=True) if not code]
    received: list[str] = []
    if good:
        kept = await node.run(
            lambda connection: record(
                connection, lock_replica(connection, node.network), good, source=source, recorded=node.recorded()
            )
        )
        received = [each.hex() for each in kept.new]
        rejected |= {index: DEFERRED for index in new if hashes[index] in kept.deferred}
    return _taken(received, rejected, set(hashes.values()), len(new))


def _taken(received: list[str], rejected: dict[int, str], told: Collection[bytes] = (), checked: int = 0) -> Merged:
    ordered = [{"index": index, "code": rejected[index]} for index in sorted(rejected)]
    return Merged(received, ordered, told, checked)


def _read(network: Network, events: Sequence[str]) -> tuple[dict[int, tuple[Message, bytes]], dict[int, str]]:
    """Messages of members with their hashes, and the codes of the rest, by index."""
    read: dict[int, tuple[Message, bytes]] = {}
    rejected: dict[int, str] = {}
    for index, event in enumerate(events):
        try:
            data = _unpack_strictly(event)
            message = decode(data)
            check_sender(network, message)
        except MessageFault as fault:
            rejected[index] = fault.code
        else:
            read[index] = (message, message_hash(data))
    return read, rejected


def _unpack_strictly(event: str) -> bytes:
    """Raises: MessageFault: not base64, or another spelling of it; what decodes alike must be equal."""
    if len(event) <= MAX_EVENT_CHARACTERS:
        with suppress(Base64Error, ValueError):
            data = b64decode(event, validate=True)
            if pack(data) == event:
                return data
    raise MessageFault("INVALID_INPUT", "an event is the base64 of one message")


def _signature_faults(network: Network, messages: Sequence[Message]) -> list[str | None]:
    faults: list[str | None] = []
    for message in messages:
        try:
            check(network, message)
        except MessageFault as fault:
            faults.append(fault.code)
        else:
            faults.append(None)
    return faults


def _known(connection: Connection, network: Network, hashes: Sequence[bytes]) -> set[bytes]:
    rows = select_in(
        connection,
        "SELECT hash FROM consensus_message WHERE network = :network AND hash IN :values",
        network.id.hex(),
        [each.hex() for each in hashes],
    )
    return {bytes.fromhex(row.hash) for row in rows}


def page_after(
    connection: Connection, network: Network, after: int, *, leave_out: Collection[bytes] = (), source: str = ""
) -> LogPage:
    """Our messages after a number, without those named and those that `source` told us."""
    rows = connection.execute(
        sql(
            "SELECT seq, hash, source, data FROM consensus_message"
            " WHERE network = :network AND seq > :after ORDER BY seq LIMIT :limit"
        ),
        {"network": network.id.hex(), "after": after, "limit": MAX_EVENTS},
    ).all()
    events: list[str] = []
    cursor, room = after, MAX_ANSWER_CHARACTERS
    for row in rows:
        if bytes.fromhex(row.hash) not in leave_out and row.source != (source or None):
            if len(row.data) > room:
                return LogPage(events, cursor, more=True)
            room -= len(row.data)
            events.append(row.data)
        cursor = row.seq
    return LogPage(events, cursor, more=len(rows) == MAX_EVENTS)


class PeerState(NamedTuple):
    """How far we and a peer have told each other what we know."""

    store: str = ""
    pulled: int = 0
    pushed: int = 0
    deferred: bool = False
    fault: str = ""
    """Code of the last failure; empty when the last exchange went well."""


def peer_state(connection: Connection, network: Network, peer: str) -> PeerState:
    row = connection.execute(
        sql(
            "SELECT store, pulled, pushed, deferred, fault FROM consensus_peer WHERE network = :network AND peer = :peer"
        ),
        {"network": network.id.hex(), "peer": peer},
    ).first()
    return PeerState(row.store, row.pulled, row.pushed, bool(row.deferred), row.fault) if row else PeerState()


def keep_peer_state(connection: Connection, network: Network, peer: str, state: PeerState) -> None:
    connection.execute(
        sql(
            "INSERT INTO consensus_peer (network, peer, store, pulled, pushed, deferred, fault)"
            " VALUES (:network, :peer, :store, :pulled, :pushed, :deferred, :fault)"
            " ON CONFLICT (network, peer) DO UPDATE SET store = excluded.store, pulled = excluded.pulled,"
            " pushed = excluded.pushed, deferred = excluded.deferred, fault = excluded.fault"
        ),
        {"network": network.id.hex(), "peer": peer, **state._asdict(), "deferred": int(state.deferred)},
    )


class GossipReply(NamedTuple):
    """What a peer answered, read as from a stranger."""

    events: list[str]
    rejected: list[str]
    cursor: int
    more: bool
    store: str


def read_reply(data: Any) -> GossipReply:
    """Raises: ToolError BAD_RESPONSE."""
    try:
        events, rejected = data["events_sent"], [each["code"] for each in data["rejected"]]
        reply = GossipReply(list(events), rejected, data["cursor"], data["more"], data["store"])
    except (TypeError, KeyError):
        raise ToolError("BAD_RESPONSE", "the peer did not answer like an arbiter") from None
    texts = [*reply.events, *reply.rejected, reply.store]
    plain = all(isinstance(text, str) for text in texts) and type(reply.cursor) is int and type(reply.more) is bool
    if not plain or len(reply.events) > MAX_EVENTS or len(reply.store) > 64 or not 0 <= reply.cursor < 2**53:
        raise ToolError("BAD_RESPONSE", "the peer did not answer like an arbiter")
    return reply
