"""Strangers' YAML: read as the reference composer reads it, with its places, or refused in one line and at no great cost."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from toolgate.kit import yamldoc
from toolgate.kit.yamldoc import Mapping, Node, Scalar, Sequence, YamlFault

GOOD = [
    "a: 1",
    "[1, {b: c}]",
    "a: &x [1]\nb: *x",
    '"quoted"',
    "a: |\n  text\n",
    "a: >-\n  folded\n  text\nb: 'it''s'\n",
    "? a\n: b\n",
    "a:\nb: ~\nc: null\nd: 'null'\n",
    "# nothing else\n---\n- {x: !!str 2026-11-15}\n- - deep\n  - é: ü\n",
    '{"json": [true, null, 1.5]}',
    "",
    "# only a comment\n",
]


def shape(node: Node | None) -> Any:
    """Values with their places, in the words of no library."""
    if isinstance(node, Mapping):
        return node.line, node.column, [(shape(key), shape(value)) for key, value in node.pairs()]
    if isinstance(node, Sequence):
        return node.line, node.column, [shape(item) for item in node.items]
    return node and (node.line, node.column, yamldoc.text_of(node))


def oracle(node: yaml.Node | None) -> Any:
    if node is None:
        return None
    place = node.start_mark.line + 1, node.start_mark.column + 1
    if isinstance(node, yaml.MappingNode):
        return *place, [(oracle(key), oracle(value)) for key, value in node.value]
    if isinstance(node, yaml.SequenceNode):
        return *place, [oracle(item) for item in node.value]
    return *place, None if node.tag == "tag:yaml.org,2002:null" else node.value


@pytest.mark.parametrize("text", GOOD)
def test_values_and_places_are_those_of_the_reference_composer(text: str) -> None:
    assert shape(yamldoc.read(text.encode())) == oracle(yaml.compose(text, Loader=yaml.SafeLoader))


BAD = {
    "brackets": ("[" * 100_000, "nested more than 64 levels", (1, 65)),
    "braces": ("{a: " * 100_000, "nested more than 64 levels", (1, 257)),
    "dashes": ("- " * 100_000, "nested more than 64 levels", (1, 129)),
    "a key twice": ("a: 1\na: 2", "a key stands twice in one mapping: 'a'", (2, 1)),
    "a key twice below": ("x: {a: 1, a: 2}", "a key stands twice in one mapping: 'a'", (1, 11)),
    "a long key twice": (f"{'k' * 99}: 1\n{'k' * 99}: 2", f"a key stands twice in one mapping: '{'k' * 40}…'", (2, 1)),
    "a key that breaks the line": ('"\\n": 1\n"\\n": 2', "a key stands twice in one mapping: '\\n'", (2, 1)),
    "a map as key": ("? {a: b}\n: c", "a key that is not text", (1, 8)),
    "an alias in itself": ("a: &a [*a]", "an alias without its anchor before it", (1, 8)),
    "an alias of nothing": ("a: *b", "an alias without its anchor before it", (1, 4)),
    "a tag on a value": ("a: !!binary aGk=", "an explicit tag (`!...`)", (1, 4)),
    "a tag on a list": ("a: !!python/object/apply:os.system ['true']", "an explicit tag (`!...`)", (1, 4)),
    "two documents": ("a: 1\n---\nb: 2", "more than one document", (2, 1)),
    "a bracket left open": ("a: [1", "not YAML: did not find expected ',' or ']'", (2, 1)),
    "a character YAML forbids": ("a: \0", "not YAML: it holds characters that YAML forbids", (1, None)),
    "too many values": ("[" + "a," * yamldoc.MAX_NODES + "]", "more than 50000 values", (1, 100_000)),
    "too large": ("x" * (yamldoc.MAX_BYTES + 1), "larger than 524288 bytes", (1, None)),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.timeout(30)
def test_what_could_hurt_or_be_read_in_two_ways_is_refused_in_one_line_with_its_place(name: str) -> None:
    """Deep nesting is the important one: the C composer ends the process on it."""
    text, words, place = BAD[name]
    with pytest.raises(YamlFault) as caught:
        yamldoc.read(text.encode())
    assert (caught.value.text, (caught.value.line, caught.value.column)) == (words, place)


def test_bytes_that_are_not_utf_8_are_refused_at_their_line() -> None:
    with pytest.raises(YamlFault, match="not UTF-8") as caught:
        yamldoc.read(b"a: 1\nb: \xff\n")
    assert caught.value.line == 2


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    root = yamldoc.read("\ufeffa: 1".encode())
    assert yamldoc.text_of(yamldoc.value_of(root, "a")) == "1"


def test_an_alias_bomb_stays_a_handful_of_nodes() -> None:
    levels = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    root = yamldoc.read("\n".join(levels).encode())
    assert isinstance(root, Mapping)
    assert len(root.entries) == 40
    last = yamldoc.items_of(root.get("a39"))
    assert last[0] is last[1] is root.get("a38")


@pytest.mark.parametrize(
    ("text", "value"),
    [("", None), ("~", None), ("null", None), ("'null'", "null"), ("!!str null", "null"), ("[]", None)],
)
def test_only_a_plain_null_is_nothing(text: str, value: str | None) -> None:
    assert yamldoc.text_of(yamldoc.value_of(yamldoc.read(f"a: {text}".encode()), "a")) == value


def test_what_is_asked_of_the_wrong_kind_of_node_is_nothing() -> None:
    node = Scalar("x", 1, 1, plain=True)
    assert (yamldoc.value_of(node, "a"), yamldoc.items_of(node), yamldoc.text_of(None)) == (None, [], None)


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#\n\t ?,%@`0", max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(YamlFault):
        yamldoc.read(text.encode())
