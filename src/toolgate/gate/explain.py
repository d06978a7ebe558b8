"""Why a value does not match its schema: each fault with its place and a stable reason (decision 16).

Reasons are derived from the schema, never from the value: absent or empty -> `missing_X`, too long -> `X_too_long`,
anything else -> `invalid_X`. Two annotations on a property steer them: `x-reason` replaces `invalid_X`, `x-name` replaces
X; `x-reasons` on the root names a reason for a root keyword.

The library can explain everything, and spells out each fault for people on the way, which costs more than a whole call.
Most arguments are an object of plain values, where a fault is known by its property and keyword; those are asked one by
one. Both ways say the same (`tests/gate/test_validate.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import jsonschema_rs
from msgspec import Struct

MAX_FAULTS: Final = 20
"""Faults told to a caller: enough to fix a request in one go, bounded for hostile ones."""
MAX_POINTER: Final = 1024
"""Characters of a pointer: no place in a schema is so deep, and a name that a caller made up is not echoed at length."""
EXACT_INTEGER: Final = "x-exact-integer"
"""Our own keyword; see `toolgate.gate.validate`. To a caller it is a fault of the type."""


class Fault(Struct, frozen=True):
    """Where (JSON pointer), what (keyword), and the stable reason. Never the value."""

    pointer: str
    keyword: str
    reason: str

    def as_json(self) -> dict[str, str]:
        return {"pointer": self.pointer, "keyword": self.keyword, "reason": self.reason}


Ranked = tuple[int, Fault]
"""An absent or empty value (0) outranks whatever else is wrong at the same place."""
IsValid = Callable[[Any], bool]
Compile = Callable[[dict[str, Any]], jsonschema_rs.Draft202012Validator]

_ABSENT, _TOO_LONG, _UNKNOWN, _INVALID = range(4)
_SILENT: Final = frozenset({"$schema", "title", "description", "default", "examples"})
"""Keywords that say nothing about whether a value is valid; so does everything that begins with `x-`, but one."""
_OF_AN_OBJECT: Final = frozenset({"type", "properties", "required", "additionalProperties"})
_OF_A_PLAIN_VALUE: Final = frozenset(
    {"type", "enum", "const", "minLength", "maxLength", "pattern", "format"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", EXACT_INTEGER}
)


_SOMETHING: Final = (_INVALID, Fault("", "schema", "invalid_arguments"))


class Explainer:
    """One schema's faults. `exact` is the schema as it was compiled, with integers made exact."""

    def __init__(self, schema: Mapping[str, Any], exact: Mapping[str, Any], compile_: Compile) -> None:
        self._schema = schema
        self._exact = exact
        self._compile = compile_

    def explain(self, instance: Any) -> list[Fault]:
        """The faults of what is not valid, sorted by path; the first one's reason is the reason of the whole.

        Never empty: what is not valid is refused, also by who cannot say why.
        """
        plain = self._plain
        found = plain.faults(instance) if plain is not None else None
        found = found or self.by_library(instance) or [_SOMETHING]
        if len(found) == 1:
            return [found[0][1]]
        found.sort(key=lambda ranked: (ranked[1].pointer, ranked[0], ranked[1].keyword))
        return [fault for _, fault in found[:MAX_FAULTS]]

    def by_library(self, instance: Any) -> list[Ranked]:
        return [ranked for error in self._compiled.iter_errors(instance) for ranked in self._ranked(error)]

    @cached_property
    def _compiled(self) -> jsonschema_rs.Draft202012Validator:
        return self._compile(dict(self._exact))

    @cached_property
    def _plain(self) -> _PlainObject | None:
        said = _said(self._exact)
        closed = said.get("type") == "object" and said.get("additionalProperties") is False
        return _PlainObject(self._exact, self._compile) if closed and said.keys() <= _OF_AN_OBJECT else None

    def _ranked(self, error: jsonschema_rs.ValidationError) -> Sequence[Ranked]:
        schema_path, instance_path = error.schema_path, error.instance_path
        kind: Any = error.kind
        what: str = kind.name
        if what == "additionalProperties":
            return [_unknown([*instance_path, name]) for name in kind.unexpected[:MAX_FAULTS]]
        subschema = self._subschema(schema_path[:-1])
        if what == "required":
            return (_missing(subschema, instance_path, kind.property),)
        name = next((part for part in reversed(instance_path) if isinstance(part, str)), "arguments")
        keyword = str(schema_path[-1]) if schema_path else "schema"
        return (_wrong(subschema, _pointer(instance_path), name, keyword, is_empty=error.instance == ""),)

    def _subschema(self, path: Iterable[str | int]) -> Mapping[str, Any]:
        node: Any = self._schema
        for part in path:
            try:
                node = node[part]
            except (KeyError, IndexError, TypeError):
                return {}  # behind a $ref: no annotation to be found by path
        return node if isinstance(node, Mapping) else {}


