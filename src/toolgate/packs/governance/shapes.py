"""Pieces of JSON Schema and of answers that several tools of this room share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from toolgate.errors import ToolError
from toolgate.model import strictjson

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
NUMBER: Final[dict[str, Any]] = {"type": "number", "minimum": -1e300, "maximum": 1e300}
RATE: Final[dict[str, Any]] = {"type": "number", "minimum": 0, "maximum": 1}
FLAG: Final[dict[str, Any]] = {"type": "boolean"}
SEVERITY: Final[dict[str, Any]] = {"enum": ["critical", "high", "medium", "low", "info"]}


def within(items: Sequence[Any], budget: int) -> list[Any]:
    """As many from the front as fit into so many bytes of JSON: an answer over 1 MiB would be none at all."""
    shown = []
    for item in items:
        budget -= len(strictjson.dumps(item)) + 1
        if budget < 0:
            break
        shown.append(item)
    return shown


def invalid_input(pointer: str, reason: str, message: str) -> ToolError:
    """A fault in the arguments that the schema cannot say: which argument, and what to do."""
    return ToolError(
        "INVALID_INPUT",
        message,
        data={
            "reason": reason,
            "errors": [{"pointer": pointer, "keyword": "tool", "reason": reason, "message": message}],
        },
    )


def bad_path(fault: ToolError) -> ToolError:
    """A path that leaves the workspace, as a fault in the arguments."""
    return invalid_input("", "invalid_path", fault.text)
