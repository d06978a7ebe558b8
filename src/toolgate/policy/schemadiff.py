"""How one JSON Schema differs from another, as a caller feels it.

For arguments, whatever was accepted must stay accepted. For results, whatever could be relied on must stay: a field that
is gone, no longer certain, of another type or another format breaks; new fields, values and sizes do not.
A keyword this file does not know breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

from toolgate.model import strictjson

Kind = Literal["breaking", "widening", "text-only"]
Side = Literal["argument", "result"]
Difference = tuple[Kind, str, str]

_TEXT: Final = frozenset({"title", "description", "examples", "$comment", "x-allowed"})
_CEILINGS: Final = frozenset({"maxLength", "maximum", "exclusiveMaximum", "maxItems", "maxProperties"})
_FLOORS: Final = frozenset({"minLength", "minimum", "exclusiveMinimum", "minItems", "minProperties"})
_FORMS: Final = frozenset({"pattern", "format", "multipleOf"})
_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_ONE: Final = frozenset({"items", "contains", "propertyNames"})
_REST: Final = frozenset({"additionalProperties", "unevaluatedProperties", "unevaluatedItems"})
_BY_NAME: Final = frozenset({"$defs", "patternProperties", "dependentSchemas"})
_VALUES: Final = frozenset({"enum", "const"})
_ABSENT: Final = object()


def schema_changes(old: Any, new: Any, *, side: Side, path: str = "") -> Iterator[Difference]:
    if same(old, new):
        return
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        yield "breaking", _name(side, path), f"{_name(side, path)} has another schema"
        return
    seen_values = False
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key, _ABSENT), new.get(key, _ABSENT)
        if before is not _ABSENT and after is not _ABSENT and same(before, after):
            continue
        if key in _VALUES:
            if not seen_values:
                yield from _values(old, new, side, path)
            seen_values = True
        elif key == "properties":
            yield from _properties(old, new, side, path)
        elif key == "required":
            yield from _required(old, new, side, path)
        else:
            yield from _keyword(key, before, after, side, path)


def same(before: Any, after: Any) -> bool:
    """Equal as JSON: to Python, True equals 1."""
    return strictjson.dumps_sorted(before) == strictjson.dumps_sorted(after)


def _name(side: Side, path: str) -> str:
    return f"{side}:{path}" if path else f"{side}s" if side == "argument" else side


def _keyword(key: str, before: Any, after: Any, side: Side, path: str) -> Iterator[Difference]:
    what = _name(side, path)
    if key in _TEXT:
        yield "text-only", what, f"{key} of {what} reads differently"
    elif key in _LISTS:
        yield from _branches(key, before, after, side, path)
    elif key in _BY_NAME:
        yield from _named(key, before, after, side, path)
    elif key in _ONE | _REST and isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from schema_changes(before, after, side=side, path=f"{path}[]" if key == "items" else path)
    else:
        narrows = _NARROWS.get(_family(key), _always)
        yield "breaking" if narrows(before, after, side) else "widening", what, _told(key, before, after, what)


def _told(key: str, before: Any, after: Any, what: str) -> str:
    if before is _ABSENT:
        return f"{key} of {what} is new: {after!r}"
    if after is _ABSENT:
        return f"{key} of {what} is gone: it was {before!r}"
    return f"{key} of {what}: {before!r} became {after!r}"


def _family(key: str) -> str:
    for family, members in (
        ("ceiling", _CEILINGS),
        ("floor", _FLOORS),
        ("form", _FORMS),
        ("rest", _REST),
        ("one", _ONE),
    ):
        if key in members:
            return family
    return key


def _ceiling(before: Any, after: Any, side: Side) -> bool:
    return side == "argument" and after is not _ABSENT and (before is _ABSENT or after < before)


def _floor(before: Any, after: Any, side: Side) -> bool:
    return side == "argument" and after is not _ABSENT and (before is _ABSENT or after > before)


def _form(before: Any, after: Any, side: Side) -> bool:
    """A pattern cannot be compared with another: only its going (arguments) or coming (results) is harmless."""
    return (after is not _ABSENT) if side == "argument" else (before is not _ABSENT)


def _type(before: Any, after: Any, side: Side) -> bool:
    old, new = _types(before), _types(after)
    return not old <= new if side == "argument" else not new <= old


_ALL_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})


def _types(value: Any) -> frozenset[str]:
    if value is _ABSENT:
        return _ALL_TYPES
    types = frozenset({value} if isinstance(value, str) else value)
    return types | {"integer"} if "number" in types else types


def _rest(before: Any, after: Any, side: Side) -> bool:
    """Keys that are not listed: from refused to accepted is wider, and so is from some to any."""
    return side == "argument" and not (before is False or after is True or after is _ABSENT)


def _one(_before: Any, after: Any, side: Side) -> bool:
    return (after is not _ABSENT) if side == "argument" else (after is _ABSENT)


def _unique(before: Any, after: Any, side: Side) -> bool:
    return after is True if side == "argument" else before is True


def _default(_before: Any, _after: Any, side: Side) -> bool:
    """A call that leaves the argument out means something else now."""
    return side == "argument"


def _never(_before: Any, _after: Any, _side: Side) -> bool:
    return False


def _always(_before: Any, _after: Any, _side: Side) -> bool:
    return True


_NARROWS: Final[Mapping[str, Callable[[Any, Any, Side], bool]]] = {
    "ceiling": _ceiling,
    "floor": _floor,
    "form": _form,
    "rest": _rest,
    "one": _one,
    "type": _type,
    "uniqueItems": _unique,
    "default": _default,
    "x-secret": _never,
}
"""Does the new value take something away from callers? What is not listed always does."""


def _values(old: Mapping[str, Any], new: Mapping[str, Any], side: Side, path: str) -> Iterator[Difference]:
    what, before, after = _name(side, path), _allowed(old), _allowed(new)
    if before is None or after is None:
        narrows = side == "argument" and before is None
        text = "any value became some" if before is None else "some values became any"
        yield "breaking" if narrows else "widening", what, f"{what}: {text}"
        return
    for value in sorted(before - after):
        yield "breaking" if side == "argument" else "widening", what, f"{what}: value {value} is gone"
    for value in sorted(after - before):
        yield "widening", what, f"{what}: value {value} is new"
    if before == after:
        yield "text-only", what, f"{what}: the same values are written differently"


def _allowed(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """The listed values as JSON text, or None where any value goes."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return None if values is None else frozenset(strictjson.dumps_sorted(value).decode() for value in values)


