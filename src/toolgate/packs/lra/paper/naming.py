"""What a project may be called: its name becomes a directory, an address and a title (ADR-0011)."""

from __future__ import annotations

import re
from typing import Final
from unicodedata import category, normalize

from toolgate.errors import ToolError

MAX_NAME: Final = 255
"""Characters of a project name, and bytes of it in UTF-8: what file systems take."""
_INVISIBLE: Final = (
    r"\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff"
    r"\ufff0-\uffff"
)
"""Control and direction characters, and blanks that look like the one blank that is allowed."""
_PLAIN: Final = rf"[^ ./\\:%{_INVISIBLE}]"
NAME_PATTERN: Final = rf"^[^ ./\\:%{_INVISIBLE}-](?: *\.? *{_PLAIN})*$"
"""ADR-0011: any name that is not a path, holds no `..` and is not hidden. Nor does it begin
with a dash (an option to commands), end in a dot or blank (which other systems drop), or hold `:` (a slash to the Finder, a
drive elsewhere) or `%` (an address that is decoded once too often would name another place)."""
NAME_ALLOWED: Final = (
    f"a project name of 1 to {MAX_NAME} bytes: letters, digits, blanks and signs, such as `paper.v2` or `my paper`; not"
    " / \\ : % or invisible characters, no two dots in a row, no dot, dash or blank at its beginning, no dot or blank at its end"
)
_NAME: Final = re.compile(NAME_PATTERN.replace("$", r"\Z"))
_REFUSED_KINDS: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of characters that nobody sees, or that have no agreed meaning."""


def require_name(name: str) -> str:
    """The name in composed letters (NFC): the same name typed on another system is the same directory.

    Raises: ToolError INVALID_PROJECT_NAME.
    """
    composed = normalize("NFC", name)
    fits = len(name) <= MAX_NAME and len(composed.encode("utf-8", "replace")) <= MAX_NAME
    if not fits or not _NAME.search(composed) or any(category(each) in _REFUSED_KINDS for each in composed):
        raise ToolError("INVALID_PROJECT_NAME", NAME_ALLOWED)
    return composed
