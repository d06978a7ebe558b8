"""What a condition may speak of, declared from a tool's input schema: each argument is a variable of its own type.

An argument that a call may leave out is null when it is absent, and its type says so. What a schema leaves open (several
types, none) has no type, and is judged when a call comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

MAX_DEPTH: Final = 8
"""Objects within objects that are declared; below, a value has no type."""


class Variable(Struct, frozen=True):
    """One variable."""

    type: str
    """As CEL spells it."""
    schema: Mapping[str, Any]
    """What a constant that is compared with it must fit."""
    convert: Callable[[Any], Any]
    """A JSON value as CEL reads it: 3.0 is a whole number where the schema says so."""
    path: tuple[str, ...] = ()
    """Where it lies in the arguments."""


def arguments_of(schema: Mapping[str, Any]) -> dict[str, Variable]:
    """`args.NAME`, and what lies below, of the properties of an input schema."""
    found: dict[str, Variable] = {}
    _declare(found, schema, schema, (), optional=False)
    return found


def _declare(
    found: dict[str, Variable],
    node: Mapping[str, Any],
    root: Mapping[str, Any],
    path: tuple[str, ...],
    *,
    optional: bool,
) -> None:
    required = set(node.get("required", ()))
    for name, raw in (node.get("properties") or {}).items():
        if not name.isidentifier():
            continue  # CEL cannot spell it
        part = _resolved(raw, root)
        place, absent = (*path, name), optional or name not in required
        kind, convert = _type_of(part, root)
        nullable = absent or _allows_null(part)
        whole = {"$defs": root.get("$defs", {}), **part}
        declared = Variable(_NULLABLE.get(kind, "dyn") if nullable else kind, whole, convert, place)
        found[".".join(("args", *place))] = declared
        if kind == "map<string, dyn>" and len(place) < MAX_DEPTH:
            _declare(found, part, root, place, optional=absent)


_NULLABLE: Final = {
    "bool": "google.protobuf.BoolValue",
    "int": "google.protobuf.Int64Value",
    "double": "google.protobuf.DoubleValue",
    "string": "google.protobuf.StringValue",
}


def _same(value: Any) -> Any:
    return value


def _whole(value: Any) -> Any:
    return int(value) if type(value) is float else value


def _number(value: Any) -> Any:
    return float(value) if type(value) is int else value


_TYPES: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "boolean": ("bool", _same),
    "integer": ("int", _whole),
    "number": ("double", _number),
    "string": ("string", _same),
    "object": ("map<string, dyn>", _same),
}


def _type_of(part: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[str, Callable[[Any], Any]]:
    kind = part.get("type")
    if kind is None and "enum" in part and all(isinstance(each, str) for each in part["enum"]):
        kind = "string"
    if isinstance(kind, list) and len(kind) == 2 and "null" in kind:
        kind = next(each for each in kind if each != "null")
    if kind == "array":
        items = _resolved(part.get("items") or {}, root) if isinstance(part.get("items"), Mapping) else {}
        below, convert = _type_of(items, root)
        return f"list<{below}>", _each(convert)
    return _TYPES.get(kind, _OPEN) if isinstance(kind, str) else _OPEN


_OPEN: Final[tuple[str, Callable[[Any], Any]]] = ("dyn", _same)


def _each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if convert is _same:
        return _same
    return lambda value: [convert(item) for item in value] if isinstance(value, list) else value


def _allows_null(part: Mapping[str, Any]) -> bool:
    return isinstance(part.get("type"), list) and "null" in part["type"]


def _resolved(part: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a local reference stands for. Others are left open."""
    reference = part.get("$ref") if isinstance(part, Mapping) else None
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        found = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
        return found if isinstance(found, Mapping) and "$ref" not in found else {}
    return part if isinstance(part, Mapping) else {}
