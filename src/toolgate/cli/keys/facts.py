"""What commands about keys look up elsewhere: tools for scopes, and the last use in the console's index."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from toolgate.console.index.tables import index_at
from toolgate.errors import StartRefused
from toolgate.later import later
from toolgate.model.offers import offered

if TYPE_CHECKING:
    from toolgate.gate.keys import Key
    from toolgate.settings import Settings

_read_last_uses: Final = later("toolgate.cli.keys.uses:read_last_uses")


def unmatched_scopes(settings: Settings, key: Key) -> list[str]:
    """Scopes that no tool of this server matches. None, where the server would not start: that is told by other commands."""
    if key.bounds is None or not key.bounds.scopes:
        return []
    from toolgate.ruleset import governed, open_upstreams

    try:
        enabled, policy, _ = governed(settings, open_upstreams(settings) if settings.upstreams else None)
    except StartRefused:
        return []
    rows = policy.manifest.rows
    held = [
        tool.name
        for pack in enabled.packs
        for tool in offered(pack)
        if tool.name in rows and key.role in rows[tool.name].roles
    ]
    return [scope for scope in key.bounds.scopes if not any(fnmatchcase(name, scope) for name in held)]


def last_uses(settings: Settings) -> dict[str, str]:
    """Key id -> when it was last used, as the console's index has it; nothing where there is no console."""
    index = index_at(settings.paths.state)
    found: dict[str, str] = _read_last_uses(index, settings.paths.runs) if index.exists() else {}
    return found
