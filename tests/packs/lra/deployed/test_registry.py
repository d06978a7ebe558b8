"""The registry file: what is refused, what is remarked on, and that entering a paper loses nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.packs.lra.deployed.test_verify import URL, entry
from toolgate.errors import ToolError
from toolgate.packs.lra.deployed import registry

NOW = "2026-04-07T00:00:00Z"
OTHER = "sha256:" + "1" * 64


def book(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"version": "1.0", "updated": NOW, "entries": list(entries)}).encode()


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({}, None),
        ({"version": "1.0"}, "version is not X.Y.Z"),
        ({"version": "1.0.0-beta"}, "version is not X.Y.Z"),
        ({"registered": "yesterday"}, "registered is not an RFC 3339 time"),
        ({"registered": "2026-04-06T15:30:00.5+02:00"}, None),
        ({"url": "http://example.org/"}, "url is not https"),
        ({"doi": "10.1/x"}, "doi is not a field of LRA-1.0"),
        ({"verifications": {"total_verifications": 1, "total_challenges": 0}}, None),
        ({"depends": ["x"]}, "depends holds something that is not a hash"),
        ({"depends": [OTHER]}, f"depends on {OTHER}, which the registry does not hold"),
    ],
)
def test_an_entry_is_remarked_on_where_it_strays(changes: dict[str, Any], remark: str | None) -> None:
    assert registry.lint(book(entry(**changes))) == ([f"entry 0: {remark}"] if remark else [])


def test_the_same_paper_twice_is_remarked_on() -> None:
    found = registry.lint(book(entry(), entry(url=URL + "/", hash=OTHER), entry(url="https://x.test/")))
    assert [line.partition(" (")[0] for line in found] == [
        "entry 1: the same paper as entry 0",
        "entry 2: the same paper as entry 0",
    ]


def test_the_first_of_two_entries_is_the_one_that_is_found() -> None:
    parsed = registry.parse(book(entry(title="first"), entry(title="second")))
    found = parsed.find(URL)
    assert found is not None
    assert found["title"] == "first"


def test_lint_never_raises_and_says_what_parse_would() -> None:
    assert registry.lint(b"{")[0].startswith("Invalid JSON: registry parse failed")
    (line,) = registry.lint(b"x" * (registry.MAX_BYTES + 1))
    assert "larger than" in line


def test_a_new_entry_leaves_others_alone_and_an_update_keeps_the_history() -> None:
    history = {"total_verifications": 3, "total_challenges": 1}
    before = book(entry(url="https://x.test/", hash=OTHER), entry(verifications=history))
    after = registry.parse(registry.with_entry(before, entry(version="2.0.0"), NOW))
    assert [(one["url"], one["version"]) for one in after.entries] == [("https://x.test/", "1.0.0"), (URL, "2.0.0")]
    assert after.entries[1]["verifications"] == history
    assert registry.parse(registry.with_entry(None, entry(), NOW)).find(URL) is not None


@pytest.mark.parametrize(
    "changes", [{"hash": "md5:1"}, {"title": ""}, {"authors": "me"}, {"title": "x" * registry.MAX_BYTES}]
)
def test_an_entry_that_could_not_be_read_back_is_not_written(changes: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="REGISTRY_MALFORMED"):
        registry.with_entry(book(), entry(**changes), NOW)


def test_a_malformed_or_full_registry_is_not_written_over() -> None:
    with pytest.raises(ToolError, match="REGISTRY_MALFORMED"):
        registry.with_entry(b"{", entry(), NOW)
    small = {"title": "t", "authors": [], "keywords": [], "capability": "c", "license": "l"}
    full = book(*(entry(**small, url=f"u{n}", hash=f"sha256:{n:064x}") for n in range(registry.MAX_ENTRIES)))
    with pytest.raises(ToolError, match="more than 10000 entries"):
        registry.with_entry(full, entry(), NOW)


def test_an_entry_is_made_of_the_receipt_and_the_page_s_own_words() -> None:
    receipt = {"target_url": URL, "target_hash": OTHER}
    facts = {"title": "T", "authors": ["A"], "capability": "", "keywords": ["k"], "license": "MIT", "depends": []}
    made = registry.entry_of(receipt, facts, NOW)
    assert registry.lint(book(made)) == []
    assert (made["hash"], made["capability"], made["version"]) == (OTHER, "none", "1.0.0")
    assert registry.lint(book(registry.entry_of(receipt, {}, NOW))) == []
