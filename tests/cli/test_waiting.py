"""`toolgate call` waits for a person, in this process and at a server; and how it is left."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Commands
from tests.homes import PATIENCE_S, Home, environment, make_home
from tests.waiting import until
from toolgate.approving import open_approvals
from toolgate.config import load_settings
from toolgate.gate.authority import approvals
from toolgate.kit.conditions.approval import Person

CALL = ("call", "unruly_write", "name=release")
ROWS: dict[str, dict[str, Any]] = {
    "unruly_write": {"x-rules": [{"name": "ask", "require-approval": "args.name.startsWith('release')"}]}
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home", packs=("unruly",), rows=ROWS)


@pytest.fixture(params=["in process", "over http"])
def there(home: Home, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """What a call is given to go this way."""
    if request.param == "in process":
        yield []
        return
    with home.serving() as server:
        yield ["--url", str(server.ready["url"])]


@pytest.fixture
def toolgate(home: Home, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    commands = Commands(capfd)
    monkeypatch.setenv("TOOLGATE_API_KEY", home.keys["builder"])
    monkeypatch.setattr(approvals, "ASK_AGAIN_S", 1)
    return lambda *words: commands(*words, "--home", str(home.path))


@contextmanager
def answering(home: Home, verdict: str) -> Iterator[None]:
    """A person who answers the first request as soon as it is there."""

    async def answered() -> bool:
        store = open_approvals(load_settings(home.path, {}, {}))
        try:
            waiting = await store.all("pending")
            if waiting:
                await store.vote(waiting[0]["id"], Person("ann", "ann"), verdict, "", waiting[0]["created"] / 1000)
            return bool(waiting)
        finally:
            store.close()

    person = threading.Thread(target=lambda: until(lambda: asyncio.run(answered()), "a request to answer"))
    person.start()
    yield
    person.join(PATIENCE_S)


def test_the_call_runs_when_it_was_approved(home: Home, toolgate: Callable[..., Any]) -> None:
    with answering(home, "approve"):
        done = toolgate(*CALL)
    assert (done.code, "waits for a person" in done.err) == (0, True)
    assert (home.workspace / "release").exists()
    asked = [record for record in home.calls() if record.get("approval")]
    assert len({record["approval"] for record in asked}) == 1


def test_a_refusal_ends_the_wait(home: Home, toolgate: Callable[..., Any]) -> None:
    with answering(home, "refuse"):
        done = toolgate(*CALL)
    assert (done.code, "approval_refused" in done.err) == (5, True)


def test_no_wait_returns_at_once(home: Home, toolgate: Callable[..., Any]) -> None:
    done = toolgate(*CALL, "--no-wait", "--json")
    assert (done.code, done.json["error_code"], done.err) == (11, "approval_required", "")


def test_a_request_that_expired_ends_the_wait(
    home: Home, toolgate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approvals, "LIFE_S", 0)
    done = toolgate(*CALL)
    assert (done.code, "ended without this call" in done.err) == (11, True)


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_an_interrupt_leaves_the_request_waiting(home: Home, there: list[str], json: tuple[str, ...]) -> None:
    command, env = home.command(*CALL, *there, *json), environment(TOOLGATE_API_KEY=home.keys["builder"])
    # A group of its own: as a terminal does, the interrupt goes to all of it.
    running = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert running.stderr
        assert "waits for a person" in running.stderr.readline()
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
    assert running.returncode == 11
    assert "Traceback" not in err
    assert "approval_required" in (out if json else err)
    assert "\r" not in err, "a spinner is for terminals"


def test_a_terminal_sees_a_spinner_and_json_does_not_have_one(home: Home) -> None:
    assert "\r\x1b[K| " in _on_terminal(home)
    assert "\x1b[K" not in _on_terminal(home, "--json")


def _on_terminal(home: Home, *more: str) -> str:
    """What standard error is sent until the command waits, and is interrupted."""
    ours, theirs = pty.openpty()
    env = environment(TOOLGATE_API_KEY=home.keys["builder"])
    running = subprocess.Popen(
        home.command(*CALL, *more), env=env, stdout=subprocess.DEVNULL, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    try:
        while b"waits for a person" not in seen:
            seen += os.read(ours, 4096)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(PATIENCE_S) == 11
    finally:
        running.kill()
        os.close(ours)
    return seen.decode()
