"""Commands for people read a pack's settings as a server does: one way to them, and it checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import Commands
from toolgate.errors import ExitCode

COMMANDS = {
    "governance": [
        ["analyze"],
        ["baseline"],
        ["l0"],
        ["adr", "check"],
        ["fp", "list"],
        ["consent", "list", "org"],
    ],
    "consensus": [["consensus", "status"], ["consensus", "keys"], ["consensus", "seal"]],
}
WRONG = {
    "governance": {
        "a misspelt name": ("write_scopes_alowed = []", "Did you mean write_scopes_allowed?"),
        "a wrong type": ('blocks_per_hour = "many"', "packs.governance.blocks_per_hour"),
        "out of range": ("blocks_per_hour = -1", "packs.governance.blocks_per_hour"),
    },
    "consensus": {
        "a misspelt name": ("fanuot = 3", "Did you mean fanout?"),
        "a wrong type": ('gossip_ms = "soon"', "packs.consensus.gossip_ms"),
    },
}
CASES = [(pack, name, command) for pack in COMMANDS for name in WRONG[pack] for command in COMMANDS[pack]]


@pytest.mark.parametrize(
    ("pack", "name", "command"), CASES, ids=lambda each: " ".join(each) if isinstance(each, list) else each
)
def test_a_wrong_setting_is_refused_by_each_command_as_by_a_call(
    pack: str, name: str, command: list[str], toolgate: Commands, home: Path
) -> None:
    wrong, told = WRONG[pack][name]
    (home / "toolgate.toml").write_text(f"[packs.{pack}]\n{wrong}\n")
    done = toolgate(*command, "--home", str(home))
    called = toolgate("tools", "list", "--home", str(home))
    assert (done.code, called.code) == (ExitCode.FAILED, ExitCode.FAILED)
    assert told in done.err
    assert done.err == called.err, "the same words"


def test_a_misspelt_store_is_refused_by_commands_too(toolgate: Commands, home: Path) -> None:
    (home / "toolgate.toml").write_text('[stores]\nfalse_positive = "sqlite:////tmp/x.db"\n')
    done = toolgate("fp", "list", "--home", str(home))
    assert done.code == ExitCode.FAILED
    assert "Did you mean stores.false_positives?" in done.err


def test_a_command_is_refused_before_it_leaves_anything_behind(toolgate: Commands, home: Path) -> None:
    before = sorted(path.name for path in home.rglob("*"))
    (home / "toolgate.toml").write_text("[packs.governance]\nx = 1\n")
    review = ("--rule", "MD-001", "--reason", "x", "--reviewer", "me", "--ticket", "T-1")
    done = toolgate("fp", "mark", "0" * 32, *review, "--home", str(home))
    assert done.code == ExitCode.FAILED
    assert "packs.governance" in done.err
    assert sorted(path.name for path in home.rglob("*")) == before