class _PlainObject:
    """A closed object, asked property by property."""

    def __init__(self, schema: Mapping[str, Any], compile_: Compile) -> None:
        properties = schema.get("properties", {})
        self._absent = {name: _missing(schema, (), name) for name in schema.get("required", ())}
        self._is_valid = {name: compile_(dict(about)).is_valid for name, about in properties.items()}
        self._properties = {name: _Property(name, about, compile_) for name, about in properties.items()}

    def faults(self, instance: Any) -> list[Ranked] | None:
        """None: a value is wrong that is not plain itself; the library has to say where."""
        if type(instance) is not dict:
            return None
        found: list[Ranked] = []
        if not self._absent.keys() <= instance.keys():
            found += [ranked for name, ranked in self._absent.items() if name not in instance]
        unknown: list[Ranked] = []
        for name, value in instance.items():
            is_valid = self._is_valid.get(name)
            if is_valid is None:
                if len(unknown) < MAX_FAULTS:
                    unknown.append(_unknown((name,)))
            elif not is_valid(value):
                keywords = self._properties[name].keywords
                if keywords is None:
                    return None
                found += [empty if value == "" else wrong for asks, wrong, empty in keywords if not asks(value)]
        return found + unknown


class _Property:
    def __init__(self, name: str, about: Mapping[str, Any], compile_: Compile) -> None:
        self._name, self._about, self._compile = name, about, compile_

    @cached_property
    def keywords(self) -> list[tuple[IsValid, Ranked, Ranked]] | None:
        """Each keyword with its fault, and its fault for an empty text. None: not a plain value."""
        said, pointer = _said(self._about), _pointer((self._name,))
        if not said.keys() <= _OF_A_PLAIN_VALUE:
            return None
        return [
            (
                self._compile({keyword: said[keyword]}).is_valid,
                _wrong(self._about, pointer, self._name, keyword, is_empty=False),
                _wrong(self._about, pointer, self._name, keyword, is_empty=True),
            )
            for keyword in said
        ]


def _said(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that decide."""
    return {
        keyword: value
        for keyword, value in schema.items()
        if keyword == EXACT_INTEGER or not (keyword in _SILENT or keyword.startswith("x-"))
    }


def _unknown(path: Sequence[str | int]) -> Ranked:
    return _UNKNOWN, Fault(_pointer(path), "additionalProperties", "unknown_argument")


def _missing(schema: Mapping[str, Any], path: Sequence[str | int], name: str) -> Ranked:
    shown = schema.get("properties", {}).get(name, {}).get("x-name", name)
    return _ABSENT, Fault(_pointer([*path, name]), "required", f"missing_{shown}")


def _wrong(subschema: Mapping[str, Any], pointer: str, name: str, keyword: str, *, is_empty: bool) -> Ranked:
    name = subschema.get("x-name") or name
    if keyword == "minLength" and is_empty:
        return _ABSENT, Fault(pointer, keyword, f"missing_{name}")
    if keyword == "maxLength":
        return _TOO_LONG, Fault(pointer, keyword, f"{name}_too_long")
    reason = subschema.get("x-reasons", {}).get(keyword) or subschema.get("x-reason") or f"invalid_{name}"
    return _INVALID, Fault(pointer, "type" if keyword == EXACT_INTEGER else keyword, reason)


def _pointer(parts: Iterable[str | int]) -> str:
    return "".join(["/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts])[:MAX_POINTER]
