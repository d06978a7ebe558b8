"""What commands about keys look up elsewhere: tools for scopes, and the last use in the console's index."""

from __future__ import annotations

import sqlite3
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from toolgate.console.index.reading import index_at, reading
from toolgate.errors import StartRefused
from toolgate.ledger.files import LOG_PATH
from toolgate.model.clock import rfc3339
from toolgate.model.offers import offered

if TYPE_CHECKING:
    from toolgate.gate.keys import Key
    from toolgate.settings import Settings


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
    if not index.exists():
        return {}
    try:
        with reading(index, settings.paths.runs / LOG_PATH, None, {}) as reader:
            return {key: rfc3339(last / 1000) for key, (_, last) in reader.last_use().items()}
    except (sqlite3.Error, OSError):
        return {}
