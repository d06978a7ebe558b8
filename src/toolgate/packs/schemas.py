"""Judging the schemas that packs bring: valid Draft 2020-12, no reference leaves the document, and every input bounded.

A string without maxLength, a number without both ends, an array without maxItems or an open object is an invitation:
what a schema does not bound, the handler must, and will not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

import jsonschema_rs

_IN_PLACE: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE_ONE: Final = ("if", "then", "else", "not")
COMBINATORS: Final = (*_IN_PLACE, *_IN_PLACE_ONE)
"""Keywords that judge a value by schemas of its own."""
_BY_NAME: Final = ("properties", "patternProperties", "$defs", "dependentSchemas")
_ONE: Final = (
    "items",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
)
_NEEDS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "string": (("maxLength",),),
    "number": (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")),
    "integer": (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")),
    "array": (("maxItems",),),
}
"""For each type: of each group, one keyword must be there."""


def faults_of(schema: Mapping[str, Any]) -> Iterator[str]:
    """Why this is not a usable Draft 2020-12 schema; nothing when it is."""
    try:
        jsonschema_rs.Draft202012Validator(dict(schema), retriever=_refuse)
    except (ValueError, jsonschema_rs.ReferencingError) as fault:
        yield str(fault).partition("\n")[0]


def _refuse(_uri: str, /) -> NoReturn:
    raise ValueError("a reference must not leave the document")


def unbounded(schema: Any, place: str = "#", *, typed: bool = False) -> Iterator[str]:
    """Places where an input of any size, or any key, would pass. `typed`: an enclosing schema already fixes the type."""
    if schema is False:
        return
    if not isinstance(schema, Mapping):
        yield f"{place} takes anything"
        return
    kinds = schema.get("type", ())
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    finite = "enum" in schema or "const" in schema
    if not finite:
        yield from _missing_bounds(schema, place, kinds)
    if not (kinds or finite or typed or "$ref" in schema or any(key in schema for key in _IN_PLACE)):
        yield f"{place} has no type"
    yield from _below(schema, place, typed=typed or bool(kinds) or finite)


def _missing_bounds(schema: Mapping[str, Any], place: str, kinds: set[str]) -> Iterator[str]:
    for kind in sorted(kinds & _NEEDS.keys()):
        for group in _NEEDS[kind]:
            if not any(key in schema for key in group):
                yield f"{place} is a {kind} without {group[0]}"
    if "object" in kinds and not _closed(schema):
        yield f"{place} is an open object: say additionalProperties false, or bound its names, values and number"


def _closed(schema: Mapping[str, Any]) -> bool:
    if schema.get("additionalProperties") is False or schema.get("unevaluatedProperties") is False:
        return True
    # A map from names to values is closed when values, names and their number are bounded.
    names = schema.get("propertyNames", {})
    return "additionalProperties" in schema and "maxProperties" in schema and ("maxLength" in names or "enum" in names)


def _below(schema: Mapping[str, Any], place: str, *, typed: bool) -> Iterator[str]:
    """Subschemas: those that judge the same value inherit its type, those that judge a part of it do not."""
    for key in _IN_PLACE:
        for number, item in enumerate(schema.get(key, ())):
            yield from unbounded(item, f"{place}/{key}/{number}", typed=typed)
    for key in _IN_PLACE_ONE:
        if key in schema:
            yield from unbounded(schema[key], f"{place}/{key}", typed=True)
    for key in _BY_NAME:
        for name, item in schema.get(key, {}).items():
            yield from unbounded(item, f"{place}/{key}/{name}", typed=key == "dependentSchemas")
    for number, item in enumerate(schema.get("prefixItems", ())):
        yield from unbounded(item, f"{place}/prefixItems/{number}")
    for key in _ONE:
        if key in schema and schema[key] is not False:
            yield from unbounded(schema[key], f"{place}/{key}", typed=key in ("propertyNames", "contains"))
