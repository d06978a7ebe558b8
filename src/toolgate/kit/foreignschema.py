"""JSON Schemas that somebody else wrote: each by the draft that it names, never fetched from anywhere, within bounds.

Our own tools have stricter rules (`packs/schemas.py`); a stranger's schema is taken as it is, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import jsonschema_rs
from msgspec import Struct

DIALECTS: Final[Mapping[str, Callable[..., Any]]] = {
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
}
DEFAULT_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
"""What the protocol says of a schema that names none."""
REGEX_BYTES: Final = 1 << 20
"""Compiled size of one pattern, in an engine that never backtracks."""
MAX_PARTS: Final = 20_000
"""Subschemas with every reference followed once: ten levels that each name the next twice are a thousand, thirty a billion."""
MAX_FAULTS: Final = 20
SUBSCHEMA: Final = frozenset(
    {
        *("items", "additionalItems", "unevaluatedItems", "contains", "contentSchema"),
        *("additionalProperties", "unevaluatedProperties", "propertyNames"),
        *("not", "if", "then", "else"),
    }
)
SUBSCHEMAS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
SUBSCHEMAS_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
"""Keywords whose value is a schema, a list of them, or schemas by name. `$defs` holds schemas that only references reach."""
REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class SchemaFault(ValueError):
    """The schema cannot be used. The text says why in our words, with the library's where it has some."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        """`reaches_outside`, `unknown_dialect`, `too_many_parts`, `not_a_schema`."""


class ForeignFault(Struct, frozen=True):
    pointer: str
    keyword: str


class ForeignSchema:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises: SchemaFault."""
        for reference in references(schema):
            if not reference.startswith("#"):
                raise SchemaFault("reaches_outside", "a $ref leads out of the schema")
        if count_parts(schema) > MAX_PARTS:
            raise SchemaFault("too_many_parts", f"its references unfold to more than {MAX_PARTS} parts")
        dialect = dialect_of(schema)
        try:
            self._compiled = dialect(
                dict(schema),
                retriever=_refuse,
                pattern_options=jsonschema_rs.RegexOptions(size_limit=REGEX_BYTES),
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as fault:
            raise SchemaFault("not_a_schema", f"it cannot be compiled: {str(fault).splitlines()[0][:200]}") from None
        self.is_valid: Callable[[Any], bool] = self._compiled.is_valid

    def faults(self, instance: Any) -> list[ForeignFault]:
        """Where an instance that is not valid is not, and by which keyword; never the value."""
        errors = islice(self._compiled.iter_errors(instance), MAX_FAULTS)
        found = [ForeignFault(_pointer(error.instance_path), _keyword(error.schema_path)) for error in errors]
        return found or [ForeignFault("", "schema")]


def dialect_of(schema: Mapping[str, Any]) -> Callable[..., Any]:
    """Raises: SchemaFault."""
    named = schema.get("$schema", DEFAULT_DIALECT)
    found = DIALECTS.get(named.removesuffix("#")) if isinstance(named, str) else None
    if found is None:
        raise SchemaFault("unknown_dialect", "its $schema names no draft of JSON Schema that we know")
    return found


def references(node: Any) -> Iterator[str]:
    """Every reference anywhere in the schema, also where it could not act: one that leads outside has no good reason."""
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, Mapping):
            yield from (part[key] for key in REFERENCES if isinstance(part.get(key), str))
            pending += part.values()
        elif isinstance(part, list):
            pending += part


def is_open(schema: Mapping[str, Any]) -> bool:
    """Takes properties that it does not name."""
    return schema.get("additionalProperties", True) is not False and "unevaluatedProperties" not in schema


def count_parts(schema: Mapping[str, Any]) -> int:
    """How many subschemas a validator may visit for one value."""
    try:
        return _parts(schema, schema, (), {})
    except RecursionError:  # a chain of references that is as long as our stack is deep
        return MAX_PARTS + 1


def _parts(node: Any, root: Mapping[str, Any], above: tuple[str, ...], known: dict[str, int]) -> int:
    """A reference back to where it stands counts once."""
    if not isinstance(node, Mapping):
        return 1
    total = 1
    for name, value in node.items():
        if name in REFERENCES and isinstance(value, str):
            total += _referred(value, root, above, known)
        elif name in SUBSCHEMAS_BY_NAME and isinstance(value, Mapping):
            total += sum(_parts(item, root, above, known) for item in value.values())
        elif name in SUBSCHEMAS and isinstance(value, list):
            total += sum(_parts(item, root, above, known) for item in value)
        elif name in SUBSCHEMA:
            total += _parts(value, root, above, known)
    return total


def _referred(reference: str, root: Mapping[str, Any], above: tuple[str, ...], known: dict[str, int]) -> int:
    if reference in above:
        return 1
    if reference not in known:
        known[reference] = _parts(_resolve(reference, root), root, (*above, reference), known)
    return known[reference]


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """What `#/$defs/a` means; None for what is not a plain pointer or leads nowhere, which the compiler judges."""
    place: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        place = place.get(key) if isinstance(place, Mapping) else None
    return place


def _pointer(path: Any) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)[:1024]


def _keyword(path: Any) -> str:
    names = [part for part in path if isinstance(part, str)]
    return names[-1] if names else "schema"


def _refuse(_uri: str) -> Any:
    raise ValueError("a reference leads out of the schema")
