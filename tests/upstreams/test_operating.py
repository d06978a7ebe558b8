"""What people who run the gate see of upstreams: their records, their state again and again, names that two of them want; and
never a secret."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Commands, Done, without_settings
from tests.homes import PATIENCE_S, Home, environment, make_home
from tests.offers.client import Client
from tests.upstreams.homes import Swapping, adopting_home, ask, stub_table, toml_of
from tests.upstreams.relay.gates import whole
from tests.upstreams.support import STUB

CANARY = "kanarienvogel-9f27c1"
HEADER_CANARY = "zeisig-55ab0e"
Ran = Callable[..., Done]


@pytest.fixture
def ran(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    commands = Commands(capfd)
    without_settings(monkeypatch)
    return lambda home, *command: commands(*command, "--home", str(home.path))


@pytest.fixture
def swapping(tmp_path: Path) -> Swapping:
    return Swapping(tmp_path)


def test_the_tail_of_one_upstream_has_its_calls_and_what_happened_to_it_and_nothing_else(
    tmp_path: Path, swapping: Swapping, ran: Ran
) -> None:
    tables = {"one": swapping.table(), "two": stub_table("good", tmp_path / "other-log")}
    home = adopting_home(tmp_path / "home", tables)
    with home.serving() as server:
        for name in tables:
            assert ask("mrt", server.port, (name, "echo"), {"text": "x"}, home.keys["admin"])[0] == 200
        own = {"tool": "dummy_experimental", "args": {}}
        Client(server.port, home.keys["admin"]).ask_modern(
            "tools/call", {"name": own["tool"], "arguments": own["args"]}
        )
    shown = [json.loads(line) for line in ran(home, "audit", "tail", "--upstream", "one", "--json").out.splitlines()]
    calls = [(one["event"], one["upstream"]) for one in shown if one["event"] in ("intent", "outcome")]
    assert calls == [("intent", "one"), ("outcome", "one")]
    acts = [(one["act"], one["about"]["upstream"]) for one in shown if one["event"] == "act"]
    assert ("upstream.up", "one") in acts
    assert {name for _, name in acts} == {"one"}
    none = ran(home, "audit", "tail", "--upstream", "three")
    assert (none.code, none.out) == (0, "")
    assert "no record matches" in none.err


def test_status_asks_again_and_again_until_it_is_interrupted(tmp_path: Path, swapping: Swapping) -> None:
    home = adopting_home(tmp_path / "home", {"stub": swapping.table()})
    command = home.command("upstream", "status", "--watch", "--json")
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        overdue = threading.Timer(PATIENCE_S, process.kill)
        overdue.start()
        assert process.stdout is not None
        states = [_states(process.stdout.readline())]
        swapping.behave("described otherwise")
        while "drift" not in states[-1]["stub"]:
            states.append(_states(process.stdout.readline()))
        swapping.behave("exit")
        while states[-1]["stub"]["state"] != "down":
            states.append(_states(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
        overdue.cancel()
    assert (states[0]["stub"]["state"], states[0]["stub"].get("drift")) == ("up", None)
    assert process.returncode == 130
    assert b"Traceback" not in said


def _states(line: bytes) -> dict[str, Any]:
    return {one["name"]: one for one in json.loads(line)}


def test_a_name_that_two_upstreams_want_is_served_by_neither_and_the_rest_goes_on(tmp_path: Path, ran: Ran) -> None:
    zeta = {**stub_table("good", tmp_path / "zeta-log"), "prefix": ""}
    alpha = {**stub_table("by text", tmp_path / "alpha-log"), "prefix": ""}
    home = make_home(tmp_path / "home", settings=toml_of("zeta", zeta) + toml_of("alpha", alpha))
    assert ran(home, "upstream", "adopt", "zeta", "--roles", "admin", "--yes").code == 0
    adopted = ran(home, "upstream", "adopt", "alpha", "--roles", "admin", "--yes")  # comes first by name
    assert "not served: echo: the name echo is wanted by another upstream, too, so neither" in adopted.out
    why = {
        name: f"the name {name} is wanted by another upstream, too, so neither serves it" for name in ("echo", "other")
    }
    with home.serving() as server:
        client = Client(server.port, home.keys["admin"])
        listed = {tool["name"] for tool in client.ask_modern("tools/list")["result"]["tools"]}
        assert listed & {"echo", "other", "typed"} == {"typed"}
        answer = client.ask_modern("tools/call", {"name": "echo", "arguments": {"text": "x"}})
        assert answer["error"]["code"] == -32602
        typed = client.ask_modern("tools/call", {"name": "typed", "arguments": {"text": "number"}})["result"]
        assert typed["structuredContent"] == {"n": 1}
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/readyz", timeout=PATIENCE_S) as reply:
            ready = {one["name"]: one["refused"] for one in json.load(reply)["upstreams"]}
    assert ready == {"alpha": why, "zeta": why}


def test_a_secret_of_an_upstream_is_shown_nowhere(tmp_path: Path, ran: Ran) -> None:
    """Neither that of a program, which says it on its standard error, nor that of a server at an address."""
    behaviour = tmp_path / "behaviour"
    behaviour.write_text("good")
    with whole("2025-11-25") as url:
        program = {"command": [sys.executable, str(STUB), f"@{behaviour}"], "env": {"TOKEN": "file:canary"}}
        address = {"url": url, "headers": {"Authorization": "Bearer file:header-canary"}}
        home = make_home(tmp_path / "home", settings=toml_of("program", program) + toml_of("address", address))
        secrets = home.path / "secrets"
        secrets.mkdir(mode=0o700, exist_ok=True)
        for name, text in (("canary", CANARY), ("header-canary", HEADER_CANARY)):
            (secrets / name).write_text(text)
            (secrets / name).chmod(0o600)
        shown = [
            _said(ran, home, "upstream", "adopt", name, "--roles", "admin", "--yes") for name in ("program", "address")
        ]
        assert all("adopted" in each for each in shown)
        within = ("sh", "-c", f'exec "$@" 2>"{home.path / "stderr"}"', "sh")
        with home.serving("--log-level", "debug", within=within) as server:
            shown += [_called(server.port, home.keys["admin"], tool) for tool in ("program_echo", "address_echo")]
            behaviour.write_text("tells its token")
            shown += [_said(ran, home, *command) for command in SHOWING]
            shown += [_said(ran, home, *command, "--json") for command in SHOWING]
    assert "cannot log in with [secret]" in "".join(shown)
    shown += [
        path.read_text(errors="replace") for path in home.path.rglob("*") if path.is_file() and path.parent != secrets
    ]
    assert not [each for each in shown if CANARY in each or HEADER_CANARY in each]


SHOWING = [
    ("upstream", "list"),
    ("upstream", "status"),
    ("upstream", "try", "program"),
    ("upstream", "try", "address"),
    ("upstream", "diff", "program"),
    ("doctor",),
    ("tools", "list"),
    ("audit", "tail"),
]


def _said(ran: Ran, home: Home, *command: str) -> str:
    made = ran(home, *command)
    assert "Traceback" not in made.err
    return made.out + made.err


def _called(port: int, key: str, tool: str) -> str:
    """An answer with its headers, the list of tools and whether the server is ready."""
    client = Client(port, key)
    status, headers, body = client.greet().post("tools/call", {"name": tool, "arguments": {"text": "x"}})
    assert (status, body["result"].get("isError")) == (200, None), body
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_S) as reply:
        ready = reply.read().decode()
    return json.dumps([headers, body, client.ask("tools/list")]) + ready
