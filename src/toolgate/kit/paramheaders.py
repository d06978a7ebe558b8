"""`x-mcp-header` (revision 2026-07-28): a property of a tool's input schema may name an HTTP header that repeats its value, so
that what stands between client and server can route by it. A tool whose schema says this wrongly must not be offered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from toolgate.kit.foreignschema import SUBSCHEMA, SUBSCHEMAS, SUBSCHEMAS_BY_NAME
from toolgate.model.mcpwire import PARAM_HEADER, header_value

KEY: Final = "x-mcp-header"
TYPES: Final = frozenset({"string", "integer", "boolean"})
"""Numbers with fractions are written differently by different programs."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_NAMED: Final = SUBSCHEMAS_BY_NAME | {"$defs", "definitions"}

Path = tuple[str, ...]
"""Names of properties from the root down."""


def param_headers(schema: Mapping[str, Any]) -> dict[Path, str]:
    """Which header repeats which property. Raises: ValueError: the schema says it wrongly; the text says how."""
    found: dict[Path, str] = {}
    for path, node in _positions(schema, ()):
        if KEY not in node:
            continue
        word = node[KEY]
        if not path:
            raise ValueError(f"{KEY} stands where no property is")
        if not isinstance(word, str) or not _TOKEN.fullmatch(word):
            raise ValueError(f"{KEY} names no header")
        if not isinstance(node.get("type"), str) or node["type"] not in TYPES:
            raise ValueError(f"{KEY} stands at a property that is neither string, integer nor boolean")
        if word.lower() in (other.lower() for other in found.values()):
            raise ValueError(f"{KEY} names one header twice")
        found[path] = word
    return found


def mirrored(headers: Mapping[Path, str], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers of one call. An argument that is not there has none."""
    found = {}
    for path, word in headers.items():
        text = _text(_at(arguments, path))
        if text is not None:
            found[PARAM_HEADER + word] = header_value(text)
    return found


def without_param_headers(schema: Mapping[str, Any], paths: Iterable[Path]) -> Mapping[str, Any]:
    """The schema as our own clients see it: which headers an upstream is sent is between it and us."""
    for path in paths:
        schema = _without(schema, path)
    return schema


def _without(schema: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    if not path:
        return {name: value for name, value in schema.items() if name != KEY}
    inner = {**schema["properties"], path[0]: _without(schema["properties"][path[0]], path[1:])}
    return {**schema, "properties": inner}


def _at(arguments: Any, path: Path) -> Any:
    for name in path:
        arguments = arguments.get(name) if isinstance(arguments, Mapping) else None
    return arguments


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _positions(node: Any, path: Path | None) -> Iterator[tuple[Path | None, Mapping[str, Any]]]:
    """Every subschema, with its path if only `properties` lead there."""
    if not isinstance(node, Mapping):
        return
    yield path, node
    for name, value in node.items():
        if name in _NAMED and isinstance(value, Mapping):
            for key, item in value.items():
                yield from _positions(item, (*path, key) if name == "properties" and path is not None else None)
        elif name in SUBSCHEMAS and isinstance(value, list):
            for item in value:
                yield from _positions(item, None)
        elif name in SUBSCHEMA:
            yield from _positions(value, None)
