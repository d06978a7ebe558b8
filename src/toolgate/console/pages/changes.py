"""What an upstream changed, as a page shows it: whole, or so that nobody approves it there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

if TYPE_CHECKING:
    from toolgate.console.ports import FieldChange

MAX_SHOWN: Final = 64_000
"""Characters of a change on a page, before and after. A page that is larger is read by nobody."""
FRAME: Final = 500
"""What a field takes on a page beside its text."""
MAX_LINES: Final = 400
"""Of one field."""
WIDTH: Final = 1000
"""Characters of a line; a longer one goes on in the next."""
MAX_CUT: Final = 2000
"""Of a field that is not shown whole."""


def fitting(rows: Sequence[FieldChange]) -> tuple[list[FieldChange], bool]:
    """The rows that a page shows, and whether those are all of them, each whole. The first that is not is there in part."""
    shown: list[FieldChange] = []
    left = MAX_SHOWN
    for row in rows:
        left -= len(row.tool) + len(row.field) + len(row.before) + len(row.after) + FRAME
        if left < 0 or any(len(_lines(text)) > MAX_LINES for text in (row.before, row.after)):
            return [*shown, replace(row, before=_cut(row.before), after=_cut(row.after))], False
        shown.append(row)
    return shown, True


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CUT else f"{text[:MAX_CUT]} …"


def side_by_side(before: str, after: str) -> Iterator[tuple[str, str, str]]:
    """(`same`, `changed`, `gone` or `new`; the line before; the line after), some lines around what differs."""
    was, now = _lines(before), _lines(after)
    matcher = difflib.SequenceMatcher(None, was, now, autojunk=False)
    for group in matcher.get_grouped_opcodes(3):
        for tag, low, high, new_low, new_high in group:
            old, new = was[low:high], now[new_low:new_high]
            for place in range(max(len(old), len(new))):
                left = old[place] if place < len(old) else None
                right = new[place] if place < len(new) else None
                word = "same" if tag == "equal" else "gone" if right is None else "new" if left is None else "changed"
                yield word, left or "", right or ""


def _lines(text: str) -> list[str]:
    """Split at line feeds alone: whatever else a program takes for the end of a line is a difference that must be seen."""
    lines = text.split("\n") if text else []
    return [line[start : start + WIDTH] for line in lines for start in range(0, len(line) or 1, WIDTH)]
