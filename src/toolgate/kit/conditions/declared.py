"""What a condition may speak of, declared from a tool's input schema: each argument is a variable of its own type, objects and
the items of arrays included.

What a call may leave out is null when it is absent, at any depth, and its type says so. What a schema leaves open (several
types, none, an object of any fields) has no type, and is judged when a call comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct, field

from toolgate.kit.conditions.messages import PACKAGE

MAX_DEPTH: Final = 8
"""Objects and arrays within each other that are declared; below, a value has no type."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What CEL can spell."""
_OPENING: Final = (
    "patternProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "$ref",
    "$dynamicRef",
    "dependentSchemas",
)
"""What may allow an object further fields, or other ones."""


class Variable(Struct, frozen=True):
    """One variable, field or item."""

    type: str
    """As CEL spells it."""
    schema: Mapping[str, Any]
    """What a constant that is compared with it must fit."""
    convert: Callable[[Any], Any]
    """A JSON value as CEL reads it: 3.0 is a whole number where the schema says so, what is absent is null."""
    nullable: bool = False
    items: Variable | None = None
    """Of an array."""
    path: tuple[str, ...] = ()
    """Where it lies in the arguments."""


class Shape(Struct, frozen=True):
    """An object whose fields are known."""

    fields: dict[str, Variable] = field(default_factory=dict)

    def filled(self, value: Any) -> Any:
        """With null for each field that is absent."""
        if type(value) is not dict:
            return value
        return {**value, **{name: each.convert(value.get(name)) for name, each in self.fields.items()}}


class DeclaredArguments(Struct, frozen=True):
    """All that the conditions of one tool may know of its arguments."""

    variables: dict[str, Variable]
    """By `args.NAME`, `args.NAME.INNER`."""
    shapes: dict[str, Shape]
    """By the name of their type."""


def arguments_of(schema: Mapping[str, Any]) -> DeclaredArguments:
    declaring = _Declaring(schema)
    declaring.flatten(schema, (), (), optional=False)
    return DeclaredArguments(declaring.variables, declaring.shapes)


class _Declaring:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self.variables: dict[str, Variable] = {}
        self.shapes: dict[str, Shape] = {}
        self._known: dict[int, str] = {}
        """Types by the part of the schema that they stand for: one that contains itself is one type."""

    def flatten(
        self, node: Mapping[str, Any], path: tuple[str, ...], above: tuple[int, ...], *, optional: bool
    ) -> None:
        """Each property is a variable, and so is what lies in it."""
        for name, part in self._properties(node):
            place, absent = (*path, name), optional or name not in node.get("required", ())
            found = self._variable(part, place, absent=absent)
            self.variables[".".join(("args", *place))] = found
            if _kind_of(part) == "object" and len(place) < MAX_DEPTH and id(part) not in above:
                self.flatten(part, place, (*above, id(part)), optional=absent)

    def _properties(self, node: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
        found = node.get("properties") or {}
        return [(name, self._resolved(part)) for name, part in found.items() if _NAME.fullmatch(name)]

    def _variable(self, part: Mapping[str, Any], path: tuple[str, ...], *, absent: bool) -> Variable:
        nullable = absent or (isinstance(part.get("type"), list) and "null" in part["type"])
        whole = {"$defs": self._root.get("$defs", {}), **part}
        kind = _kind_of(part)
        if kind == "array" and len(path) < MAX_DEPTH:
            items = self._variable(self._resolved(part.get("items")), (*path, "item"), absent=False)
            return Variable(f"list<{items.type}>", whole, _each(items.convert), nullable, items, path)
        if kind == "object" and len(path) <= MAX_DEPTH and _is_closed(part):
            name = self._shape(part, path)
            return Variable(name, whole, self.shapes[name].filled, nullable, None, path)
        spelt, convert = _TYPES.get(kind, _OPEN)
        return Variable(_NULLABLE.get(spelt, "dyn") if nullable else spelt, whole, convert, nullable, None, path)

    def _shape(self, part: Mapping[str, Any], path: tuple[str, ...]) -> str:
        """The name of its type, which is declared when it is met first."""
        if id(part) not in self._known:
            name = f"{PACKAGE}.{'_'.join(path)}"
            while name in self.shapes:
                name += "_"
            self._known[id(part)] = name
            fields = self.shapes[name] = Shape()
            required = part.get("required", ())
            for each, below in self._properties(part):
                fields.fields[each] = self._variable(below, (*path, each), absent=each not in required)
        return self._known[id(part)]

    def _resolved(self, part: Any) -> Mapping[str, Any]:
        """What a local reference stands for. Others are left open."""
        reference = part.get("$ref") if isinstance(part, Mapping) else None
        if isinstance(reference, str) and reference.startswith("#/$defs/"):
            found = self._root.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
            return found if isinstance(found, Mapping) and "$ref" not in found else {}
        return part if isinstance(part, Mapping) else {}


def _is_closed(part: Mapping[str, Any]) -> bool:
    """Are its fields those that it names? As of the arguments themselves: unless it says that it takes others."""
    more = part.get("additionalProperties", False)
    return bool(part.get("properties")) and more is False and not any(word in part for word in _OPENING)


def _kind_of(part: Mapping[str, Any]) -> str:
    kind = part.get("type")
    if kind is None and "enum" in part and all(isinstance(each, str) for each in part["enum"]):
        return "string"
    if isinstance(kind, list) and len(kind) == 2 and "null" in kind:
        kind = next((each for each in kind if each != "null"), "")
    return kind if isinstance(kind, str) else ""


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


_OPEN: Final[tuple[str, Callable[[Any], Any]]] = ("dyn", _same)
_TYPES: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "boolean": ("bool", _same),
    "integer": ("int", _whole),
    "number": ("double", _number),
    "string": ("string", _same),
    "object": ("map<string, dyn>", _same),
    "array": ("list<dyn>", _same),
}


def _each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if convert is _same:
        return _same
    return lambda value: [convert(item) for item in value] if isinstance(value, list) else value
