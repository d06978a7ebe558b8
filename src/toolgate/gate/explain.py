"""Why a value does not match its schema: each fault with its place and a stable reason (ADR-0003).

Reasons are derived from the schema, never from the value: absent or empty -> `missing_X`, too long -> `X_too_long`,
anything else -> `invalid_X`. Annotations on a property steer them: `x-reason` replaces `invalid_X`, `x-name` replaces X, and
`x-allowed` says to people what is expected; `x-reasons` on the root names a reason for a root keyword. The sentence that
goes with a reason is made by `toolgate.gate.wording`.

The library can explain everything, and spells out each fault for people on the way, which costs more than a whole call.
Most arguments are an object of plain values, where a fault is known by its property and keyword; those are asked one by
one. Both ways say the same (`tests/gate/test_validate.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Final

import jsonschema_rs
from msgspec import Struct

from toolgate.gate import wording

MAX_FAULTS: Final = 20
"""Faults told to a caller: enough to fix a request in one go, bounded for hostile ones."""
MAX_POINTER: Final = 1024
"""Characters of a pointer: no place in a schema is so deep, and a name that a caller made up is not echoed at length."""
MAX_RANKED: Final = 256
"""Faults that are looked at for the first `MAX_FAULTS` of them."""
MAX_EXPLAINED: Final = 4000
"""Values of an instance that is explained in detail. The library spells out every fault before it tells the first, 6 us each,
on the event loop; of larger arguments only the properties at fault are named. Our own tools take 3000 values at most."""
TEXT_AS_A_VALUE: Final = 64
"""Characters of a text that count as one more value: the library spells texts out, too."""
EXACT_INTEGER: Final = "x-exact-integer"
"""Our own keyword; see `toolgate.gate.validate`. To a caller it is a fault of the type."""
NEEDS_ONE: Final = "x-needs-one"
"""Our own keyword: of these properties at least one. `anyOf` at the top of a schema would say it too, but model providers
refuse a whole list of tools for that."""


class ValueFault(Struct, frozen=True):
    """Where (JSON pointer), what (keyword), the stable reason, and a sentence for people. Never the value."""

    pointer: str
    keyword: str
    reason: str
    text: str

    def as_json(self) -> dict[str, str]:
        return {"pointer": self.pointer, "keyword": self.keyword, "reason": self.reason, "text": self.text}


Ranked = tuple[int, ValueFault]
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


_SOMETHING: Final = (
    _INVALID,
    ValueFault("", "schema", "invalid_arguments", "The arguments do not match the tool's schema."),
)


class Explainer:
    """One schema's faults. `exact` is the schema as it was compiled, with integers made exact."""

    def __init__(self, schema: Mapping[str, Any], exact: Mapping[str, Any], compile_: Compile) -> None:
        self._schema = schema
        self._exact = exact
        self._compile = compile_
        self._asked: dict[str, IsValid] = {}

    def explain(self, instance: Any) -> list[ValueFault]:
        """The faults of what is not valid, sorted by path; the first one's reason is the reason of the whole.

        Never empty: invalid input is refused even when no fault can be named.
        """
        plain = self._plain
        found = plain.faults(instance) if plain is not None else None
        if not found:
            detailed = not _has_more_values(instance, MAX_EXPLAINED)
            found = (self.by_library(instance) if detailed else self._by_property(instance)) or [_SOMETHING]
        if len(found) == 1:
            return [found[0][1]]
        found.sort(key=lambda ranked: (ranked[1].pointer, ranked[0], ranked[1].keyword))
        return [fault for _, fault in found[:MAX_FAULTS]]

    def by_library(self, instance: Any) -> list[Ranked]:
        errors = islice(self._compiled.iter_errors(instance), MAX_RANKED)
        return [ranked for error in errors for ranked in self._ranked(error)]

    def _by_property(self, instance: Any) -> list[Ranked]:
        """Which properties are at fault. Costs no more than a validation."""
        if not isinstance(instance, dict):
            return []
        required = self._schema.get("required", ())
        found = [_missing(self._schema, (), name, self._schema) for name in required if name not in instance]
        for name, about in self._schema.get("properties", {}).items():
            if name in instance and not self._asks(name)(instance[name]):
                found.append(_Wrong.of(about, (name,), name, "schema", self._schema).sent(instance[name]))
        return found

    def _asks(self, name: str) -> IsValid:
        """Is this property as the schema wants it? The whole schema is asked, because a reference may lead anywhere in it."""
        if name not in self._asked:
            only = {key: value for key, value in self._exact.items() if key in ("$defs", "$schema")}
            self._asked[name] = self._compile({**only, "properties": {name: self._exact["properties"][name]}}).is_valid
        is_valid = self._asked[name]
        return lambda value: is_valid({name: value})

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
        subschema = self._subschema(schema_path[:-1])
        keyword = str(schema_path[-1]) if schema_path else "schema"
        if what == "additionalProperties":
            known = subschema.get("properties", {})
            return [_unknown([*instance_path, name], known) for name in kind.unexpected[:MAX_FAULTS]]
        if keyword == NEEDS_ONE:
            return (_needs_one(subschema, instance_path, self._schema),)
        if what == "required":
            return (_missing(subschema, instance_path, kind.property, self._schema),)
        name = next((part for part in reversed(instance_path) if isinstance(part, str)), "arguments")
        return (_Wrong.of(subschema, instance_path, name, keyword, self._schema).sent(error.instance),)

    def _subschema(self, path: Iterable[str | int]) -> Mapping[str, Any]:
        node: Any = self._schema
        for part in path:
            try:
                node = wording.referred(node[part], self._schema) if part == "$ref" else node[part]
            except (KeyError, IndexError, TypeError):
                return {}
        return node if isinstance(node, Mapping) else {}


