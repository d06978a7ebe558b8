"""Steps 4 and 7: JSON Schema 2020-12, compiled once, fail-closed. What is wrong is said by `toolgate.gate.explain`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import jsonschema_rs
from msgspec import Struct

from toolgate.gate.explain import EXACT_INTEGER, NEEDS_ONE, Explainer, ValueFault
from toolgate.gate.foreign import ForeignInput, ForeignOutput
from toolgate.model import strictjson

if TYPE_CHECKING:
    from toolgate.model.tool import Tool

REGEX_BYTES: Final = 1 << 20
"""Compiled size of one pattern. The engine is the linear one: look-around does not compile, nothing backtracks."""


SecretPaths = tuple[tuple[str, ...], ...]
"""Property names from the root of the arguments down to a secret; `*` stands for every item of an array."""


class Optional(Struct, frozen=True):
    """Which properties of an object may be absent, and are not there either when they are null.

    Many libraries offer null to a model for whatever is optional, and send it.
    """

    names: frozenset[str]
    below: Mapping[str, Optional]
    """Of the properties that are objects themselves."""

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> Optional:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        below = {name: cls.of(about) for name, about in properties.items() if about.get("type") == "object"}
        names = frozenset(name for name, about in properties.items() if name not in required and not _takes_null(about))
        return cls(names, {name: found for name, found in below.items() if found.names or found.below})

    def without_nulls(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The same object where nothing is to be left out."""
        if None in arguments.values():
            arguments = {
                name: value for name, value in arguments.items() if value is not None or name not in self.names
            }
        for name, optional in self.below.items():
            inner = arguments.get(name)
            if type(inner) is dict and (kept := optional.without_nulls(inner)) is not inner:
                arguments = {**arguments, name: kept}
        return arguments


NOTHING_OPTIONAL: Final = Optional(frozenset(), {})
"""Of an adopted tool: what null means is its own affair."""


def _takes_null(schema: Mapping[str, Any]) -> bool:
    """Whether a property says what null means to it; then it is a value like others. What is not plain is asked in full."""
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return kinds == "null"
    return _compiled(dict(schema)).is_valid(None) if "$ref" not in schema else True


class Validator:
    """One compiled schema. `is_valid` is the hot path: one call into the library, where that is enough."""

    __slots__ = ("__weakref__", "_explainer", "fingerprint", "is_valid", "schema")

    def __init__(self, schema: Mapping[str, Any], fingerprint: str) -> None:
        self.schema = schema
        self.fingerprint = fingerprint
        exact = _with_exact_integers(dict(schema))
        self._explainer = Explainer(schema, exact, _compiled)
        integers = _integer_properties(schema)
        self.is_valid: Callable[[Any], bool] = (
            _compiled(exact).is_valid
            if integers is None
            else _with_integers_at_the_top(_compiled(dict(schema)).is_valid, integers)
        )

    def validate(self, instance: Any) -> None:
        """Raises: ValueError with the first fault's reason."""
        faults = self.faults(instance)
        if faults:
            raise ValueError(faults[0].reason)

    def faults(self, instance: Any) -> list[ValueFault]:
        """Empty when valid."""
        return [] if self.is_valid(instance) else self.explain(instance)

    def explain(self, instance: Any) -> list[ValueFault]:
        """The faults of what is not valid, sorted by path; the first one's reason is the reason of the whole."""
        return self._explainer.explain(instance)


class ToolIO(Struct, frozen=True):
    """What one tool takes and gives."""

    input: Validator | ForeignInput
    output: Validator | ForeignOutput
    secrets: SecretPaths
    """Where the schema says `x-secret`: those values are never digested, logged or echoed."""
    optional: Optional
    """Arguments whose null counts as absent."""


_known: Final[WeakValueDictionary[str, Validator]] = WeakValueDictionary()
"""By fingerprint, for the whole process: the same schema anywhere is the same object, for as long as somebody holds it."""


