"""Schemas of adopted tools: what is taken, what is refused, and how that is said without a name that a caller made up."""

from __future__ import annotations

from typing import Any

import pytest

from toolgate.gate.foreign import ForeignInput, ForeignOutput

SCHEMA = {
    "type": "object",
    "required": ["to"],
    "properties": {"to": {"type": "string"}, "n": {"type": "integer"}},
    "additionalProperties": {"type": "null"},
}


@pytest.mark.parametrize(
    ("arguments", "keyword", "reason", "text"),
    [
        ({}, "required", "missing_argument", "An argument that the tool's own schema requires is missing."),
        ({"to": 1}, "type", "invalid_to", "The argument to does not meet the tool's own schema (type)."),
        ([], "type", "invalid_arguments", "The arguments do not meet the tool's own schema (type)."),
        ({"to": "", "x y": 1}, "type", "invalid_arguments", "The arguments do not meet the tool's own schema (type)."),
        (
            {"to": "", "x" * 65: 1},
            "type",
            "invalid_arguments",
            "The arguments do not meet the tool's own schema (type).",
        ),
    ],
    ids=str,
)
def test_a_fault_of_an_adopted_tools_arguments_has_a_stable_reason_and_echoes_no_made_up_name(
    arguments: Any, keyword: str, reason: str, text: str
) -> None:
    judged = ForeignInput(SCHEMA)
    (fault,) = judged.faults(arguments)
    assert (fault.keyword, fault.reason, fault.text) == (keyword, reason, text)
    with pytest.raises(ValueError, match=reason):
        judged.validate(arguments)


def test_the_argument_at_fault_is_named_by_its_last_place() -> None:
    schema = {"properties": {"a": {"properties": {"b": {"type": "string"}}}}}
    (fault,) = ForeignInput(schema).faults({"a": {"b": 1}})
    assert (fault.pointer, fault.reason) == ("/a/b", "invalid_b")


def test_the_first_fault_is_the_reason_of_the_whole() -> None:
    judged = ForeignInput(SCHEMA)
    first, second = judged.faults({"n": "x"})
    assert first.reason != second.reason
    with pytest.raises(ValueError, match=first.reason):
        judged.validate({"n": "x"})


def test_arguments_as_the_schema_wants_them_have_no_fault() -> None:
    judged = ForeignInput(SCHEMA)
    judged.validate({"to": "x"})
    assert judged.faults({"to": "x", "n": 1, "more": None}) == []


TEXT = {"type": "text", "text": "x"}


@pytest.mark.parametrize(
    ("result", "with_schema", "without"),
    [
        ({"content": [TEXT], "structuredContent": {"to": "x"}}, True, True),
        ({"content": [TEXT], "structuredContent": {}}, False, True),
        ({"content": [TEXT]}, False, True),
        ({"content": [TEXT], "isError": True}, True, True),
        ({"content": [TEXT], "isError": False}, False, True),
        ({"content": [TEXT], "isError": 1}, False, True),
        ({"content": "x", "structuredContent": {"to": "x"}}, False, False),
        ({"structuredContent": {"to": "x"}}, False, False),
        (["content"], False, False),
        (None, False, False),
    ],
    ids=str,
)
def test_a_result_has_content_and_what_its_schema_demands_unless_it_failed(
    result: Any, with_schema: bool, without: bool
) -> None:
    assert ForeignOutput(SCHEMA).is_valid(result) is with_schema
    assert ForeignOutput(None).is_valid(result) is without
