"""Push and pull of signed messages between arbiters. Merging is union, so it does not matter what comes when, or twice.

Each store numbers its messages; a peer asks for everything after the number it has read. A late joiner starts at zero.
What comes in is checked from cheap to dear: size, form, network, member, known already, quota, and only then signatures.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, field

from toolgate.errors import ToolError
from toolgate.kit.sql import sql
from toolgate.packs.consensus.domain.messages import (
    MAX_MESSAGE_BYTES,
    Message,
    MessageFault,
    check,
    check_sender,
    decode,
    message_hash,
)
from toolgate.packs.consensus.store import enter, find_store_id, pack, record, select_in, unpack

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy.engine import Connection

    from toolgate.packs.consensus.domain.arbiters import Network
    from toolgate.packs.consensus.node import Node

MAX_EVENTS: Final = 256
"""Messages in one exchange and direction: some 20 ms of signature checks."""
MAX_EVENT_CHARACTERS: Final = 4 * ((MAX_MESSAGE_BYTES + 2) // 3)
MAX_ANSWER_CHARACTERS: Final = 512 * 1024
"""Of messages in one answer: half of what an answer may hold at all."""
QUOTA_BURST: Final = 4 * MAX_EVENTS
QUOTA_PER_S: Final = 2 * MAX_EVENTS
"""Signature checks one caller may cost us: a tenth of a core at most."""
MAX_CALLERS: Final = 1024
"""Callers remembered; the longest silent are forgotten first, with a full quota."""
DEFERRED: Final = "TOO_MANY_OPEN_ROUNDS"


class Request(NamedTuple):
    """What one arbiter asks of another."""

    peer_id: str
    events: Sequence[str] = ()
    after: int = 0
    store: str = ""

    def to_json(self) -> dict[str, Any]:
        asked: dict[str, Any] = {"peer_id": self.peer_id, "events": list(self.events), "after": self.after}
        return asked | ({"store": self.store} if self.store else {})


class Taken(NamedTuple):
    received: list[str]
    """Hashes of messages that were new here."""
    rejected: list[dict[str, Any]]
    """{index, code} of those that were not taken."""

    @property
    def deferred(self) -> bool:
        return any(each["code"] == DEFERRED for each in self.rejected)

    @property
    def lied(self) -> bool:
        """Only a broken or lying peer sends these: it checked them before it kept them."""
        return any(each["code"] in {"BAD_SIGNATURE", "INVALID_INPUT", "NOT_ARBITER"} for each in self.rejected)


class Page(NamedTuple):
    """A stretch of our log."""

    events: list[str]
    cursor: int
    """The number of the last message looked at."""
    more: bool


class Quotas(Struct):
    """How many signature checks each caller may still cost: a bucket that fills with time."""

    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)

    def left(self, caller: str, now: float) -> int:
        level, since = self._buckets.get(caller, (float(QUOTA_BURST), now))
        return int(min(QUOTA_BURST, level + (now - since) * QUOTA_PER_S))

    def spend(self, caller: str, now: float, amount: int) -> None:
        level = self.left(caller, now) - amount
        self._buckets.pop(caller, None)
        self._buckets[caller] = (float(max(level, 0)), now)
        while len(self._buckets) > MAX_CALLERS:
            del self._buckets[next(iter(self._buckets))]


async def answer(node: Node, request: Request, quotas: Quotas, caller: str) -> dict[str, Any]:
    """One exchange, seen from the one who is asked. Side effects: keeps what is new."""
    now = node.clock.monotonic()
    taken = await take_in(node, request.events, source=f"caller {caller}", allowance=quotas.left(caller, now))
    quotas.spend(caller, now, len(taken.received) + 10 * len(taken.rejected))
    told = {message_hash(unpack(event)) for event in request.events if _is_base64(event)}
    peers = {sender.hex() for sender in node.network.senders} - {node.signer.sender.hex()}

    def look(connection: Connection) -> tuple[str, Page]:
        ours = find_store_id(connection) or ""
        after = request.after if request.store == ours else 0
        # Only another arbiter is sent anything: with one arbiter there is no other, so the answer is empty.
        page = page_after(connection, node.network, after, leave_out=told)
        return ours, page if request.peer_id in peers else Page([], after, more=False)

    store, page = await node.run(look)
    return {
        "events_sent": page.events,
        "events_received": taken.received,
        "rejected": taken.rejected,
        "cursor": page.cursor,
        "more": page.more,
        "store": store,
    }


async def take_in(node: Node, events: Sequence[str], *, source: str, allowance: int) -> Taken:
    """Check messages of strangers, cheapest question first, and keep the new ones."""
    rejected: dict[int, str] = {}
    parsed: dict[int, Message] = {}
    for index, event in enumerate(events):
        try:
            parsed[index] = _parse(node.network, event)
        except MessageFault as fault:
            rejected[index] = fault.code
    hashes = {index: message_hash(message.to_bytes()) for index, message in parsed.items()}
    if not hashes:
        return _taken([], rejected)
    known = await node.run(lambda connection: _known(connection, node.network, list(hashes.values())))
    new = [index for index in parsed if hashes[index] not in known]
    rejected |= dict.fromkeys(new[allowance:], "QUOTA_EXCEEDED")
    new = new[:allowance]
    # libsodium lets other threads run meanwhile, so the event loop goes on serving.
    faults = await asyncio.to_thread(_signature_faults, node.network, [parsed[index] for index in new])
    rejected |= {index: code for index, code in zip(new, faults, strict=True) if code}
    good = [parsed[index] for index, code in zip(new, faults, strict=True) if not code]
    received: list[str] = []
    if good:
        kept = await node.run(
            lambda connection: record(
                connection, enter(connection, node.network), good, source=source, recorded=node.recorded()
            )
        )
        received = [each.hex() for each in kept.new]
        rejected |= {index: DEFERRED for index in new if hashes[index] in kept.deferred}
    return _taken(received, rejected)


def _taken(received: list[str], rejected: dict[int, str]) -> Taken:
    return Taken(received, [{"index": index, "code": rejected[index]} for index in sorted(rejected)])


def _parse(network: Network, event: str) -> Message:
    if len(event) > MAX_EVENT_CHARACTERS or not _is_base64(event):
        raise MessageFault("INVALID_INPUT", "an event is the base64 of one message")
    message = decode(unpack(event))
    check_sender(network, message)
    return message


def _is_base64(text: str) -> bool:
    try:
        # One spelling only: what decodes alike must be equal.
        return pack(b64decode(text, validate=True)) == text
    except (Base64Error, ValueError):
        return False


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
) -> Page:
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
                return Page(events, cursor, more=True)
            room -= len(row.data)
            events.append(row.data)
        cursor = row.seq
    return Page(events, cursor, more=len(rows) == MAX_EVENTS)


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


class Reply(NamedTuple):
    """What a peer answered, read as from a stranger."""

    events: list[str]
    rejected: list[str]
    cursor: int
    more: bool
    store: str


def read_reply(data: Any) -> Reply:
    """Raises: ToolError BAD_RESPONSE."""
    try:
        events, rejected = data["events_sent"], [each["code"] for each in data["rejected"]]
        reply = Reply(list(events), rejected, data["cursor"], data["more"], data["store"])
    except (TypeError, KeyError):
        raise ToolError("BAD_RESPONSE", "the peer did not answer like an arbiter") from None
    texts = [*reply.events, *reply.rejected, reply.store]
    plain = all(isinstance(text, str) for text in texts) and type(reply.cursor) is int and type(reply.more) is bool
    if not plain or len(reply.events) > MAX_EVENTS or len(reply.store) > 64 or not 0 <= reply.cursor < 2**53:
        raise ToolError("BAD_RESPONSE", "the peer did not answer like an arbiter")
    return reply
