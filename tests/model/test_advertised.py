"""What a client is shown of a tool: light enough to read, never stricter than what is enforced, and complete in its hints."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.gate.test_validate import VALUES, closed_objects
from toolgate.gate.validate import compile_schema
from toolgate.model import advertised
from toolgate.model.tool import Result, Tool
from toolgate.packs.loader import built_in, load_packs
from toolgate.packs.schemas import COMBINATORS

TOOLS = [tool for pack in load_packs(built_in()) for tool in pack.tools]
NAMES = [tool.name for tool in TOOLS]
TEXTS = [
    "0" * 160,
    "",
    "x",
    "..",
    "a/b.html",
    "0" * 64,
    "ab",
    "1",
    "https://example.org/p/",
    "ADR-0001",
    "MD-001",
    "2026-11-17T00:00:00Z",
]


def valued(schema: Any) -> st.SearchStrategy[Any]:
    """Values near to what a schema takes: mostly valid ones, and such as only miss by little."""
    if "enum" in schema:
        return st.sampled_from(list(schema["enum"]))
    if "const" in schema:
        return st.just(schema["const"])
    kinds = schema.get("type", "string")
    kind = kinds if isinstance(kinds, str) else kinds[0]
    if kind == "object":
        about = {name: valued(below) for name, below in schema.get("properties", {}).items()}
        required = set(schema.get("required", ()))
        return st.fixed_dictionaries(
            {name: found for name, found in about.items() if name in required},
            optional={name: found for name, found in about.items() if name not in required},
        )
    if kind == "array":
        return st.lists(valued(schema.get("items", {})), min_size=schema.get("minItems", 0), max_size=3)
    if kind in ("integer", "number"):
        low, high = schema.get("minimum", 0), schema.get("maximum", 9)
        return st.sampled_from([low, high, (low + high) // 2 if kind == "integer" else (low + high) / 2])
    if kind == "boolean":
        return st.booleans()
    return st.sampled_from(TEXTS)


@cache
def values_of(name: str) -> tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]:
    """For a tool's input and output. To make these for each case takes longer than to draw from them."""
    tool = TOOLS[NAMES.index(name)]
    return valued(tool.input_schema), valued(tool.output_schema)


@pytest.mark.parametrize("tool", TOOLS, ids=NAMES)
@cases(30, 100)
@given(data=st.data())
def test_nothing_that_the_light_schema_refuses_is_accepted_by_the_full_one(tool: Tool, data: st.DataObject) -> None:
    taken, given_back = values_of(tool.name)
    instance = data.draw(taken)
    if compile_schema(tool.input_schema).is_valid(instance):
        assert compile_schema(advertised.input_schema(tool.input_schema)).is_valid(instance)
    answer = data.draw(given_back)
    if compile_schema(tool.output_schema).is_valid(answer):
        envelope = {"success": True, "tier": "experimental", "environment": "local", "data": answer}
        assert compile_schema(advertised.output_schema(tool.output_schema)).is_valid(envelope)


@cases(60, 400)
@given(closed_objects(), st.dictionaries(st.sampled_from(["text", "count", "a/b", "~", "deep", "more"]), VALUES))
def test_a_light_schema_takes_whatever_the_full_one_takes(schema: dict[str, Any], instance: Any) -> None:
    if compile_schema(schema).is_valid(instance):
        assert compile_schema(advertised.input_schema(schema)).is_valid(instance)
        wrapped = {"success": True, "tier": "experimental", "environment": "local", "data": instance}
        assert compile_schema(advertised.output_schema(schema)).is_valid(wrapped)


@pytest.mark.parametrize("tool", TOOLS, ids=NAMES)
def test_the_strategies_reach_what_the_full_schema_takes(tool: Tool) -> None:
    """Else the test above would prove nothing."""
    from hypothesis import find

    assert find(values_of(tool.name)[0], compile_schema(tool.input_schema).is_valid) is not None


@pytest.mark.parametrize("tool", TOOLS, ids=NAMES)
def test_what_is_advertised_is_what_model_providers_take(tool: Tool) -> None:
    light = advertised.input_schema(tool.input_schema)
    assert light["type"] == "object"
    assert not set(COMBINATORS) & light.keys()
    assert set(light["properties"]) == set(tool.input_schema.get("properties", {}))
    assert light.get("required", []) == list(tool.input_schema.get("required", []))
    written = json.dumps(light, default=dict)
    assert "pattern" not in written.replace("recent_patterns", "").replace("patterns", "").replace("Patterns", "")
    assert '"x-' not in written
    assert all("type" in about for about in light["properties"].values())


@pytest.mark.parametrize("tool", TOOLS, ids=NAMES)
def test_every_hint_of_the_protocol_is_given(tool: Tool) -> None:
    told = advertised.hints(tool, "experimental")
    assert set(told) == {"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
    assert told["readOnlyHint"] == (tool.effect == "read")
    assert not (told["readOnlyHint"] and told["destructiveHint"])
    assert told["title"]
    assert "_" not in told["title"]


def test_our_tools_that_only_add_say_so() -> None:
    hints = {tool.name: advertised.hints(tool, "experimental")["destructiveHint"] for tool in TOOLS}
    assert [name for name, destructive in hints.items() if destructive] == ["lra_verify"]  # it may replace a receipt


def test_a_tool_with_an_effect_that_promises_nothing_counts_as_destructive() -> None:
    tool = Tool("a_b", "a.b", "s", {}, {}, effect="write", deadline_s=1, run=lambda ctx, args: Result())
    assert advertised.hints(tool, "experimental")["destructiveHint"]
    assert not advertised.hints(tool, "experimental")["idempotentHint"]


def test_titles_are_words_for_people() -> None:
    titles = {tool.name: advertised.title(tool, "experimental") for tool in TOOLS}
    assert titles["check_adr_compliance"] == "Check ADR compliance (experimental)"
    assert titles["lra_check"] == "LRA check (experimental)"
    assert titles["library_search"] == "Library search (experimental)"
    served = {tool.name: advertised.title(tool, "authoritative", "cloud") for tool in TOOLS}
    assert served["check_adr_compliance"] == "Check ADR compliance (authoritative, cloud)"
