"""`toolgate status` and `toolgate reload`, as a person or a program asks the servers of a home."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, environment, make_home
from tests.waiting import until


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Server]]:
    deep = tmp_path_factory.mktemp("status") / ("a-home-whose-path-is-longer-than-a-socket-s-name-may-be" * 2)
    home = make_home(deep, packs=("unruly",))
    with home.serving() as server:
        yield home, server


def toolgate(home: Home, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = home.command(*arguments)
    return subprocess.run(command, env=environment(), capture_output=True, timeout=PATIENCE_S, check=False)


def status(home: Home) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(toolgate(home, "status", "--json").stdout)
    return found


def test_status_tells_calls_under_way_limits_stores_and_what_differs(served: tuple[Home, Server]) -> None:
    home, server = served
    for name in ("release", "inside"):
        (home.workspace / name).unlink(missing_ok=True)
    call = threading.Thread(target=lambda: speak.mrt(server.port, "unruly_wait", {}, home.keys["admin"]))
    call.start()
    until((home.workspace / "inside").exists, "the call is under way")
    (found,) = status(home)
    (home.workspace / "release").touch()
    call.join(PATIENCE_S)
    (worker,) = found["workers"]
    assert found["pid"] == worker["pid"] == server.process.pid
    assert (found["url"], found["ready"]) == (server.ready["url"], True)
    assert [each["tool"] for each in worker["calls"]] == ["unruly_wait"]
    assert (found["limits"]["held"], found["limits"]["perCaller"], found["limits"]["shared"]) == (1, 10, False)
    assert found["stores"]["environment"] == "local"
    assert found["upstreams"] == []
    assert (found["reload"]["count"], found["reload"]["differs"]) == (0, [])
    assert worker["run"] in {record["run"] for record in home.records()}


def test_people_read_the_same_in_lines(served: tuple[Home, Server]) -> None:
    home, server = served
    said = toolgate(home, "status")
    assert said.returncode == 0, said.stderr
    assert f"server {server.process.pid}  {server.ready['url']}  ready" in said.stdout.decode()
    assert "limits 0 of 128 calls, 10 a key, no rate, in memory" in said.stdout.decode()


def test_reload_says_what_came_of_it_and_its_exit_code_too(served: tuple[Home, Server]) -> None:
    home, _ = served
    good = toolgate(home, "reload")
    assert (good.returncode, b"nothing had changed" in good.stdout) == (0, True), good.stderr
    adr = home.path / "policy" / "mcp-tools.policy.json"
    before = adr.read_bytes()
    adr.write_bytes(b"{")
    try:
        bad = toolgate(home, "reload")
        assert (bad.returncode, b"still serves what it served" in bad.stderr) == (1, True)
        (found,) = status(home)
        assert found["reload"]["refused"]
    finally:
        adr.write_bytes(before)


def test_the_socket_is_its_owner_s_alone(served: tuple[Home, Server]) -> None:
    home, _ = served
    (socket,) = (home.path / "state" / "control").iterdir()
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700


def test_without_a_server_the_fault_and_the_fix_are_named_and_a_dead_one_s_socket_goes(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    control = home.path / "state" / "control"
    with home.serving() as server:
        (socket,) = control.iterdir()
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(PATIENCE_S)
        assert socket.exists()
        said = toolgate(home, "status")
    assert (said.returncode, said.stdout) == (1, b"")
    assert b"toolgate serve" in said.stderr
    assert list(control.iterdir()) == []


def test_a_server_that_stops_takes_its_socket_along(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    with home.serving():
        assert len(list((home.path / "state" / "control").iterdir())) == 1
    assert list((home.path / "state" / "control").iterdir()) == []
