"""A question that is asked again is answered again without a look at the files, as long as none of them has changed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toolgate.packs.library.search.index import MAX_ANSWERS, TRUSTED_S
from toolgate.packs.library.tools import search, search_again


class Desk:
    """A context that counts looks at the files, and whose clock stands still."""

    def __init__(self, ctx: Any) -> None:
        self.looks = 0
        self.now = 100.0
        self._files = ctx.files
        self.compute, self.memory = ctx.compute, ctx.memory
        self.clock = SimpleNamespace(monotonic=lambda: self.now)
        self.files = SimpleNamespace(watched=self._watched, read_bytes=ctx.files.read_bytes)

    def _watched(self) -> Any:
        self.looks += 1
        return self._files.watched()

    def find(self, query: str, **more: Any) -> dict[str, Any]:
        args = {"query": query, **more}
        desk: Any = self
        result = search_again(desk.clock, self.memory, args) or asyncio.run(search(desk, args))
        return dict(result.data)


@pytest.fixture
def desk(ctx: Any) -> Desk:
    return Desk(ctx)


def snippet(found: dict[str, Any]) -> str:
    return str(found["hits"][0]["document"]["snippet"])


def test_nothing_is_looked_at_while_nothing_has_changed(desk: Desk) -> None:
    first = desk.find("merkle")
    assert desk.looks == 1
    assert desk.find("merkle") == first
    assert desk.find("quorum")["total"] == 2, "another question is searched for in the same index"
    assert desk.looks == 1


def test_other_filters_are_another_question(desk: Desk) -> None:
    assert desk.find("merkle")["total"] == 2
    assert desk.find("merkle", filters={"kind": "adr"})["total"] == 1
    assert len(desk.find("merkle", topK=1)["hits"]) == 1


def test_a_file_that_was_changed_and_looks_the_same_is_read_again(desk: Desk, place: Path) -> None:
    file = place / "notes.md"
    assert "votes" in snippet(desk.find("finality"))
    before = file.stat()
    file.write_text(file.read_text().replace("Signing votes", "Casting votes"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "Casting" in snippet(desk.find("finality"))


def test_after_a_second_the_files_are_looked_at_whatever_the_system_tells(desk: Desk) -> None:
    first = desk.find("merkle")
    desk.now += TRUSTED_S
    assert desk.find("merkle") == first
    assert desk.looks == 2


def test_where_the_system_does_not_tell_of_changes_every_search_looks(
    desk: Desk, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "other")
    desk.find("merkle")
    desk.now += 0.001
    (place / "notes.md").write_text("# Merkle's notes")
    assert desk.find("merkle")["total"] == 3
    assert desk.looks == 2


def test_only_so_many_answers_are_kept(desk: Desk) -> None:
    for number in range(MAX_ANSWERS + 5):
        desk.find(f"merkle {number}")
    assert len(desk.memory._answers) == MAX_ANSWERS
