"""Characters that a terminal would obey, or that nobody sees, spelt out."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """The text with control, direction and other unprintable characters spelt out (`\\u202e`); spaces stay."""
    return text if text.isprintable() else "".join(char if char.isprintable() else _spelt(char) for char in text)


def printable_lines(text: str) -> str:
    """As `printable`, for text of several lines: line ends, tabs and blanks of every width stay.

    What is spelt out is an escape of JSON, too: of a JSON text this makes another spelling of the same value.
    """
    return "\n".join(_printable_line(line) for line in text.replace("\r\n", "\n").split("\n"))


def _printable_line(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() or char == "\t" or unicodedata.category(char) == "Zs" else _spelt(char)
        for char in line
    )


def _spelt(character: str) -> str:
    """As JSON would: characters beyond 16 bits are two escapes."""
    raw = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(raw[::2], raw[1::2], strict=True))
