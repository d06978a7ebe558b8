"""Gossip: everybody ends with the same state, whoever is away, lies, floods or comes late."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.homes import PATIENCE_S
from tests.packs.consensus.domain.people import network_of, statement, unsigned
from tests.packs.consensus.nodes import InputRefused, Office, ballot, council, event
from tests.waiting import soon
from toolgate.errors import ToolError
from toolgate.packs.consensus.arbiter import engine, store
from toolgate.packs.consensus.arbiter.network import Peer, peers_of
from toolgate.packs.consensus.arbiter.node import Node
from toolgate.packs.consensus.arbiter.store import lock_replica, pack, record, unpack
from toolgate.packs.consensus.domain.evidence import decode as decode_evidence
from toolgate.packs.consensus.domain.evidence import verify
from toolgate.packs.consensus.domain.messages import Vote, decode
from toolgate.packs.consensus.gossip.exchange import (
    MAX_CALLERS,
    MAX_EVENTS,
    QUOTA_BURST,
    QUOTA_PER_S,
    GossipReply,
    GossipRequest,
    Quotas,
    read_reply,
)
from toolgate.packs.consensus.gossip.service import Gossip, GossipService
from toolgate.packs.consensus.settings import addresses


@dataclass
class Room:
    """A wire between offices in this process, through the tool itself, with doors that can be shut."""

    offices: list[Office]
    shut: set[bytes] = field(default_factory=set)
    asked: int = 0

    async def exchange(self, peer: Peer, request: GossipRequest) -> GossipReply:
        self.asked += 1
        if peer.sender in self.shut or bytes.fromhex(request.peer_id) in self.shut:
            raise ToolError("TARGET_NOT_FOUND", "the door is shut", missing=True)
        target = next((each for each in self.offices if each.node().signer.sender == peer.sender), None)
        if target is None:
            raise ToolError("TARGET_NOT_FOUND", "nobody of that name is in the room", missing=True)
        return read_reply(await target.acall("consensus_gossip", **request.to_json()))

    def loop(self, office: Office) -> Gossip:
        node = office.node()
        return Gossip(node, peers_of(office.settings, node.signer.sender), [self], office.settings)

    def talk(self, turns: int = 6) -> None:
        async def run() -> None:
            loops = [self.loop(office) for office in self.offices]
            for _ in range(turns):
                for loop in loops:
                    await loop.turn()

        asyncio.run(run())


def status(office: Office) -> engine.ArbiterStatus:
    node = office.node()
    return asyncio.run(node.run(lambda connection: engine.status(connection, node.network)))


def states(offices: list[Office]) -> set[bytes]:
    return {status(office).state for office in offices}


def sender(office: Office) -> bytes:
    return office.node().signer.sender


def signed(node: Node, round_id: int, number: int, logical: int = 1) -> str:
    made = Vote(node.network.id, round_id, statement(number), node.signer.sender, logical)
    return pack(made._replace(signature=node.signer.sign(made.signed_bytes())).to_bytes())


def test_four_arbiters_certify_what_three_accept(four: list[Office]) -> None:
    room = Room(four)
    round_id = four[0].call("consensus_propose", event=event())["round_id"]
    room.talk(2)
    for office in four[1:3]:
        office.call("consensus_vote", round_id=round_id, vote=ballot())
    room.talk(2)
    answers = [office.call("consensus_finality", round_id=round_id) for office in four]
    assert {(answer["level"], answer["support"], answer["outcome"]) for answer in answers} == {
        ("QUORUM", 3, "ACCEPTED")
    }
    assert len(states(four)) == 1
    for answer in answers:
        verify(four[3].node().network, decode_evidence(bytes.fromhex(answer["evidence"])))


def test_partition_heals_to_one_state(four: list[Office]) -> None:
    room = Room(four, shut={sender(four[3])})
    rounds = [office.call("consensus_propose", event=event(index))["round_id"] for index, office in enumerate(four)]
    room.talk(3)
    for office in four[:3]:
        for index, round_id in enumerate(rounds[:3]):
            if office is not four[index]:
                office.call("consensus_vote", round_id=round_id, vote=ballot(index))
    room.talk(3)
    assert len(states(four)) == 2
    room.shut.clear()
    room.talk(4)
    assert len(states(four)) == 1
    assert four[3].call("consensus_finality", round_id=rounds[0])["level"] == "QUORUM"


def test_seal_goes_round_and_everybody_climbs(four: list[Office]) -> None:
    """Epochs move by agreed checkpoints alone: QUORUM, HARD after one, ABSOLUTE after the window."""
    room = Room(four)
    round_id = four[0].call("consensus_propose", event=event())["round_id"]
    room.talk(2)
    for office in four[1:]:
        office.call("consensus_vote", round_id=round_id, vote=ballot())
    room.talk(2)
    levels = []
    for number in range(4):
        node = four[number].node()
        asyncio.run(node.run(lambda c, n=node: engine.seal(c, n.network, n.signer, "now")))
        room.talk(4)
        assert {status(office).epoch for office in four} == {number + 1}
        levels.append({office.call("consensus_finality", round_id=round_id)["level"] for office in four})
    assert levels == [{"HARD"}, {"HARD"}, {"ABSOLUTE"}, {"ABSOLUTE"}]
    evidence = four[2].call("consensus_finality", round_id=round_id)["evidence"]
    verify(four[0].node().network, decode_evidence(bytes.fromhex(evidence)))


def test_checkpoint_of_a_sealed_epoch_is_stale_to_vote_for(four: list[Office]) -> None:
    room = Room(four)
    round_id = four[0].call("consensus_propose", event=event())["round_id"]
    room.talk(2)
    for office in four[1:]:
        office.call("consensus_vote", round_id=round_id, vote=ballot())
    room.talk(2)
    late = four[3].node()
    stale = asyncio.run(late.run(lambda c: engine.seal(c, late.network, late.signer, "now")))
    room.shut = {sender(four[3])}
    node = four[0].node()
    asyncio.run(node.run(lambda c: engine.seal(c, node.network, node.signer, "now")))
    room.talk(4)
    room.shut.clear()
    room.talk(4)
    assert {status(office).epoch for office in four} == {1}
    said = stale.vote.statement if stale.vote else None
    assert said is not None
    choice = {"merkle_root_hex": said.root.hex(), "rule_version_hash_hex": said.rule.hex(), "vote_type": "ACCEPT"}
    assert four[0].refusal("consensus_vote", round_id=str(stale.round.id), vote=choice) == "STALE_EPOCH"


def test_twin_is_convicted_everywhere_and_nobody_else(four: list[Office], tmp_path: Path) -> None:
    """One key, two stores: each signs honestly by its own guard, and together they equivocate."""
    shutil.copytree(tmp_path / "a" / "secrets", tmp_path / "twin" / "secrets")
    twin = Office(tmp_path / "twin", settings=four[0].settings, make_keys=False)
    first = four[0].call("consensus_propose", event=event(1))
    second = twin.call("consensus_propose", event=event(2))
    assert first["round_id"] == second["round_id"]
    Room(four).talk(2)
    Room([four[1], twin]).talk(1)  # the twin meets one honest arbiter only
    Room(four).talk(3)
    assert {tuple(status(office).equivocators) for office in four} == {(sender(four[0]).hex(),)}
    assert len(states(four)) == 1
    answer = four[3].call("consensus_finality", round_id=first["round_id"])
    assert answer["equivocators"] == [sender(four[0]).hex()]
    twin.close()


def test_late_joiner_catches_up_over_many_pages(four: list[Office]) -> None:
    room = Room(four, shut={sender(four[3])})
    node, many = four[0].node(), MAX_EVENTS + 40
    votes = [decode(unpack(signed(node, 4 * number + 1, number))) for number in range(many)]
    asyncio.run(node.run(lambda c: record(c, lock_replica(c, node.network), votes, source="self", recorded="now")))
    room.talk(2)
    room.shut.clear()
    room.talk(2)
    assert {status(office).messages for office in four} == {many}
    assert len(states(four)) == 1


def test_peer_that_lost_its_store_is_told_everything_again(four: list[Office], tmp_path: Path) -> None:
    room = Room(four)
    four[0].call("consensus_propose", event=event())
    room.talk(3)
    four[1].close()
    fresh = Office(
        tmp_path / "b", url=f"sqlite:///{tmp_path / 'fresh.sqlite3'}", settings=four[1].settings, make_keys=False
    )
    fresh.keys.bind("arbiter.key", asyncio.run(fresh.node().name_store()), replace=True)
    four[1] = room.offices[1] = fresh
    four[2].call("consensus_propose", event=event(2))
    room.talk(3)
    assert len(states(four)) == 1
    assert status(fresh).messages == 2


HOSTILE = {
    "not base64": ("%%%%", "INVALID_INPUT"),
    "base64 of nothing known": (pack(b"hello"), "INVALID_INPUT"),
    "empty": ("", "INVALID_INPUT"),
    "padding spelt another way": ("aGVsbG8", "INVALID_INPUT"),
    "another network": (pack(unsigned(network_of(3), 0, 1, statement(0)).to_bytes()), "WRONG_NETWORK"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_event_is_rejected_by_code_and_nothing_is_kept(four: list[Office], name: str) -> None:
    text, code = HOSTILE[name]
    if name == "not base64":
        with pytest.raises(InputRefused):
            four[0].call("consensus_gossip", peer_id="x", events=[text])
        return
    answer = four[0].call("consensus_gossip", peer_id="x", events=[text])
    assert answer["rejected"] == [{"index": 0, "code": code}]
    assert answer["events_received"] == []
    assert status(four[0]).messages == 0


def test_event_of_a_non_member_or_with_a_changed_byte_is_rejected(four: list[Office]) -> None:
    member = four[1].node()
    good = unpack(signed(member, 1, 0))
    stranger = good[:121] + bytes(32) + good[153:]
    broken = good[:-1] + bytes([good[-1] ^ 1])
    answer = four[0].call("consensus_gossip", peer_id="x", events=[pack(each) for each in (stranger, broken, good)])
    assert [each["code"] for each in answer["rejected"]] == ["NOT_ARBITER", "BAD_SIGNATURE"]
    assert len(answer["events_received"]) == 1


def test_known_event_is_neither_new_nor_an_error(four: list[Office]) -> None:
    vote = signed(four[1].node(), 1, 0)
    assert len(four[0].call("consensus_gossip", peer_id="x", events=[vote, vote])["events_received"]) == 1
    again = four[0].call("consensus_gossip", peer_id="x", events=[vote])
    assert (again["events_received"], again["rejected"]) == ([], [])


def test_only_another_arbiter_is_sent_anything(four: list[Office]) -> None:
    four[0].call("consensus_propose", event=event())
    assert four[0].call("consensus_gossip", peer_id="somebody")["events_sent"] == []
    assert four[0].call("consensus_gossip", peer_id=sender(four[0]).hex())["events_sent"] == []
    answer = four[0].call("consensus_gossip", peer_id=sender(four[1]).hex())
    assert len(answer["events_sent"]) == 1
    later = four[0].call(
        "consensus_gossip", peer_id=sender(four[1]).hex(), after=answer["cursor"], store=answer["store"]
    )
    assert (later["events_sent"], later["more"]) == ([], False)
    other = four[0].call("consensus_gossip", peer_id=sender(four[1]).hex(), after=answer["cursor"], store="ff")
    assert len(other["events_sent"]) == 1


def test_quota_is_spent_before_signatures_are_checked_and_fills_with_time() -> None:
    quotas = Quotas()
    assert quotas.left("a", 0.0) == QUOTA_BURST
    assert quotas.take("a", 0.0, 2 * QUOTA_BURST) == QUOTA_BURST
    assert quotas.left("a", 0.0) == 0
    assert quotas.left("b", 0.0) == QUOTA_BURST
    assert quotas.left("a", 1.0) == QUOTA_PER_S
    assert quotas.left("a", 100.0) == QUOTA_BURST
    for number in range(2 * MAX_CALLERS):
        quotas.take(str(number), 0.0, 1)
    assert len(quotas._buckets) <= MAX_CALLERS


def test_caller_beyond_its_quota_is_told_so(four: list[Office]) -> None:
    four[0].known.quotas.take("k1", 1e12, QUOTA_BURST)
    answer = four[0].call("consensus_gossip", peer_id="x", events=[signed(four[1].node(), 1, 0)])
    assert answer["rejected"] == [{"index": 0, "code": "QUOTA_EXCEEDED"}]
    assert status(four[0]).messages == 0


def test_silent_peer_is_asked_less_and_less_and_again_when_it_answers(four: list[Office]) -> None:
    room = Room(four, shut={sender(office) for office in four[1:]})
    loop = room.loop(four[0])

    async def turns(count: int) -> int:
        before = room.asked
        for _ in range(count):
            await loop.turn()
        return room.asked - before

    assert asyncio.run(turns(64)) < 3 * 10
    room.shut.clear()
    four[1].call("consensus_propose", event=event())
    asyncio.run(turns(70))
    assert status(four[0]).messages == 1


@dataclass
class Liar:
    """A peer that answers with whatever it likes."""

    events: list[str]
    asked: int = 0

    async def exchange(self, peer: Peer, request: GossipRequest) -> GossipReply:
        self.asked += 1
        return GossipReply(self.events, [], 0, more=True, store="aa")


def test_lying_peer_is_left_alone_and_nothing_of_it_is_kept(four: list[Office]) -> None:
    broken = unpack(signed(four[1].node(), 1, 0))
    liar = Liar([pack(broken[:-1] + bytes([broken[-1] ^ 1]))])
    node = four[0].node()
    loop = Gossip(node, peers_of(four[0].settings, node.signer.sender)[:1], [liar], four[0].settings)

    async def turns() -> None:
        for _ in range(16):
            await loop.turn()

    asyncio.run(turns())
    assert liar.asked <= 5
    assert status(four[0]).messages == 0


def test_peer_that_always_promises_more_is_asked_once_a_turn(four: list[Office]) -> None:
    endless = Liar([])
    node = four[0].node()
    loop = Gossip(node, peers_of(four[0].settings, node.signer.sender)[:1], [endless], four[0].settings)

    async def turns() -> None:
        for _ in range(4):
            await loop.turn()

    asyncio.run(turns())
    assert endless.asked <= 5


@pytest.mark.parametrize(
    "data",
    [None, [], {}, {"events_sent": 1}, "x", {"events_sent": [1], "rejected": [], "cursor": 0, "more": False, "store": ""},
     {"events_sent": [], "rejected": [], "cursor": -1, "more": False, "store": ""},
     {"events_sent": [], "rejected": [], "cursor": True, "more": False, "store": ""},
     {"events_sent": [], "rejected": [{}], "cursor": 1, "more": False, "store": ""},
     {"events_sent": [""] * 257, "rejected": [], "cursor": 1, "more": False, "store": ""}],
)  # fmt: skip
def test_answer_that_is_not_an_arbiters_is_refused(data: Any) -> None:
    with pytest.raises(ToolError) as caught:
        read_reply(data)
    assert caught.value.code == "BAD_RESPONSE"


def test_schedule_seals_by_turns_and_steps_in_for_a_silent_arbiter(four: list[Office]) -> None:
    @dataclass
    class Hands:
        now: float = 0.0

        def monotonic(self) -> float:
            return self.now

        def wall(self) -> float:
            return 1.7e9

    room, hands = Room(four), Hands()
    for office in four:
        office.settings["seal_every_s"] = 10
    round_id = four[0].call("consensus_propose", event=event())["round_id"]
    room.talk(2)
    for office in four[1:]:
        office.call("consensus_vote", round_id=round_id, vote=ballot())
    room.talk(2)
    by_turn = sorted(four, key=sender_key)
    loops = [room.loop(office) for office in by_turn[1:]]  # arbiter 0, whose turn it is, is away
    for loop in loops:
        loop.node = replace(loop.node, clock=hands)

    async def run() -> list[int]:
        epochs = []
        for now in (0, 11, 19, 21, 22):
            hands.now = now
            for loop in (*loops, *loops):
                await loop.turn()
            epochs.append(max(status_of.epoch for status_of in [await one(loop) for loop in loops]))
        return epochs

    async def one(loop: Gossip) -> engine.ArbiterStatus:
        return await loop.node.run(lambda connection: engine.status(connection, loop.node.network))

    room.shut = {sender(by_turn[0])}
    assert asyncio.run(run()) == [0, 0, 0, 1, 1]


def test_liar_cannot_rush_epochs_past_a_schedule(four: list[Office]) -> None:
    room = Room(four)
    for office in four:
        office.settings["seal_every_s"] = 3600
    round_id = four[0].call("consensus_propose", event=event())["round_id"]
    room.talk(2)
    for office in four[1:]:
        office.call("consensus_vote", round_id=round_id, vote=ballot())
    room.talk(2)
    node = four[0].node()
    for _ in range(3):
        asyncio.run(node.run(lambda c: engine.seal(c, node.network, node.signer, "now")))
        room.talk(2)
    assert {status(office).epoch for office in four} == {0}


def sender_key(office: Office) -> bytes:
    return bytes.fromhex(office.public_key)


def test_addresses_of_arbiters_are_the_allow_list() -> None:
    settings = {
        "arbiters": [
            {"public_key": "00", "url": "https://a.example"},
            {"public_key": "01", "url": "http://127.0.0.1:8080"},
            {"public_key": "02", "url": "http://[::1]:9"},
            {"public_key": "03"},
        ]
    }
    assert addresses(settings) == ["a.example:443", "127.0.0.1:8080", "[::1]:9"]


def test_two_arbiters_need_each_other(tmp_path: Path) -> None:
    pair = [Office(tmp_path / name) for name in ("a", "b")]
    council(pair)
    assert pair[0].call("consensus_propose", event=event())["level"] == "SOFT"
    Room(pair).talk(1)
    round_id = next(
        str(n) for n in (1, 2) if status(pair[0]).messages and pair[0].node().network.proposer_of(n) == sender(pair[0])
    )
    assert pair[1].call("consensus_vote", round_id=round_id, vote=ballot())["level"] == "QUORUM"
    for each in pair:
        each.close()


def test_fault_in_a_turn_is_told_once_and_silences_nobody(four: list[Office], caplog: pytest.LogCaptureFixture) -> None:
    @dataclass
    class Broken:
        asked: int = 0

        async def exchange(self, peer: Peer, request: GossipRequest) -> GossipReply:
            self.asked += 1
            raise ZeroDivisionError("a mistake of ours")

    broken = Broken()
    node = four[0].node()
    settings = four[0].settings | {"gossip_ms": 1}
    loop = Gossip(node, peers_of(settings, node.signer.sender), [broken], settings)

    async def run() -> None:
        task = asyncio.create_task(loop.run())
        await soon(lambda: broken.asked >= 6, "it asks again")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert [record.message for record in caplog.records].count(
        "gossip waits: ZeroDivisionError: a mistake of ours"
    ) == 1


def test_what_there_was_no_room_for_is_asked_for_again(four: list[Office], monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        four[0].call("consensus_propose", event=event(number))
    room = Room(four[:2])
    monkeypatch.setattr(store, "MAX_OPEN_ROUNDS", 3)
    room.talk(3)
    assert status(four[1]).messages == 3
    monkeypatch.setattr(store, "MAX_OPEN_ROUNDS", 100)
    room.talk(20)
    assert status(four[1]).messages == 6


def test_stop_ends_a_loop_that_lost_its_cancellation(four: list[Office]) -> None:
    """As `asyncio.wait_for` of Python 3.11 does when result and cancellation meet."""

    asked = asyncio.Event()

    class Deaf:
        async def exchange(self, peer: Peer, request: GossipRequest) -> GossipReply:
            asked.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            raise ToolError("TIMEOUT", "no answer")

    node = four[0].node()
    settings = four[0].settings | {"gossip_ms": 50}
    service = GossipService()
    service._gossip = Gossip(node, peers_of(settings, node.signer.sender), [Deaf()], settings)

    async def run() -> None:
        assert service._gossip is not None
        service._task = asyncio.create_task(service._gossip.run())
        async with asyncio.timeout(PATIENCE_S):
            await asked.wait()
            await service.stop()

    asyncio.run(run())
