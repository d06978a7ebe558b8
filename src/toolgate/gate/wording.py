"""Faults of arguments as sentences: which argument, what kind of thing was sent, and what is expected. Never the value.

A caller's own names are repeated only where they could be names: short, and of letters that a terminal shows as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from toolgate.model import strictjson
from toolgate.model.suggest import did_you_mean

MAX_SHOWN: Final = 64
"""Characters of a name that a caller made up, as far as a sentence repeats it."""
MAX_LISTED: Final = 12
"""Names or values that a sentence lists; the tool's schema has them all."""
MAX_PATTERN: Final = 60
"""Characters of a pattern that a sentence shows. A longer one tells a reader nothing that its description does not."""
MAX_DEPTH: Final = 4
"""Schemas within a schema that a sentence describes."""

_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.:-]*", re.ASCII)
_KINDS: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number with a decimal point",
    str: "a string",
    list: "a list",
    dict: "an object",
}
_TYPES: Final[Mapping[str, str]] = {
    "null": "null",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "array": "a list",
    "object": "an object",
}
_UNITS: Final = {
    "string": ("minLength", "maxLength", "character"),
    "array": ("minItems", "maxItems", "item"),
    "object": ("minProperties", "maxProperties", "property"),
}


def kind_of(value: Any) -> str:
    """What was sent, as a reader would call it."""
    return "an empty string" if value == "" else _KINDS.get(type(value), "something else")


def place_of(path: Iterable[str | int]) -> str:
    """`vote.root`, `files[2]`: how people write a place in their arguments. The root has no name of its own."""
    place = ""
    for part in path:
        if isinstance(part, int):
            place += f"[{part}]"
        elif _NAME.fullmatch(part[: MAX_SHOWN + 1]):
            place += ("." if place else "") + _cut(part)
        else:
            place += f"[{_cut(ascii(part[:MAX_SHOWN]))}]"
    return _cut(place, 4 * MAX_SHOWN)


def missing(place: str, expectation: str) -> str:
    return f"{place} is missing; expected {expectation}."


def wrong(place: str, kind: str, expectation: str) -> str:
    return f"{f'{place} is' if place else 'The arguments are'} {kind}; expected {expectation}."


def too_long(place: str, expectation: str) -> str:
    return f"{place} is too long; expected {expectation}."


def unknown(place: str, name: str, known: Iterable[str], *, at_the_top: bool) -> str:
    """An argument, or a property of one, that there is not."""
    what = "is not an argument of this tool" if at_the_top else "is not known here"
    names = list(known)
    near = did_you_mean(name, names)
    if near:
        return f"{place} {what}. {near}"
    return f"{place} {what}; it takes {_listed(names)}." if names else f"{place} {what}; it takes none."


def expected(schema: Any, root: Mapping[str, Any] | None = None, depth: int = 0) -> str:
    """What a schema takes, in words. `root` is where its references are looked up."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return "what the tool's schema says"
    if "x-allowed" in schema:
        return str(schema["x-allowed"])
    if "$ref" in schema:
        return expected(referred(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return _json(schema["const"])
    if "enum" in schema:
        return f"one of {_listed([_json(each) for each in schema['enum']], 'or')}"
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if kinds:
        return " or ".join(_of_kind(kind, schema, root, depth) for kind in kinds)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        return " or ".join(dict.fromkeys(expected(each, root, depth + 1) for each in branches))
    if schema.get("required"):
        return _listed(list(schema["required"]))
    return "what the tool's schema says"


def _of_kind(kind: str, schema: Mapping[str, Any], root: Mapping[str, Any] | None, depth: int) -> str:
    said = _TYPES.get(kind, kind)
    if kind in ("integer", "number"):
        return said + _range(schema)
    if kind in _UNITS:
        said += _size(schema, *_UNITS[kind])
    if kind == "string":
        return said + _form(schema)
    if kind == "array":
        said += ", no two alike" if schema.get("uniqueItems") else ""
        return f"{said}, each {expected(schema['items'], root, depth + 1)}" if "items" in schema else said
    if kind == "object" and schema.get("required"):
        return f"{said} with {_listed(list(schema['required']))}"
    return said


def _range(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    words = []
    if low is not None and high is not None:
        words.append(f"from {low} to {high}")
    elif low is not None or high is not None:
        words.append(f"of at least {low}" if low is not None else f"of at most {high}")
    words += [f"above {above}"] * (above is not None) + [f"below {below}"] * (below is not None)
    if "multipleOf" in schema:
        words.append(f"in steps of {schema['multipleOf']}")
    return "".join(f" {word}" for word in words)


def _size(schema: Mapping[str, Any], least: str, most: str, unit: str) -> str:
    low, high = schema.get(least) or 0, schema.get(most)
    units = unit.removesuffix("y") + ("ies" if unit.endswith("y") else "s")
    if high is None:
        return f" of at least {low} {unit if low == 1 else units}" if low else ""
    if low == high:
        return f" of {low} {unit if low == 1 else units}"
    return f" of {low} to {high} {units}" if low else f" of at most {high} {unit if high == 1 else units}"


def _form(schema: Mapping[str, Any]) -> str:
    pattern = schema.get("pattern", "")
    if not pattern and "not" not in schema:
        return f" in the format {schema['format']}" if "format" in schema else ""
    if 0 < len(pattern) <= MAX_PATTERN:
        return f" that matches {pattern}"
    about = schema.get("description")
    return f" ({_cut(about.rstrip('.'), 4 * MAX_SHOWN)})" if about else ""


def referred(pointer: Any, root: Mapping[str, Any] | None) -> Any:
    """What a local reference (`#/$defs/x`) points to; None where it leads nowhere."""
    node: Any = root
    for part in str(pointer).removeprefix("#/").split("/"):
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) else None
    return node


def _json(value: Any) -> str:
    return value if isinstance(value, str) and _NAME.fullmatch(value) else strictjson.dumps(value).decode()


def _listed(words: Sequence[str], last: str = "and") -> str:
    shown = list(words[:MAX_LISTED])
    if len(words) > MAX_LISTED:
        shown.append(f"{len(words) - MAX_LISTED} more")
    return f"{', '.join(shown[:-1])} {last} {shown[-1]}" if len(shown) > 1 else "".join(shown)


def _cut(text: str, most: int = MAX_SHOWN) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
