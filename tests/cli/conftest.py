from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.support import Commands, narrow, without_settings
from toolgate.cli.main import main
from toolgate.ledger import LOG_PATH
from toolgate.ledger.files import KEY_FILE
from toolgate.ledger.tips import DIRECTORY, Tips


@pytest.fixture
def toolgate(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    without_settings(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return Commands(capfd)


@pytest.fixture(scope="session")
def new_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home as `toolgate init` makes it, to be copied: making one waits for the disk seventeen times."""
    place = tmp_path_factory.mktemp("init") / "home"
    with pytest.MonkeyPatch.context() as patch:
        without_settings(patch)
        assert main(["init", str(place)]) == 0
    return place


@pytest.fixture(scope="session")
def new_served_home(new_home: Path) -> Path:
    place = copied(new_home, new_home.with_name("served"))
    narrow(place, {"dummy_experimental"})
    with pytest.MonkeyPatch.context() as patch:
        without_settings(patch)
        assert main(["contract", "build", "--home", str(place)]) == 0
    for left in ("runs", "secrets/audit.tips"):  # the record of that: a test's log is to begin with the test
        shutil.rmtree(place / left)
    return place


@pytest.fixture
def home(toolgate: Commands, new_home: Path, tmp_path: Path) -> Path:
    return copied(new_home, tmp_path / "home")


@pytest.fixture
def served_home(toolgate: Commands, new_served_home: Path, tmp_path: Path) -> Path:
    """A home whose own policy allows one tool: what it serves does not change with the packs."""
    return copied(new_served_home, tmp_path / "home")


def copied(home: Path, place: Path) -> Path:
    """As if it had been made there: what the log's key remembers of a log goes by its place."""
    shutil.copytree(home, place, symlinks=True)
    for known in (place / "secrets" / DIRECTORY).glob("*"):
        known.rename(Tips(place / "secrets" / KEY_FILE, place / "runs" / LOG_PATH)._directory)
    return place
