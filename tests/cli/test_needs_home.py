"""P18: commands that need a home say so, and make nothing beside you."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import Commands

MARK = ["fp", "mark", "0" * 32, "--rule", "MD-002", "--reason", "r", "--reviewer", "me", "--ticket", "T-1"]
NEEDING = [
    ["keys", "create", "--role", "admin"],
    ["keys", "list"],
    ["keys", "revoke", "x"],
    MARK,
    ["fp", "import", "reviews.json"],
    ["consent", "grant", "acme", "fp_metrics", "--by", "me"],
    ["consent", "revoke", "acme", "fp_metrics", "--by", "me"],
    ["baseline"],
    ["l0", "--input", "nonce.json"],
    ["consensus", "keys", "--make"],
    ["consensus", "status"],
    ["mcp-config", "claude-desktop", "--stdio"],
    ["call", "dummy_experimental"],
    ["serve", "--port", "0"],
]


@pytest.mark.parametrize("words", NEEDING, ids=lambda words: " ".join(words[:2]))
def test_p18_a_command_that_needs_a_home_says_so_and_makes_nothing(
    words: list[str], toolgate: Commands, tmp_path: Path
) -> None:
    (tmp_path / "reviews.json").write_text('{"schemaVersion": 1, "events": []}')
    (tmp_path / "nonce.json").write_text(
        '{"nonceValidation": {"nonce": "abcdefgh", "timestamp": "2026-11-15T21:00:00Z"}}'
    )
    done = toolgate(*words)
    assert (done.code, done.out) == (1, "")
    assert f"error: {tmp_path} is not a home of Toolgate" in done.err
    assert "--home DIR" in done.err
    assert "toolgate init DIR" in done.err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["nonce.json", "reviews.json"]


def test_p18_a_home_named_by_a_variable_or_configured_by_variables_alone_is_one(
    toolgate: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "data"
    (home / "workspace").mkdir(parents=True)
    monkeypatch.setenv("TOOLGATE_HOME", str(home))
    assert toolgate("keys", "create", "--role", "admin").code == 0
    assert (home / "keys" / "callers.json").is_file()