class _PlainObject:
    """A closed object, asked property by property."""

    def __init__(self, schema: Mapping[str, Any], compile_: Compile) -> None:
        properties = schema.get("properties", {})
        self._known = tuple(properties)
        self._absent = {name: _missing(schema, (), name, schema) for name in schema.get("required", ())}
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
                    unknown.append(_unknown((name,), self._known))
            elif not is_valid(value):
                keywords = self._properties[name].keywords
                if keywords is None:
                    return None
                found += [wrong.sent(value) for asks, wrong in keywords if not asks(value)]
        return found + unknown


class _Property:
    def __init__(self, name: str, about: Mapping[str, Any], compile_: Compile) -> None:
        self._name, self._about, self._compile = name, about, compile_

    @cached_property
    def keywords(self) -> list[tuple[IsValid, _Wrong]] | None:
        """Each keyword with its fault. None: not a plain value."""
        said = _said(self._about)
        if not said.keys() <= _OF_A_PLAIN_VALUE:
            return None
        return [
            (
                self._compile({keyword: said[keyword]}).is_valid,
                _Wrong.of(self._about, (self._name,), self._name, keyword, self._about),
            )
            for keyword in said
        ]


class _Wrong(Struct, frozen=True):
    """A value that its schema rejects: everything about the fault that does not depend on the value itself."""

    pointer: str
    keyword: str
    name: str
    reason: str
    place: str
    expectation: str

    @classmethod
    def of(
        cls, subschema: Mapping[str, Any], path: Sequence[str | int], name: str, keyword: str, root: Mapping[str, Any]
    ) -> _Wrong:
        name = subschema.get("x-name") or name
        reason = subschema.get("x-reasons", {}).get(keyword) or subschema.get("x-reason") or f"invalid_{name}"
        told = {keyword: subschema[keyword]} if keyword in ("anyOf", "oneOf") else subschema
        return cls(
            _pointer(path),
            "type" if keyword == EXACT_INTEGER else keyword,
            name,
            reason,
            wording.place_of(path),
            wording.expected(told, root),
        )

    def sent(self, value: Any) -> Ranked:
        if self.keyword == "minLength" and value == "":
            text = wording.wrong(self.place, wording.kind_of(value), self.expectation)
            return _ABSENT, ValueFault(self.pointer, self.keyword, f"missing_{self.name}", text)
        if self.keyword == "maxLength":
            text = wording.too_long(self.place, self.expectation)
            return _TOO_LONG, ValueFault(self.pointer, self.keyword, f"{self.name}_too_long", text)
        text = wording.wrong(self.place, wording.kind_of(value), self.expectation)
        return _INVALID, ValueFault(self.pointer, self.keyword, self.reason, text)


def _has_more_values(value: Any, most: int) -> bool:
    left, waiting = most, [value]
    while waiting and left > 0:
        left -= 1
        below = waiting.pop()
        if isinstance(below, dict):
            below = below.values()
        elif isinstance(below, str):
            left -= len(below) // TEXT_AS_A_VALUE
            continue
        elif not isinstance(below, list):
            continue
        if len(below) > left:
            return True
        waiting += below
    return left <= 0 or bool(waiting)


def _said(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that decide."""
    return {
        keyword: value
        for keyword, value in schema.items()
        if keyword in (EXACT_INTEGER, NEEDS_ONE) or not (keyword in _SILENT or keyword.startswith("x-"))
    }


def _unknown(path: Sequence[str | int], known: Iterable[str]) -> Ranked:
    text = wording.unknown(wording.place_of(path), str(path[-1]), known, at_the_top=len(path) == 1)
    return _UNKNOWN, ValueFault(_pointer(path), "additionalProperties", "unknown_argument", text)


def _missing(schema: Mapping[str, Any], path: Sequence[str | int], name: str, root: Mapping[str, Any]) -> Ranked:
    about = schema.get("properties", {}).get(name, {})
    text = wording.missing(wording.place_of([*path, name]), wording.expected(about, root))
    return _ABSENT, ValueFault(_pointer([*path, name]), "required", f"missing_{about.get('x-name', name)}", text)


def _needs_one(schema: Mapping[str, Any], path: Sequence[str | int], root: Mapping[str, Any]) -> Ranked:
    """Told as the absence of the first of them."""
    first, *others = schema[NEEDS_ONE]
    rank, fault = _missing(schema, path, first, root)
    text = fault.text.replace(" is missing", f" (or {', '.join(others)}) is missing", 1)
    return rank, ValueFault(fault.pointer, NEEDS_ONE, fault.reason, text)


def _pointer(parts: Iterable[str | int]) -> str:
    return "".join(["/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts])[:MAX_POINTER]
