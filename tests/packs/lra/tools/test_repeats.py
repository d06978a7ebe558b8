"""A paper that is judged again and again is not read again, as long as nothing in the workspace has changed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from toolgate.errors import ToolError
from toolgate.packs.lra import PACK
from toolgate.packs.lra.checks.known import MAX_REPORTS, TRUSTED_S
from toolgate.packs.lra.tools.author import judge
from toolgate.powers.files import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOOL = {tool.name: tool for tool in PACK.tools}["lra_validate"]
PAGE = "<!doctype html><html lang=en><title>One</title><p>Hello"


class Desk:
    """A context that counts looks at the files, and whose clock stands still."""

    def __init__(self, root: Path) -> None:
        self.looks = 0
        self.now = 100.0
        self.root = root
        self.memory = PACK.memory()
        self.workspace = Workspace(root)
        self.clock = SimpleNamespace(monotonic=lambda: self.now)
        self.files = SimpleNamespace(
            watched=self._watched,
            is_dir=self.workspace.is_dir,
            walk=self.workspace.walk,
            read_bytes=self.workspace.read_bytes,
        )

    def _watched(self) -> Any:
        self.looks += 1
        return self.workspace.watched()

    async def compute(self, function: Any, artifact: Any) -> Any:
        assert function is judge
        return function(artifact)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def at_once(self, path: str) -> Any:
        answer: Any = TOOL.at_once
        return answer(self.clock, self.memory, {"path": path})

    def judged(self, path: str) -> Any:
        run: Any = TOOL.run
        found = self.at_once(path) or asyncio.run(run(self, {"path": path}))
        return found.data

    def warm(self, path: str) -> Any:
        """The first call judges, the second looks and remembers."""
        self.judged(path)
        report = self.judged(path)
        assert self.at_once(path) is not None
        return report


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    made.write("p/index.html", PAGE)
    yield made
    made.workspace.close()


def test_an_unchanged_paper_is_answered_as_it_was(desk: Desk) -> None:
    first = desk.judged("p")
    assert desk.at_once("p") is None, "one question is not worth a look at the whole workspace"
    assert desk.warm("p") == first == desk.at_once("p").data
    assert desk.looks == 1


@pytest.mark.parametrize("change", ["rewritten", "beside", "removed", "moved", "another folder"])
def test_any_change_is_seen_at_once(desk: Desk, change: str) -> None:
    desk.write("q/note.md", "x")
    before = desk.warm("p")
    match change:
        case "rewritten":
            desk.write("p/index.html", PAGE.replace("lang=en", ""))
        case "beside":
            desk.write("p/LICENSE", "x")
        case "removed":
            (desk.root / "p" / "index.html").unlink()
        case "moved":
            (desk.root / "p").rename(desk.root / "r")
        case "another folder":
            desk.write("q/note.md", "y")
    assert desk.at_once("p") is None
    if change in ("removed", "moved"):
        with pytest.raises(ToolError):
            desk.judged("p")
    else:
        assert (desk.judged("p") == before) is (change == "another folder")


def test_a_look_is_believed_for_a_second_and_taken_once_in_one(desk: Desk) -> None:
    desk.warm("p")
    desk.now += TRUSTED_S
    assert desk.at_once("p") is None
    desk.warm("p")
    assert desk.looks == 2
    desk.write("q.md", "x")
    for _ in range(3):
        desk.judged("p")
    assert desk.looks == 2, "the next look has to wait"


def test_papers_share_a_look(desk: Desk) -> None:
    desk.write("q/index.html", PAGE)
    desk.judged("q")
    desk.warm("p")
    desk.judged("q")
    assert desk.at_once("q") is not None
    assert desk.looks == 1


def test_what_changes_while_a_paper_is_read_is_not_remembered(desk: Desk) -> None:
    desk.judged("p")
    desk.files.read_bytes = lambda path, **more: (desk.write("p/x.js", "1"), desk.workspace.read_bytes(path, **more))[1]
    desk.judged("p")
    assert desk.at_once("p") is None


@pytest.mark.parametrize("hidden", [".p/index.html", "link/index.html"])
def test_a_paper_in_a_hidden_folder_or_behind_a_link_is_read_each_time(desk: Desk, hidden: str) -> None:
    desk.write(".p/index.html", PAGE)
    (desk.root / "link").symlink_to("p")
    for _ in range(3):
        try:
            desk.judged(hidden)
        except ToolError:
            assert hidden.startswith("link"), "links are not followed at all"
    assert desk.at_once(hidden) is None


def test_a_workspace_that_cannot_be_looked_at_costs_one_try_a_second(desk: Desk) -> None:
    def refuse() -> Any:
        desk.looks += 1
        raise ToolError("FILE_TOO_LARGE", "more than can be watched")

    desk.files.watched = refuse
    for _ in range(4):
        desk.judged("p")
    assert (desk.looks, desk.at_once("p")) == (1, None)


def test_what_is_remembered_is_bounded(desk: Desk) -> None:
    desk.judged("p")
    for number in range(MAX_REPORTS + 5):
        desk.judged("p" + "/" * (number + 1))
    assert len(desk.memory._here) <= MAX_REPORTS
    assert len(desk.memory._judged) == MAX_REPORTS
