"""A tree that was found tells whether anything in it has changed since: in this very moment, without being walked again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.powers.files.test_workspace import code_of, open_descriptors
from toolgate.powers import files
from toolgate.powers.files import Workspace

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a" / "deep").mkdir(parents=True)
    (tmp_path / "a" / "one.md").write_text("one")
    (tmp_path / "a" / "deep" / "two.md").write_text("two")
    (tmp_path / "outside").mkdir()
    return tmp_path


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace(root / "a")


def write_in_place(root: Path) -> None:
    with (root / "a" / "deep" / "two.md").open("r+") as file:
        file.write("TWO")


def keep_the_time(root: Path) -> None:
    before = (root / "a" / "one.md").stat()
    write_in_place(root)
    os.utime(root / "a" / "one.md", ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: list[Callable[[Path], object]] = [
    write_in_place,
    keep_the_time,
    lambda root: (root / "a" / "three.md").write_text(""),
    lambda root: (root / "a" / "deep" / "two.md").unlink(),
    lambda root: (root / "a" / "one.md").rename(root / "a" / "uno.md"),
    lambda root: (root / "a" / "deep").rename(root / "outside" / "deep"),
    lambda root: (root / "outside").rename(root / "a" / "deep" / "outside"),
    lambda root: (root / "a" / "new").mkdir(),
    lambda root: (root / "a" / "one.md").chmod(0o600),
    lambda root: os.truncate(root / "a" / "one.md", 0),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_known_at_once_and_for_ever(
    root: Path, workspace: Workspace, change: Callable[[Path], object]
) -> None:
    tree = workspace.watched()
    assert tree.is_unchanged()
    change(root)
    assert not tree.is_unchanged()
    assert not tree.is_unchanged()


def test_reading_changes_nothing(root: Path, workspace: Workspace) -> None:
    tree = workspace.watched()
    assert [file.path for file in tree.files] == ["deep/two.md", "one.md"]
    workspace.read_bytes("one.md", max_bytes=10)
    list(workspace.walk())
    (root / "outside" / "x").write_text("not below the workspace")
    assert tree.is_unchanged()


def test_of_too_many_directories_nothing_is_known(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_WATCHED", 1)
    tree = workspace.watched()
    assert len(tree.files) == 2
    assert not tree.is_unchanged()


def test_a_tree_that_nobody_needs_any_more_holds_nothing(workspace: Workspace) -> None:
    before = open_descriptors()
    tree = workspace.watched()
    assert open_descriptors() == before + 1
    del tree
    assert code_of(lambda: workspace.watched(max_files=1)) == "FILE_TOO_LARGE"
    assert open_descriptors() == before
