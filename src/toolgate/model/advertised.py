"""What a client is shown of a tool: lighter than what is enforced, and never stricter.

A model reads the whole list before it does anything, and pays for every word of it. So what a model does not act upon
(patterns, lengths, closed objects, bounds deep inside) is left to the road, which enforces the schema of the contract and
answers in words what it expected. Whatever the full schema takes, the light one takes (`tests/model/test_advertised.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from toolgate.model.call import Tier
from toolgate.model.tool import Tool

_ARGUMENT: Final = ("description", "enum", "minimum", "maximum")
"""What is shown of an argument, beside its type."""
_PART: Final = ("description", "enum")
"""What is shown of a part of an argument, beside its type; of parts of parts only the type."""
MAX_OUTLINE: Final = 2
"""Levels of an answer's data that are shown. What is deeper is seen in the answer itself."""
MAX_TELLING: Final = 1_000_000
"""The largest bound of a number that is shown."""
_JSON_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_TEXT: Final = {"type": "string"}
_ENVELOPE: Final = {
    "success": {"type": "boolean"},
    "tier": _TEXT,
    "environment": _TEXT,
    "decision": _TEXT,
    "code": _TEXT,
    "message": _TEXT,
}
"""The fields that a reader of an answer acts upon. The others (request id, audit, clamps) are there, too."""


def input_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as a model needs them: names, kinds, choices, and what their descriptions say.

    No combinator stands at the top: model providers refuse the whole list, or drop the tool, where one does.
    """
    return {"type": "object", "properties": {}, **_parts(schema, lambda about: _argument(about, (_ARGUMENT, _PART)))}


def _argument(schema: Any, shown: tuple[tuple[str, ...], ...]) -> dict[str, Any]:
    """`shown`: the keywords of this level, and of each below it."""
    if not isinstance(schema, Mapping):
        return {}
    keywords, below = (shown[0], shown[1:]) if shown else ((), ())
    light = _typed(schema) | {key: schema[key] for key in keywords if key in schema and _is_telling(key, schema[key])}
    if "items" in schema:  # the description of a list says what its items are
        light["items"] = _argument(schema["items"], ()) | _choices(schema["items"])
    return light | _parts(schema, lambda about: _argument(about, below))


def _is_telling(keyword: str, value: Any) -> bool:
    """A bound that nobody reaches by mistake does not help a model to choose a number."""
    return keyword not in ("minimum", "maximum") or abs(value) <= MAX_TELLING


def output_schema(data: Mapping[str, Any]) -> dict[str, Any]:
    """What `structuredContent` looks like: the envelope, and an outline of the data.

    `data` is not required: a failure carries none, or what the tool's own schema takes. Nor is the tier: what the gate refuses
    was not judged.
    """
    return {
        "type": "object",
        "required": ["success"],
        "properties": {**_ENVELOPE, "data": _field(data, MAX_OUTLINE)},
    }


def _field(schema: Any, levels: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        return {}
    light = _alternatives(_kinds(schema))
    if levels > 0 and schema.get("properties"):
        light["properties"] = {name: _field(about, levels - 1) for name, about in schema["properties"].items()}
    return light


def _alternatives(kinds: list[str]) -> dict[str, Any]:
    """One type, or a choice of single ones: clients of a narrower dialect take no list of types."""
    if len(kinds) > 1:
        return {"anyOf": [{"type": kind} for kind in kinds]}
    return {"type": kinds[0]} if kinds else {}


def _parts(schema: Mapping[str, Any], shown: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    light: dict[str, Any] = {}
    if schema.get("properties"):
        light["properties"] = {name: shown(about) for name, about in schema["properties"].items()}
    if schema.get("required"):
        light["required"] = list(schema["required"])
    return light


def _typed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The type, also where only choices or alternatives tell it: some model providers take no argument without one."""
    kinds = _kinds(schema)
    if not kinds:
        return {}
    return {"type": kinds[0] if len(kinds) == 1 else kinds}


def _kinds(schema: Any) -> list[str]:
    """The JSON types that a schema takes, as far as it says; none: it does not say."""
    if not isinstance(schema, Mapping):
        return []
    if "type" in schema:
        return [schema["type"]] if isinstance(schema["type"], str) else list(schema["type"])
    if "enum" in schema or "const" in schema:
        values: Iterable[Any] = schema["enum"] if "enum" in schema else [schema["const"]]
        found = [_JSON_TYPES.get(type(value), "") for value in values]
    else:
        branches = [_kinds(branch) for branch in schema.get("anyOf") or schema.get("oneOf") or ()]
        found = [kind for kinds in branches for kind in kinds or [""]]
    return list(dict.fromkeys(found)) if all(found) else []


def _choices(schema: Any) -> dict[str, Any]:
    return {"enum": schema["enum"]} if isinstance(schema, Mapping) and "enum" in schema else {}


def hints(tool: Tool, tier: Tier, environment: str = "") -> dict[str, Any]:
    """All five hints of the protocol, so that no client falls back on a default that is wrong for the tool."""
    reads = tool.effect == "read"
    return {
        "title": title(tool, tier, environment),
        "readOnlyHint": reads,
        "destructiveHint": tool.destructive and not reads,
        "idempotentHint": tool.idempotent or reads,
        "openWorldHint": tool.effect == "network",
    }


def title(tool: Tool, tier: Tier, environment: str = "") -> str:
    """Its own, or its name as words, and what a tool's answers count for: `count_words` -> `Count words (experimental, local)`.

    A contract says nothing of the environment: it is known where the tool is served.
    """
    words = tool.title or tool.name.replace("_", " ").capitalize()
    standing = f"{tier}, {environment}" if environment else tier
    return f"{words} ({standing})" if tool.kind == "tool" else words
