"""What a stranger on the broker, a hostile caller and a hostile peer can cost: counted in signature checks and exchanges."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest

from tests.homes import PATIENCE_S
from tests.packs.consensus.gossip.test_gossip import sender, signed, status
from tests.packs.consensus.nodes import Office, council, event
from tests.packs.consensus.test_servers import broker, service_context
from tests.waiting import soon
from toolgate.model import strictjson
from toolgate.model.clock import SystemClock
from toolgate.packs.consensus.arbiter import engine, store
from toolgate.packs.consensus.arbiter.network import Peer, peers_of
from toolgate.packs.consensus.arbiter.node import Node
from toolgate.packs.consensus.arbiter.store import SqlRounds, pack, unpack
from toolgate.packs.consensus.domain import replica
from toolgate.packs.consensus.domain.arbiters import Network
from toolgate.packs.consensus.domain.messages import SealingCheckpoint
from toolgate.packs.consensus.gossip import exchange as gossip
from toolgate.packs.consensus.gossip import service
from toolgate.packs.consensus.gossip.exchange import (
    QUOTA_BURST,
    QUOTA_PER_S,
    QUOTA_TOTAL,
    GossipReply,
    GossipRequest,
    Quotas,
    read_reply,
)
from toolgate.packs.consensus.gossip.service import Gossip, GossipService, NatsWire
from toolgate.packs.consensus.gossip.signed_requests import MAX_SEEN, RequestRejected, RequestSigner, RequestVerifier
from toolgate.powers import bus

__all__ = ["broker"]  # a fixture


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows with every signature of a message that is checked."""
    made: list[None] = []
    original = gossip.check

    def counted(*arguments: Any) -> None:
        made.append(None)
        original(*arguments)

    monkeypatch.setattr(gossip, "check", counted)
    return made


def forged_events(office: Office, count: int = 256) -> list[str]:
    """Votes of a member as only their signatures can tell: each costs a check."""
    good = unpack(signed(office.node(), 1, 0))
    return [pack(good[:-64] + os.urandom(64)) for _ in range(count)]


def subject_of(office: Office) -> str:
    return f"toolgate.consensus.{office.node().network.id.hex()}.{sender(office).hex()}"


@asynccontextmanager
async def arbiter_on(url: str, office: Office) -> AsyncIterator[tuple[NatsWire, Any]]:
    """A served arbiter, and a stranger's connection to the same broker."""
    running = GossipService()
    await running.start(service_context(office, url))
    stranger = await nats.connect(url)
    assert running._nats is not None
    try:
        yield running._nats, stranger
    finally:
        await stranger.close()
        await running.stop()


def asked(node: Node, to: Office, events: list[str]) -> bytes:
    body = strictjson.dumps(GossipRequest(node.signer.sender.hex(), events).to_json())
    return RequestSigner(node.signer, node.network, node.clock).sign(sender(to), body)


def test_ids_that_a_stranger_makes_up_cost_no_signature_check_and_are_counted(
    broker: str, four: list[Office], checks: list[None]
) -> None:
    events = forged_events(four[1])

    async def run() -> None:
        async with arbiter_on(broker, four[0]) as (wire, stranger):
            for _ in range(40):
                body = strictjson.dumps(GossipRequest(os.urandom(32).hex(), events).to_json())
                await stranger.publish(subject_of(four[0]), body, reply="nobody")
            await stranger.flush()
            await soon(lambda: wire.dropped["unsigned"] == 40)
            assert not checks
            # The same from an arbiter that signs: it is answered, and its quota is what it may cost.
            answer = await stranger.request(
                subject_of(four[0]), asked(four[1].node(), four[0], events), timeout=PATIENCE_S
            )
            assert len(read_reply(strictjson.loads(answer.data)).rejected) == 256
            assert len(checks) == 256

    asyncio.run(run())


