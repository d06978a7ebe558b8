"""The stop button: what it stops, on every process, and what a file that cannot be read does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.cli.support import Commands
from tests.faces import speak
from tests.gate.conftest import Gate
from tests.homes import Home, make_home
from toolgate.errors import Ending, Refusal
from toolgate.gate.admit import Grant, Ticket
from toolgate.gate.authority import stops as module
from toolgate.gate.authority.stops import LOOK_S, STOPS_FILE, Stop, Stops, StopsFault, new_stop
from toolgate.gate.sessions.watch import Watch, Watched, WatchStream
from toolgate.model.call import Call, Caller, Wire
from toolgate.model.clock import Ids
from toolgate.model.tool import Context, Foreign

ONE, TWO = Caller("one", "admin"), Caller("two", "admin")


class ByHand:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def wall(self) -> float:
        return self.seconds

    monotonic = wall


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else looks at these files, so nobody waits for others to have looked."""
    monkeypatch.setattr(module, "sleep", lambda _: None)


@pytest.fixture
def clock() -> ByHand:
    return ByHand()


@pytest.fixture
def stops(tmp_path: Path, clock: ByHand) -> Stops:
    return Stops(tmp_path / STOPS_FILE, clock)


@pytest.fixture(scope="module")
def grants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Grant]]:
    """By name: the tools of a pack, and one of them as if it were an upstream's."""
    home = make_home(tmp_path_factory.mktemp("stops") / "home", packs=("unruly",))
    gate = Gate(home, home.app())
    found = {grant.tool.name: grant for grant in gate.app.road.admission.permits.all()}
    echo = found["unruly_echo"]
    foreign = replace(echo.tool, name="git_push", foreign=Foreign("git", "pin", {}))
    yield {**found, "git_push": replace(echo, tool=foreign)}
    gate.run(gate.app.close())
    gate.loop.close()


def stop(*, until: float | None = None, reason: str = "", **scope: str) -> Stop:
    named: dict[str, Any] = {"tool": None, "caller": None, "upstream": None} | scope
    return new_stop(**named, reason=reason, since=0.0, until=until)


def refused(stops: Stops, caller: Caller, grant: Grant) -> Refusal | None:
    """As the road asks: only when it is due."""
    now = stops._clock.monotonic()
    try:
        if now >= stops.due:
            stops.check(caller, grant, now)
    except Refusal as refusal:
        return refusal
    return None


@pytest.mark.parametrize(
    ("scope", "stopped"),
    [
        ({}, {("one", "unruly_echo"), ("two", "unruly_echo"), ("one", "git_push"), ("two", "git_push")}),
        ({"tool": "unruly_*"}, {("one", "unruly_echo"), ("two", "unruly_echo")}),
        ({"tool": "unruly_echo"}, {("one", "unruly_echo"), ("two", "unruly_echo")}),
        ({"tool": "UNRULY_ECHO"}, set()),
        ({"caller": "one"}, {("one", "unruly_echo"), ("one", "git_push")}),
        ({"upstream": "git"}, {("one", "git_push"), ("two", "git_push")}),
        ({"upstream": "git", "caller": "two"}, {("two", "git_push")}),
        ({"upstream": "other"}, set()),
    ],
)
def test_a_stop_holds_for_calls_that_fit_all_it_names(
    stops: Stops, grants: dict[str, Grant], scope: dict[str, str], stopped: set[tuple[str, str]]
) -> None:
    stops.add(stop(**scope))
    found = {
        (caller.key_id, name)
        for caller in (ONE, TWO)
        for name in ("unruly_echo", "git_push")
        if refused(stops, caller, grants[name])
    }
    assert found == stopped


def test_a_stop_of_another_process_is_in_force_after_one_look(
    tmp_path: Path, clock: ByHand, grants: dict[str, Grant]
) -> None:
    path = tmp_path / STOPS_FILE
    running, operator = Stops(path, clock), Stops(path, clock)
    assert refused(running, ONE, grants["unruly_echo"]) is None
    made = stop()
    operator.add(made)
    clock.seconds += LOOK_S
    found = refused(running, ONE, grants["unruly_echo"])
    assert found is not None
    assert (found.ending, found.details["stop"], found.recorded) == (Ending.STOPPED, made.id, {"stop": made.id})
    assert refused(Stops(path, clock), ONE, grants["unruly_echo"]), "after a restart"
    operator.remove(frozenset({made.id}))
    clock.seconds += LOOK_S
    assert refused(running, ONE, grants["unruly_echo"]) is None


def test_a_look_holds_for_a_while_and_costs_nothing_meanwhile(
    stops: Stops, clock: ByHand, grants: dict[str, Grant], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    look = module._stamp_of
    monkeypatch.setattr(module, "_stamp_of", lambda path: (looks.append(path), look(path))[1])
    for _ in range(100):
        assert refused(stops, ONE, grants["unruly_echo"]) is None
        clock.seconds += LOOK_S / 100
    assert len(looks) == 1
    assert LOOK_S <= 0.5, "within a second, whatever the machine does meanwhile"


def test_a_stop_for_a_while_ends_by_itself_and_says_when_to_come_back(
    stops: Stops, clock: ByHand, grants: dict[str, Grant]
) -> None:
    stops.add(stop(until=clock.seconds + 60, reason="incident 12"))
    found = refused(stops, ONE, grants["unruly_echo"])
    assert found is not None
    assert found.details["retry_after_s"] == 61
    assert "incident 12" in found.text
    clock.seconds += 60
    assert refused(stops, ONE, grants["unruly_echo"]) is None
    assert stops.in_force() == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"version": 2, "stops": []}',
        '{"version": 1, "stops": [{"id": "a"}]}',
        '{"version": 1, "stops": [{"id": "a", "since": "yesterday"}]}',
        '{"version": 1, "stops": [], "more": 1}',
    ],
)
def test_a_file_that_cannot_be_read_stops_every_call(
    stops: Stops, clock: ByHand, grants: dict[str, Grant], content: str
) -> None:
    assert refused(stops, ONE, grants["unruly_echo"]) is None
    path = stops._path
    assert path is not None
    path.write_text(content)
    path.chmod(0o600)
    clock.seconds += LOOK_S
    found = refused(stops, ONE, grants["unruly_echo"])
    assert found is not None
    assert found.details == {"reason": "stops_unreadable"}
    assert stops.told() == [{"scope": ["all"], "reason": "stops_unreadable", "until": None}]
    with pytest.raises(StopsFault, match="Mend it, or remove it"):
        stops.in_force()
    path.unlink()
    clock.seconds += LOOK_S
    assert refused(stops, ONE, grants["unruly_echo"]) is None


