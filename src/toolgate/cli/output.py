"""How commands speak: answers on standard output, everything else on standard error, colour only for people."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console


def console(*, stderr: bool = False) -> Console:
    """Rich decides by terminal, NO_COLOR and FORCE_COLOR whether there is colour."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True, emoji=False)


def say(text: str, *, style: str = "", stderr: bool = False) -> None:
    """One piece of text, as it is: brackets in it are no markup."""
    console(stderr=stderr).print(text, style=style, markup=False)


def note(text: str) -> None:
    """For the person at the terminal, not for the program that reads the answer."""
    say(text, style="dim", stderr=True)


def fault(text: str) -> None:
    """What is wrong, and on the lines below it what to do about it."""
    first, *rest = text.split("\n")
    screen = console(stderr=True)
    screen.print("error: ", style="bold red", end="")
    screen.print(first, markup=False)
    for line in rest:
        screen.print(f"       {line}", markup=False)


def answer_json(value: Any) -> None:
    """One line of JSON: what machines read."""
    from toolgate.model import strictjson

    sys.stdout.write(strictjson.dumps(value).decode() + "\n")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they must be, never cut: people pipe these through grep."""
    widths = [max(len(line[column]) for line in [headings, *rows]) for column in range(len(headings))]
    screen = console()
    for number, line in enumerate([headings, *rows]):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        screen.print(text.rstrip(), style="bold" if number == 0 else "", markup=False)
