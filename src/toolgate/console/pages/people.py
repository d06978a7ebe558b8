"""People and keys: who has one, when it was last used, what runs now; to make one and to end one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from toolgate.console.pages.shared import ConsolePage
from toolgate.gate.keys import check_label
from toolgate.ledger.acts import Acts
from toolgate.model.clock import rfc3339

if TYPE_CHECKING:
    from toolgate.console.pages.shared import Desk

MOST: Final = 500
"""Keys of one page."""
_LIVES: Final = {"1d": 86_400, "30d": 30 * 86_400, "90d": 90 * 86_400, "365d": 365 * 86_400, "never": None}
_ID: Final = re.compile(r"[0-9a-f]{12}")


def people(desk: Desk, *, made: Mapping[str, str] | None = None, fault: str = "", status: int = 200) -> ConsolePage:
    """Those who do not see everybody see themselves. `made`: a key, shown this once."""
    own = desk.session.caller.key_id
    keys = [key for key in desk.ports.keys.all() if desk.session.sees_all or key.id == own]
    with desk.index() as index:
        uses = index.last_use()
    running = desk.ports.running()
    keys.sort(key=lambda key: (key.state(desk.now) != "live", -key.created))
    rows = [
        {
            "key": key,
            "state": key.state(desk.now),
            "calls": uses.get(key.id, (0, None))[0],
            "last": uses.get(key.id, (0, None))[1],
            "running": running.get(key.id, 0),
            "created": int(key.created * 1000),
            "expires": None if key.expires is None else int(key.expires * 1000),
            "is_own": key.id == own,
            "bounds": "" if key.bounds is None else key.bounds.told(),
        }
        for key in keys[:MOST]
    ]
    values: dict[str, Any] = {
        "rows": rows,
        "more": max(0, len(keys) - MOST),
        "roles": desk.ports.roles(),
        "lives": list(_LIVES),
        "made": made,
        "fault": fault,
        "ever": desk.window(),
        "now": desk.now,
    }
    return ConsolePage("keys", "People and keys", values, status)


def create(desk: Desk, acts: Acts) -> ConsolePage:
    form = desk.visit.form
    role, label, life = form.get("role", ""), form.get("label", "").strip(), form.get("life", "")
    if role not in desk.ports.roles() or life not in _LIVES:
        return people(desk, fault="Choose a role and a life for the key.", status=400)
    try:
        check_label(label)
    except ValueError as fault:
        return people(desk, fault=f"Give another label: {fault}.", status=400)
    seconds = _LIVES[life]
    until = None if seconds is None else desk.now + seconds
    about = {"role": role, "label": label, "expires": None if until is None else rfc3339(until)}
    with acts.recorded("keys.create", about) as found:
        key, text = desk.ports.keys.create(role, label=label, expires=until)
        found["id"] = key.id
    return people(desk, made={"id": key.id, "role": key.role, "text": text})


def revoke(desk: Desk, acts: Acts, key_id: str) -> str:
    """What was wrong; empty when the key is revoked."""
    keys = {key.id: key for key in desk.ports.keys.all()}
    if not _ID.fullmatch(key_id) or key_id not in keys:
        return "There is no such key."
    if keys[key_id].state(desk.now) == "revoked":
        return "This key was revoked already; the page you used was older than that."
    with acts.recorded("keys.revoke", {"id": key_id}):
        desk.ports.keys.revoke(key_id)
    return ""
