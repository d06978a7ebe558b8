"""The way in: fast help, lazy commands, faults as two lines, documented exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import PROGRAM, Commands, clean_environment, process
from toolgate import __version__
from toolgate.cli import main as module
from toolgate.cli.main import COMMANDS, load
from toolgate.errors import ExitCode, Happening, LedgerUnavailable, Refusal, StartRefused, StoreUnavailable

HEAVY = {
    "uvicorn",
    "uvloop",
    "sqlalchemy",
    "jsonschema_rs",
    "nacl",
    "cryptography",
    "httpx2",
    "httptools",
    "yaml",
    "turbohtml",
    "tinycss2",
}


def imported(*arguments: str, cwd: Path) -> set[str]:
    code = "import sys\nfrom toolgate.cli.main import main\nmain(sys.argv[1:])\nsys.stderr.write('\\n' + ' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["version"],
        ["keys", "list"],
        ["keys", "create", "--role", "admin"],
        ["config", "print"],
        ["serve", "--help"],
        ["pack", "new", "x"],
    ],
    ids=" ".join,
)
def test_light_commands_import_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    found = imported(*arguments, cwd=tmp_path)
    assert "toolgate" in found
    assert not found & HEAVY


def test_help_lists_every_command(toolgate: Commands) -> None:
    done = toolgate("--help")
    assert done.code == 0
    for name, entry in COMMANDS.items():
        assert f" {name} " in done.out
        assert entry.summary.split(".")[0][:40] in done.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_can_be_loaded_and_explains_itself(name: str, toolgate: Commands) -> None:
    assert load(name).name == name
    done = toolgate(name, "--help")
    assert done.code == 0
    assert "Usage: toolgate" in done.out


def test_a_command_whose_module_is_not_here_is_not_offered() -> None:
    assert module._is_there("toolgate.cli.keys")
    assert not module._is_there("toolgate.packs.nothing.cli")


def test_the_version_is_told_both_ways(toolgate: Commands) -> None:
    assert toolgate("version").out == toolgate("--version").out == f"toolgate {__version__}\n"


def test_a_misspelt_command_is_a_usage_error_with_a_suggestion(toolgate: Commands) -> None:
    done = toolgate("kyes")
    assert done.code == ExitCode.USAGE
    assert "keys" in done.err
    assert not done.out


FAULTS = {
    "settings": (StartRefused("Fault.\nFix."), ExitCode.FAILED),
    "key": (Refusal(Happening.INVALID_KEY, "Fault.\nFix."), ExitCode.DENIED),
    "limit": (Refusal(Happening.TOO_MANY, "Fault.\nFix."), ExitCode.LIMITED),
    "arguments": (Refusal(Happening.BAD_ARGUMENTS, "Fault.\nFix."), ExitCode.BAD_ARGUMENTS),
    "unknown tool": (Refusal(Happening.UNKNOWN_TOOL, "Fault.\nFix."), ExitCode.UNKNOWN_TOOL),
    "log": (LedgerUnavailable("Fault.\nFix."), ExitCode.UNAVAILABLE),
    "store": (StoreUnavailable("Fault.\nFix."), ExitCode.UNAVAILABLE),
}


@pytest.mark.parametrize(("fault", "code"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_two_lines_on_stderr_and_a_documented_code(
    fault: Exception, code: int, toolgate: Commands, monkeypatch
) -> None:
    def failing() -> None:
        raise fault

    monkeypatch.setattr(module, "version", failing)
    done = toolgate("version")
    assert done.code == code
    assert done.out == ""
    assert done.err == "error: Fault.\n       Fix.\n"


def test_a_fault_of_our_own_shows_no_traceback_unless_asked(
    toolgate: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> None:
        raise ZeroDivisionError("tg_0123456789ab_secret")

    monkeypatch.setattr(module, "version", failing)
    done = toolgate("version")
    assert done.code == ExitCode.FAILED
    assert "ZeroDivisionError" in done.err
    assert "Traceback" not in done.err
    assert "tg_" not in done.err
    monkeypatch.setenv("TOOLGATE_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        module.main(["version"])


def test_no_color_is_honoured_and_colour_can_be_forced(tmp_path: Path) -> None:
    plain = process("--home", cwd=tmp_path)
    assert "\x1b[" not in plain.err + plain.out
    environment = clean_environment(FORCE_COLOR="1", TERM="xterm-256color")
    del environment["NO_COLOR"]
    forced = subprocess.run(
        [*PROGRAM, "keys", "revoke", "x"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "\x1b[" in forced.stderr
    without = subprocess.run(
        [*PROGRAM, "keys", "revoke", "x"],
        cwd=tmp_path,
        env=environment | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "\x1b[" not in without.stderr


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*PROGRAM, "config", "print"],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )
    os.close(writer)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("toolgate ke", "keys"), ("toolgate keys cr", "create"), ("toolgate serve --det", "--deterministic-ids")],
)
def test_the_shell_completes_commands_and_flags(typed: str, expected: str, tmp_path: Path) -> None:
    done = process(
        cwd=tmp_path, _TOOLGATE_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=str(len(typed.split()) - 1)
    )
    assert expected in done.out.split()