def test_flood_of_forged_requests_is_not_listened_to_and_the_arbiter_comes_back(
    broker: str, four: list[Office], checks: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus, "REST_S", 0.5)
    honest = asked(four[1].node(), four[0], [])
    forged = honest[:64] + bytes(64) + b"{}"

    async def is_deaf(stranger: Any) -> bool:
        try:
            await stranger.request(subject_of(four[0]), b"x", timeout=0.05)
        except nats.errors.NoRespondersError:
            return True
        except TimeoutError:
            return False
        return False

    async def run() -> None:
        async with arbiter_on(broker, four[0]) as (wire, stranger):
            began = time.monotonic()
            async with asyncio.timeout(PATIENCE_S):
                while not await is_deaf(stranger):
                    for _ in range(200):
                        await stranger.publish(subject_of(four[0]), forged, reply="nobody")
                    await stranger.flush()
            borne = bus.LISTEN_BURST + (time.monotonic() - began) * bus.LISTEN_PER_S
            assert bus.LISTEN_BURST <= wire.dropped["forged"] + wire.dropped["length"] <= borne
            assert not checks
            async with asyncio.timeout(PATIENCE_S):
                while await is_deaf(stranger):
                    await asyncio.sleep(0)
            answer = await stranger.request(subject_of(four[0]), honest, timeout=PATIENCE_S)
            assert read_reply(strictjson.loads(answer.data)).events == []

    asyncio.run(run())


def test_copy_of_an_arbiters_request_is_not_answered_twice(broker: str, four: list[Office]) -> None:
    request = asked(four[1].node(), four[0], [])

    async def run() -> None:
        async with arbiter_on(broker, four[0]) as (wire, stranger):
            await stranger.request(subject_of(four[0]), request, timeout=PATIENCE_S)
            await stranger.publish(subject_of(four[0]), request, reply="nobody")
            await soon(lambda: wire.dropped["repeated"] == 1)

    asyncio.run(run())


