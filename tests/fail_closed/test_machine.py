"""The log's disk, the clock, the policy and an upstream are broken under a real server; the page says what was seen."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.cli.support import Done, process
from tests.faces import speak
from tests.fail_closed.page import READY, Table, ended, readiness
from tests.homes import PATIENCE_S, ROOT, SITE, Home, Server, make_home
from tests.ledger import world
from tests.packs.consensus.nodes import event
from tests.packs.consensus.servers import make_arbiter
from tests.ports import free_port
from tests.support import need
from tests.upstreams.homes import Swapping, adopting_home, ask
from tests.waiting import until
from toolgate.cli.main import main
from toolgate.ledger import LOG_PATH
from toolgate.policy.manifest import MANIFEST_FILE

LOG, REST = Table("log"), Table("rest")
DAY_S = 86_400
pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux sets limits of a running process")


class Machine:
    """A server on a machine that can be spoiled."""

    def __init__(self, folder: Path) -> None:
        self.home: Home = make_home(folder / "home", packs=("unruly",))
        self.fault = folder / "fault"
        self.server: Server

    @contextmanager
    def serving(self) -> Iterator[None]:
        path = os.pathsep.join([str(ROOT / "tests" / "fail_closed" / "machine"), str(SITE)])
        within = ["env", f"PYTHONPATH={path}", f"FAULTS_FILE={self.fault}"]
        with self.home.serving("--ledger-checkpoint-seconds", "3600", within=within) as self.server:
            yield

    @contextmanager
    def full(self) -> Iterator[None]:
        """The kernel's own limit of a file's size: a write fails as on a full disk."""
        size = max(path.stat().st_size for path in world.segments(self.home.path / "runs" / LOG_PATH))
        self._limit(size + 100)
        yield
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        resource.prlimit(self.server.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    @contextmanager
    def spoilt(self, word: str) -> Iterator[None]:
        self.fault.write_text(word)
        yield
        self.fault.write_text("")

    def read(self) -> str:
        return ended(self.home, self.server, "unruly_echo", {})

    def write(self, name: str) -> str:
        return ended(self.home, self.server, "unruly_write", {"name": name})

    def is_error_on_mcp(self, name: str) -> bool:
        heard = speak.mcp_modern(self.server.port, "unruly_write", {"name": name}, self.home.keys["admin"])
        return bool(heard.envelope and heard.envelope["isError"])

    def has_run(self, name: str) -> bool:
        return (self.home.workspace / name).exists()

    def verified(self) -> bool:
        return main(["audit", "verify", "--home", str(self.home.path)]) == 0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


DISKS: dict[str, Callable[[Machine], AbstractContextManager[None]]] = {
    "the log's disk is full": Machine.full,
    "the log's disk is read-only": lambda machine: machine.spoilt("readonly"),
}
SLOW = "the log's disk does not answer"
CLOCK = "the clock jumps a day ahead, or back"
POLICY = "the policy is not JSON, at the start"
RELOADED = "the policy is not JSON, at a reload"
UPSTREAM = "an upstream hangs"
BROKER = "NATS is down, and is started again"


@pytest.mark.guard
@pytest.mark.parametrize("fault", DISKS)
def test_while_the_log_cannot_be_written_nothing_runs(fault: str, machine: Machine) -> None:
    with machine.serving():
        assert machine.write("before") == "OK"
        with DISKS[fault](machine):
            said = {machine.read(), machine.write("never")}
            assert machine.is_error_on_mcp("never")
            ready = readiness(machine.server)
        until(lambda: machine.write("after") == "OK", "it goes on without a restart")
        until(lambda: readiness(machine.server) == READY, "it is ready")
    assert not machine.has_run("never")
    assert machine.verified()
    assert len(said) == 1
    LOG.hold(fault, f"{said.pop()}, on MCP a result with `isError`; nothing runs", ready, "only that", "by itself")


@pytest.mark.guard
def test_while_the_logs_disk_does_not_answer_effects_are_refused_and_reads_go_on(machine: Machine) -> None:
    with machine.serving():
        assert machine.write("before") == "OK"
        with machine.spoilt("slow"):
            said = machine.write("never")  # waits as long as a disk is waited for
            ready = until(lambda: readiness(machine.server).removesuffix(READY), "it is not ready")
            at_once = machine.write("never")
            reads = machine.read()
        until(lambda: readiness(machine.server) == READY, "it is ready")
        assert machine.write("after") == "OK"
    assert not machine.has_run("never")
    assert machine.verified()
    assert said == at_once
    calls = f"effects: {said}, the first after 5 s, and nothing runs; reads: {reads}"
    LOG.hold(SLOW, calls, ready, "only that", "by itself")


@pytest.mark.guard
def test_a_clock_that_jumps_changes_nothing_but_times_and_what_has_expired(machine: Machine) -> None:
    _, soon = machine.home.ring().create("admin", expires=time.time() + DAY_S / 2)
    home = Home(machine.home.path, machine.home.keys | {"soon": soon})
    with machine.serving():
        said, ready, expired = set(), set(), set()
        for hours in (24, -24):
            with machine.spoilt(f"clock {hours * 3600}"):
                said |= {machine.read(), machine.write(f"at{hours}")}
                expired.add(ended(home, machine.server, "unruly_echo", {}, "soon"))
                ready.add(readiness(machine.server))
        until(lambda: machine.read() == "OK", "it goes on")
    assert machine.verified()
    assert said == {"OK"}
    assert expired == {"OK", "403 `auth_invalid_api_key`"}
    REST.hold(
        CLOCK,
        "served; deadlines and rates are not wall time. A key that the clock says has expired is 403 `auth_invalid_api_key`",
        *ready,
        "times in the audit log jump; its order and `audit verify` do not depend on them",
        "by itself",
    )


@pytest.mark.guard
def test_a_broken_policy_refuses_the_start_and_says_where(machine: Machine) -> None:
    file = machine.home.path / "policy" / MANIFEST_FILE
    file.write_text(file.read_text()[:-20])
    done = process(
        "serve", "--home", str(machine.home.path), "--port", "0", cwd=machine.home.path, PYTHONPATH=str(SITE)
    )
    assert MANIFEST_FILE in done.err
    REST.hold(
        POLICY,
        "none: the server does not start",
        "none",
        f"exit {done.code}; standard error names `{MANIFEST_FILE}` and the place",
        "when the file is mended and the server is started",
    )


@pytest.mark.guard
def test_a_broken_policy_at_a_reload_keeps_the_old_one_and_is_said(machine: Machine) -> None:
    home, file = machine.home, machine.home.path / "policy" / MANIFEST_FILE
    whole = file.read_text()

    def reload() -> Done:
        return process("reload", "--home", str(home.path), cwd=home.path, PYTHONPATH=str(SITE))

    with machine.serving():
        file.write_text(whole[:-20])
        refused = reload()
        said = {machine.read(), machine.write("still")}
        ready, differs = readiness(machine.server), _differs(machine.server)
        file.write_text(whole)
        mended = reload()
        assert (_differs(machine.server), machine.write("after")) == ([], "OK")
    assert MANIFEST_FILE in refused.out + refused.err
    assert (said, refused.code, mended.code) == ({"OK"}, 1, 0)
    acts = [
        record["status"]
        for record in home.records()
        if (record.get("act"), record.get("stage")) == ("reload", "outcome")
    ]
    assert acts == ["error", "ok"]
    assert machine.verified()
    REST.hold(
        RELOADED,
        f"served by the policy that was read before: {said.pop()}",
        f"{ready}, `differs`: {', '.join(f'`{each}`' for each in differs)}",
        f"`toolgate reload`: exit {refused.code}, names `{MANIFEST_FILE}` and the place; the refused `reload` in the audit log",
        "when the file is mended and read again",
    )


def _differs(server: Server) -> list[str]:
    with urlopen(f"{server.ready['url']}/readyz", timeout=PATIENCE_S) as page:
        return list(json.load(page).get("differs", []))


@pytest.mark.guard
def test_an_upstream_that_hangs_ends_its_own_calls_at_their_deadline(tmp_path: Path) -> None:
    swapping = Swapping(tmp_path)
    table = swapping.table(deadline_s=1.0, concurrency=4)
    home = adopting_home(tmp_path / "home", {"stub": table}, packs=("unruly",))
    with home.serving() as server, ThreadPoolExecutor() as threads:
        assert ask("mrt", server.port, ("stub", "echo"), {"text": "x"}, home.keys["admin"])[0] == 200
        child = _child_of(server)
        os.kill(child, signal.SIGSTOP)
        try:
            waits: Future[tuple[int, dict[str, object]]] = threads.submit(
                ask, "mrt", server.port, ("stub", "echo"), {"text": "x"}, home.keys["admin"]
            )
            others = ended(home, server, "unruly_echo", {})
            status, body = waits.result()
            ready = readiness(server)
        finally:
            os.kill(child, signal.SIGCONT)
        until(
            lambda: ask("mrt", server.port, ("stub", "echo"), {"text": "x"}, home.keys["admin"])[0] == 200,
            "it is served again",
        )
    assert [record["status"] for record in home.calls() if record["event"] == "outcome"].count("error") >= 1
    reason = (body.get("details") or {}).get("reason")  # type: ignore[attr-defined]
    REST.hold(
        UPSTREAM,
        f"its own: {status} `{reason or body.get('error_code')}` at the deadline; others: {others}",
        ready,
        "the outcome in the audit log",
        "by itself",
    )


def _child_of(server: Server) -> int:
    import psutil

    return int(
        next(
            child.pid
            for child in psutil.Process(server.process.pid).children(recursive=True)
            if _is_stub(child.cmdline())
        )
    )


def _is_stub(command: list[str]) -> bool:
    return any(word.endswith("stub.py") for word in command)


@pytest.mark.guard
def test_without_its_broker_an_arbiter_serves_and_finds_it_again(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    arbiter = make_arbiter(tmp_path / "alone", 'nats = "env:BROKER"\nseal_every_s = 3600\ngossip_ms = 50')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BROKER", broker.url)
        arbiter.start([])
    try:
        until(broker.is_used, "it is connected")
        broker.stop()
        server = Server(None, {"url": f"http://127.0.0.1:{arbiter.port}"})  # type: ignore[arg-type]  # its process is the arbiter's
        said = ended(arbiter.home, server, "consensus_propose", {"event": event()})
        ready = readiness(server)
        broker.start()
        until(broker.is_used, "it is connected again")
    finally:
        arbiter.stop()
        broker.stop()
    told = (arbiter.home.path / "stderr.txt").read_text()
    REST.hold(
        BROKER,
        f"served: {said}; votes reach the other arbiters when it is back, or over HTTP",
        ready,
        "a line on standard error" if told else "only that",
        "by itself",
    )


class Broker:
    """A NATS server that can be stopped and started again on its port, with a page that tells who is connected."""

    def __init__(self, folder: Path) -> None:
        self._program = need("nats")
        self._port, self._page = free_port(), free_port()
        self.url = f"nats://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [self._program, "-a", "127.0.0.1", "-p", str(self._port), "-m", str(self._page)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def is_used(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self._page}/connz", timeout=PATIENCE_S) as page:
                return bool(json.load(page)["num_connections"])
        except OSError:
            return False


def test_the_page_has_a_row_for_each_fault_and_no_other() -> None:
    assert LOG.faults() == sorted([*DISKS, SLOW])
    assert REST.faults() == sorted([CLOCK, POLICY, RELOADED, UPSTREAM, BROKER])
