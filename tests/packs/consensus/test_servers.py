"""Arbiters as real processes: through the gate, over real wires, killed, paused, cut off, and lied to by a twin."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.homes import TOOLGATE, environment
from tests.packs.consensus.nodes import Office, ballot, council, event
from tests.packs.consensus.servers import PATIENCE_S, Arbiter, Link, connect, make_arbiter, make_twin
from tests.support import need
from tests.waiting import until
from toolgate.errors import StartRefused, StoreUnavailable
from toolgate.model.clock import SystemClock
from toolgate.model.tool import Hosts, ServiceContext
from toolgate.packs.consensus.arbiter import engine
from toolgate.packs.consensus.cli import app
from toolgate.packs.consensus.domain.arbiters import Network, sender_id
from toolgate.packs.consensus.gossip.service import GossipService
from toolgate.packs.consensus.tables import STORE
from toolgate.powers import bus
from toolgate.powers.bus import NatsBuses
from toolgate.powers.files import ReadOnlyWorkspace
from toolgate.powers.net import PackEgress
from toolgate.powers.secrets import SecretSources


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Arbiter]:
    arbiter = make_arbiter(tmp_path / "alone")
    arbiter.start([])
    yield arbiter
    arbiter.stop()


def dispatch(arbiter: Arbiter, role: str, tool: str, **arguments: Any) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", arbiter.port, timeout=PATIENCE_S)
    headers = {"Content-Type": "application/json", "X-MCP-API-Key": arbiter.home.keys[role]}
    try:
        connection.request("POST", "/mrt_dispatch", json.dumps({"tool": tool, "args": arguments}), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def person(arbiter: Arbiter, *arguments: str) -> Any:
    """A person's command, in this process (a new one costs half a second)."""
    return CliRunner().invoke(app, [*arguments, "--home", str(arbiter.home.path)])


