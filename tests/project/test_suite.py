"""`scripts/suite.py`: what a gate repeats, and what it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
from pathlib import Path

def test_good():
    pass

def test_bad():
    assert not Path("bad").exists()

def test_unlucky():
    first = Path("first")
    was_here = first.exists()
    first.touch()
    assert was_here
"""


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "suite.py"), *words]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def test_a_test_that_fails_once_is_repeated_alone_and_named(place: Path) -> None:
    done = run(place, "--most", "3", "--", "-n", "2", "--dist", "worksteal")
    assert done.returncode == 0, done.stdout
    assert (place / "build" / "flaky.txt").read_text() == "test_some.py::test_unlucky\n"
    assert "FLAKY, passed only when repeated alone: test_some.py::test_unlucky" in done.stdout
    assert "1 passed" in done.stdout  # the repetition runs what failed, and nothing else


def test_a_test_that_fails_twice_stays_a_failure(place: Path) -> None:
    (place / "bad").touch()
    done = run(place, "--most", "3", "--")
    assert done.returncode == 1
    assert not (place / "build").exists()


def test_more_failures_than_allowed_are_not_repeated(place: Path) -> None:
    (place / "bad").touch()
    done = run(place, "--most", "1", "--")
    assert done.returncode == 1
    assert "repeating" not in done.stdout


def test_a_suite_that_cannot_be_run_is_not_repeated(place: Path) -> None:
    assert run(place, "--most", "3", "--", "nowhere.py").returncode == 4
