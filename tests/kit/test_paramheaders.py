"""`x-mcp-header`: what a schema may say, and which headers follow from it. The official SDK is the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.shared.inbound import (
    decode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)

from toolgate.kit.paramheaders import mirrored, param_headers, without_param_headers


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


TEXT = {"type": "string", "x-mcp-header": "Region"}
GOOD = [
    schema(),
    schema(a=TEXT),
    schema(a=TEXT, b={"type": "integer", "x-mcp-header": "Size"}, c={"type": "boolean", "x-mcp-header": "Dry-Run"}),
    schema(a=schema(b=TEXT)),
    {**schema(a={"type": "string"}), "default": {"x-mcp-header": "not a header"}},
]
BAD = [
    schema(a={**TEXT, "type": "number"}),
    schema(a={"x-mcp-header": "Region"}),
    schema(a={**TEXT, "type": ["string", "null"]}),
    schema(a={**TEXT, "x-mcp-header": ""}),
    schema(a={**TEXT, "x-mcp-header": "two words"}),
    schema(a={**TEXT, "x-mcp-header": 7}),
    schema(a=TEXT, b={**TEXT, "x-mcp-header": "region"}),
    {**schema(), "x-mcp-header": "Root"},
    schema(a={"type": "array", "items": TEXT}),
    {**schema(), "anyOf": [schema(a=TEXT)]},
    {**schema(), "$defs": {"a": TEXT}},
]
ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"a": "eu", "b": 7, "c": True},
    {"a": None},
    {"a": " padded "},
    {"a": "Z\u00fcrich"},
    {"a": "=?base64?eA==?="},
    {"a": "line\nbreak"},
    {"a": {"b": "deep"}},
    {"a": ""},
]


@pytest.mark.parametrize("good", GOOD)
@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_headers_are_those_that_the_official_client_sends(good: dict[str, Any], arguments: dict[str, Any]) -> None:
    theirs = mcp_param_headers(x_mcp_header_map(good), arguments)
    ours = mirrored(param_headers(good), arguments)
    assert _read(ours) == _read(theirs)


def _read(headers: dict[str, str]) -> dict[str, str | None]:
    """As the official server reads them: an empty value may be sent in two ways."""
    return {name.lower(): decode_header_value(value) for name, value in headers.items()}


@pytest.mark.parametrize("bad", BAD)
def test_a_schema_that_says_it_wrongly_is_refused_as_the_official_client_does(bad: dict[str, Any]) -> None:
    assert find_invalid_x_mcp_header(bad) is not None
    with pytest.raises(ValueError, match="x-mcp-header"):
        param_headers(bad)


def test_clients_of_the_gate_see_the_schema_without_it() -> None:
    before = schema(a=TEXT, b=schema(c={**TEXT, "x-mcp-header": "Other", "description": "d"}))
    after = without_param_headers(before, param_headers(before))
    assert after == schema(a={"type": "string"}, b=schema(c={"type": "string", "description": "d"}))
    assert before["properties"]["a"] == TEXT
