"""The way in: fast help, lazy commands, faults as two lines, documented exit codes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import PROGRAM, Commands, clean_environment, process
from toolgate import __version__
from toolgate.cli import commands as listed
from toolgate.cli import main as module
from toolgate.cli.commands import every_command, load
from toolgate.errors import Ending, ExitCode, LedgerUnavailable, Refusal, StartRefused, StoreUnavailable
from toolgate.packs.lra import cli as lra

HEAVY = {
    "uvloop",
    "sqlalchemy",
    "jsonschema_rs",
    "nacl",
    "cryptography",
    "httpx2",
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
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["version"],
        ["keys", "list"],
        ["config", "print"],
        ["serve", "--help"],
        ["lra", "verify", "--help"],
        ["pack", "new", "x"],
    ],
    ids=" ".join,
)
def test_light_commands_import_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "toolgate.toml").touch()
    found = imported(*arguments, cwd=tmp_path)
    assert "toolgate" in found
    assert not found & HEAVY


def test_help_lists_every_command(toolgate: Commands) -> None:
    done = toolgate("--help")
    assert done.code == 0
    for name, entry in every_command().items():
        assert f" {name} " in done.out
        assert entry.summary.split(".")[0][:40] in done.out


@pytest.mark.parametrize("name", every_command())
def test_every_listed_command_can_be_loaded_and_explains_itself(name: str, toolgate: Commands) -> None:
    assert load(every_command()[name]).name == name
    done = toolgate(name, "--help")
    assert done.code == 0
    assert "Usage: toolgate" in done.out


@pytest.mark.parametrize("words", [[], ["serve"], ["keys"], ["keys", "create"], ["lra", "validate"]], ids=" ".join)
def test_p_a_short_h_asks_for_help_everywhere(words: list[str], toolgate: Commands) -> None:
    done = toolgate(*words, "-h")
    assert (done.code, done.err) == (0, "")
    assert done.out == toolgate(*words, "--help").out
    assert "Usage: toolgate" in done.out


@pytest.mark.parametrize("words", [[], ["validate"], ["verify"]], ids=" ".join)
def test_p_lra_takes_a_short_h_too(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert lra.main([*words, "-h"]) == 0
    assert "Usage: lra" in capsys.readouterr().out


def commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        yield path, command
        return
    for name in command.list_commands(None):
        yield from commands(f"{path} {name}", command.resolve_command(None, [name])[1])


@pytest.mark.parametrize("name", ["upstream", "lra"])
def test_a_summary_that_is_shown_without_loading_a_command_is_the_commands_own(name: str) -> None:
    group = load(every_command()[name])
    for command in group.list_commands(None):
        shown, real = group.get_command(None, command), group.resolve_command(None, [command])[1]
        assert " ".join((real.help or "").partition("\n\n")[0].split()) == shown.help, command


def test_help_of_a_group_loads_none_of_its_commands(tmp_path: Path) -> None:
    loaded = imported("upstream", "--help", cwd=tmp_path) | imported("lra", "--help", cwd=tmp_path)
    assert not {name for name in loaded if name.startswith("toolgate.cli.upstream.")}
    beside = {name for name in loaded if name.startswith("toolgate.packs.lra.cli.")}
    assert beside == {f"toolgate.packs.lra.cli.{name}" for name in ("border", "commands")}


def test_p_every_command_that_prints_data_takes_json() -> None:
    all_of_them = [each for name, one in every_command().items() for each in commands(name, load(one))]
    without = {path for path, one in all_of_them if not any("--json" in each.opts for each in one.params)}
    assert without == {"stdio", "lra serve"}, "one speaks a protocol, the other serves pages until it is stopped"


def test_the_version_is_told_both_ways(toolgate: Commands) -> None:
    assert toolgate("version").out == toolgate("--version").out == f"toolgate {__version__}\n"


def test_a_misspelt_command_is_a_usage_error_with_a_suggestion(toolgate: Commands) -> None:
    done = toolgate("kyes")
    assert done.code == ExitCode.USAGE
    assert "keys" in done.err
    assert not done.out


FAULTS = {
    "settings": (StartRefused("Fault.\nFix."), ExitCode.FAILED),
    "key": (Refusal(Ending.INVALID_KEY, "Fault.\nFix."), ExitCode.DENIED),
    "limit": (Refusal(Ending.TOO_MANY, "Fault.\nFix."), ExitCode.LIMITED),
    "arguments": (Refusal(Ending.BAD_ARGUMENTS, "Fault.\nFix."), ExitCode.BAD_ARGUMENTS),
    "unknown tool": (Refusal(Ending.UNKNOWN_TOOL, "Fault.\nFix."), ExitCode.UNKNOWN_TOOL),
    "log": (LedgerUnavailable("Fault.\nFix."), ExitCode.UNAVAILABLE),
    "store": (StoreUnavailable("Fault.\nFix."), ExitCode.UNAVAILABLE),
}


@pytest.mark.parametrize(("fault", "code"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_two_lines_on_stderr_and_a_documented_code(
    fault: Exception, code: int, toolgate: Commands, monkeypatch
) -> None:
    def failing() -> None:
        raise fault

    monkeypatch.setattr(listed, "version", failing)
    done = toolgate("version")
    assert done.code == code
    assert done.out == ""
    assert done.err == "error: Fault.\n       Fix.\n"


def test_a_fault_of_our_own_shows_no_traceback_unless_asked(
    toolgate: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> None:
        raise ZeroDivisionError("tg_0123456789ab_secret")

    monkeypatch.setattr(listed, "version", failing)
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


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("toolgate ke", "keys"), ("toolgate keys cr", "create"), ("toolgate serve --det", "--deterministic-ids")],
)
def test_the_shell_completes_commands_and_flags(typed: str, expected: str, tmp_path: Path) -> None:
    done = process(
        cwd=tmp_path, _TOOLGATE_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=str(len(typed.split()) - 1)
    )
    assert expected in done.out.split()