def _properties(old: Mapping[str, Any], new: Mapping[str, Any], side: Side, path: str) -> Iterator[Difference]:
    before, after = old.get("properties", {}), new.get("properties", {})
    for name in sorted(before.keys() | after.keys()):
        inner = f"{path}.{name}" if path else name
        what = _name(side, inner)
        if name not in after:
            yield "breaking", what, f"{what} is gone"
        elif name not in before:
            breaks = side == "argument" and (name in new.get("required", ()) or _took_any_name(old))
            yield "breaking" if breaks else "widening", what, f"{what} is new"
        else:
            yield from schema_changes(before[name], after[name], side=side, path=inner)


def _took_any_name(schema: Mapping[str, Any]) -> bool:
    """Where a name passed before it was listed, listing it with a schema takes values away."""
    closed = schema.get("additionalProperties") is False or schema.get("unevaluatedProperties") is False
    return not closed or "patternProperties" in schema


def _required(old: Mapping[str, Any], new: Mapping[str, Any], side: Side, path: str) -> Iterator[Difference]:
    """Only for names on both sides: a name that comes or goes is told with the properties."""
    before, after = set(old.get("required", ())), set(new.get("required", ()))
    known = old.get("properties", {}).keys() & new.get("properties", {}).keys()
    unnamed = (before ^ after) - old.get("properties", {}).keys() - new.get("properties", {}).keys()
    for name in sorted((before ^ after) & known | unnamed):
        what = _name(side, f"{path}.{name}" if path else name)
        now = name in after
        breaks = now if side == "argument" else not now
        text = "is required now" if now else "is no longer required"
        yield "breaking" if breaks else "widening", what, f"{what} {text if side == 'argument' else _certain(now=now)}"
    if before == after:
        yield "text-only", _name(side, path), "the same names are required, written differently"


def _certain(*, now: bool) -> str:
    return "is always there now" if now else "is no longer always there"


def _branches(key: str, before: Any, after: Any, side: Side, path: str) -> Iterator[Difference]:
    old = [] if before is _ABSENT else before
    new = [] if after is _ABSENT else after
    what = _name(side, path)
    if len(old) == len(new):
        for was, now in zip(old, new, strict=True):
            yield from schema_changes(was, now, side=side, path=path)
        return
    wider = side == "argument" and key == "anyOf" and old and all(branch in new for branch in old)
    yield "widening" if wider else "breaking", what, f"{key} of {what} has {len(new)} branches instead of {len(old)}"


def _named(key: str, before: Any, after: Any, side: Side, path: str) -> Iterator[Difference]:
    old = {} if before is _ABSENT else before
    new = {} if after is _ABSENT else after
    what = _name(side, path)
    for name in sorted(old.keys() | new.keys()):
        if name in old and name in new:
            yield from schema_changes(old[name], new[name], side=side, path=path)
        else:
            # A definition does nothing until it is referred to, and the reference is judged where it stands.
            kind: Kind = "text-only" if key == "$defs" else "breaking"
            yield kind, what, f"{key}/{name} of {what} is {'new' if name in new else 'gone'}"
