from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.support import Commands, narrow


@pytest.fixture
def toolgate(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    for name in [each for each in os.environ if each.startswith("TOOLGATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return Commands(capfd)


@pytest.fixture
def home(toolgate: Commands, tmp_path: Path) -> Path:
    """A home as `toolgate init` makes it."""
    assert toolgate("init", "home").code == 0
    return tmp_path / "home"


@pytest.fixture
def served_home(toolgate: Commands, home: Path) -> Path:
    """A home whose own policy allows one tool: what it serves does not change with the packs."""
    narrow(home, {"dummy_experimental"})
    assert toolgate("contract", "build", "--home", str(home)).code == 0
    for left in ("runs", "secrets/audit.tips"):  # the record of that: a test's log is to begin with the test
        shutil.rmtree(home / left)
    return home
