"""Children: nothing of one outlives the gate, whatever it does, and no secret shows on the way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import need
from tests.upstreams.homes import adopting_home, ask, stub_table
from tests.upstreams.support import alive, lines, program, say, stub
from tests.waiting import soon
from toolgate.errors import UpstreamFailed
from toolgate.powers.mcp.children import ChildRegister, Program, birth, environment_for, open_child, start_child
from toolgate.powers.mcp.failures import NotSent
from toolgate.powers.mcp.sandbox import confined
from toolgate.powers.mcp.upstream import UpstreamEvent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

GATE = """
import asyncio, json, sys
from toolgate.powers.mcp.children import Program, start_child

async def main():
    child = await start_child(Program(**json.loads(sys.argv[1])))
    print(child.pid, child.supervisor, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def gate(started: Program) -> subprocess.Popen[str]:
    """A process of its own that has a child, as the gate has."""
    fields = {"command": started.command, "environment": dict(started.environment), "grace_s": started.grace_s}
    return subprocess.Popen([sys.executable, "-c", GATE, json.dumps(fields)], stdout=subprocess.PIPE, text=True)


def pids(log: Path) -> list[int]:
    return [int(line) for line in lines(log, "pid")]


@pytest.mark.parametrize("behaviour", ["good", "ignore TERM", "fork and hold"])
def test_nothing_of_a_child_outlives_a_killed_gate(behaviour: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    wanted = 2 if behaviour == "fork and hold" else 1
    with gate(program(behaviour, log)) as process:
        assert process.stdout is not None
        child, supervisor = (int(word) for word in process.stdout.readline().split())
        asyncio.run(soon(lambda: len(pids(log)) == wanted))
        process.kill()
    asyncio.run(soon(lambda: not any(alive(pid) for pid in [*pids(log), child, supervisor])))


@pytest.mark.parametrize("behaviour", ["good", "ignore TERM", "fork and hold"])
def test_nothing_of_a_child_outlives_its_connection(behaviour: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    wanted = 2 if behaviour == "fork and hold" else 1

    async def scenario() -> None:
        line = await open_child(program(behaviour, log))
        await soon(lambda: len(pids(log)) == wanted)
        await line.close()

    asyncio.run(scenario())
    assert not any(alive(pid) for pid in pids(log))


def test_a_killed_supervisor_takes_the_program_along(tmp_path: Path) -> None:
    async def scenario() -> None:
        child = await start_child(program("good", tmp_path / "log"))
        await soon(lambda: bool(pids(tmp_path / "log")))
        os.kill(child.supervisor, signal.SIGKILL)
        await soon(lambda: not alive(child.pid))
        await child.discard()

    asyncio.run(scenario())


def test_what_a_killed_gate_left_is_reaped_by_the_next(tmp_path: Path) -> None:
    births = ChildRegister(tmp_path / "births")
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True) as left:
        record = {"pid": left.pid, "born": birth(left.pid), "gate": 1, "gateBorn": -1}
        (tmp_path / "births").mkdir()
        (tmp_path / "births" / f"{left.pid}.json").write_text(json.dumps(record))
        assert births.reap() == [left.pid]
    assert births.reap() == []


def test_a_process_that_only_has_the_number_of_a_child_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "births").mkdir()
    record = {"pid": os.getpid(), "born": 1, "gate": 1, "gateBorn": -1}
    (tmp_path / "births" / f"{os.getpid()}.json").write_text(json.dumps(record))
    (tmp_path / "births" / "broken.json").write_text("{")
    assert ChildRegister(tmp_path / "births").reap() == []
    assert list((tmp_path / "births").iterdir()) == []


def test_the_children_of_a_living_gate_are_left_alone(tmp_path: Path) -> None:
    births = ChildRegister(tmp_path / "births")

    async def scenario() -> None:
        async with stub("good", births=births) as upstream:
            await say(upstream)
            assert ChildRegister(tmp_path / "births").reap() == []  # as another gate of the same home would
            assert await say(upstream) == "hello"

    asyncio.run(scenario())


def test_a_child_is_noted_while_it_lives(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stub("good", births=ChildRegister(tmp_path / "births")) as upstream:
            await say(upstream)
            assert len(list((tmp_path / "births").iterdir())) == 1

    asyncio.run(scenario())
    assert list((tmp_path / "births").iterdir()) == []


def test_no_secret_is_in_any_command_line(tmp_path: Path) -> None:
    canary = "canary-7f3a"

    def shown() -> str:
        found = b""
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found += process.read_bytes()
            except OSError:
                continue
        return found.decode(errors="replace")

    async def scenario() -> str:
        async with stub("environment", environment={"TOKEN": canary}) as upstream:
            assert canary in await say(upstream)  # it was given
            return shown()

    assert canary not in asyncio.run(scenario())


def test_a_program_that_is_not_there_is_named_with_the_fix() -> None:
    async def scenario() -> None:
        await start_child(Program(("no-such-program-here",), {"PATH": "/usr/bin"}))

    with pytest.raises(NotSent, match=r"no-such-program-here.*full path") as failed:
        asyncio.run(scenario())
    assert failed.value.reason == "not_found"


def test_a_program_that_cannot_be_run_says_why(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    plain.chmod(0o755)

    async def scenario() -> None:
        await start_child(Program((str(plain),), {}))

    with pytest.raises(NotSent, match="Exec format error"):
        asyncio.run(scenario())


def test_memory_of_a_child_is_limited() -> None:
    code = "x = bytearray(300_000_000); import time; time.sleep(600)"

    async def scenario() -> int | None:
        limited = Program((sys.executable, "-c", code), {}, memory_bytes=200_000_000, grace_s=10)
        child = await start_child(limited)
        try:
            return await child.ended()
        finally:
            await child.discard()

    assert asyncio.run(scenario()) == 1  # MemoryError


PRIVILEGES = """
import pathlib, subprocess, sys
print(*(line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if "NoNewPrivs" in line), flush=True)
if len(sys.argv) == 2:
    subprocess.run([sys.executable, "-c", sys.argv[1]])
"""


def test_a_child_and_what_it_starts_gain_no_privileges() -> None:
    async def scenario() -> bytes:
        child = await start_child(Program((sys.executable, "-c", PRIVILEGES, PRIVILEGES), {}))
        try:
            os.set_blocking(child.pipes.stdout, True)
            return await asyncio.to_thread(lambda: b"".join(iter(lambda: os.read(child.pipes.stdout, 4096), b"")))
        finally:
            await child.discard()

    assert asyncio.run(scenario()).split() == [b"NoNewPrivs:", b"1"] * 2


def test_a_child_that_died_is_started_again_and_one_that_keeps_dying_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    events: list[UpstreamEvent] = []
    now = [0.0]

    async def scenario() -> None:
        async with stub("exit", log, events=events, clock=lambda: now[0]) as upstream:
            waits = []
            for _ in range(4):
                for _ in range(3):  # within the pause nothing is started
                    with pytest.raises(UpstreamFailed) as failed:
                        await say(upstream)
                waits.append(failed.value.retry_after_s)
                now[0] += failed.value.retry_after_s or 0
            assert waits == sorted(waits)
            assert waits[-1] > waits[0]

    asyncio.run(scenario())
    assert [event.kind for event in events] == ["down"]


CONFINED = """
import json, os, sys
def tried(act):
    try:
        act()
        return "done"
    except OSError as fault:
        return type(fault).__name__
inside, home = sys.argv[1:]
print(json.dumps({
    "inside": tried(lambda: open(inside + "/mine", "w").close()),
    "outside": tried(lambda: open("/var/tmp/toolgate-confined", "w").close()),
    "temporary": tried(lambda: open("/tmp/toolgate-confined", "w").close()),
    "home": os.listdir(home),
    "processes": sum(name.isdigit() for name in os.listdir("/proc")) < 5,
}), flush=True)
sys.stdin.read()
"""


def test_a_confined_program_writes_to_its_directory_alone_and_sees_nothing_of_the_gates(tmp_path: Path) -> None:
    need("bubblewrap")
    inside, home = tmp_path / "inside", tmp_path / "home"
    inside.mkdir()
    (home / "secrets").mkdir(parents=True)
    (home / "secrets" / "token").write_text("canary")
    environment = environment_for({}, os.environ)
    asked = (sys.executable, "-c", CONFINED, str(inside), str(home))
    command = confined(asked, str(inside), [home], environment.get("PATH"))

    async def scenario() -> bytes:
        child = await start_child(Program(command, environment, str(inside)))
        try:
            os.set_blocking(child.pipes.stdout, True)
            return await asyncio.to_thread(os.read, child.pipes.stdout, 4096)
        finally:
            await child.discard()

    found = json.loads(asyncio.run(scenario()))
    written = {"inside": "done", "outside": "OSError", "temporary": "done"}
    assert found == {**written, "home": [], "processes": True}
    assert (inside / "mine").exists()
    assert not Path("/tmp/toolgate-confined").exists()


def test_a_program_that_is_to_be_confined_does_not_run_without_bubblewrap(tmp_path: Path) -> None:
    with pytest.raises(NotSent, match="install bubblewrap") as failed:
        confined(("true",), "/", [], str(tmp_path))
    assert failed.value.reason == "no_sandbox"


def test_a_confined_upstream_is_called_through_its_confinement(tmp_path: Path) -> None:
    """The whole way: settings, adoption, a call; and what it hides is hidden from a stub that works otherwise."""
    need("bubblewrap")
    work = tmp_path / "work"
    work.mkdir()
    table = {**stub_table("good", work / "log"), "sandbox": "bubblewrap", "directory": str(work)}
    home = adopting_home(tmp_path / "home", {"stub": table})
    with home.serving() as server:
        status, body = ask("mrt", server.port, ("stub", "echo"), {"text": "hello"}, home.keys["admin"])
    assert status == 200, body
    assert lines(work / "log", "call") == ["echo"]
