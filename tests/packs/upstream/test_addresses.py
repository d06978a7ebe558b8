"""Addresses of an upstream here, and back again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.packs.upstream.addresses import MAX_OWN_URI, Rewriting, address_fault, claim, serves
from toolgate.packs.upstream.names import served_names

ADDRESSES = st.from_regex(r"[a-z][a-z0-9+.-]{0,8}:[a-zA-Z0-9/?#%{}+._~-]{0,40}", fullmatch=True)


@given(ADDRESSES, st.booleans())
def test_every_address_can_be_turned_back(uri: str, is_plain: bool) -> None:
    rewriting = Rewriting("up", is_plain)
    assert rewriting.own(rewriting.here(uri)) == uri


@given(ADDRESSES, ADDRESSES)
def test_two_addresses_never_become_one_not_even_of_two_upstreams(one: str, other: str) -> None:
    assert Rewriting("a", False).here(one) != Rewriting("b", False).here(other)
    assert (Rewriting("a", False).here(one) == Rewriting("a", False).here(other)) == (one == other)


def test_what_shows_a_page_keeps_its_scheme() -> None:
    assert Rewriting("up", False).here("ui://panel/x") == "ui://up/panel/x"


def test_addresses_in_an_answer_are_rewritten_and_the_tools_own_words_are_not() -> None:
    rewriting = Rewriting("up", False, serves({"https://here/a": 1}, {"note://{id}": 1}))
    answer: dict[str, Any] = {
        "content": [
            {"type": "resource_link", "uri": "note://1"},
            {"type": "resource_link", "uri": "https://elsewhere/"},
            {"type": "resource_link", "uri": "https://here/a"},
            {"type": "resource", "resource": {"uri": "file:///x", "text": "uri"}},
        ],
        "structuredContent": {"uri": "note://1"},
        "_meta": {"ui": {"resourceUri": "ui://panel"}},
    }
    made = rewriting.rewritten(answer)
    assert [each.get("uri") for each in made["content"]] == [
        "up+note://1",
        "https://elsewhere/",
        "up+https://here/a",
        None,
    ]
    assert made["content"][3]["resource"]["uri"] == "up+file:///x"
    assert made["structuredContent"] == {"uri": "note://1"}
    assert made["_meta"] == {"ui": {"resourceUri": "ui://up/panel"}}
    assert Rewriting("up", True).rewritten(answer) == answer


@pytest.mark.parametrize("uri", ["no-scheme", "/path", "a://b c", "a://{x}", "a:" + "b" * MAX_OWN_URI, 7])
def test_what_is_no_address_is_not_served(uri: Any) -> None:
    assert address_fault(uri, is_template=False) is not None


@pytest.mark.parametrize("uri", ["{scheme}://x", "ui://{who}/x", "a://{"])
def test_a_template_that_could_make_anybodys_address_is_not_served(uri: str) -> None:
    assert address_fault(uri, is_template=True) is not None


def test_nobody_else_serves_addresses_of_a_scheme_that_is_taken() -> None:
    offered = {"resource:paper:///x": {"name": "x"}, "resource:note:///x": {"name": "y"}}
    names, refused = served_names("up", "", offered, {"address:paper"})
    assert (set(names), set(refused)) == ({"resource:note:///x"}, {"resource:paper:///x"})
    assert served_names("up", "up_", offered, {"address:paper"})[1] == {}
    assert (claim("PAPER:///x"), claim("ui://up/x")) == ("paper", "ui://up")


def test_two_resources_of_one_name_are_told_apart() -> None:
    names, refused = served_names("up", "up_", {"resource:a://1": {"name": "n"}, "template:a://{x}": {"name": "n"}}, ())
    assert len(set(names.values())) == 2
    assert all(name.startswith("resource:up_n_") for name in names.values())
    assert refused == {}
