"""A stranger's document and a builder's query cannot hold the index, the workers or other callers (F7)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faces import speak
from tests.homes import make_home
from toolgate.errors import ToolError, WorkFailed
from toolgate.packs.library import tools
from toolgate.packs.library.search.documents import Indexed, index_documents
from toolgate.packs.library.search.index import MAX_FAILURES, Index, Stamp, search
from toolgate.packs.library.search.snippets import MAX_SNIPPET, snippets
from toolgate.packs.library.search.words import TITLE_WEIGHT, TOKENIZER, Words, keys_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAIRS = [first + second for first in "abcdefghij" for second in "klmnopqrst"]
DENSE = "# T\n" + " ".join(PAIRS * 1_600)[:500_000]
"""Half a megabyte in which every second word is one that was asked for."""


class Desk:
    """A workspace and a way to fail: `fails` says for which documents a worker does not come back, and how."""

    def __init__(self, ctx: Any, fails: Callable[[list[str]], BaseException | None]) -> None:
        self.files, self.clock = ctx.files, ctx.clock
        self.memory = ctx.memory
        self.read: list[list[str]] = []
        self._compute = ctx.compute
        self._fails = fails

    async def compute(self, function: Any, data: Any, *, timeout_s: float) -> Any:
        if function is index_documents:
            paths = [path for path, _ in data]
            self.read.append(paths)
            fault = self._fails(paths)
            if fault is not None:
                raise fault
        return await self._compute(function, data, timeout_s=timeout_s)


def ask(ctx: Any, query: str, **more: Any) -> dict[str, Any]:
    return dict(asyncio.run(tools.search(ctx, {"query": query, **more})).data)


def found(data: dict[str, Any]) -> list[str]:
    return [hit["document"]["sourcePath"] for hit in data["hits"]]


def test_f7_a_query_has_few_words(ctx: Any) -> None:
    words = [f"w{number}" for number in range(tools.MAX_WORDS + 1)]
    assert ask(ctx, " ".join(words[:-1]))["total"] == 0
    assert ask(ctx, "merkle " * 30)["total"] == 2, "the same word again is no other"
    with pytest.raises(ToolError) as refusal:
        ask(ctx, " ".join(words))
    assert (refusal.value.code, refusal.value.data["reason"]) == ("INVALID_INPUT", "too_many_words")


def test_f7_a_document_full_of_the_words_asked_for_is_found_and_shown(ctx: Any, place: Path) -> None:
    """Its passage took words² times length²: 45 seconds for this one, out of reach of any deadline."""
    (place / "dense.md").write_text(DENSE)
    hit = ask(ctx, " ".join(PAIRS[: tools.MAX_WORDS]))["hits"][0]
    assert hit["document"]["sourcePath"] == "dense.md"
    assert 0 < len(hit["document"]["snippet"]) <= MAX_SNIPPET


@pytest.mark.parametrize(
    "text", ["a " * 250_000, "a" * 500_000, "x " * 240_000 + "a", "\n" * 500_000 + "a", "a\x02" * 9]
)
def test_f7_a_passage_is_found_in_any_text(text: str) -> None:
    assert "a" in snippets(("a b", [("a.txt", text.encode())]))["a.txt"]


def test_f7_the_event_loops_own_threads_are_not_used(ctx: Any) -> None:
    async def look() -> Any:
        await tools.search(ctx, {"query": "merkle"})
        return asyncio.get_running_loop()._default_executor  # type: ignore[attr-defined] # nothing public tells

    assert asyncio.run(look()) is None


def test_f7_searches_at_once_read_a_new_library_once(ctx: Any) -> None:
    desk = Desk(ctx, lambda _: None)

    async def crowd() -> list[Any]:
        return await asyncio.gather(*(tools.search(desk, {"query": "merkle"}) for _ in range(8)))

    answers = asyncio.run(crowd())
    assert {answer.data["total"] for answer in answers} == {2}
    assert set(Counter(path for batch in desk.read for path in batch).values()) == {1}


@pytest.mark.parametrize("fault", [TimeoutError(), WorkFailed("worker_ended", "x")], ids=["overruns", "crashes"])
def test_f7_a_document_that_ends_its_worker_is_left_out_and_the_others_are_found(
    ctx: Any, place: Path, fault: BaseException
) -> None:
    (place / "a-bad.md").write_text("merkle")
    desk = Desk(ctx, lambda paths: fault if "a-bad.md" in paths else None)
    first = ask(desk, "merkle")
    assert (first["total"], first["pending"]) == (2, 1), "read together, then each alone"
    last = ask(desk, "merkle")
    assert sum("a-bad.md" in batch for batch in desk.read) == MAX_FAILURES
    assert ("pending" in last, last["skipped"], last["total"]) == (False, 2, 2)
    reads = len(desk.read)
    assert ask(desk, "merkle") == last
    assert len(desk.read) == reads, "it is not tried again"
    (place / "a-bad.md").write_text("merkle, mended")
    assert found(ask(ctx, "mended")) == ["a-bad.md"], "until it changes"


def test_f7_a_library_that_is_not_read_in_time_is_searched_as_far_as_it_is(ctx: Any, place: Path) -> None:
    (place / "z.md").write_text("merkle " * 74_880)
    busy = Desk(ctx, lambda paths: WorkFailed("workers_busy", "x") if "z.md" in paths else None)
    data = ask(busy, "merkle")
    assert (data["total"], data["pending"]) == (2, 1)
    assert ask(busy, "merkle")["pending"] == 1, "it is not the document's fault, however often"
    assert "pending" not in ask(ctx, "merkle")


def test_f7_a_search_is_answered_without_passages_when_no_worker_is_free(ctx: Any) -> None:
    ask(ctx, "quorum")
    works = ctx.compute

    async def compute(*_: Any, **__: Any) -> Any:
        raise WorkFailed("workers_busy", "x")

    ctx.compute = compute
    data = ask(ctx, "merkle")
    assert (data["total"], {hit["document"]["snippet"] for hit in data["hits"]}) == (2, {""})
    ctx.compute = works
    assert all(hit["document"]["snippet"] for hit in ask(ctx, "merkle")["hits"]), "half an answer is not kept"


@pytest.mark.parametrize("keys", [b"1234567", b"12345678", b"12345678" * 2])
def test_f7_words_that_no_honest_worker_counts_are_not_taken(keys: bytes) -> None:
    index = Index()
    index.put({"a.md": Stamp(1, 1.0)}, [Indexed("a.md", "markdown", "t", Words(keys, b"1234" * 3, 1))])
    assert (index.documents(), index.skipped) == ([], 1)


def test_f7_a_search_that_is_late_ends() -> None:
    with pytest.raises(TimeoutError):
        search(index_documents([("a.md", b"a")]), keys_of("a"), is_late=lambda: True)


WORDS = st.lists(st.sampled_from(["merkle", "trees", "signed", "Über", "a-b", "votes"]), max_size=12).map(" ".join)


@given(st.lists(WORDS, min_size=1, max_size=8), WORDS)
def test_f7_the_order_is_that_of_sqlites_own_ranking(texts: list[str], query: str) -> None:
    """Same words, same formula: FTS5's bm25, without the parts of FTS5 whose cost strangers decide."""
    documents = index_documents([(f"{number}.md", f"# {text}".encode()) for number, text in enumerate(texts)])
    hits = search(documents, keys_of(query))
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE VIRTUAL TABLE words USING fts5(title, text, tokenize = '{TOKENIZER}')")
    for number, (text, one) in enumerate(zip(texts, documents, strict=True)):
        database.execute("INSERT INTO words (rowid, title, text) VALUES (?, ?, ?)", (number, one.title, f"# {text}"))
    bare = dict.fromkeys(word for part in query.split() for word in part.split("-"))
    rows = []
    for joint in (" AND ", " OR "):
        match = joint.join(f'"{word}"' for word in bare)
        statement = f"SELECT rowid, -bm25(words, {TITLE_WEIGHT}.0, 1.0) FROM words WHERE words MATCH ?"
        rows = rows or (database.execute(statement, (match,)).fetchall() if match else [])
    database.close()
    assert {hit.path: hit.score for hit in hits} == {
        f"{number}.md": pytest.approx(score, abs=1e-6) for number, score in rows
    }


@pytest.mark.guard
def test_f7_hostile_searches_stop_neither_other_tools_nor_the_end(tmp_path: Path) -> None:
    """Eight searches for as many words as may be, over a document made for them; then another tool, then SIGTERM."""
    home = make_home(tmp_path / "home", packs=("library", "lra"))
    (home.workspace / "evil.md").write_text(DENSE)
    with home.serving("--server-drain-seconds", "2") as server:

        async def hostile() -> list[Any]:
            query = {"query": " ".join(PAIRS[: tools.MAX_WORDS])}
            calls = [speak.HTTP_FACES["mrt"]] * 8
            return await asyncio.gather(
                *(asyncio.to_thread(call, server.port, "library_search", query, home.keys["builder"]) for call in calls)
            )

        answers = asyncio.run(hostile())
        assert [answer.envelope["success"] for answer in answers] == [True] * 8
        made = speak.HTTP_FACES["mrt"](server.port, "lra_init", {"project_name": "good"}, home.keys["committer"])
        assert made.envelope is not None
        judged = speak.HTTP_FACES["mrt"](server.port, "lra_validate", {"path": "good"}, home.keys["admin"])
        assert judged.envelope is not None
        assert judged.envelope["success"] is True
