"""Steps 4 and 7: JSON Schema 2020-12, compiled once, fail-closed. What is wrong is said by `toolgate.gate.explain`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs
from msgspec import Struct

from toolgate.gate.explain import EXACT_INTEGER, Explainer, Fault
from toolgate.model import strictjson
from toolgate.model.tool import ID_PREFIX

if TYPE_CHECKING:
    from toolgate.model.tool import Tool

REGEX_BYTES: Final = 1 << 20
"""Compiled size of one pattern. The engine is the linear one: look-around does not compile, nothing backtracks."""


SecretPaths = tuple[tuple[str, ...], ...]
"""Property names from the root of the arguments down to a secret; `*` stands for every item of an array."""


class Validator:
    """One compiled schema. `is_valid` is the hot path: one call into the library, where that is enough."""

    __slots__ = ("_explainer", "fingerprint", "is_valid", "schema")

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

    def faults(self, instance: Any) -> list[Fault]:
        """Empty when valid."""
        return [] if self.is_valid(instance) else self.explain(instance)

    def explain(self, instance: Any) -> list[Fault]:
        """The faults of what is not valid, sorted by path; the first one's reason is the reason of the whole."""
        return self._explainer.explain(instance)


class ToolIO(Struct, frozen=True):
    """What one tool takes and gives."""

    input: Validator
    output: Validator
    secrets: SecretPaths
    """Where the schema says `x-secret`: those values are never digested, logged or echoed."""


class SchemaRegistry:
    """Compiled schemas by content: the same schema anywhere is the same object (document 002)."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._by_fingerprint: dict[str, Validator] = {}
        descriptor = self._packaged("tool_io.schema.json")
        self._tools: dict[str, ToolIO] = {}
        for tool in tools:
            faults = descriptor.faults(
                {"tool": tool.canonical_id, "input": tool.input_schema, "output": tool.output_schema}
            )
            if faults:
                raise ValueError(
                    f"{tool.name}: schema descriptor is wrong at {faults[0].pointer} ({faults[0].keyword})"
                )
            bundle = ToolIO(
                self.compile(tool.input_schema),
                self.compile(tool.output_schema),
                tuple(_secret_paths(tool.input_schema)),
            )
            self._tools[tool.name] = self._tools[tool.id] = bundle

    def load_envelope(self) -> Validator:
        return self._packaged("envelope.schema.json")

    def load_tool_io(self, tool_id: str) -> ToolIO:
        """By short name, dotted id or canonical id. Raises: KeyError: no such tool."""
        return self._tools[tool_id.removeprefix(ID_PREFIX)]

    def compile(self, schema: Mapping[str, Any]) -> Validator:
        """Raises: ValueError: not a schema, a remote `$ref`, or a pattern the linear engine refuses."""
        fingerprint = sha256(strictjson.dumps_sorted(schema)).hexdigest()
        known = self._by_fingerprint.get(fingerprint)
        if known is None:
            try:
                known = Validator(schema, fingerprint)
            except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as fault:
                raise ValueError(f"not a usable JSON Schema: {fault}") from fault
            self._by_fingerprint[fingerprint] = known
        return known

    def _packaged(self, name: str) -> Validator:
        return self.compile(strictjson.loads(resources.files("toolgate.specs").joinpath("schemas", name).read_bytes()))


def _compiled(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        schema,
        retriever=_refuse_remote,
        validate_formats=True,
        keywords={EXACT_INTEGER: _ExactInteger},
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


def _with_exact_integers(node: Any) -> Any:
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
