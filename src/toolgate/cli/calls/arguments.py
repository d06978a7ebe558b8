"""A tool's arguments for people: every field of its input schema, nested ones too, and an example that the schema takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from toolgate.model import strictjson

MAX_DEPTH: Final = 6
"""Levels that are shown; no packaged tool has more than four."""
_WORDS: Final = (
    "name",
    "1",
    "paper",
    "docs/notes.md",
    "https://example.org/paper/",
    "2026-11-15T21:00:00Z",
    "MD-002",
    "00ff",
    "sha256:" + "0" * 64,
)
"""Texts that an example tries, the plainest first."""
_KINDS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
    "array": "list",
    "null": "null",
}

Schema = Mapping[str, Any]


class Argument(Struct, frozen=True):
    path: str
    """`vote.vote_type`; an entry of a list is `files[]`."""
    kind: str
    required: bool
    what: str


def arguments(schema: Schema, before: str = "", depth: int = MAX_DEPTH) -> Iterator[Argument]:
    """Every field, each before what is inside it."""
    required = set(schema.get("required", ()))
    for name, about in schema.get("properties", {}).items():
        path = f"{before}{name}"
        yield Argument(path, kind_of(about), name in required, " ".join(str(about.get("description", "")).split()))
        if depth > 1:
            items = about.get("items")
            yield from arguments(about, f"{path}.", depth - 1)
            yield from arguments(items, f"{path}[].", depth - 1) if isinstance(items, Mapping) else ()


def kind_of(about: Schema) -> str:
    """What a value must be, in words."""
    if "const" in about:
        return f"always {about['const']}"
    if "enum" in about:
        return "one of " + ", ".join(str(each) for each in about["enum"])
    kinds = about.get("type", ())
    named = [_KINDS.get(each, each) for each in ([kinds] if isinstance(kinds, str) else kinds)]
    if not named:
        branches = [kind_of(each) for word in ("anyOf", "oneOf") for each in about.get(word, ())]
        return " or ".join(dict.fromkeys(branches)) or "any value"
    text = " or ".join(named)
    if "items" in about and isinstance(about["items"], Mapping):
        text += f" of {kind_of(about['items'])}"
    return text + _bounds(about) + (f", default {_plain(about['default'])}" if "default" in about else "")


def _plain(value: Any) -> str:
    return strictjson.dumps(value).decode()


def _bounds(about: Schema) -> str:
    pairs = (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " entries"),
    )
    for low, high, unit in pairs:
        if low in about and high in about:
            same = about[low] == about[high]
            return f", {about[low]:,}{unit}" if same else f", {about[low]:,} to {about[high]:,}{unit}"
        if high in about:
            return f", at most {about[high]:,}{unit}"
    return ""


def example(schema: Schema) -> dict[str, Any]:
    """The fewest arguments that the schema takes; where it asks for none, its first, so that there is something to see."""
    found = _object(schema)
    if not found:
        first = next((name for name, about in schema.get("properties", {}).items() if not about.get("x-secret")), None)
        found = {first: _value(schema["properties"][first])} if first else {}
    return found if _takes(schema, found) else _object(schema)


def _object(schema: Schema) -> dict[str, Any]:
    branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    names = [*schema.get("required", ()), *(branches[0].get("required", ()) if branches else ())]
    properties = schema.get("properties", {})
    return {name: _value(properties[name]) for name in names if name in properties}


def _value(about: Schema) -> Any:
    """The first of what suggests itself that the schema takes."""
    return next((each for each in _candidates(about) if _takes(about, each)), None)


def _candidates(about: Schema) -> Iterator[Any]:
    if "const" in about:
        yield about["const"]
    yield from (*about.get("examples", ()), *about.get("enum", ()))
    if "default" in about:
        yield about["default"]
    for branch in (*about.get("anyOf", ()), *about.get("oneOf", ())):
        yield _value(branch)
    yield from _WORDS
    yield from (letter * about.get("minLength", 1) for letter in "0a")
    low = about.get("minimum", 0)
    yield from (1, low, low + 1, 0.5, True)
    yield _object(about)
    if isinstance(about.get("items"), Mapping):
        yield [_value(about["items"])] * max(1, about.get("minItems", 1))
    yield []


def _takes(schema: Schema, value: Any) -> bool:
    import jsonschema_rs

    return jsonschema_rs.is_valid(dict(schema), value)
