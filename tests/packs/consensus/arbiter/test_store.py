"""Rounds and the signer guard on disk: one suite for both engines, equal to the machine in memory, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.packs.consensus.domain.people import (
    DictShelf,
    checkpoint,
    network_of,
    replica,
    seed_of,
    statement,
    unsigned,
    vote,
)
from tests.packs.consensus.nodes import Office, ballot, event
from tests.powers.sql.postgres import shared_postgres
from toolgate.errors import ToolError
from toolgate.packs.consensus.arbiter import engine
from toolgate.packs.consensus.arbiter.node import Node
from toolgate.packs.consensus.arbiter.store import EXPIRES_AFTER, MAX_OPEN_ROUNDS, lock_replica, pack, record, unpack
from toolgate.packs.consensus.domain.arbiters import Network
from toolgate.packs.consensus.domain.evidence import Level
from toolgate.packs.consensus.domain.messages import ACCEPT, REJECT, Message, Vote
from toolgate.packs.consensus.domain.replica import state_hash
from toolgate.packs.consensus.tables import STORE

ROOT = Path(__file__).parents[4]


@pytest.fixture(params=["sqlite", "postgres"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Office]]:
    """Makes offices; on each engine in turn. The same name twice gives a second server on the same store and keys."""
    url: str | None = None
    if request.param == "postgres":
        url = shared_postgres().new_database()
    made: list[Office] = []

    def make(name: str) -> Office:
        home = tmp_path / name
        made.append(Office(home, url=url, make_keys=not home.exists()))
        return made[-1]

    yield make
    for each in made:
        each.close()


def take_in(office: Office, network: Network, messages: list[Message]) -> engine.ArbiterStatus:
    async def run() -> engine.ArbiterStatus:
        store = office.stores.get(STORE)
        await store.run(lambda c: record(c, lock_replica(c, network), messages, source="test", recorded="now"))
        return await store.run(lambda c: engine.status(c, network))

    return asyncio.run(run())


def transcript(network: Network, seed: int) -> list[Message]:
    """Honest votes, lies, floods and seals of several rounds, shuffled and repeated."""
    dice = random.Random(seed)
    memory = replica(network)
    messages: list[Message] = []
    for round_id in range(1, 6):
        messages += [
            unsigned(network, i, round_id, statement(0, dice.choice([ACCEPT, ACCEPT, REJECT])))
            for i in range(1, network.size)
        ]
        messages += [unsigned(network, 0, round_id, statement(dice.randrange(12))) for _ in range(10)]
    for message in messages:
        memory.see(message)
    for epoch in range(3):
        round_id = network.next_round_of(network.senders[-1], 100 + network.size * epoch)
        covered = [one for _, one in sorted(memory.shelf.rounds.items())]  # type: ignore[attr-defined]
        made = checkpoint(network, network.size - 1, round_id, epoch, covered)
        seal: list[Message] = [made, *(unsigned(network, i, round_id, made.statement()) for i in range(network.size))]
        for message in seal:
            memory.see(message)
        messages += seal
    dice.shuffle(messages)
    return messages + dice.sample(messages, len(messages) // 2)


@pytest.mark.parametrize("n", [1, 4, 7])
def test_store_holds_what_the_machine_in_memory_holds(anywhere: Callable[[str], Office], n: int) -> None:
    """I10: the same transcript, one by one, in batches, or in memory: the same levels, epoch and state hash."""
    network = network_of(n)
    messages = transcript(network, n)
    office, memory = anywhere("one"), replica(network)
    for start in range(0, len(messages), 20):
        status = take_in(office, network, messages[start : start + 20])
    for message in messages:
        memory.see(message)
    shelf = memory.shelf
    assert isinstance(shelf, DictShelf)
    assert status.state == state_hash(network, [(number, one.digest()) for number, one in shelf.rounds.items()])
    assert (status.epoch, status.clock) == (memory.epoch, memory.clock)
    assert status.levels == {level.name: len(shelf.at_level(level)) for level in Level}
    guilty = {proof.first.sender.hex() for one in shelf.rounds.values() for proof in one.equivocations()}
    assert set(status.equivocators) == guilty


def test_rounds_survive_a_restart(anywhere: Callable[[str], Office]) -> None:
    first = anywhere("one")
    first.call("consensus_propose", event=event())
    seen = first.call("consensus_finality", round_id="1")
    first.close()
    second = anywhere("one")
    assert second.call("consensus_finality", round_id="1") == seen
    assert second.call("consensus_propose", event=event(2))["round_id"] == "2"
    second.call("consensus_vote", round_id="1", vote=ballot())
    assert first.keys.public_key("arbiter.key") == second.keys.public_key("arbiter.key")


def test_two_servers_on_one_store_share_the_guard(anywhere: Callable[[str], Office]) -> None:
    one, two = anywhere("shared"), anywhere("shared")
    one.call("consensus_propose", event=event(1))
    assert two.refusal("consensus_vote", round_id="1", vote=ballot(2)) == "EQUIVOCATION_REFUSED"
    first = two.call("consensus_vote", round_id="1", vote=ballot(1))
    assert one.refusal("consensus_vote", round_id="1", vote=ballot(1)) == "ALREADY_VOTED"
    assert first["counted"]


def test_racing_servers_sign_one_thing_and_allocate_different_rounds(anywhere: Callable[[str], Office]) -> None:
    offices = [anywhere("shared") for _ in range(3)]
    for office in offices:
        office.settings["arbiters"] = [
            {"public_key": offices[0].public_key},
            *({"public_key": network_of(3).public_keys[i].hex()} for i in range(3)),
        ]

    async def race() -> list[object]:
        opened = await asyncio.gather(
            *(each.acall("consensus_propose", event=event(0)) for each in offices for _ in range(3))
        )
        votes = [office.acall("consensus_vote", round_id="4000001", vote=ballot(i)) for i, office in enumerate(offices)]
        return [*opened, *(await asyncio.gather(*votes, return_exceptions=True))]

    *opened, a, b, c = asyncio.run(race())
    assert len({each["round_id"] for each in opened}) == 9  # type: ignore[index]
    assert all(isinstance(each, ToolError) and each.code == "ROUND_NOT_FOUND" for each in (a, b, c))

    async def conflict(round_id: str) -> list[object]:
        return await asyncio.gather(
            *(
                each.acall("consensus_vote", round_id=round_id, vote=ballot(i), privKey=seed_of(0).hex())
                for i, each in enumerate(offices)
            ),
            return_exceptions=True,
        )

    for each in opened:
        answers = asyncio.run(conflict(each["round_id"]))  # type: ignore[index]
        signed = [answer for answer in answers if isinstance(answer, dict)]
        refused = [answer.code for answer in answers if isinstance(answer, ToolError)]
        assert len(signed) == 1
        assert refused == ["EQUIVOCATION_REFUSED"] * 2


def test_failed_call_leaves_nothing_behind(anywhere: Callable[[str], Office]) -> None:
    office = anywhere("one")
    office.call("consensus_propose", event=event())
    node = office.node()
    before = asyncio.run(node.store.run(lambda c: engine.status(c, node.network)))

    def half(connection: object) -> None:
        engine.propose(connection, node.network, node.signer, statement(9), "now")  # type: ignore[arg-type]
        raise ToolError("BOOM", "the power fails here")

    with pytest.raises(ToolError):
        asyncio.run(node.run(half))
    assert asyncio.run(node.store.run(lambda c: engine.status(c, node.network))) == before
    assert office.call("consensus_propose", event=event(2))["round_id"] == "2"


def test_key_is_bound_to_the_store_of_its_first_use(tmp_path: Path) -> None:
    first = Office(tmp_path / "one")
    first.call("consensus_propose", event=event())
    first.close()
    other = Office(tmp_path / "one", url=f"sqlite:///{tmp_path / 'other.sqlite3'}", make_keys=False)
    assert other.refusal("consensus_propose", event=event(2)) == "KEY_BOUND_ELSEWHERE"
    node = other.node()
    name = asyncio.run(node.name_store())
    other.keys.bind("arbiter.key", name, replace=True)
    assert other.call("consensus_propose", event=event(2))["round_id"] == "1"
    other.close()
    again = Office(tmp_path / "one", make_keys=False)
    assert again.refusal("consensus_vote", round_id="1", vote=ballot()) == "KEY_BOUND_ELSEWHERE"
    again.close()


def test_refused_first_use_does_not_bind_the_key_to_a_store_that_never_was(tmp_path: Path) -> None:
    office = Office(tmp_path / "one")
    office.settings["arbiters"] = [{"public_key": network_of(1).public_keys[0].hex()}]
    assert office.refusal("consensus_propose", event=event()) == "NOT_ARBITER"
    office.settings["arbiters"] = []
    assert office.call("consensus_propose", event=event())["status"] == "QUORUM"
    office.close()


def test_adopted_store_that_learns_an_old_vote_of_ours_does_not_contradict_it(tmp_path: Path) -> None:
    """The guard is empty, the vote comes back by gossip: it binds like one of the guard's own."""
    old = Office(tmp_path / "old")
    peer = network_of(2).public_keys[0].hex()
    old.settings["arbiters"] = [{"public_key": old.public_key}, {"public_key": peer}]
    round_id = old.call("consensus_propose", event=event(1))["round_id"]
    envelope = old.call("consensus_vote", round_id=round_id, vote=ballot(1))["envelope_b64"]
    old.close()
    new = Office(tmp_path / "old", url=f"sqlite:///{tmp_path / 'new.sqlite3'}", make_keys=False, settings=old.settings)
    new.keys.bind("arbiter.key", asyncio.run(new.node().name_store()), replace=True)
    new.call("consensus_gossip", peer_id="x", events=[envelope])
    assert new.refusal("consensus_vote", round_id=round_id, vote=ballot(2)) == "EQUIVOCATION_REFUSED"
    assert new.call("consensus_vote", round_id=round_id, vote=ballot(1))["envelope_b64"] == envelope
    assert new.call("consensus_propose", event=event(3))["round_id"] != round_id
    new.close()


