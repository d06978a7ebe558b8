"""A person at a repository, and the commands they run in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from toolgate.cli.main import main
from toolgate.packs.governance.cli import zizmor

if TYPE_CHECKING:
    from collections.abc import Callable

FIXTURES = Path(__file__).parents[3] / "fixtures" / "workflows"
SHA = "8f4b7f84864484a7bf31766abe9204da3cbe65b3"
CLEAN = f"""name: CI
on: [pull_request, merge_group]
permissions:
  contents: read
jobs:
  test:
    name: Unit tests
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@{SHA}
        with:
          persist-credentials: false
"""


class Done:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def said(self) -> str:
        """Standard error without the box that errors of usage stand in."""
        return re.sub(r"[│╭╮╰╯─\s]+", " ", self.err)

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, and a person standing in it, with a home elsewhere."""
    for name in [name for name in os.environ if name.startswith(("TOOLGATE_", "GITHUB_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(zizmor, "_program", lambda: None)  # test_zizmor.py has the real one
    place = tmp_path / "repo"
    (place / ".git").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "toolgate.toml").touch()
    monkeypatch.setenv("TOOLGATE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def run(repo: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def command(*arguments: str) -> Done:
        capfd.readouterr()
        code = main(list(arguments))
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return command


def install(repo: Path, *names: str) -> None:
    for name in names:
        put(repo, f".github/workflows/{name}.yml", (FIXTURES / f"{name}.yml").read_text())


def put(repo: Path, path: str, text: str) -> Path:
    whole = repo / path
    whole.parent.mkdir(parents=True, exist_ok=True)
    whole.write_text(text)
    return whole


def git(repo: Path, *arguments: str) -> None:
    """With an identity of its own and nobody's settings."""
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": "/dev/null"}
    identity |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_CONFIG_SYSTEM": "/dev/null"}
    subprocess.run(
        ["git", *arguments], cwd=repo, env=os.environ | identity, check=True, capture_output=True, timeout=30
    )