def test_a_file_that_others_can_write_stops_every_call(stops: Stops, grants: dict[str, Grant]) -> None:
    assert stops._path is not None
    stops._path.write_text('{"version": 1, "stops": []}')
    stops._path.chmod(0o666)
    assert refused(stops, ONE, grants["unruly_echo"]) is not None


def test_what_is_stopped_is_refused_before_the_handler_and_recorded(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    gate = Gate(home, home.app())
    made = stop(tool="unruly_write")
    gate.app.stops.add(made)
    answer = gate.call("unruly_write", {"name": "never"})
    assert answer.ending is Ending.STOPPED
    assert gate.call("unruly_echo").ending is Ending.OK
    assert not (home.workspace / "never").exists()
    last = home.calls()[-2]
    assert (last["error"]["happening"], last["stop"]) == ("stopped", made.id)
    assert not any(record["event"] == "intent" for record in home.calls())
    gate.run(gate.app.close())
    gate.loop.close()


def test_a_subscription_is_not_looked_at_while_it_is_stopped(stops: Stops, grants: dict[str, Grant]) -> None:
    assert not stops.has_stopped(ONE, grants["unruly_echo"])
    stops.add(stop(tool="unruly_echo"))
    assert not stops.has_stopped(ONE, grants["git_push"])
    looked: list[str] = []

    def context_for(grant: Grant, _: Ticket) -> Context:
        looked.append(grant.tool.name)
        raise LookupError

    watch = Watch(lambda _: ONE, context_for, is_stopped=stops.has_stopped)
    stream = WatchStream(ONE, None, frozenset(), lambda _: b"")
    call = Call(Wire("mcp", "http", "/mcp"), "unruly_echo")
    ticket = Ticket(ONE, call, grants["unruly_echo"], Ids("", "", ""), 0.0, "", 0, None)
    assert asyncio.run(watch._stamp(stream, Watched(ticket, "", ""))) is None
    assert looked == []


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home", packs=("unruly",))


def test_the_command_stops_every_running_server_and_those_that_start_later(
    home: Home, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # this one waits, for real servers look
    toolgate, at = Commands(capfd), ("--home", str(home.path))
    key = home.keys["admin"]
    monkeypatch.setenv("TOOLGATE_API_KEY", key)
    with home.serving() as one, home.serving() as two:
        made = toolgate("stop-calls", "--tool", "unruly_e*", "--for", "1h", "--reason", "a drill", "--json", *at).json
        for server in (one, two):
            assert speak.mrt(server.port, "unruly_echo", {}, key).code == "stopped"
            assert speak.mrt(server.port, "unruly_text", {}, key).status == 200
            assert _ready(server.port)["stops"][0]["scope"] == ["tool"]
        heard = toolgate("call", "unruly_echo", "--json", *at)
        assert (heard.code, heard.json["error_code"]) == (5, "stopped")
        assert toolgate("stop-calls", *at).out.count(made["id"]) == 1
        doctor = toolgate("doctor", "--port", "0", *at)
        assert "tool unruly_e* until" in doctor.out
        assert toolgate("resume", made["id"], *at).code == 0
        assert speak.mrt(one.port, "unruly_echo", {}, key).status == 200
        assert "stops" not in _ready(two.port)
    acts = [(one["act"], one["stage"]) for one in home.records() if one["event"] == "act"]
    assert [act for act in acts if act[0].startswith("calls.")] == [
        (act, stage) for act in ("calls.stop", "calls.resume") for stage in ("intent", "outcome")
    ]


def _ready(port: int) -> Any:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as reply:
        return json.loads(reply.read())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("stop-calls", "--all", "--tool", "x"), "give --all, or what to stop"),
        (("stop-calls", "--all", "--for", "soon"), "90m, 12h, 30d or 8w"),
        (("stop-calls", "--all", "--reason", "a\tb"), "printable"),
        (("resume",), "give an id"),
        (("resume", "--all", "--tool", "x"), "give an id"),
    ],
)
def test_a_command_that_is_wrong_stops_nothing(
    home: Home, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], text: str
) -> None:
    done = Commands(capfd)(*words, "--home", str(home.path))
    assert done.code == 2
    assert text in done.err
    assert Stops(home.path / "keys" / STOPS_FILE).in_force() == []


def test_resuming_what_is_not_stopped_says_so(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    toolgate, at = Commands(capfd), ("--home", str(home.path))
    assert toolgate("stop-calls", "--caller", "0123456789ab", *at).code == 0
    assert toolgate("resume", "--tool", "x", *at).code == 1
    assert toolgate("resume", "--caller", "0123456789ab", *at).code == 0
    assert toolgate("resume", "--all", *at).out.strip() == "nothing was stopped"
