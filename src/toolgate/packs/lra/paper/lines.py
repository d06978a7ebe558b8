"""From an offset in a text to its line and column, many times over one text."""

from __future__ import annotations

from bisect import bisect_right


class LineIndex:
    def __init__(self, text: str) -> None:
        starts = [0]
        position = text.find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = text.find("\n", position + 1)
        self._starts = starts

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1