def people(arbiter: Arbiter, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same as a process of its own: what a person really sees."""
    return subprocess.run(
        [TOOLGATE, "consensus", *arguments, "--home", str(arbiter.home.path)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_one_arbiter_works_through_the_gate_and_on_the_command_line(alone: Arbiter, tmp_path: Path) -> None:
    """The way of a first user: propose, vote, look, seal three times, verify the evidence with nothing but the set."""
    status, answer = dispatch(alone, "committer", "consensus_propose", event=event())
    assert (status, answer["envelope"]["data"]["status"]) == (200, "QUORUM")
    status, answer = dispatch(alone, "builder", "consensus_propose", event=event())
    assert (status, answer["error_code"]) == (403, "auth_insufficient_role")
    status, answer = dispatch(alone, "committer", "consensus_vote", round_id="1", vote=ballot())
    assert (status, answer["envelope"]["data"]["vote_signed"]) == (200, True)
    status, answer = dispatch(alone, "committer", "consensus_vote", round_id="1", vote=ballot())
    assert (status, answer["details"]["reason"]) == (400, "already_voted")
    status, answer = dispatch(alone, "builder", "consensus_finality", round_id="7")
    assert (status, answer["details"]["reason"]) == (404, "round_not_found")
    status, answer = dispatch(
        alone, "committer", "consensus_vote", round_id="1", vote=ballot() | {"merkle_root_hex": "AA"}
    )
    assert status == 400
    secret = "5eed" * 16
    status, answer = dispatch(alone, "committer", "vrf_eval", seed_hex="", input_hex="", priv_key_hex=secret)
    assert (status, len(answer["envelope"]["data"]["proof_hex"])) == (200, 160)

    for _ in range(3):
        assert person(alone, "seal", "--json").exit_code == 0
    status, answer = dispatch(alone, "builder", "consensus_finality", round_id="1")
    assert answer["envelope"]["data"]["level"] == "ABSOLUTE"
    evidence = tmp_path / "evidence.hex"
    shown = person(alone, "show", "1", "--save", str(evidence))
    assert [word in shown.stdout for word in ("● ABSOLUTE", "● HARD", "● QUORUM", "ACCEPT")] == [True] * 4
    set_file = tmp_path / "arbiters.json"
    set_file.write_text(person(alone, "status", "--json").stdout)
    assert json.loads(set_file.read_text())["senders"] == [sender_id(bytes.fromhex(alone.public_key)).hex()]
    verified = person(alone, "verify", str(evidence), "--arbiters", str(set_file))
    assert (verified.exit_code, "round 1 is ABSOLUTE" in verified.stdout) == (0, True)

    log = "".join(path.read_text() for path in (alone.home.path / "runs").rglob("*.jsonl"))
    assert secret not in log
    assert alone.keys.seed("arbiter.key", use="voting").hex() not in log


@pytest.mark.guard
def test_people_get_one_clear_line_for_what_is_wrong(tmp_path: Path) -> None:
    bare = make_arbiter(tmp_path / "bare")
    nothing = people(bare, "seal")
    assert (nothing.returncode, nothing.stderr.count("Traceback")) == (1, 0)
    assert "NOTHING_TO_SEAL" in nothing.stderr
    assert people(bare, "show", "3").returncode == 1
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"\xff\x00rubbish")
    assert people(bare, "verify", str(damaged)).returncode == 1
    made = people(bare, "keys", "--make", "--json")
    assert json.loads(made.stdout)["voting_key"] == bare.public_key
    for name in ("arbiter.key", "vrf.key"):
        (bare.home.path / "secrets" / name).unlink()
    missing = people(bare, "status")
    assert missing.returncode == 1
    assert "keys --make" in missing.stderr


# NATS


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    program = need("nats")
    ports = tmp_path / "ports"
    ports.mkdir()
    process = subprocess.Popen(
        [program, "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(ports)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    (file,) = until(lambda: list(ports.glob("*.ports")), "the broker listens")
    found = json.loads(until(file.read_text, "the broker says where"))
    yield found["nats"][0]
    process.terminate()
    process.wait(timeout=PATIENCE_S)


def service_context(office: Office, url: str) -> ServiceContext:
    async def compute(function: Any, data: Any, *, timeout_s: float | None = None) -> Any:
        raise AssertionError

    return ServiceContext(
        clock=SystemClock(),
        settings=office.settings | {"nats": "env:BROKER", "gossip_ms": 50},
        compute=compute,
        files=ReadOnlyWorkspace(office.workspace),
        stores=office.stores,
        keys=office.keys,
        net=PackEgress(Hosts()),
        secrets=SecretSources(office.home / "secrets", {"BROKER": url}),
        buses=NatsBuses(),
    )


def test_arbiters_agree_over_nats_alone(broker: str, tmp_path: Path) -> None:
    """No HTTP addresses at all: the broker carries the messages, and each arbiter keeps and checks its own."""
    offices = [Office(tmp_path / name) for name in ("a", "b", "c", "d")]
    council(offices)

    async def run() -> set[bytes]:
        services = [GossipService() for _ in offices]
        for service, office in zip(services, offices, strict=True):
            await service.start(service_context(office, broker))
        opened = await offices[0].acall("consensus_propose", event=event())
        network = offices[0].node().network
        async with asyncio.timeout(PATIENCE_S):
            for office in offices[1:3]:
                while not (await office.stores.get(STORE).run(lambda c: engine.status(c, network))).messages:
                    await asyncio.sleep(0)
                await office.acall("consensus_vote", round_id=opened["round_id"], vote=ballot())
            states: set[bytes] = set()
            agreed = False
            while not agreed:
                found = [await office.stores.get(STORE).run(lambda c: engine.status(c, network)) for office in offices]
                states = {each.state for each in found}
                agreed = len(states) == 1 and found[0].levels["QUORUM"] == 1
        for service in services:
            await service.stop()
        return states

    assert len(asyncio.run(run())) == 1
    assert {
        office.call("consensus_finality", round_id=str(1 + index_of(offices, 0)))["level"] for office in offices
    } == {"QUORUM"}
    for office in offices:
        office.close()


def index_of(offices: list[Office], which: int) -> int:
    node = offices[which].node()
    return node.network.index_of(node.signer.sender)


def test_broker_that_is_not_there_is_named_without_its_address_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus, "CONNECT_TIMEOUT_S", 0.3)
    office = Office(tmp_path / "a")
    council([office])
    url = "nats://user:hunter2@127.0.0.1:1"

    async def run() -> str:
        service = GossipService()
        await service.start(service_context(office, url))
        await service.stop()
        with pytest.raises(StoreUnavailable) as caught:
            await NatsBuses().open(url)
        return str(caught.value)

    assert "hunter2" not in asyncio.run(run())
    assert office.call("consensus_propose", event=event())["status"] == "QUORUM"
    office.close()


@pytest.mark.parametrize("source", ["env:ABSENT", "file:absent", "file:../arbiter.key", "plain", "env:"])
def test_secret_that_is_not_there_is_named_and_never_shown(tmp_path: Path, source: str) -> None:
    with pytest.raises(StartRefused):
        SecretSources(tmp_path, {}).read(source)


def test_secret_file_open_to_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "peer").write_text("tg_x_hunter2\n")
    (tmp_path / "peer").chmod(0o644)
    with pytest.raises(StartRefused) as caught:
        SecretSources(tmp_path, {}).read("file:peer")
    assert "hunter2" not in str(caught.value)
    (tmp_path / "peer").chmod(0o600)
    assert SecretSources(tmp_path, {}).read("file:peer") == "tg_x_hunter2"


# Four processes, chaos, one twin


class Chaos:
    """Four arbiters and a twin of the first, and what was done to them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.council = [make_arbiter(folder / name) for name in ("a", "b", "c", "d")]
        self.twin = make_twin(folder / "twin", self.council[0])
        self.everybody = [*self.council, self.twin]
        connect(self.everybody, self.council, more="gossip_ms = 200")
        self.network = Network([bytes.fromhex(each.public_key) for each in self.council], 2)
        self.log: list[str] = []
        self.paused: list[Arbiter] = []
        self.opened: dict[str, int] = {}
        """Round -> event number."""
        self.told: list[bytes] = []
        """Votes of honest arbiters that were acknowledged."""
        self.number = 0

    def into(self, arbiter: Arbiter) -> list[Link]:
        if arbiter is self.twin:
            return []
        return [other.links[arbiter.name] for other in self.everybody if arbiter.name in other.links]

    def start(self, arbiter: Arbiter) -> None:
        arbiter.start(self.into(arbiter))

    def begin(self) -> None:
        """The twin says something else than its original in the same round, before either hears of the other."""
        for each in self.everybody:
            self.start(each)
        for link in self.twin.links.values():
            link.shut()
        first = self.council[0].call("propose", event=event(1001))
        second = self.twin.call("propose", event=event(1002))
        assert first["round_id"] == second["round_id"]
        self.log.append("conflicting twin vote")
        for link in self.twin.links.values():
            link.heal()

    def step(self) -> None:
        act = self.dice.choice(
            [
                self.propose,
                self.propose,
                self.vote,
                self.vote,
                self.vote,
                self.kill,
                self.pause,
                self.resume,
                self.partition,
                self.heal,
            ]
        )
        act()

    def free(self) -> list[Arbiter]:
        return [each for each in self.council if each not in self.paused and each.process is not None]

    def propose(self) -> None:
        arbiter = self.dice.choice(self.free())
        self.number += 1
        answer = arbiter.call("propose", event=event(self.number))
        self.opened[answer["round_id"]] = self.number
        self.log.append(f"propose {answer['round_id']}")

    def vote(self) -> None:
        if not self.opened:
            return
        arbiter, round_id = self.dice.choice(self.free()), self.dice.choice(sorted(self.opened))
        answer = arbiter.call("vote", round_id=round_id, vote=ballot(self.opened[round_id]))
        if "sig_b64" in answer and arbiter is not self.council[0]:
            self.told.append(base64.b64decode(answer["envelope_b64"]))
        self.log.append(f"vote {round_id}")

    def kill(self) -> None:
        if len(self.free()) < 3:
            return
        arbiter = self.dice.choice(self.free())
        arbiter.kill()
        self.log.append("kill")
        self.start(arbiter)

    def pause(self) -> None:
        if len(self.free()) < 3:
            return
        arbiter = self.dice.choice(self.free())
        arbiter.signal(signal.SIGSTOP)
        self.paused.append(arbiter)
        self.log.append("pause")

    def resume(self) -> None:
        if self.paused:
            self.paused.pop().signal(signal.SIGCONT)
            self.log.append("resume")

    def partition(self) -> None:
        cut_off = self.dice.choice(self.council)
        for link in [*cut_off.links.values(), *self.into(cut_off)]:
            link.shut()
        self.log.append("partition")

    def heal(self) -> None:
        for each in self.everybody:
            for link in each.links.values():
                link.heal()
        self.log.append("heal")

    def settle(self) -> list[engine.ArbiterStatus]:
        """Everything heals; everybody honest votes on everything; then they must come to one state."""
        self.heal()
        while self.paused:
            self.resume()

        def look() -> list[engine.ArbiterStatus] | None:
            found = [each.status(self.network) for each in self.council]
            return found if len({each.state for each in found}) == 1 else None

        agreed = until(look, f"they agree after {self.log}", 2 * PATIENCE_S)
        assert agreed is not None
        return agreed

    def end(self) -> None:
        while self.paused:
            self.resume()
        for each in self.everybody:
            each.stop()
            for link in each.links.values():
                link.close()


@pytest.mark.guard
@pytest.mark.timeout(300)
def test_four_servers_survive_kills_pauses_partitions_and_a_twin(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, seed=7)
    try:
        chaos.begin()
        for act in (chaos.propose, chaos.partition, chaos.vote, chaos.kill, chaos.heal, chaos.pause, chaos.propose):
            act()
        for _ in range(25):
            chaos.step()
        chaos.settle()
        for round_id, number in sorted(chaos.opened.items()):
            for arbiter in chaos.council[1:]:
                answer = arbiter.call("vote", round_id=round_id, vote=ballot(number))
                assert "sig_b64" in answer or "ALREADY_VOTED" in json.dumps(answer), answer
        sealed = people(chaos.council[1], "seal", "--json")
        assert sealed.returncode == 0, sealed.stderr
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = chaos.settle()
            if {each.epoch for each in found} == {1}:
                break
        assert {each.epoch for each in found} == {1}
        _judge(chaos, found, tmp_path)
    finally:
        chaos.end()
    for word in ("kill", "pause", "partition", "conflicting twin vote"):
        assert word in chaos.log, f"the run never had a {word}"
    for each in chaos.everybody:
        assert "Traceback" not in (each.home.path / "stderr.txt").read_text()


def _judge(chaos: Chaos, found: list[engine.ArbiterStatus], folder: Path) -> None:
    liar = sender_id(bytes.fromhex(chaos.council[0].public_key)).hex()
    for status in found:
        assert status.equivocators == [liar], "the twin is convicted everywhere, and nobody else"
        assert status.outcomes["SAFETY_FAULT"] == 0
        assert status.outcomes["ACCEPTED"] == len(chaos.opened) + 1, "every round was decided, and the seal"
    shown = [
        json.loads(person(each, "show", round_id, "--json").stdout)
        for each in chaos.council[1:]
        for round_id in sorted(chaos.opened)[:2]
    ]
    assert all(len(each["certificates"]) == 1 for each in shown)
    kept = {
        message["envelope"]
        for arbiter in chaos.council[1:2]
        for round_id in sorted(chaos.opened)
        for message in json.loads(person(arbiter, "show", round_id, "--json").stdout)["messages"]
    }
    assert all(vote.hex() in kept for vote in chaos.told), "no acknowledged vote was lost"
    first = str(chaos.network.index_of(bytes.fromhex(liar)) + 1)
    proofs = json.loads(person(chaos.council[3], "show", first, "--json").stdout)["equivocations"]
    evidence = folder / "proof.hex"
    evidence.write_text(proofs[0]["evidence"])
    verified = person(chaos.council[2], "verify", str(evidence), "--json")
    assert json.loads(verified.stdout)["sender_id"] == liar


@pytest.mark.guard
@pytest.mark.timeout(300)
def test_d17_others_decide_the_round_of_a_dead_proposer_and_split_rounds_are_proposed_again(tmp_path: Path) -> None:
    """No leader, so no view change: what a proposer said lives in the others, and any of them opens the next round."""
    council = [make_arbiter(tmp_path / name) for name in ("a", "b", "c", "d")]
    connect(council, council, more="gossip_ms = 100")
    network = Network([bytes.fromhex(each.public_key) for each in council], 2)
    dead, *living = council
    into = {each.name: [other.links[each.name] for other in council if other is not each] for each in council}
    try:
        for each in council:
            each.start(into[each.name])
        orphan = dead.call("propose", event=event(1))["round_id"]
        until(lambda: "level" in living[0].call("finality", round_id=orphan), "one other arbiter has heard of it")
        dead.kill()
        for each in living[:2]:
            until(lambda each=each: "sig_b64" in each.call("vote", round_id=orphan, vote=ballot(1)), "a vote")
        until(lambda: _outcome(living[2], orphan) == "ACCEPTED", "a quorum with the dead proposer's own vote")

        split = living[0].call("propose", event=event(2))["round_id"]
        for each, kind in ((living[1], "REJECT"), (living[2], "ABSTAIN")):
            said = ballot(2, kind)
            until(lambda each=each, said=said: "sig_b64" in each.call("vote", round_id=split, vote=said), "a vote")
        for each in living:
            until(lambda each=each: _outcome(each, split) == "SPLIT", "everybody sees that nothing can come of it")
        shown = person(living[0], "show", split).stdout
        assert "propose again" in shown
        assert f"not heard of: {sender_id(bytes.fromhex(dead.public_key)).hex()[:12]}" in shown
        assert "SPLIT 1" in person(living[0], "status").stdout
        again = living[1].call("propose", event=event(2))["round_id"]
        for each in (living[0], living[2]):
            until(lambda each=each: "sig_b64" in each.call("vote", round_id=again, vote=ballot(2)), "a vote")
        until(lambda: _outcome(living[0], again) == "ACCEPTED", "the new round is decided")

        dead.start(into[dead.name])
        until(lambda: len({each.status(network).state for each in council}) == 1, "the proposer catches up")
        assert _outcome(dead, orphan) == _outcome(dead, again) == "ACCEPTED"

        ways = [*dead.links.values(), *into[dead.name]]
        for way in ways:
            way.shut()
        unheard = dead.call("propose", event=event(3))["round_id"]
        dead.kill()
        refused = living[0].call("vote", round_id=unheard, vote=ballot(3))["error"]
        assert refused["data"]["reason"] == "round_not_found", "what nobody heard was never proposed"
        instead = living[0].call("propose", event=event(3))["round_id"]
        for each in living[1:]:
            until(lambda each=each: "sig_b64" in each.call("vote", round_id=instead, vote=ballot(3)), "a vote")
        until(lambda: _outcome(living[0], instead) == "ACCEPTED", "the others need nobody to replace")
        for way in ways:
            way.heal()
        dead.start(into[dead.name])
        until(lambda: _outcome(living[0], unheard) == "OPEN", "the late proposal is a round like any other")
    finally:
        for each in council:
            each.stop()
            for link in each.links.values():
                link.close()


def _outcome(arbiter: Arbiter, round_id: str) -> str | None:
    return arbiter.call("finality", round_id=round_id).get("outcome")