def test_far_away_vote_of_a_liar_does_not_use_up_our_round_numbers(four: list[Office]) -> None:
    node = four[0].node()
    mine = node.network.next_round_of(node.signer.sender, 2**63 - 200)
    liar = four[1].node()
    bad = vote_of(liar, mine)
    four[0].call("consensus_gossip", peer_id="x", events=[bad])
    assert int(four[0].call("consensus_propose", event=event())["round_id"]) <= 4


def vote_of(node: Node, round_id: int) -> str:
    made = Vote(node.network.id, round_id, statement(1), node.signer.sender, 1)
    return pack(made._replace(signature=node.signer.sign(made.signed_bytes())).to_bytes())


def test_open_rounds_are_bounded_for_each_arbiter_alone(tmp_path: Path) -> None:
    network = network_of(4)
    office = Office(tmp_path / "one")
    flood: list[Message] = [unsigned(network, 0, 4 * k + 1, statement(0)) for k in range(MAX_OPEN_ROUNDS + 5)]
    status = take_in(office, network, flood)
    assert status.outcomes["OPEN"] == MAX_OPEN_ROUNDS
    status = take_in(office, network, [unsigned(network, 1, 2, statement(0)), flood[-1]])
    assert status.outcomes["OPEN"] == MAX_OPEN_ROUNDS + 1
    decided: list[Message] = [unsigned(network, i, 1, statement(0)) for i in range(1, 4)]
    status = take_in(office, network, [*decided])
    assert take_in(office, network, [flood[-1]]).outcomes["OPEN"] == MAX_OPEN_ROUNDS + 1
    assert take_in(office, network, [flood[-2]]).outcomes["OPEN"] == MAX_OPEN_ROUNDS + 1
    asyncio.run(
        office.stores.get(STORE).run(
            lambda c: c.exec_driver_sql(f"UPDATE consensus_network SET epoch = {EXPIRES_AFTER}") and None
        )
    )
    assert take_in(office, network, [flood[-2]]).outcomes["OPEN"] == MAX_OPEN_ROUNDS + 2, "old ones expire"
    office.close()


