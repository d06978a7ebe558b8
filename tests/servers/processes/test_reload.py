"""Reload: what was changed on disk is taken over whole or not at all, and readiness says when it differs."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, environment, first_line, make_home, until_closed
from tests.upstreams.homes import Swapping, ask, give, pin_now, toml_of
from tests.upstreams.support import lines
from tests.waiting import until
from toolgate.cli.running.client import ask_all
from toolgate.config import load_settings
from toolgate.ledger.files import LOG_PATH
from toolgate.ledger.reading.query import find_request, serving_at
from toolgate.packs.loader import load_packs
from toolgate.policy import contract
from toolgate.policy.bundle import load_decisions
from toolgate.policy.manifest import LOCK_FILE, MANIFEST_FILE
from toolgate.running import Running

PACKS = ("governance", "unruly")
IN_TERMINAL = "import os, sys; os.open(sys.argv[1], os.O_RDWR); os.execv(sys.argv[2], sys.argv[2:])"
"""The leader of a session gets the terminal that it opens."""
ECHO = {"text": "hello"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Server]]:
    home = make_home(tmp_path_factory.mktemp("reloaded"), packs=PACKS)
    with home.serving() as server:
        yield home, server


@pytest.fixture
def restored(served: tuple[Home, Server]) -> Iterator[tuple[Home, Server]]:
    """Whatever a test changes is changed back, and served as before."""
    home, server = served
    paths = [home.path / "toolgate.toml", _manifest(home), home.path / "policy" / LOCK_FILE]
    before = {path: path.read_bytes() for path in paths}
    yield home, server
    for path, content in before.items():
        path.write_bytes(content)
    assert _reload(home)["reloaded"]


def _manifest(home: Home) -> Path:
    return home.path / "policy" / MANIFEST_FILE


def _reload(home: Home) -> dict[str, Any]:
    """As `toolgate reload` asks for it; also where the settings on disk could not be read by a command."""
    return _ask(home, "reload")


def _ask(home: Home, question: str) -> dict[str, Any]:
    (answer,) = ask_all(SimpleNamespace(home=home.path, paths=SimpleNamespace(state=home.path / "state")), question)
    return answer


def _ready(server: Server) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"{server.ready['url']}/readyz", timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as fault:
        return fault.code, json.load(fault)


def _set_roles(home: Home, tool: str, roles: list[str]) -> None:
    path = _manifest(home)
    document = json.loads(path.read_bytes())
    row = next(row for row in document["tools"] if row["name"] == tool)
    row["x-roles"] = roles
    path.write_text(json.dumps(document))
    manifest, records = load_decisions(path.parent)
    (path.parent / LOCK_FILE).write_bytes(contract.render(contract.build(load_packs(PACKS), manifest, records)))


def _add_settings(home: Home, text: str) -> None:
    path = home.path / "toolgate.toml"
    path.write_text(path.read_text() + text)


def _log(home: Home) -> Path:
    return home.path / "runs" / LOG_PATH


def _reloads(home: Home) -> list[dict[str, Any]]:
    return [record for record in home.records() if record.get("act") == "reload"]


def test_a_role_that_loses_a_tool_is_refused_after_a_reload_and_not_before(restored: tuple[Home, Server]) -> None:
    home, server = restored
    key = home.keys["builder"]
    assert speak.mrt(server.port, "unruly_echo", ECHO, key).status == 200
    _set_roles(home, "unruly_echo", ["admin"])
    assert speak.mrt(server.port, "unruly_echo", ECHO, key).status == 200, "nobody has asked for a reload"
    assert _ready(server)[1]["differs"] == ["policy"]
    told = _reload(home)
    assert (told["changed"], told["reloaded"]) == (["policy"], True)
    assert speak.mrt(server.port, "unruly_echo", ECHO, key).status == 403
    assert "differs" not in _ready(server)[1]
    last = _reloads(home)[-1]
    assert (last["status"], last["about"]["changed"], last["from"]["way"]) == ("ok", ["policy"], "toolgate reload")


def test_settings_that_can_change_do_and_those_that_cannot_are_named(restored: tuple[Home, Server]) -> None:
    home, server = restored
    _add_settings(home, "\n[limits]\nrate_per_minute = 1\nconcurrency_per_caller = 3\n[server]\nwrite_seconds = 3\n")
    told = _reload(home)
    assert told["settings"] == ["limits.concurrency_per_caller", "limits.rate_per_minute"]
    assert told["needRestart"] == ["server.write_seconds"]
    assert _ask(home, "status")["limits"]["perCaller"] == 3
    key = home.keys["committer"]
    statuses = [speak.mrt(server.port, "unruly_echo", ECHO, key).status for _ in range(3)]
    assert statuses == [200, 429, 429]
    assert _ready(server)[1]["differs"] == ["settings"], "one of them waits for a restart"


@pytest.mark.parametrize(
    ("file", "content", "word"),
    [
        ("toolgate.toml", b"[limits\n", "toolgate.toml"),
        ("toolgate.toml", b"[limits]\nrate_per_minit = 1\n", "rate_per_minit"),
        ("policy/" + MANIFEST_FILE, b"{", MANIFEST_FILE),
        ("policy/" + MANIFEST_FILE, b'{"version": 1, "tools": []}', MANIFEST_FILE),
    ],
)
def test_a_bad_file_keeps_what_is_served_and_says_so(
    restored: tuple[Home, Server], file: str, content: bytes, word: str
) -> None:
    home, server = restored
    (home.path / file).write_bytes(content)
    told = _reload(home)
    assert not told["reloaded"]
    assert word in told["reason"]
    assert speak.mrt(server.port, "unruly_echo", ECHO, home.keys["builder"]).status == 200
    status, ready = _ready(server)
    assert (status, ready["differs"]) == (200, ["settings" if file == "toolgate.toml" else "policy"])
    last = _reloads(home)[-1]
    assert (last["status"], last["stage"]) == ("error", "outcome")
    assert word in last["about"]["reason"]


def test_a_damaged_key_file_refuses_the_reload(restored: tuple[Home, Server]) -> None:
    home, _ = restored
    path = home.path / "keys" / "callers.json"
    before = path.read_bytes()
    try:
        path.write_bytes(b"{}")
        told = _reload(home)
        assert not told["reloaded"]
        assert "key file" in told["reason"]
    finally:
        path.write_bytes(before)


def test_p14_sighup_reloads_and_a_call_under_way_ends_by_the_rules_it_began_with(restored: tuple[Home, Server]) -> None:
    home, server = restored
    for name in ("release", "inside"):
        (home.workspace / name).unlink(missing_ok=True)
    heard: list[speak.Heard] = []
    call = threading.Thread(
        target=lambda: heard.append(speak.mrt(server.port, "unruly_wait", {}, home.keys["committer"]))
    )
    call.start()
    until((home.workspace / "inside").exists, "the call is under way")
    _set_roles(home, "unruly_wait", ["admin"])
    before = len(_reloads(home))
    server.process.send_signal(signal.SIGHUP)
    until(lambda: [one["stage"] for one in _reloads(home)[before:]] == ["intent", "outcome"], "it was reloaded")
    assert speak.mrt(server.port, "unruly_wait", {}, home.keys["committer"]).status == 403
    (home.workspace / "release").touch()
    call.join(PATIENCE_S)
    assert heard[0].status == 200
    assert server.process.poll() is None
    assert _reloads(home)[-1]["from"]["way"] == "SIGHUP"


def test_p8_a_reload_names_what_is_served_from_then_on_and_each_call_what_it_was_decided_by(
    restored: tuple[Home, Server],
) -> None:
    home, server = restored
    before = _ask(home, "status")["reload"]["serves"]
    for name in ("release", "inside"):
        (home.workspace / name).unlink(missing_ok=True)
    heard: list[speak.Heard] = []
    call = threading.Thread(target=lambda: heard.append(speak.mrt(server.port, "unruly_wait", {}, home.keys["admin"])))
    call.start()
    until((home.workspace / "inside").exists, "the call is under way")
    _set_roles(home, "unruly_echo", ["admin"])
    told = _reload(home)
    (home.workspace / "release").touch()
    call.join(PATIENCE_S)
    refused = speak.mrt(server.port, "unruly_echo", ECHO, home.keys["builder"])
    after = _ask(home, "status")["reload"]["serves"]
    assert before.keys() == after.keys() == {"policy", "contract"}
    assert before["policy"] != after["policy"]
    assert before["contract"] != after["contract"]
    assert told["serves"] == _reloads(home)[-1]["about"]["serves"] == after
    located = {name: find_request(_log(home), one.request_id) for name, one in (("old", heard[0]), ("new", refused))}
    assert serving_at(_log(home), located["old"][-1]) == before, "it ended by the rules it began with"
    assert serving_at(_log(home), located["new"][0]) == after


def test_without_a_record_nothing_is_taken_over(tmp_path: Path) -> None:
    """The log stops: what was read is not put into service."""
    home = make_home(tmp_path / "home", packs=PACKS)
    app = home.app()

    async def reload() -> dict[str, Any]:
        running = Running(app, lambda: load_settings(home.path, {}, {}))
        app.ledger.close()
        before = app.rules
        told = await running.reload("a test")
        assert app.rules is before
        return told

    told = asyncio.run(reload())
    assert not told["reloaded"]
    assert "audit log" in told["reason"]
    asyncio.run(app.close())


def test_what_is_adopted_and_approved_while_a_server_runs_is_served_after_a_reload(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("governance",))
    swapping = Swapping(tmp_path)
    with home.serving() as server:
        _add_settings(home, "\n" + toml_of("stub", swapping.table()))
        pin_now(home, "stub")
        give(home, "stub", ("admin",))
        swapping.log.unlink()
        assert ask("mrt", server.port, ("stub", "echo"), ECHO, home.keys["admin"])[0] == 400
        assert _reload(home)["changed"] == ["settings", "policy", "pins"]
        assert ask("mrt", server.port, ("stub", "echo"), ECHO, home.keys["admin"])[0] == 200
        children = lines(swapping.log, "pid")
        assert _reload(home)["changed"] == []
        assert ask("mrt", server.port, ("stub", "echo"), ECHO, home.keys["admin"])[0] == 200
        assert lines(swapping.log, "pid") == children, "an upstream whose pin and table are the same keeps its child"


@contextmanager
def in_terminal(home: Home, *within: str) -> Iterator[tuple[Server, int]]:
    """A server that leads the session of a terminal of its own, and that terminal; who closes it hangs up."""
    terminal, end = pty.openpty()
    command = [*within, *home.command("serve", "--port", "0", "--json")]
    process = subprocess.Popen(
        [sys.executable, "-c", IN_TERMINAL, os.ttyname(end), *command],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(end)
    try:
        yield Server(process, first_line(process)), terminal
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def test_p14_a_terminal_that_closes_stops_a_server_that_was_started_in_it_once_its_calls_have_ended(
    tmp_path: Path,
) -> None:
    """It sends SIGHUP, too, and the terminal is gone."""
    home = make_home(tmp_path / "home", packs=PACKS)
    heard: list[speak.Heard] = []
    with in_terminal(home) as (server, terminal):
        call = threading.Thread(
            target=lambda: heard.append(speak.mrt(server.port, "unruly_wait", {}, home.keys["admin"]))
        )
        call.start()
        until((home.workspace / "inside").exists, "the call is under way")
        os.close(terminal)
        until_closed(server.port)
        (home.workspace / "release").touch()
        call.join(PATIENCE_S)
        assert server.process.wait(PATIENCE_S) == 0
    assert heard[0].status == 200, "the call under way was answered"
    assert home.records()[-1]["final"], "and the run was closed"


def test_p14_a_server_that_was_started_with_nohup_outlives_its_terminal_and_reloads(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=PACKS)
    with in_terminal(home, "/usr/bin/env", "nohup") as (server, terminal):
        os.close(terminal)
        until(lambda: [one["stage"] for one in _reloads(home)] == ["intent", "outcome"], "it was reloaded")
        assert speak.mrt(server.port, "unruly_echo", ECHO, home.keys["admin"]).status == 200
