"""Incoming trace context (W3C Trace Context): kept unchanged if it is well-formed, otherwise ignored."""

from __future__ import annotations

import re
from typing import Any, Final

MAX_STATE: Final = 512
"""Characters of a `tracestate`: what the standard wants everyone to pass on. A longer one is ignored."""
MAX_MEMBERS: Final = 32
_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[\x20-\x7e]*)?")
_PARENT_LENGTH: Final = 55
_SIMPLE: Final = r"[a-z][_0-9a-z*/-]{0,255}"
_TENANT: Final = r"[a-z0-9][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13}"
_MEMBER: Final = re.compile(
    rf"(?:{_SIMPLE}|{_TENANT})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)


def trace_context(parent: Any, state: Any = None) -> tuple[str, str | None] | None:
    """(traceparent, tracestate) as they may be recorded; None: there is no parent that has its form."""
    if type(parent) is not str or len(parent) > MAX_STATE:
        return None
    found = _PARENT.fullmatch(parent)
    if found is None or found[1] == "ff" or not found[2].strip("0") or not found[3].strip("0"):
        return None
    if found[1] == "00" and found[4] is not None:
        return None
    # Of a version to come only the part that every version has.
    return parent[:_PARENT_LENGTH], state if _is_state(state) else None


def _is_state(state: Any) -> bool:
    if type(state) is not str or not 0 < len(state) <= MAX_STATE:
        return False
    members = [member.strip(" \t") for member in state.split(",")]
    named = [member for member in members if member]
    keys = {member.partition("=")[0] for member in named}
    return 0 < len(named) <= MAX_MEMBERS and len(keys) == len(named) and all(map(_MEMBER.fullmatch, named))