def compile_schema(schema: Mapping[str, Any]) -> Validator:
    """Raises: ValueError: not a schema, a remote `$ref`, or a pattern the linear engine refuses."""
    fingerprint = sha256(strictjson.dumps_sorted(schema)).hexdigest()
    known = _known.get(fingerprint)
    if known is None:
        try:
            known = Validator(schema, fingerprint)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as fault:
            raise ValueError(f"not a usable JSON Schema: {fault}") from fault
        _known[fingerprint] = known
    return known


def bundle_of(tool: Tool) -> ToolIO:
    """Raises: ValueError."""
    if tool.foreign is not None and tool.kind == "tool":
        output = ForeignOutput(tool.foreign.definition.get("outputSchema"))
        return ToolIO(ForeignInput(tool.input_schema), output, (), NOTHING_OPTIONAL)
    return ToolIO(
        compile_schema(tool.input_schema),
        compile_schema(tool.output_schema),
        tuple(_secret_paths(tool.input_schema)),
        Optional.of(tool.input_schema),
    )


def _compiled(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        schema,
        retriever=_refuse_remote,
        validate_formats=True,
        keywords={EXACT_INTEGER: _ExactInteger, NEEDS_ONE: _NeedsOne},
        pattern_options=jsonschema_rs.RegexOptions(size_limit=REGEX_BYTES),
    )


def _integer_properties(schema: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The properties that are integers, if the schema is a plain object and none are elsewhere in it; else None."""
    properties = schema.get("properties", {})
    names = tuple(name for name, about in properties.items() if about.get("type") == "integer")
    others = {**schema, "properties": {name: about for name, about in properties.items() if name not in names}}
    if schema.get("type") != "object" or _with_exact_integers(others) != others:
        return None
    return names


def _with_integers_at_the_top(is_valid: Callable[[Any], bool], names: tuple[str, ...]) -> Callable[[Any], bool]:
    """The same verdicts without a call back into Python for each integer, which costs as much as all the rest."""
    if not names:
        return is_valid

    def check(instance: Any) -> bool:
        if not is_valid(instance):
            return False
        for name in names:  # noqa: SIM110 (a generator would cost more than what it asks)
            if type(instance.get(name)) is float:
                return False
        return True

    return check


class _ExactInteger:
    """JSON Schema takes 1.0 as an integer. A port, a round or a count written 1.0 is a caller's mistake here."""

    def __init__(self, _parent: Any, _value: Any, _path: Any) -> None:
        pass

    def validate(self, instance: Any) -> None:
        if isinstance(instance, float):
            raise ValueError("not an integer")  # ValueError is what the library turns into a fault


class _NeedsOne:
    def __init__(self, _parent: Any, names: Any, _path: Any) -> None:
        self._names = frozenset(names)

    def validate(self, instance: Any) -> None:
        if isinstance(instance, dict) and self._names.isdisjoint(instance):
            raise ValueError("none of them is there")


_SCALARS: Final = (str, bool, int, float)
"""Most of a schema. To ask whether one is a `Mapping` takes as long as everything else here."""


def _with_exact_integers(node: Any) -> Any:
    if isinstance(node, _SCALARS):
        return node
    if isinstance(node, dict):
        copy = {key: _with_exact_integers(item) for key, item in node.items()}
        if copy.get("type") == "integer":
            copy[EXACT_INTEGER] = True
        return copy
    if isinstance(node, (list, tuple)):
        return [_with_exact_integers(item) for item in node]
    if isinstance(node, Mapping):
        return _with_exact_integers(dict(node))
    return node


def _secret_paths(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not isinstance(schema, Mapping):
        return
    if schema.get("x-secret") is True:
        yield path
    for name, below in schema.get("properties", {}).items():
        yield from _secret_paths(below, (*path, name))
    yield from _secret_paths(schema.get("items"), (*path, "*"))


def _refuse_remote(uri: str) -> Any:
    """The protocol forbids fetching a `$ref` over the network; both libraries of the field do it by default."""
    raise ValueError(f"remote $ref refused: {uri}")
