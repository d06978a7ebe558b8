"""Search and fetch over a real workspace, with the real worker processes."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import ToolError
from toolgate.packs.library import PACK
from toolgate.packs.library.search.documents import KINDS, index_documents, kind_of
from toolgate.packs.library.search.index import Index, Stamp
from toolgate.packs.library.search.index import search as find_in
from toolgate.packs.library.search.snippets import snippets
from toolgate.packs.library.search.words import keys_of
from toolgate.packs.library.tools import FETCH, SEARCH, fetch, search
from toolgate.registry import SchemaRegistry


def find(ctx: Any, query: str, **more: Any) -> dict[str, Any]:
    data = asyncio.run(search(ctx, {"query": query, **more})).data
    assert SchemaRegistry(PACK.tools).load_tool_io("library_search").output.is_valid(data)
    return dict(data)


def paths(found: dict[str, Any]) -> list[str]:
    return [hit["document"]["sourcePath"] for hit in found["hits"]]


def test_documents_are_found_by_their_words_best_first(ctx: Any) -> None:
    found = find(ctx, "merkle tree")
    assert found["query"] == "merkle tree"
    assert found["total"] == 2
    assert set(paths(found)) == {"paper/index.html", "docs/adr/ADR-0001-ledger.md"}
    assert [hit["rank"] for hit in found["hits"]] == [1, 2]
    assert found["hits"][0]["score"] >= found["hits"][1]["score"] > 0
    assert found == find(ctx, "merkle tree")


def test_titles_come_from_the_document_and_snippets_from_its_text(ctx: Any) -> None:
    by_path = {hit["document"]["sourcePath"]: hit["document"] for hit in find(ctx, "quorum merkle")["hits"]}
    assert by_path["paper/index.html"]["title"] == "Signed & sealed receipts"
    assert by_path["notes.md"]["title"] == "Notes on voting"
    assert by_path["plain.txt"]["title"] == "plain.txt"
    assert "Quorum and finality" in by_path["notes.md"]["snippet"]


def test_all_words_are_wanted_and_any_word_when_no_document_has_all(ctx: Any) -> None:
    assert paths(find(ctx, "quorum finality")) == ["notes.md"]
    assert set(paths(find(ctx, "quorum ledger"))) == {"notes.md", "plain.txt", "docs/adr/ADR-0001-ledger.md"}
    assert find(ctx, "nowhere")["total"] == 0


def test_words_are_found_in_another_form_and_without_accents(ctx: Any, place: Path) -> None:
    (place / "accents.md").write_text("# Décision\nÜber die Prüfung.")
    assert paths(find(ctx, "signed votes")) == ["notes.md"]
    assert paths(find(ctx, "decision prufung")) == ["accents.md"]


def test_scripts_dotfiles_and_other_files_are_not_searched(ctx: Any) -> None:
    assert find(ctx, "hidden")["total"] == 0
    assert find(ctx, "canary")["total"] == 0
    assert "data.csv" not in paths(find(ctx, "quorum"))
    assert find(ctx, "quorum")["skipped"] == 1, "binary.md is not text, and that is said"


def test_a_change_an_addition_and_a_removal_are_seen_at_once(ctx: Any, place: Path) -> None:
    assert find(ctx, "zebra")["total"] == 0
    (place / "new.md").write_text("# Zebra")
    assert paths(find(ctx, "zebra")) == ["new.md"]
    (place / "new.md").write_text("# Giraffe")
    assert find(ctx, "zebra")["total"] == 0
    assert paths(find(ctx, "giraffe")) == ["new.md"]
    (place / "new.md").unlink()
    assert find(ctx, "giraffe")["total"] == 0


def test_filters_and_topk_narrow_the_answer(ctx: Any) -> None:
    assert paths(find(ctx, "merkle", filters={"kind": "adr"})) == ["docs/adr/ADR-0001-ledger.md"]
    for spelt in ("paper", "./paper", "paper/", "/paper//"):
        assert paths(find(ctx, "merkle", filters={"path": spelt})) == ["paper/index.html"]
    assert find(ctx, "merkle", filters={"path": "."})["total"] == 2
    assert paths(find(ctx, "merkle", filters={"path": "pape"})) == []
    narrowed = find(ctx, "merkle", topK=1)
    assert (len(narrowed["hits"]), narrowed["total"]) == (1, 2)


def test_equal_documents_come_in_the_order_of_their_paths(ctx: Any, place: Path) -> None:
    for name in ("b", "a", "c"):
        (place / f"{name}.md").write_text("# Same\nplatypus")
    assert paths(find(ctx, "platypus")) == ["a.md", "b.md", "c.md"]


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "* OR *",
        "NEAR(a b)",
        "title:x",
        "quorum AND",
        "a^2",
        "-quorum",
        "{a b}",
        "' OR 1=1 --",
        "\u202e",
        "𝕏",
        "()",
        "AND",
        "NOT",
        "a" * 256,
    ],
)
def test_search_syntax_is_plain_text(ctx: Any, query: str) -> None:
    assert find(ctx, query)["query"] == query


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60))
def test_no_text_is_a_fault_in_the_search_engine(query: str) -> None:
    documents = index_documents([("a.md", b"# Title\nwords")])
    assert all(hit.path == "a.md" for hit in find_in(documents, keys_of(query)))
    snippets((query, [("a.md", b"# Title\nwords")]))


def test_what_could_deceive_a_reader_is_spelt_out(ctx: Any, place: Path) -> None:
    (place / "trick.md").write_text("# Safe \u202e title\n\nokapi \x1b[31m red")
    document = find(ctx, "okapi")["hits"][0]["document"]
    assert document["title"] == "Safe \\u202e title"
    assert "\\u001b" in document["snippet"]


def test_a_library_that_does_not_fit_says_what_was_left_out() -> None:
    index = Index(max_words=10)
    documents = index_documents([("a.md", b"1 2 3 4 5 6 7 8"), ("b.md", b"1 2 3 4 5 6 7 8")])
    index.put({"a.md": Stamp(8, 1.0), "b.md": Stamp(8, 1.0)}, documents)
    assert index.skipped == 1
    assert index.changed({"b.md": Stamp(8, 1.0)}) == []
    index.put({"b.md": Stamp(8, 2.0)}, documents[1:])
    assert index.skipped == 0, "what is removed makes room"


def test_a_document_is_fetched_with_its_digest(ctx: Any, place: Path) -> None:
    data = fetch(ctx, {"path": "./docs//adr/ADR-0001-ledger.md"}).data
    raw = (place / "docs/adr/ADR-0001-ledger.md").read_bytes()
    assert data == {
        "path": "docs/adr/ADR-0001-ledger.md",
        "kind": "adr",
        "sha256": hashlib.sha256(raw).hexdigest(),
        "bytes": len(raw),
        "content": raw.decode(),
    }
    assert SchemaRegistry(PACK.tools).load_tool_io("library_fetch").output.is_valid(data)
    assert FETCH.text is not None
    assert FETCH.text(data) == raw.decode()


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("missing.md", "FILE_NOT_FOUND"),
        (".secret/hidden.md", "FILE_NOT_FOUND"),
        ("data.csv", "FILE_NOT_FOUND"),
        ("../outside.md", "INVALID_PATH"),
        ("a/%2e%2e/b.md", "FILE_NOT_FOUND"),
        ("/etc/passwd.md", "INVALID_PATH"),
        ("a\\b.md", "INVALID_PATH"),
        ("link.md", "FILE_NOT_FOUND"),
        ("binary.md", "NOT_TEXT"),
        ("big.md", "FILE_TOO_LARGE"),
    ],
)
def test_only_documents_of_the_workspace_are_fetched(ctx: Any, place: Path, path: str, code: str) -> None:
    (place / "link.md").symlink_to("/etc/hostname")
    (place / "big.md").write_bytes(b"x" * (512 * 1024 + 1))
    with pytest.raises(ToolError) as refusal:
        fetch(ctx, {"path": path})
    assert refusal.value.code == code
    assert code in FETCH.error_codes


def test_a_link_is_not_searched(ctx: Any, place: Path) -> None:
    (place / "link.md").symlink_to("/etc/hostname")
    assert "link.md" not in paths(find(ctx, Path("/etc/hostname").read_text() or "x"))


@pytest.mark.req("002-T1")
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"query": ""},
        {"query": 5},
        {"query": "a" * 257},
        {"query": "a", "topK": 0},
        {"query": "a", "topK": 11},
        {"query": "a", "topK": 1.0},
        {"query": "a", "x": 1},
        {"query": "a", "filters": {"kind": "other"}},
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any]) -> None:
    assert not SchemaRegistry(PACK.tools).load_tool_io("mcp.tool:library.search").input.is_valid(arguments)


@pytest.mark.req("002-T2")
def test_hits_of_another_shape_are_refused() -> None:
    output = SchemaRegistry(PACK.tools).load_tool_io("library_search").output
    hit = {
        "id": "0" * 16,
        "score": 1.5,
        "rank": 1,
        "document": {"title": "t", "snippet": "s", "sourcePath": "p"},
    }
    assert output.is_valid({"query": "q", "total": 1, "hits": [hit]})
    for name in hit:
        assert not output.is_valid({"query": "q", "total": 1, "hits": [{key: hit[key] for key in hit if key != name}]})
    assert not output.is_valid({"query": "q", "total": 1, "hits": [{**hit, "rank": 0}]})
    assert not output.is_valid({"query": "q", "total": 1, "hits": [{**hit, "extra": 0}]})
    assert not output.is_valid({"query": "q", "total": -1, "hits": []})


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a/index.html", "paper"),
        ("ADR-12.md", "adr"),
        ("adr0007-x.markdown", "adr"),
        ("README.MD", "markdown"),
        ("x.txt", "text"),
        ("x.py", None),
        ("a/.b/c.md", None),
        (".md", None),
    ],
)
def test_the_kind_follows_from_the_name(path: str, kind: str | None) -> None:
    assert kind_of(path) == kind
    assert kind is None or kind in KINDS


def test_a_hostile_document_is_read_in_linear_time() -> None:
    fences = "```x\n" * 100_000
    nested = "<div>" * 80_000 + "deep"
    found = index_documents([("a.md", fences.encode()), ("b.html", nested.encode())])
    assert [one.title for one in found] == ["a.md", "b.html"]
    assert SEARCH.effect == FETCH.effect == "read"
