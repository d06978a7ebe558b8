"""The MCP Inspector's command line, which checks every answer against the advertised schemas: both eras, both transports.

It lists before it calls, so a tool of another role or of no name never leaves it; and it shows no progress.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scripts.clients import install
from tests.clients.conftest import AT_ONCE, TRANSPORTS, Place
from tests.homes import PATIENCE_S, make_home
from tests.upstreams.homes import adopting_home
from tests.upstreams.relay.gates import ERAS, upstream
from tests.waiting import until

pytestmark = pytest.mark.guard

OK, FAILED = 0, 5
"""How the Inspector exits."""
CALLS: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "good": ("wire_echo", {"text": "hello"}, OK, "hello"),
    "null for an optional argument": ("wire_echo", {"text": "hello", "times": None}, OK, "hello"),
    "progress": ("wire_progress", {"text": "hello"}, OK, "hello"),
    "bad arguments": (
        "wire_echo",
        {"text": ""},
        FAILED,
        "text is an empty string; expected a string of 1 to 200 characters.",
    ),
    "says no": ("wire_fail", {"text": "The shop"}, FAILED, "NOT_TODAY: The shop is closed."),
    "not there": ("wire_trouble", {"kind": "missing"}, FAILED, "NOT_TODAY: There is no such shop."),
    "crash": ("wire_trouble", {"kind": "crash"}, FAILED, "EXECUTION_FAILED: The tool failed."),
    "bad output": ("wire_trouble", {"kind": "nonsense"}, FAILED, "the data does not match the output schema"),
    "data that does not fit": ("wire_trouble", {"kind": "said"}, FAILED, "NOT_TODAY: closed"),
    "role of an argument": (
        "analyze_dissonance",
        {"mode": "calibration", "files": ["a"]},
        FAILED,
        "builder may not call analyze_dissonance with mode=calibration",
    ),
    "role": ("wire_admin", {"text": "hello"}, FAILED, "Tool 'wire_admin' not found"),
    "unknown": ("wire_ecko", {"text": "hello"}, FAILED, "Tool 'wire_ecko' not found"),
}
BY_ITSELF = ("role", "unknown")
"""What the Inspector refuses before it asks."""
MODERN = ("good", "bad arguments", "crash")
"""Of the second era, which the SDKs try with every kind of answer."""


class Run(NamedTuple):
    transport: str
    era: str
    name: str


RUNS = [
    *(Run("http", "legacy", name) for name in CALLS),
    *(Run("stdio", "legacy", name) for name in CALLS if name not in BY_ITSELF),
    *(Run(way, "modern", name) for way in TRANSPORTS for name in MODERN),
]


def command(place: Place, transport: str, era: str, *asked: str) -> list[str]:
    where = place.where(transport, place.spare[-1] if place.spare else "")
    flags = ["--protocol-era", era, "--stored-auth-only", "--format", "json", *asked]
    if transport == "http":
        return ["mcp-inspector", "--cli", where["url"], "--header", f"Authorization: Bearer {where['key']}", *flags]
    variables = [f"{name}={where['env'][name]}" for name in ("TOOLGATE_API_KEY", "PYTHONPATH")]
    given = [word for each in variables for word in ("-e", each)]
    return ["mcp-inspector", "--cli", *given, *flags, "--", *where["command"]]


def calling(tool: str, arguments: dict[str, Any]) -> Sequence[str]:
    return "--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments)


def inspect(packages: Path, command: Sequence[str]) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        command, env=install.programs(packages), capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False
    )
    told = json.loads(done.stdout) if done.stdout.strip().startswith("{") else {}
    return done.returncode, told, done.stdout + done.stderr


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, place: Place, packages: Path) -> Iterator[dict[Run, Future[Any]]]:
    """Every run that a chosen test asks for; each is a process of its own, and most of its time is its start."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    chosen = [call.params["run"] for call in calls if call and "run" in call.params]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            run: pool.submit(inspect, packages, command(place, *run[:2], *calling(*CALLS[run.name][:2])))
            for run in chosen
        }


