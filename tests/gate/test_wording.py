"""What a caller reads about a wrong argument: its place, the kind of thing that was sent, what is expected; never the value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.gate.validate import compile_schema
from toolgate.gate.wording import MAX_SHOWN, expected, kind_of, place_of, unknown
from toolgate.model.suggest import nearest
from toolgate.packs.loader import built_in, load_packs

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {
        "text": {"type": "string", "minLength": 1, "maxLength": 5},
        "mode": {"enum": ["fast", "slow", "very slow"]},
        "port": {"type": "integer", "minimum": 1024, "maximum": 65535},
        "ratio": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "files": {"type": "array", "maxItems": 2, "uniqueItems": True, "items": {"type": "string", "maxLength": 4}},
        "vote": {
            "type": "object",
            "additionalProperties": False,
            "required": ["root", "kind"],
            "properties": {"root": {"type": "string", "pattern": "^[0-9a-f]*$", "maxLength": 4}, "kind": {"const": 1}},
        },
        "path": {
            "type": "string",
            "maxLength": 9,
            "pattern": f"^[a-z/]({'x' * 80})?$",
            "description": "A file.",
        },
        "site": {"type": "string", "maxLength": 9, "not": {"pattern": "[.][.]"}, "description": "An address."},
        "name": {"type": "string", "maxLength": 9, "pattern": "^[a-z]+$", "x-allowed": "a name in small letters"},
        "number": {"$ref": "#/$defs/number"},
        "either": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "integer", "minimum": 3}]},
        "maybe": {"type": ["string", "null"], "maxLength": 2},
        "flag": {"type": "boolean"},
    },
    "$defs": {"number": {"type": "integer", "minimum": 1}},
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"text": None}, "text is null; expected a string of 1 to 5 characters."),
        ({"text": ""}, "text is an empty string; expected a string of 1 to 5 characters."),
        ({"text": "s3cret"}, "text is too long; expected a string of 1 to 5 characters."),
        ({"mode": "s3cret"}, 'mode is a string; expected one of fast, slow or "very slow".'),
        ({"port": 80}, "port is an integer; expected an integer from 1024 to 65535."),
        ({"port": "8080"}, "port is a string; expected an integer from 1024 to 65535."),
        ({"port": 8080.0}, "port is a number with a decimal point; expected an integer from 1024 to 65535."),
        ({"port": True}, "port is a boolean; expected an integer from 1024 to 65535."),
        ({"ratio": 7}, "ratio is an integer; expected a number of at most 1 above 0."),
        (
            {"files": "a"},
            "files is a string; expected a list of at most 2 items, no two alike, each a string of at most 4 characters.",
        ),
        ({"files": ["a", 3]}, "files[1] is an integer; expected a string of at most 4 characters."),
        ({"vote": []}, "vote is a list; expected an object with root and kind."),
        (
            {"vote": {"kind": 1}},
            "vote.root is missing; expected a string of at most 4 characters that matches ^[0-9a-f]*$.",
        ),
        ({"vote": {"root": "", "kind": 2}}, "vote.kind is an integer; expected 1."),
        ({"vote": {"root": "", "kind": 1, "rot": 0}}, "vote.rot is not known here. Did you mean root?"),
        ({"path": "A"}, "path is a string; expected a string of at most 9 characters (A file)."),
        ({"site": "a/../b"}, "site is a string; expected a string of at most 9 characters (An address)."),
        ({"name": "A"}, "name is a string; expected a name in small letters."),
        ({"number": 0}, "number is an integer; expected an integer of at least 1."),
        ({"either": {}}, "either is an object; expected a string of at most 3 characters or an integer of at least 3."),
        ({"maybe": 3}, "maybe is an integer; expected a string of at most 2 characters or null."),
        ({"flag": "yes"}, "flag is a string; expected a boolean."),
        ({"Text": "a"}, "Text is not an argument of this tool. Did you mean text?"),
        ({"fiels": []}, "fiels is not an argument of this tool. Did you mean files?"),
        (
            {"\x1b[31m": 1},
            r"['\x1b[31m'] is not an argument of this tool; it takes text, mode, port, ratio, files, vote,",
        ),
        ({"\u202eevil": 1}, r"['\u202eevil'] is not an argument of this tool; it takes text,"),
    ],
    ids=str,
)
def test_d_a_fault_names_the_argument_what_was_sent_and_what_is_expected(change: dict[str, Any], sentence: str) -> None:
    (fault, *_) = compile_schema(SCHEMA).faults({"text": "abc"} | change)
    assert fault.text.startswith(sentence)
    assert "s3cret" not in fault.text


def test_d_an_absent_argument_is_named_with_what_it_should_hold() -> None:
    (fault,) = compile_schema(SCHEMA).faults({})
    assert fault.text == "text is missing; expected a string of 1 to 5 characters."


def test_d_arguments_that_are_no_object_are_told_so() -> None:
    (fault, *_) = compile_schema(SCHEMA).faults([1])
    assert fault.text == "The arguments are a list; expected an object with text."


def test_d_alternatives_at_the_root_are_told_by_their_names() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    (fault,) = compile_schema(schema).faults({})
    assert fault.text == "The arguments are an object; expected a or b."


def test_a_made_up_name_is_repeated_no_further_than_a_bound() -> None:
    (fault, *_) = compile_schema(SCHEMA).faults({"text": "abc", "x" * 500_000: 1})
    assert "x" * (MAX_SHOWN - 1) + "…" in fault.text
    assert len(fault.text) < 400


@given(st.text(max_size=80), st.lists(st.text(max_size=20), max_size=8))
def test_the_nearest_name_is_one_of_those_that_there_are(name: str, known: list[str]) -> None:
    assert nearest(name, known) in [None, *known]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_every_json_value_has_a_kind(value: Any) -> None:
    assert kind_of(value) != "something else"


def _every_property(schema: Any, place: str) -> Any:
    for name, about in schema.get("properties", {}).items():
        yield f"{place}.{name}", about
        yield from _every_property(about, f"{place}.{name}")
        yield from _every_property(about.get("items", {}), f"{place}.{name}[]")


OWN = [
    each
    for pack in load_packs(built_in())
    for tool in pack.tools
    for each in _every_property(tool.input_schema, tool.name)
]


@pytest.mark.parametrize("about", [about for _, about in OWN], ids=[place for place, _ in OWN])
def test_d_every_argument_of_our_own_tools_says_what_it_expects(about: dict[str, Any]) -> None:
    (fault, *_) = compile_schema({"type": "object", "properties": {"it": about}}).faults(
        {"it": object_of_no_kind(about)}
    )
    assert "expected" in fault.text
    assert "the tool's schema" not in fault.text
    assert len(fault.text) < 700


def object_of_no_kind(about: dict[str, Any]) -> Any:
    return {} if about.get("type") != "object" else []


def _within(wrap: Any, levels: int) -> Any:
    schema: Any = {"type": "null"}
    for _ in range(levels):
        schema = wrap(schema)
    return schema


UNSAID = "what the tool's schema says"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "string", "minLength": 1}, "a string of at least 1 character"),
        ({"type": "string", "minLength": 2}, "a string of at least 2 characters"),
        ({"type": "string", "minLength": 0}, "a string"),
        ({"type": "string", "minLength": 1, "maxLength": 1}, "a string of 1 character"),
        ({"type": "string", "minLength": 2, "maxLength": 2}, "a string of 2 characters"),
        ({"type": "string", "minLength": 1, "maxLength": 2}, "a string of 1 to 2 characters"),
        ({"type": "array", "maxItems": 1}, "a list of at most 1 item"),
        ({"type": "object", "minProperties": 2}, "an object of at least 2 properties"),
        ({"type": "object", "maxProperties": 1, "required": ["a"]}, "an object of at most 1 property with a"),
        ({"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 3}, "a number above 1 below 3"),
        ({"type": "integer", "maximum": 3, "multipleOf": 2}, "an integer of at most 3 in steps of 2"),
        ({"type": "integer", "minimum": 3}, "an integer of at least 3"),
        ({"type": "string", "format": "date"}, "a string in the format date"),
        ({"type": "string", "pattern": "x" * 60, "format": "date"}, f"a string that matches {'x' * 60}"),
        ({"type": "string", "pattern": "x" * 61}, "a string"),
        ({"type": "string", "pattern": "x" * 61, "description": "d" * 256 + "."}, f"a string ({'d' * 256})"),
        ({"type": "string", "pattern": "x" * 61, "description": "d" * 257}, f"a string ({'d' * 255}…)"),
        ({"enum": [f"n{number}" for number in range(12)]}, f"one of {', '.join(f'n{n}' for n in range(11))} or n11"),
        ({"enum": [f"n{number}" for number in range(14)]}, f"one of {', '.join(f'n{n}' for n in range(12))} or 2 more"),
        ({"const": "two words"}, '"two words"'),
        ({"oneOf": [{"type": "null"}, {"type": "null"}, {"type": "boolean"}]}, "null or a boolean"),
        ({"required": ["a", "b", "c"]}, "a, b and c"),
        ({"type": ["integer", "a-kind-of-its-own"]}, "an integer or a-kind-of-its-own"),
        (_within(lambda inner: {"type": "array", "items": inner}, 4), "a list, each " * 4 + "null"),
        (_within(lambda inner: {"type": "array", "items": inner}, 5), "a list, each " * 5 + UNSAID),
        (_within(lambda inner: {"anyOf": [inner]}, 4), "null"),
        (_within(lambda inner: {"anyOf": [inner]}, 5), UNSAID),
        ({"$ref": "#/$defs/a"}, UNSAID),
        ({"$ref": "#/$defs/b~1c~0d"}, "a boolean"),
        ({"$ref": "#/$defs/nowhere/x"}, UNSAID),
        ({}, UNSAID),
        (True, UNSAID),
    ],
    ids=lambda value: str(value)[:40],
)
def test_d_what_a_schema_takes_is_said_in_words(schema: Any, said: str) -> None:
    root = {"$defs": {"a": {"$ref": "#/$defs/a"}, "b/c~d": {"type": "boolean"}}}
    assert expected(schema, root) == said


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ([], ""),
        (["a", "b", 3, "c"], "a.b[3].c"),
        ([0, "a"], "[0].a"),
        (["x" * 64], "x" * 64),
        (["x" * 65 + "\n"], "x" * 63 + "…"),
        (["x" * 64 + "\n"], f"['{'x' * 62}…]"),
        (["a b"], "['a b']"),
        (["x" * 60] * 4 + ["x" * 12], f"{'.'.join(['x' * 60] * 4)}.{'x' * 12}"),
        (["x" * 60] * 4 + ["x" * 13], f"{'.'.join(['x' * 60] * 4)}.{'x' * 11}…"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_d_a_place_is_written_as_people_write_it_and_bounded(path: list[str | int], place: str) -> None:
    assert place_of(path) == place


def test_d_where_nothing_is_taken_an_argument_too_many_is_told_so() -> None:
    assert unknown("a.b", "b", [], at_the_top=False) == "a.b is not known here; it takes none."
    assert unknown("zz", "zz", ["a", "b"], at_the_top=True) == "zz is not an argument of this tool; it takes a and b."
