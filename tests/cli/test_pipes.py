"""What a command says leaves at once where somebody follows it, and ends quietly where nobody reads any more.

Under a bare environment: a variable such as PYTHONUNBUFFERED hides what an ordinary shell shows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.support import PROGRAM
from tests.gate.conftest import Gate
from tests.homes import PATIENCE_S, Home, make_home
from toolgate.errors import ExitCode

PROGRAMS = {
    "toolgate": PROGRAM,
    "lra": [
        sys.executable,
        "-c",
        "import sys; sys.argv[0] = 'lra'; from toolgate.cli.main import run_script; run_script()",
    ],
}


def bare(**more: str) -> dict[str, str]:
    return {"PATH": os.defpath, "HOME": "/nonexistent", "LANG": "C.UTF-8"} | more


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = make_home(tmp_path_factory.mktemp("pipes") / "home")
    call_once(made)
    return made


def call_once(home: Home) -> None:
    """A run of its own in the log, with one call."""
    gate = Gate(home, home.app())
    gate.call("dummy_experimental", {})
    gate.run(gate.app.close())
    gate.loop.close()


def without_reader(
    home: Home, command: Sequence[str], *, closed: str = "stdout", **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command with a pipe for `closed` whose other end is gone before it starts."""
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {closed: writer}
    try:
        return subprocess.run(
            [*PROGRAMS[command[0]], *command[1:]],
            cwd=home.path,
            env=bare(TOOLGATE_API_KEY=home.keys["admin"], **environment),
            text=True,
            timeout=PATIENCE_S,
            check=False,
            **streams,  # type: ignore[call-overload]
        )
    finally:
        os.close(writer)


SAID = {
    "settings": ("toolgate", "config", "print"),
    "more than a buffer holds": ("toolgate", "policy", "show", "--json"),
    "help": ("toolgate", "--help"),
    "help of a command": ("toolgate", "serve", "--help"),
    "a table": ("toolgate", "tools", "list"),
    "records": ("toolgate", "audit", "tail"),
    "a verdict": ("toolgate", "audit", "verify"),
    "an answer": ("toolgate", "call", "dummy_experimental"),
    "the ready line of a server": ("toolgate", "serve", "--port", "0", "--json"),
    "rules of lra": ("lra", "validate", "--list-rules"),
    "help of lra": ("lra", "--help"),
    "lra by the other name": ("toolgate", "lra", "validate", "--list-rules"),
}


@pytest.mark.parametrize("name", SAID)
def test_p2_a_closed_pipe_ends_every_command_quietly_with_its_own_code(home: Home, name: str) -> None:
    done = without_reader(home, SAID[name])
    assert done.returncode == ExitCode.READER_LEFT
    assert [line for line in done.stderr.splitlines() if not line.startswith("note: ")] == []


def test_p2_a_closed_pipe_ends_quietly_where_nothing_is_buffered(home: Home) -> None:
    done = without_reader(home, SAID["more than a buffer holds"], PYTHONUNBUFFERED="1")
    assert (done.returncode, done.stderr) == (ExitCode.READER_LEFT, "")


def test_p2_a_server_whose_ready_line_nobody_reads_closes_its_log(home: Home) -> None:
    without_reader(home, SAID["the ready line of a server"])
    done = subprocess.run(home.command("audit", "verify"), env=bare(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1].partition(":")[0]) == (ExitCode.OK, "verified")


def test_p2_a_server_outlives_the_reader_of_its_ready_line(tmp_path: Path) -> None:
    """Supervisors read one line and close the pipe; a tool that prints later must not end the server."""
    noisy = make_home(tmp_path / "home", packs=("governance", "unruly"))
    with noisy.serving() as server:
        assert server.process.stdout is not None
        server.process.stdout.close()
        for _ in range(2):
            done = subprocess.run(
                [*PROGRAM, "call", "unruly_chatter", "--url", server.ready["url"]],
                cwd=noisy.path,
                env=bare(TOOLGATE_API_KEY=noisy.keys["builder"]),
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert (done.returncode, done.stderr) == (ExitCode.OK, "")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("toolgate", "keys", "revoke", "nobody"), ExitCode.FAILED),
        (("toolgate", "kyes"), ExitCode.USAGE),
        (("lra", "validate", "nothing"), ExitCode.FAILED),
    ],
)
def test_p2_a_fault_that_nobody_reads_keeps_its_exit_code(home: Home, command: Sequence[str], code: int) -> None:
    done = without_reader(home, command, closed="stderr")
    assert (done.returncode, done.stdout) == (code, "")


@pytest.mark.parametrize("program", ["toolgate", "lra"])
def test_p2_what_could_not_be_written_is_a_fault(home: Home, program: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAMS[program], "--help"],
            cwd=home.path,
            env=bare(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == ExitCode.FAILED
    assert done.stderr.startswith("error: No space left on device")
    assert "Exception" not in done.stderr


def test_p2_a_command_without_streams_ends_well(home: Home) -> None:
    script = '"$@" >&- 2>&- <&-'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *PROGRAM, "config", "print"], cwd=home.path, env=bare(), timeout=30, check=False
    )
    assert done.returncode == ExitCode.OK


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["people", "programs"])
def test_p2_following_the_log_through_a_pipe_shows_each_record_at_once(home: Home, flags: list[str]) -> None:
    """What is there when it starts, and what comes later."""
    follower = subprocess.Popen(
        [*PROGRAM, "audit", "tail", "-f", "--tool", "dummy_experimental", *flags, "--home", str(home.path)],
        env=bare(),
        stdout=subprocess.PIPE,
        text=True,
    )
    overdue = threading.Timer(PATIENCE_S, follower.kill)
    overdue.start()
    try:
        assert follower.stdout is not None
        assert "dummy" in follower.stdout.readline()
        call_once(home)
        assert "dummy" in follower.stdout.readline()
    finally:
        overdue.cancel()
        follower.kill()
        follower.communicate()
