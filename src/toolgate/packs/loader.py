"""Packs by name, through entry points: ours come by the same door as a stranger's, and only when they are named.

A pack that is not named is never imported. What is imported is judged before anything of it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Final, get_args

from toolgate.errors import StartRefused
from toolgate.model.call import ROLES
from toolgate.model.tool import Decision, Effect, Pack, Tool
from toolgate.packs.schemas import faults_of, unbounded

GROUP: Final = "toolgate.packs"
MAX_DEADLINE_S: Final = 600.0
"""Seconds: nobody waits longer for an answer, and a slot is held for as long."""
MAX_SUMMARY: Final = 2000
"""Characters: agents read every summary before every call."""

_PACK_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_TOOL_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TOOL_ID: Final = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_ERROR_CODE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_MAX_ID: Final = 128


def built_in() -> tuple[str, ...]:
    """Names of the packs that ship with Toolgate itself."""
    points = entry_points(group=GROUP)
    return tuple(sorted({point.name for point in points if point.dist is not None and point.dist.name == "toolgate"}))


def load_packs(names: Sequence[str]) -> tuple[Pack, ...]:
    """Import and judge the named packs, in the order of the names.

    Raises: StartRefused: a pack is not installed, offered twice, cannot be imported, or breaks a rule of the door.
    """
    offered = list(entry_points(group=GROUP))
    packs = tuple(_import(_point(name, offered)) for name in names)
    faults = [fault for pack in packs for fault in _faults(pack)]
    faults += _clashes(packs)
    if faults:
        raise StartRefused("; ".join(faults) + ".\nMend the pack, or take it out of packs.enabled.")
    return packs


def _point(name: str, offered: Iterable[EntryPoint]) -> EntryPoint:
    found = [point for point in offered if point.name == name]
    if not found:
        raise StartRefused(
            f"pack {name} is not installed.\nInstall the package that brings it, or take it out of packs.enabled."
        )
    if len(found) > 1:
        sources = ", ".join(sorted(point.dist.name if point.dist else point.value for point in found))
        raise StartRefused(f"pack {name} is offered by more than one package ({sources}).\nUninstall all but one.")
    return found[0]


def _import(point: EntryPoint) -> Pack:
    try:
        pack = point.load()
    except Exception as fault:  # border: a stranger's module may raise anything while it is imported
        raise StartRefused(
            f"pack {point.name} cannot be imported from {point.value} ({type(fault).__name__}: {fault}).\n"
            "Mend the pack, or take it out of packs.enabled."
        ) from fault
    if not isinstance(pack, Pack):
        raise StartRefused(
            f"pack {point.name}: {point.value} is no toolgate.model.tool.Pack.\n"
            "Export PACK = Pack(...) and name it in the entry point."
        )
    if pack.name != point.name or not _PACK_NAME.fullmatch(pack.name):
        raise StartRefused(
            f"pack {point.name} calls itself {pack.name!r}.\nBoth names must be the same [a-z][a-z0-9_-]*."
        )
    return pack


def _clashes(packs: Sequence[Pack]) -> Iterator[str]:
    owners: dict[str, str] = {}
    for pack in packs:
        for tool in pack.tools:
            for what in (f"name {tool.name}", f"id {tool.id}"):
                if what in owners:
                    yield f"tool {what} is used twice, in pack {owners[what]} and in pack {pack.name}"
                owners.setdefault(what, pack.name)


def _faults(pack: Pack) -> Iterator[str]:
    for tool in pack.tools:
        for fault in _tool_faults(tool):
            yield f"pack {pack.name}, tool {tool.name}: {fault}"
    for fault in faults_of(pack.settings_schema):
        yield f"pack {pack.name}: settings schema: {fault}"


def _tool_faults(tool: Tool) -> Iterator[str]:
    if not _TOOL_NAME.fullmatch(tool.name):
        yield "a name is [a-z][a-z0-9_]*, at most 64 characters"
    if not _TOOL_ID.fullmatch(tool.id) or len(tool.id) > _MAX_ID:
        yield f"the id {tool.id[:_MAX_ID]!r} is not lower-case words joined by dots"
    if not 0 < len(tool.summary) <= MAX_SUMMARY:
        yield f"a summary has 1 to {MAX_SUMMARY} characters"
    if tool.effect not in get_args(Effect):
        yield f"effect is one of {', '.join(get_args(Effect))}"
    if not 0 < tool.deadline_s <= MAX_DEADLINE_S:
        yield f"deadline_s is more than 0 and at most {MAX_DEADLINE_S:g} seconds"
    yield from (
        f"error code {code!r} is not UPPER_CASE" for code in tool.error_codes if not _ERROR_CODE.fullmatch(code)
    )
    yield from (f"{each!r} is no decision" for each in tool.decisions if each not in get_args(Decision))
    yield from (
        f"argument {name} names an unknown role" for name, roles in tool.argument_roles.items() if roles - set(ROLES)
    )
    yield from _schema_faults(tool)


def _schema_faults(tool: Tool) -> Iterator[str]:
    for kind, schema in (("input", tool.input_schema), ("output", tool.output_schema)):
        broken = list(faults_of(schema))
        yield from (f"{kind} schema: {fault}" for fault in broken)
        if "x-mcp-header" in str(schema):
            # Revision 2026-07-28 then wants `Mcp-Param-*` headers compared with the body; we serve none, so we promise none.
            yield f"{kind} schema: x-mcp-header is not served"
        if kind == "input" and not broken:
            if schema.get("type") != "object":
                yield 'input schema: the root has "type": "object"'
            yield from (f"input schema: {fault}" for fault in unbounded(schema))
