"""How commands speak: answers on standard output, everything else on standard error, colour only for people."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console


def line(*parts: tuple[str, str], stderr: bool = False) -> None:
    """One line of (text, style) pieces. Brackets in a text are no markup; a long line is not broken."""
    stream = sys.stderr if stderr else sys.stdout
    if not _wants_colour(stream):
        stream.write("".join(text for text, _ in parts) + "\n")
        return
    from rich.text import Text

    console(stderr=stderr).print(Text.assemble(*parts))


def console(*, stderr: bool = False) -> Console:
    """For what only a person at a terminal sees. Rich costs 70 ms, which no program should wait for."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def _wants_colour(stream: Any) -> bool:
    """NO_COLOR and FORCE_COLOR (when not empty) decide before the terminal does (no-color.org, force-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def say(text: str, *, style: str = "") -> None:
    line((text, style))


def note(text: str) -> None:
    """For the person at the terminal, not for the program that reads the answer."""
    line((text, "dim"), stderr=True)


def fault(text: str) -> None:
    """What is wrong, and on the lines below it what to do about it."""
    first, *rest = text.split("\n")
    line(("error: ", "bold red"), (first, ""), stderr=True)
    for each in rest:
        line((f"       {each}", ""), stderr=True)


def answer_json(value: Any) -> None:
    """One line of JSON: what machines read."""
    from toolgate.model import strictjson

    sys.stdout.write(strictjson.dumps(value).decode() + "\n")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they must be, never cut: people pipe these through grep."""
    widths = [max(len(cells[column]) for cells in [headings, *rows]) for column in range(len(headings))]
    for number, cells in enumerate([headings, *rows]):
        text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        line((text.rstrip(), "bold" if number == 0 else ""))