@pytest.mark.parametrize("run", RUNS, ids=" ".join)
def test_the_inspector_shows_the_answer_also_of_a_failed_call(runs: dict[Run, Future[Any]], run: Run) -> None:
    _, _, exits, expected = CALLS[run.name]
    code, _, said = runs[run].result()
    assert (code, expected in said) == (exits, True), said
    assert "does not match the tool" not in said
    assert "auth_required" not in said


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_inspector_finds_nothing_wrong_with_our_schemas(
    whole: Place, packages: Path, transport: str, era: str
) -> None:
    asked = command(whole, transport, era, "--method", "tools/list", "--strict")
    code, told, said = inspect(packages, asked)
    assert (code, "Warning" in said) == (OK, False), said
    assert "dummy_experimental" in [tool["name"] for tool in told["result"]["tools"]]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_calls_beyond_the_limit_are_errors_of_the_tool_and_not_of_the_transport(
    place: Place, packages: Path, transport: str
) -> None:
    load = ("--load", "--load-concurrency", "6", "--load-requests", "12")
    code, told, said = inspect(
        packages, command(place, transport, "legacy", *calling("wire_progress", {"text": "hello"}), *load)
    )
    assert code == OK, said
    counted = told["result"]
    assert (counted["requests"], counted["errors"]) == (12, 0)
    assert counted["toolErrors"] > 0


def test_a_log_that_cannot_be_written_is_shown(full: Place, packages: Path) -> None:
    asked = command(full, "http", "legacy", *calling("wire_echo", {"text": "hello"}))
    inspect(packages, [*asked, "--load", "--load-requests", "100"])
    assert "The audit log cannot be written." in inspect(packages, asked)[2]


@pytest.fixture(scope="module")
def waits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server with a tool that shows that it runs and then waits."""
    home = make_home(tmp_path_factory.mktemp("waits") / "home", packs=("unruly",))
    with home.serving() as server:
        yield Place(home, server)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_call_is_cancelled_when_the_inspector_is_interrupted(waits: Place, packages: Path, transport: str) -> None:
    inside = waits.home.workspace / "inside"
    inside.unlink(missing_ok=True)
    asked = command(waits, transport, "legacy", *calling("unruly_wait", {}))
    pipe = subprocess.PIPE
    with subprocess.Popen(asked, env=install.programs(packages), stdout=pipe, stderr=pipe) as inspector:
        until(inside.exists, "the tool runs")
        inspector.send_signal(signal.SIGINT)
        inspector.communicate(timeout=PATIENCE_S)

    def ended() -> list[str]:
        records = [each for each in waits.home.calls() if each["event"] == "outcome"]
        return [each["error"]["reason"] for each in records if each["transport"] == transport]

    assert until(ended, "the call has ended") == ["cancelled"]


UPSTREAMS = {"old": (ERAS[0], "stdio"), "new": (ERAS[1], "http")}
"""A server of each era that somebody else wrote, over either transport."""
RELAYED: dict[str, tuple[Sequence[str], str]] = {
    "tools/list": (("--method", "tools/list"), "{}_echo"),
    "tools/call": (calling("{}_echo", {"text": "through the gate"}), "through the gate"),
    "prompts/list": (("--method", "prompts/list"), "{}_greet"),
    "prompts/get": (("--method", "prompts/get", "--prompt-name", "{}_greet", "--prompt-args", "name=Ada"), "For Ada."),
    "resources/list": (("--method", "resources/list"), "{}+note://one"),
    "resources/templates/list": (("--method", "resources/templates/list"), "{}+note://{{+path}}"),
    "resources/read": (("--method", "resources/read", "--uri", "{}+note://one"), "At note://one."),
}


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ExitStack() as stack:
        tables = {name: stack.enter_context(upstream(*how)) for name, how in UPSTREAMS.items()}
        home = adopting_home(tmp_path_factory.mktemp("relayed") / "home", tables)
        yield Place(home, stack.enter_context(home.serving()))


@pytest.mark.parametrize("method", RELAYED)
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_reaches_what_upstreams_of_both_eras_offer(
    relayed: Place, packages: Path, era: str, method: str
) -> None:
    asked, expected = RELAYED[method]
    runs = dict.fromkeys(
        tuple(word.replace("{}", name) for word in asked) for name in UPSTREAMS
    )  # a list is one for both
    told = [inspect(packages, command(relayed, "http", era, *words)) for words in runs]
    assert [code for code, _, _ in told] == [OK] * len(runs), told
    said = "".join(each for _, _, each in told)
    assert [name for name in UPSTREAMS if expected.format(name) not in said] == []