# kill -9

SIGNER = """
import sys, json
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.packs.consensus.nodes import Office, ballot, event
office = Office(Path(sys.argv[1]), make_keys=False)
office.settings["arbiters"] = json.loads(sys.argv[2])
print("ready", flush=True)
number = int(sys.argv[3])
while True:
    number += 1
    answer = office.call("consensus_propose", event=event(number))
    print("proposed", answer["round_id"], number, flush=True)
    answer = office.call("consensus_vote", round_id=answer["round_id"], vote=ballot(number))
    print("voted", answer["envelope_b64"], flush=True)
"""


@pytest.mark.guard
def test_kill_at_any_moment_loses_no_acknowledged_vote_and_signs_nothing_twice(tmp_path: Path) -> None:
    """I7: the process is killed again and again while it signs; what it told is there, and one vote a round is all it signed."""
    home = tmp_path / "one"
    office = Office(home)
    arbiters = [{"public_key": office.public_key}, {"public_key": network_of(1).public_keys[0].hex()}]
    office.settings["arbiters"] = arbiters
    program = tmp_path / "signer.py"
    program.write_text(SIGNER.format(root=str(ROOT)))
    dice = random.Random(1)
    told: dict[int, set[bytes]] = {}
    for attempt in range(12):
        command = [sys.executable, str(program), str(home), json.dumps(arbiters), str(1000 * attempt)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            heard = [process.stdout.readline() for _ in range(dice.randrange(1, 14))]
            process.send_signal(signal.SIGKILL)
            heard += process.stdout.readlines()
        for line in heard:
            if line.startswith("voted") and line.endswith("\n"):
                data = unpack(line.split()[1])
                told.setdefault(int.from_bytes(data[48:56], "big"), set()).add(data)
    assert len(told) > 10
    assert all(len(said) == 1 for said in told.values())
    node = office.node()
    for round_id, said in told.items():
        entries, _ = asyncio.run(node.store.run(lambda c, r=round_id: engine.history(c, node.network, r)))
        assert {entry.message.to_bytes() for entry in entries} == said
        number = int.from_bytes(next(iter(said))[56:88], "big")
        assert (
            office.refusal("consensus_vote", round_id=str(round_id), vote=ballot(number + 1)) == "EQUIVOCATION_REFUSED"
        )
    office.close()


@pytest.mark.guard
def test_store_cut_at_any_byte_of_its_log_never_lets_the_key_contradict_a_vote_it_kept(tmp_path: Path) -> None:
    """A torn write-ahead log loses the newest transactions or none; the guard and the vote it guards go together."""
    office = Office(tmp_path / "one")
    office.settings["arbiters"] = [
        {"public_key": office.public_key},
        {"public_key": network_of(1).public_keys[0].hex()},
    ]
    office.call("consensus_propose", event=event(1))
    source = tmp_path / "one" / "state" / "stores" / "consensus.sqlite3"
    whole, log = source.read_bytes(), Path(f"{source}-wal").read_bytes()
    outcomes = set()
    for cut in [*range(0, len(log), max(len(log) // 40, 1)), len(log)]:
        target = tmp_path / "cut.sqlite3"
        for stale in tmp_path.glob("cut.sqlite3*"):
            stale.unlink()
        target.write_bytes(whole)
        Path(f"{target}-wal").write_bytes(log[:cut])
        copy = Office(tmp_path / "one", url=f"sqlite:///{target}", make_keys=False, settings=office.settings)
        node = copy.node()
        round_id = node.network.next_round_of(node.signer.sender, 0)
        name = asyncio.run(node.name_store())
        copy.keys.bind("arbiter.key", name, replace=True)
        try:
            outcomes.add("kept" if copy.call("consensus_finality", round_id=str(round_id)) else "")
            assert copy.refusal("consensus_vote", round_id=str(round_id), vote=ballot(2)) == "EQUIVOCATION_REFUSED"
        except ToolError as fault:
            outcomes.add(fault.code)
        copy.close()
    assert outcomes == {"kept", "ROUND_NOT_FOUND"}
    office.close()


def test_votes_are_signed_bytes_that_verify_after_a_reload(anywhere: Callable[[str], Office]) -> None:
    network = network_of(4)
    office = anywhere("one")
    messages: list[Message] = [vote(network, i, 1, statement(0)) for i in range(3)]
    take_in(office, network, messages)
    entries, rises = asyncio.run(office.stores.get(STORE).run(lambda c: engine.history(c, network, 1)))
    assert [entry.message for entry in entries] == messages
    assert [rise.level for rise in rises] == [Level.SOFT, Level.QUORUM]
