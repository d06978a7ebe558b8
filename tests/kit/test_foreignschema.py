"""Schemas that strangers wrote: their own draft, nothing from outside, within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from toolgate.kit.foreignschema import MAX_PARTS, ForeignFault, ForeignSchema, SchemaFault, count_parts, is_open

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def test_the_draft_that_a_schema_names_is_the_one_it_is_read_by() -> None:
    # `items` as a list is a tuple in draft 7; in 2020-12 it is not a schema at all.
    tuples = {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}
    seven = ForeignSchema({"$schema": DRAFT_7, **tuples})
    assert seven.is_valid(["a", 1])
    assert not seven.is_valid(["a", "b"])
    with pytest.raises(SchemaFault) as failed:
        ForeignSchema(tuples)
    assert failed.value.reason == "not_a_schema"


def test_a_draft_that_nobody_knows_is_refused() -> None:
    for named in ("https://example.org/my-dialect", 7):
        with pytest.raises(SchemaFault) as failed:
            ForeignSchema({"$schema": named})
        assert failed.value.reason == "unknown_dialect"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.org/schema.json"},
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"$defs": {"unused": {"$ref": "other.json"}}},
        {"allOf": [{"$dynamicRef": "http://example.org#x"}]},
    ],
)
def test_a_reference_that_leads_outside_is_refused_unread(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaFault) as failed:
        ForeignSchema(schema)
    assert failed.value.reason == "reaches_outside"


def test_a_schema_that_unfolds_without_end_is_refused() -> None:
    levels = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
    bomb = {"$defs": {**levels, "d30": {"type": "string"}}, "$ref": "#/$defs/d0"}
    assert count_parts(bomb) > 2**30
    with pytest.raises(SchemaFault) as failed:
        ForeignSchema(bomb)
    assert failed.value.reason == "too_many_parts"


def test_a_chain_of_references_that_is_too_long_is_refused() -> None:
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(5000)}
    with pytest.raises(SchemaFault):
        ForeignSchema({"$defs": chain, "$ref": "#/$defs/d0"})


def test_a_recursive_schema_is_taken() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    assert count_parts(tree) < MAX_PARTS
    assert ForeignSchema(tree).is_valid({"left": {"right": {}}})


def test_a_pattern_that_could_backtrack_is_refused() -> None:
    with pytest.raises(SchemaFault):
        ForeignSchema({"type": "string", "pattern": "(?=a)b"})


def test_faults_name_place_and_keyword_and_never_the_value() -> None:
    schema = ForeignSchema({"type": "object", "properties": {"a/b": {"type": "string"}}, "required": ["c"]})
    assert schema.faults({"a/b": "secret", "c": 1}) == [ForeignFault("", "schema")]  # asked although nothing is wrong
    found = schema.faults({"a/b": 7})
    assert {(one.pointer, one.keyword) for one in found} == {("/a~1b", "type"), ("", "required")}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, True),
        ({"additionalProperties": True}, True),
        ({"additionalProperties": {"type": "string"}}, True),
        ({"additionalProperties": False}, False),
        ({"unevaluatedProperties": False}, False),
    ],
)
def test_an_open_schema_is_told_from_a_closed_one(schema: dict[str, Any], expected: bool) -> None:
    assert is_open(schema) is expected
