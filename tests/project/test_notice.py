"""What is gone must have been announced by the last release, two weeks before: in real repositories with real tags."""

from __future__ import annotations

import json
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from scripts import notice
from tests.policy.support import ROOT

TODAY = date(2027, 3, 1)
FILES = (notice.LOCK, notice.COMMANDS, notice.SETTINGS, notice.PROMISES)


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root
        for name in FILES:
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
        self._git("init", "-q")

    def release(self, tag: str) -> None:
        self._git("add", "-A")
        self._git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", tag)
        self._git("tag", tag)

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert old in text
        (self.root / name).write_text(text.replace(old, new, 1))

    def contract(self, change: Any) -> None:
        path = self.root / notice.LOCK
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    def judge(self) -> int:
        return notice.main(self.root, TODAY)

    def _git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def _drop_lra_init(content: Any) -> None:
    content["tools"] = [tool for tool in content["tools"] if tool["name"] != "lra_init"]


def _announce_lra_init(content: Any) -> None:
    content["deprecations"] = [{"tool": "lra_init", "what": "tool", "announced": "2026-01-01", "text": "Use lra."}]


def test_d16_before_the_first_release_nothing_needs_an_announcement(repository: Repository) -> None:
    repository.contract(_drop_lra_init)
    assert repository.judge() == 0


@pytest.mark.req("000-E-01")
def test_d16_tool_that_the_last_release_did_not_announce_may_not_go(repository: Repository) -> None:
    repository.release("v1.0.0")
    assert repository.judge() == 0
    repository.contract(_announce_lra_init)
    repository.contract(_drop_lra_init)
    assert repository.judge() == 1, "announced and gone in one release, whatever day the entry says"


def test_d16_tool_that_the_last_release_announced_may_go(repository: Repository) -> None:
    repository.contract(_announce_lra_init)
    repository.release("v1.0.0")
    repository.contract(_drop_lra_init)
    assert repository.judge() == 0


@pytest.mark.parametrize(
    ("page", "line", "name"),
    [
        (notice.COMMANDS, "### toolgate audit tail", "toolgate audit tail"),
        (notice.COMMANDS, "| `--url` |", "toolgate call --url"),
        (notice.SETTINGS, "`TOOLGATE_SERVER_PORT`", "TOOLGATE_SERVER_PORT"),
    ],
)
@pytest.mark.parametrize(("announced", "verdict"), [(None, 1), ("2027-02-16", 1), ("2027-02-15", 0)])
def test_d16_command_flag_or_setting_goes_after_a_release_and_two_weeks(
    repository: Repository, page: str, line: str, name: str, announced: str | None, verdict: int
) -> None:
    if announced:
        row = f"| `{name}` | {announced} | v2.0.0 | nothing |"
        repository.edit(notice.PROMISES, "| nothing at present | | | |", row)
    repository.release("v1.0.0")
    repository.edit(page, line, "gone")
    assert repository.judge() == verdict


def test_d16_announced_command_covers_what_is_below_it_and_nothing_beside() -> None:
    gone = {"toolgate fp", "toolgate fp list", "toolgate fp list --json", "toolgate fpx"}
    assert notice.too_early(gone, {"toolgate fp"}) == ["toolgate fpx"]


def test_d16_clone_without_its_history_is_not_judged(repository: Repository, tmp_path: Path) -> None:
    repository.release("v1.0.0")
    subprocess.run(
        ["git", "clone", "-q", "--depth", "1", f"file://{tmp_path}", str(tmp_path / "shallow")],
        check=True,
        capture_output=True,
    )
    assert notice.main(tmp_path / "shallow", TODAY) == 1
