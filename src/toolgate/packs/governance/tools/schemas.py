"""Pieces of JSON Schema that several tools share."""

from __future__ import annotations

from typing import Any, Final

MAX_PATH: Final = 1024
"""Characters of a path."""
MAX_FILES: Final = 2_000
"""Files of one call: twice the thousand workflows of the largest repositories."""


def path(description: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": MAX_PATH, "description": description}


def paths(description: str, *, at_least: int = 1) -> dict[str, Any]:
    return {
        "type": "array",
        "minItems": at_least,
        "maxItems": MAX_FILES,
        "items": path("A path in the workspace."),
        "description": description,
    }


def text(description: str, limit: int, *, pattern: str | None = None) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": limit, "description": description}
    return shape | ({"pattern": pattern} if pattern else {})


def closed(
    properties: dict[str, Any], *, required: list[str] | None = None, description: str | None = None
) -> dict[str, Any]:
    """An object without surprises; `required` defaults to every property (what an answer always has)."""
    shape: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }
    return shape | ({"description": description} if description else {})


def many(items: dict[str, Any], limit: int = 10_000) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": limit}


def said(limit: int = 2_000) -> dict[str, Any]:
    """Text that we write."""
    return {"type": "string", "maxLength": limit}


def maybe(shape: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [shape, {"type": "null"}]}


COUNT: Final[dict[str, Any]] = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
NUMBER: Final[dict[str, Any]] = {"type": "number", "minimum": -(2**53 - 1), "maximum": 2**53 - 1}
"""Whole bounds: jsonschema-rs compares with -1e15 at ten times the cost."""
SIZE: Final[dict[str, Any]] = {"type": "number", "minimum": 0, "maximum": 1e300}
RATE: Final[dict[str, Any]] = {"type": "number", "minimum": 0, "maximum": 1}
FLAG: Final[dict[str, Any]] = {"type": "boolean"}
SEVERITY: Final[dict[str, Any]] = {"enum": ["critical", "high", "medium", "low", "info"]}
