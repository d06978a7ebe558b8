"""The reader of strangers' pages against its oracle, html5lib."""

from __future__ import annotations

import html5lib
import pytest

from tests.packs.lra.checks.test_checks import FAIL, PASS
from tests.packs.lra.paper.test_loads import EXTERNAL_HTML, HARMLESS_HTML
from tests.packs.lra.papers import BODY, html
from toolgate.packs.lra.build.scaffold import TIERS, ScaffoldOptions, scaffold
from toolgate.packs.lra.paper import page

PAGES = [
    *(text for _, text in [*PASS, *FAIL]),
    *(html(body=BODY + markup) for markup in [*EXTERNAL_HTML, *HARMLESS_HTML]),
    *(scaffold(ScaffoldOptions("p", "2026-11-15", tier=tier)).files["index.html"].decode() for tier in TIERS),
    "<p>one<p>two<table><tr><td>x</table><b><i>mis</b>nested</i>",
    "<title><!-- T --> x</title><select><option>a<option>b</select>",
]


@pytest.mark.parametrize("source", PAGES, ids=range(len(PAGES)))
def test_our_tree_is_the_trees_of_the_reference_parser(source: str) -> None:
    """Tags and ids in document order; what stands in a template is left out by us, and by the oracle here."""
    ours = [(one.tag, one.attr("id")) for one in page.parse(source).elements]
    oracle = html5lib.parse(source, treebuilder="etree", namespaceHTMLElements=False)
    theirs = []
    pending = [oracle]
    while pending:
        element = pending.pop()
        if not isinstance(element.tag, str):
            continue
        tag = element.tag.rpartition("}")[2]
        if tag != "template":
            theirs.append((tag, element.get("id")))
            pending.extend(reversed(element))
    assert ours == theirs


def test_positions_are_those_of_the_tags() -> None:
    parsed = page.parse("<!doctype html>\n<html lang=en>\n  <p id=é>ü<b>x</b>")
    assert [
        (one.tag, page.place(one).line, page.place(one).column) for one in parsed.elements if one.tag in ("p", "b")
    ] == [
        ("p", 3, 3),
        ("b", 3, 12),
    ]
