"""Custom roles: where code names built-in roles, a role of the deployment counts as the one that it was made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from toolgate.model.tool import Tool


def with_custom_roles(tool: Tool, bases: Mapping[str, str]) -> Tool:
    """The tool, its arguments held also by roles that were made of those which hold them."""
    if not bases or not tool.argument_roles:
        return tool
    held = {name: roles.union(_made_of(roles, bases)) for name, roles in tool.argument_roles.items()}
    return replace(tool, argument_roles=held)


def _made_of(roles: Iterable[str], bases: Mapping[str, str]) -> Iterable[str]:
    return (name for name, base in bases.items() if base in roles)
