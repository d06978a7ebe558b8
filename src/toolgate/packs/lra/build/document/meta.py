"""Values of Pandoc's metadata (`MetaInlines`, `MetaList`, ...) as text, lists and blocks."""

from __future__ import annotations

from typing import Any

from toolgate.packs.lra.build.document import ast


def plain_text(value: dict[str, Any] | None) -> str:
    """A value as text; nothing for lists and maps."""
    if value is None or value["t"] in {"MetaList", "MetaMap"}:
        return ""
    if value["t"] == "MetaBool":
        return str(value["c"]).lower()
    return value["c"] if value["t"] == "MetaString" else ast.text_of(value["c"])


def items(value: dict[str, Any] | None) -> list[dict[str, Any]]:
    """A list's items; one value is a list of one."""
    if value is None:
        return []
    found: list[dict[str, Any]] = value["c"] if value["t"] == "MetaList" else [value]
    return found


def entries(value: dict[str, Any], alone: str) -> dict[str, Any]:
    """A map's entries; a value that is none is the entry `alone`."""
    return value["c"] if value["t"] == "MetaMap" else {alone: value}


def blocks(value: dict[str, Any] | None) -> ast.Nodes:
    if value is None or value["t"] in {"MetaList", "MetaMap", "MetaBool"}:
        return []
    if value["t"] == "MetaBlocks":
        found: ast.Nodes = value["c"]
        return found
    return [ast.para(ast.words(value["c"]) if value["t"] == "MetaString" else value["c"])]