HOSTILE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "nothing": ("length", lambda _: b""),
    "cut": ("length", lambda good: good[:127]),
    "endless": ("length", lambda good: good + bytes(2**21)),
    "plain JSON": ("unsigned", lambda _: strictjson.dumps(GossipRequest("ab" * 32, ["x" * 200]).to_json())),
    "not a member": ("stranger", lambda good: good[:16] + bytes(32) + good[48:]),
    "another number": ("forged", lambda good: good[:48] + bytes(16) + good[64:]),
    "another body": ("forged", lambda good: good[:-1] + b" "),
    "another signature": ("forged", lambda good: good[:64] + bytes(64) + good[128:]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_request_that_no_arbiter_signed_for_us_is_refused_unread(four: list[Office], name: str) -> None:
    reason, change = HOSTILE[name]
    desk = RequestVerifier(four[0].node().network, sender(four[0]))
    with pytest.raises(RequestRejected, match=reason):
        desk.open(change(asked(four[1].node(), four[0], [])))


def test_request_for_another_arbiter_or_network_or_from_ourselves_is_refused(four: list[Office]) -> None:
    network = four[0].node().network
    desk = RequestVerifier(network, sender(four[0]))
    with pytest.raises(RequestRejected, match="forged"):
        desk.open(asked(four[1].node(), four[2], []))
    with pytest.raises(RequestRejected, match="stranger"):
        desk.open(asked(four[0].node(), four[0], []))
    other = Network(network.public_keys, network.dispute_window + 1)
    with pytest.raises(RequestRejected, match="forged"):
        desk.open(RequestSigner(four[1].node().signer, other, SystemClock()).sign(sender(four[0]), b"{}"))


def test_desk_remembers_a_bounded_number_of_requests(four: list[Office], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.packs.consensus.gossip.signed_requests.MAX_SEEN", 8)
    node = four[1].node()
    desk = RequestVerifier(node.network, sender(four[0]))
    asker = RequestSigner(node.signer, node.network, StoppedClock())
    for _ in range(20):
        desk.open(asker.sign(sender(four[0]), b"{}"))
    assert len(desk._seen) == 8 < MAX_SEEN


class StoppedClock:
    def wall(self) -> float:
        return 0.0

    monotonic = wall


# Callers


def test_calls_side_by_side_share_one_quota(
    four: list[Office], checks: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine a quota that fills meanwhile would be enough for all of them.
    monkeypatch.setattr("toolgate.packs.consensus.gossip.exchange.QUOTA_PER_S", 0)
    events = [forged_events(four[1]) for _ in range(10)]

    async def run() -> None:
        await asyncio.gather(*(four[0].acall("consensus_gossip", peer_id="x", events=each) for each in events))

    asyncio.run(run())
    assert len(checks) <= QUOTA_BURST


def test_all_callers_together_have_a_quota_that_one_alone_cannot_use_up() -> None:
    quotas = Quotas()
    for _ in range(20):  # a caller whose every message is bad
        taken = quotas.take("bad", 0.0, 256)
        quotas.settle("bad", 0.0, taken, cost=2560, checked=taken)
    assert quotas.left("bad", 0.0) == 0
    for number in range(QUOTA_TOTAL - 1):
        assert quotas.take(str(number), 0.0, QUOTA_BURST) == QUOTA_BURST
    assert quotas.take("one more", 0.0, 10 * QUOTA_BURST) <= QUOTA_BURST
    assert quotas.left("and one", 0.0) == 0
    assert quotas.left("and one", 0.25) == QUOTA_TOTAL * QUOTA_PER_S // 4


def test_what_was_taken_and_not_needed_comes_back() -> None:
    quotas = Quotas()
    for _ in range(100):
        taken = quotas.take("good", 0.0, 256)
        quotas.settle("good", 0.0, taken, cost=0, checked=0)  # all of it was known
    assert quotas.left("good", 0.0) == QUOTA_BURST


def test_caller_without_quota_is_refused_before_its_messages_are_read(
    four: list[Office], monkeypatch: pytest.MonkeyPatch
) -> None:

    def unread(*_: Any) -> None:
        raise AssertionError("was read")

    four[0].known.quotas.take("k1", 1e12, QUOTA_BURST)
    monkeypatch.setattr(gossip, "decode", unread)
    answer = four[0].call("consensus_gossip", peer_id="x", events=forged_events(four[1], 3))
    assert [each["code"] for each in answer["rejected"]] == ["QUOTA_EXCEEDED"] * 3


def seal(office: Office) -> engine.RoundStanding:
    node = office.node()
    return asyncio.run(node.run(lambda connection: engine.seal(connection, node.network, node.signer, node.recorded())))


def test_proposals_wait_when_as_many_rounds_as_one_checkpoint_can_raise_have_none(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MAX_UNSEALED", 3)
    for number in range(3):
        office.call("consensus_propose", event=event(number))
    assert office.refusal("consensus_propose", event=event(3)) == "TOO_MANY_OPEN_ROUNDS"
    seal(office)
    assert office.call("consensus_propose", event=event(3))["status"] == "QUORUM"


def test_checkpoint_over_a_long_backlog_loads_only_what_it_covers_and_covers_the_ripest(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        office.call("consensus_propose", event=event(number))
    seal(office)
    for number in range(6, 10):
        office.call("consensus_propose", event=event(number))
    seal(office)  # six rounds are HARD for an epoch longer than the next five
    for module in (engine, replica):
        monkeypatch.setattr(module, "MAX_LEAVES", 4)
    loaded: set[int] = set()
    original = SqlRounds._load_chunk

    def counted(self: SqlRounds, ids: Sequence[int]) -> None:
        loaded.update(ids)
        original(self, ids)

    monkeypatch.setattr(SqlRounds, "_load_chunk", counted)
    (checkpoint,) = seal(office).round.checkpoints.values()
    assert [number for number, _ in checkpoint.leaves] == [1, 2, 3, 4]
    hard = {5, 6, 7, 8, 9, 10, 11}
    assert not loaded & hard


# Peers


class Slow:
    """One peer never ends its answer; the others answer at once."""

    def __init__(self, slow: bytes) -> None:
        self.slow = slow
        self.asked: list[bytes] = []
        self.cancelled = False

    async def exchange(self, peer: Peer, request: GossipRequest) -> GossipReply:
        self.asked.append(peer.sender)
        if peer.sender == self.slow:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        return GossipReply([], [], 0, more=False, store="aa")


def test_peer_that_never_ends_its_answer_holds_up_neither_the_others_nor_the_tick(
    four: list[Office], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "TURN_S", 0.05)
    node = four[0].node()
    peers = peers_of(four[0].settings, node.signer.sender)
    wire = Slow(peers[0].sender)
    ticks = 0

    async def tick(_: Gossip) -> None:
        nonlocal ticks
        ticks += 1

    monkeypatch.setattr(Gossip, "_keep_epochs", tick)
    loop = Gossip(node, peers, [wire], four[0].settings | {"gossip_ms": 1})

    async def run() -> None:
        task = asyncio.create_task(loop.run())
        await soon(lambda: ticks >= 4 and min(wire.asked.count(peer.sender) for peer in peers[1:]) >= 3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert wire.asked.count(peers[0].sender) == 1
    assert wire.cancelled


def test_peer_whose_log_grows_without_messages_is_asked_once_a_turn(four: list[Office]) -> None:
    class Growing:
        asked = 0

        async def exchange(self, peer: Peer, request: GossipRequest) -> GossipReply:
            self.asked += 1
            return GossipReply([], [], self.asked, more=True, store="aa")

    node = four[0].node()
    wire = Growing()
    loop = Gossip(node, peers_of(four[0].settings, node.signer.sender)[:1], [wire], four[0].settings)

    async def run() -> None:
        for _ in range(4):
            await loop.turn()

    asyncio.run(run())
    assert wire.asked == 4


def test_log_with_more_than_there_is_room_for_is_read_again_less_and_less_often(
    four: list[Office], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_OPEN_ROUNDS", 2)
    node, liar = four[0].node(), four[1].node()
    log = [signed(liar, number, number) for number in range(1, 7)]

    class Overflowing:
        """Two messages a page; the last page holds what is known already."""

        from_the_start = 0

        async def exchange(self, peer: Peer, request: GossipRequest) -> GossipReply:
            self.from_the_start += request.after == 0
            page = log[request.after : request.after + 2] or log[:1]
            return GossipReply(page, [], request.after + 2, more=request.after < len(log), store="aa")

    wire = Overflowing()
    loop = Gossip(node, peers_of(four[0].settings, node.signer.sender)[:1], [wire], four[0].settings)

    async def turns(count: int) -> None:
        for _ in range(count):
            await loop.turn()

    asyncio.run(turns(20))
    assert 3 <= wire.from_the_start <= 7
    assert status(four[0]).messages == 2
    monkeypatch.setattr(store, "MAX_OPEN_ROUNDS", 100)
    asyncio.run(turns(20))
    assert status(four[0]).messages == 6


def test_open_checkpoints_of_a_liar_are_not_all_read_in_every_turn(
    four: list[Office], monkeypatch: pytest.MonkeyPatch
) -> None:
    liar, node = four[1].node(), four[0].node()
    rounds = [liar.network.index_of(liar.signer.sender) + 1 + 4 * step for step in range(12)]
    events = []
    for number in rounds:
        made = SealingCheckpoint(liar.network.id, number, liar.signer.sender, 7, ((number, bytes(32)),))
        events.append(pack(made._replace(signature=liar.signer.sign(made.signed_bytes())).to_bytes()))
    four[0].call("consensus_gossip", peer_id="x", events=events)
    assert status(four[0]).messages == len(rounds)
    loaded: list[int] = []
    original = SqlRounds._load_chunk

    def counted(self: SqlRounds, ids: Sequence[int]) -> None:
        loaded.extend(ids)
        original(self, ids)

    monkeypatch.setattr(SqlRounds, "_load_chunk", counted)
    voted = asyncio.run(node.run(lambda c: engine.accept_checkpoints(c, node.network, node.signer, node.recorded())))
    assert voted == []
    assert set(loaded) == {rounds[-1]}


def test_arbiters_still_agree_when_a_stranger_writes_to_their_subjects(broker: str, tmp_path: Path) -> None:
    offices = [Office(tmp_path / name) for name in ("a", "b")]
    council(offices)

    async def run() -> None:
        async with arbiter_on(broker, offices[0]) as (_, stranger), arbiter_on(broker, offices[1]):
            opened = await offices[0].acall("consensus_propose", event=event())
            for office in offices:
                for junk in (b"", b"{}", os.urandom(300), b"x" * 500_000):
                    await stranger.publish(subject_of(office), junk, reply="nobody")
            node = offices[1].node()
            async with asyncio.timeout(PATIENCE_S):
                while not (await node.run(lambda c: gossip.page_after(c, node.network, 0))).events:
                    await asyncio.sleep(0)
            assert opened["round_id"]

    asyncio.run(run())
    assert status(offices[1]).messages == 1
    for office in offices:
        office.close()
