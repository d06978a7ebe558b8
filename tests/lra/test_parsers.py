"""The readers of strangers' files against their oracles: html5lib for pages, the plain loader for YAML."""

from __future__ import annotations

import html5lib
import pytest
import yaml

from tests.lra.papers import BODY, html
from tests.lra.test_checks import FAIL, PASS
from tests.lra.test_loads import EXTERNAL_HTML, HARMLESS_HTML
from toolgate.kit import yamlnodes
from toolgate.packs.lra import page
from toolgate.packs.lra.scaffold import TIERS, Wishes, scaffold

PAGES = [
    *(text for _, text in [*PASS, *FAIL]),
    *(html(body=BODY + markup) for markup in [*EXTERNAL_HTML, *HARMLESS_HTML]),
    *(scaffold(Wishes("p", "2026-11-15", tier=tier)).files["index.html"].decode() for tier in TIERS),
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


GOOD_YAML = ["a: 1", "[1, {b: c}]", "a: &x [1]\nb: *x", '"quoted"', "a: |\n  text\n", ""]


@pytest.mark.parametrize("text", GOOD_YAML)
def test_yaml_that_is_fine_is_composed_as_the_plain_loader_composes_it(text: str) -> None:
    ours, theirs = yamlnodes.compose(text), yaml.compose(text, Loader=yaml.SafeLoader)
    assert (yaml.serialize(ours) if ours else None) == (yaml.serialize(theirs) if theirs else None)


BAD_YAML = [
    ("[" * 100_000, "nested more than 64 levels"),
    ("- " * 100_000, "nested more than 64 levels"),
    ("a: 1\na: 2", "a key stands twice"),
    ("x: {a: 1, a: 2}", "a key stands twice"),
    ("a: [1", "not YAML"),
    ("a: 1\n---\nb: 2", "not YAML"),
    ("a: \0", "not YAML"),
    ("x" * (yamlnodes.MAX_BYTES + 1), "larger than"),
]


@pytest.mark.parametrize(("text", "words"), BAD_YAML, ids=range(len(BAD_YAML)))
def test_yaml_that_could_hurt_is_refused_in_one_line(text: str, words: str) -> None:
    """Deep nesting is the important one: the C composer ends the process on it."""
    with pytest.raises(yamlnodes.YamlFault, match=words) as caught:
        yamlnodes.compose(text)
    assert "\n" not in str(caught.value)


def test_an_alias_bomb_stays_a_handful_of_nodes() -> None:
    levels = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    root = yamlnodes.compose("\n".join(levels))
    assert len(root.value) == 40
