"""Step 2: is the tool in the manifest, live, and does this role hold it? Absence denies.

`tools/list` and a call ask the same table, so a caller is shown exactly what it may call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolgate.errors import Happening, Refusal

if TYPE_CHECKING:
    from toolgate.gate.validate import ToolIO
    from toolgate.model.call import Caller, Tier
    from toolgate.model.tool import Tool


_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)


class Grant(Struct, frozen=True):
    """One live tool with its manifest row: everything the road needs to know, made once at start."""

    tool: Tool
    pack: str
    tier: Tier
    roles: frozenset[str]
    hint: str
    io: ToolIO
    tool_id: str
    """The canonical id, joined once."""


class Permits:
    def __init__(self, grants: Iterable[Grant]) -> None:
        self._by_name = {grant.tool.name: grant for grant in sorted(grants, key=lambda grant: grant.tool.name)}
        self._name_by_id = {grant.tool.canonical_id: grant.tool.name for grant in self._by_name.values()}

    def permit(self, caller: Caller, tool_name: str) -> Grant:
        """Raises: Refusal: UNKNOWN_TOOL, INSUFFICIENT_ROLE."""
        grant = self._by_name.get(tool_name)
        if grant is None:
            raise Refusal(Happening.UNKNOWN_TOOL, f"Unknown tool: {printable_name(tool_name)}")
        if caller.role not in grant.roles:
            raise insufficient_role(caller)
        return grant

    def visible(self, caller: Caller) -> list[Grant]:
        return [grant for grant in self._by_name.values() if caller.role in grant.roles]

    def short_name(self, tool_id: str) -> str:
        """`mcp.tool:lra.init` -> `lra_init`. An unknown id stays as it is: `permit` will not know it either."""
        return self._name_by_id.get(tool_id, tool_id)

    def known(self, tool_name: str) -> Grant | None:
        """For the log, which names a tool whoever asked for it."""
        return self._by_name.get(tool_name)

    def all(self) -> list[Grant]:
        return list(self._by_name.values())


def permit_arguments(caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Some arguments are held by fewer roles than their tool (`receipt`, `mode=calibration`). Raises: Refusal."""
    for key, roles in tool.argument_roles.items():
        name, _, value = key.partition("=")
        if name in arguments and (not value or arguments[name] == value) and caller.role not in roles:
            raise insufficient_role(caller)


def printable_name(name: str) -> str:
    """A tool name as the caller wrote it, if it could be one; what could never be a name is not echoed."""
    return name if _NAME.fullmatch(name) else "(not a tool name)"


def insufficient_role(caller: Caller) -> Refusal:
    return Refusal(Happening.INSUFFICIENT_ROLE, "API key role is not allowed.", role=caller.role)
