"""A real server whose log cannot grow: the kernel's own file-size limit, set on the running process."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from tests.faces import speak
from tests.homes import Home, Server, make_home
from tests.ledger import world
from toolgate.cli.main import main
from toolgate.ledger import LOG_PATH

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux sets limits of a running process")
QUIET = ("--ledger-checkpoint-seconds", "3600")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home", packs=("unruly",))


def log_size(home: Home) -> int:
    return max(path.stat().st_size for path in world.segments(home.path / "runs" / LOG_PATH))


def limit(server: Server, size: int) -> None:
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def write(server: Server, home: Home, name: str) -> speak.Heard:
    return speak.mrt(server.port, "unruly_write", {"name": name}, home.keys["admin"])


def test_without_room_for_the_intent_nothing_runs_and_space_that_returns_is_found(home: Home) -> None:
    with home.serving(*QUIET) as server:
        assert write(server, home, "before").status == 200
        limit(server, log_size(home) + 200)
        for face, ask in speak.HTTP_FACES.items():
            heard = ask(server.port, "unruly_write", {"name": "never"}, home.keys["admin"])
            assert heard.status == (200 if face.startswith("mcp") else 503), face
            assert heard.code in ("unavailable", (-32603, "INTERNAL_ERROR"), "UNAVAILABLE")
        assert speak.mrt(server.port, "unruly_echo", {}, home.keys["admin"]).status == 503
        assert speak.mrt(server.port, "unruly_nothing", {}, home.keys["admin"]).status == 503
        assert not (home.workspace / "never").exists()
        limit(server, resource.RLIM_INFINITY)
        assert write(server, home, "after").status == 200
    assert {path.name for path in home.workspace.iterdir()} == {"before", "after"}
    assert [one["status"] for one in home.calls()] == ["ok"] * 4
    assert main(["audit", "verify", "--home", str(home.path)]) == 0


def test_without_room_for_the_outcome_the_answer_is_withheld_and_the_next_start_tells(home: Home) -> None:
    with home.serving(*QUIET) as server:
        assert write(server, home, "before").status == 200
        intent = next(len(json.dumps(one, separators=(",", ":"))) for one in home.calls() if one["event"] == "intent")
        limit(server, log_size(home) + intent + 100)
        heard = write(server, home, "unknown")
        assert (heard.status, heard.body["details"]) == (503, {"effect": "unknown"})
        assert (home.workspace / "unknown").exists()
    lost = [one for one in home.calls() if one["event"] == "intent"][-1]["requestId"]
    with home.serving():
        pass
    recovered = next(one["recovered"] for one in home.records() if one["event"] == "recovered")
    assert [one["requestId"] for one in recovered["unfinished"]] == [lost]
    assert main(["audit", "verify", "--home", str(home.path)]) == 0
