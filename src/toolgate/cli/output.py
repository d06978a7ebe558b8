"""How commands speak: answers on standard output, everything else on standard error, colour only for people.

What is shown may be a stranger's: a document, a file name, a server's answer. A terminal obeys what it is sent, so people see
control, direction and invisible characters spelt out. Programs get every byte.

Where a program reads, it may stop reading. That ends the command, quietly and in one way, whatever it was about to do.
"""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ExitCode
from toolgate.kit.reports.printable import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

HELP: Final = {"help_option_names": ["-h", "--help"]}
"""How a command line is asked to explain itself; every command below inherits it."""
_BADGES: Final = {
    "authoritative": "bold blue",
    "experimental": "bold yellow",
    "cloud": "bold green",
    "local": "bold magenta",
}
"""The colour of a tier and of an environment, which always stands beside the word."""
_COLOUR: Final = re.compile(r"(\x1b\[[0-9;]*m)")


class Terminal:
    """A terminal that is told text and colours, and nothing that moves the cursor, sets a title or turns text around.

    The net under everything that prints, also libraries that draw help and usage errors; `write` below is stricter.
    """

    def __init__(self, stream: Any) -> None:
        # No `buffer` is offered: who writes bytes would write around us.
        self.raw = stream

    @property
    def encoding(self) -> str:
        return str(self.raw.encoding)

    @property
    def errors(self) -> str | None:
        return str(self.raw.errors)

    def reconfigure(self, **options: Any) -> None:
        self.raw.reconfigure(**options)

    def write(self, text: str) -> int:
        pieces = _COLOUR.split(text)
        pieces[::2] = [printable_lines(piece) for piece in pieces[::2]]
        self.raw.write("".join(pieces))
        return len(text)

    def flush(self) -> None:
        self.raw.flush()

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self.raw.fileno())


class _Outlet(io.FileIO):
    """Where standard output or error leaves the process. What failed once is not tried again: the interpreter would, at its
    end, and complain in words of its own.

    `SystemExit`, not an `OSError`, because a command's own connections break, too, and that is a fault to be told.
    """

    def __init__(self, descriptor: int, *, ends_us: bool) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.ends_us = ends_us
        self._dead = False

    def write(self, data: Any, /) -> int:
        if not self._dead:
            try:
                return super().write(data)
            except BrokenPipeError:
                self._dead = True
                if self.ends_us:
                    raise SystemExit(ExitCode.READER_LEFT) from None
            except OSError:
                self._dead = True
                raise
        return memoryview(data).nbytes


def run_program(main: Callable[[], int]) -> int:
    """The exit code of a whole program: `main` with guarded streams, and all that it said on its way.

    Side effects: `sys.stdout` and `sys.stderr` are wrapped.
    """
    sys.stdout = _guarded(sys.stdout, ends_us=True)
    sys.stderr = _guarded(sys.stderr, ends_us=False)
    try:
        code = main()
        sys.stdout.flush()
    except OSError as error:
        fault(system_fault(error))
        return ExitCode.FAILED
    return code


def _guarded(stream: Any, *, ends_us: bool) -> Any:
    """Nobody reads what a command says about its work on standard error: that is no reason to leave the work undone."""
    if stream is None:  # closed by whoever started us; what is opened next would else take its place
        return Path(os.devnull).open("w", encoding="utf-8")
    if stream.isatty():
        return Terminal(stream)
    return io.TextIOWrapper(
        io.BufferedWriter(_Outlet(stream.fileno(), ends_us=ends_us)),
        encoding=stream.encoding,
        errors=stream.errors,
        newline="\n",
        line_buffering=stream.line_buffering or stream.write_through,  # the latter: PYTHONUNBUFFERED
    )


def outlive_reader() -> None:
    """For a server that is ready: what it is for is not what it, or a pack, prints."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Outlet):
        raw.ends_us = False


def show_lines_at_once() -> None:
    """For a command that goes on: what it said is read while it waits, through a pipe or in a file, too."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text stream, or a Terminal


def write(text: str, *, stderr: bool = False) -> None:
    """Text as it stands; line ends are the caller's."""
    stream = sys.stderr if stderr else sys.stdout
    stream.write(printable_lines(text) if _is_for_people(stream) else text)


def _is_for_people(stream: Any) -> bool:
    """FORCE_COLOR is for a pager, which shows it to a person."""
    return bool(stream.isatty()) or _wants_colour(stream)


def line(*parts: tuple[str, str], stderr: bool = False) -> None:
    """One line of (text, style) pieces. Brackets in a text are not markup; a long line is not broken."""
    if not _wants_colour(sys.stderr if stderr else sys.stdout):
        write("".join(text for text, _ in parts) + "\n", stderr=stderr)
        return
    from rich.text import Text

    console(stderr=stderr).print(Text.assemble(*((printable_lines(text), style) for text, style in parts)))


def console(*, stderr: bool = False) -> Console:
    """For what only a person at a terminal sees, with nothing in it that is a stranger's. Rich costs 70 ms."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(file=getattr(stream, "raw", stream), highlight=False, soft_wrap=True)


def progress(text: str) -> None:
    """One line on standard error that the next one replaces; nothing where nobody watches."""
    if sys.stderr.isatty():
        raw = getattr(sys.stderr, "raw", sys.stderr)
        raw.write(f"\r\x1b[K{printable(text)}")
        raw.flush()


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


def system_fault(error: OSError) -> str:
    """What the system refused, and what to look at."""
    place = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or type(error).__name__}{place}.\nCheck that it is there, its permissions, and free space."


def answer_json(value: Any) -> None:
    """One line of JSON: what machines read."""
    from toolgate.model import strictjson

    write(strictjson.dumps(value).decode() + "\n")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they must be, never cut: people pipe these through grep. Tiers have their colour."""
    widths = [max(len(cells[column]) for cells in [headings, *rows]) for column in range(len(headings))]
    for number, cells in enumerate([headings, *rows]):
        last = max((column for column, cell in enumerate(cells) if cell), default=0)
        padded = [cell.ljust(width) + "  " for cell, width in zip(cells[:last], widths, strict=False)]
        styles = ["bold" if number == 0 else _BADGES.get(cell, "") for cell in cells]
        line(*zip([*padded, cells[last].rstrip()], styles, strict=False))


def is_watched() -> bool:
    """Does a person see what stands beside the answer?"""
    return _is_for_people(sys.stderr)


def badge(word: str) -> tuple[str, str]:
    """A tier or an environment, for `line`: the word, and its colour."""
    return word, _BADGES.get(word, "")


def badges(*words: str) -> None:
    """Tier and environment beside an answer, where a person watches: a program finds both in the answer itself."""
    if is_watched():
        spaced = [part for word in words for part in ((" ", ""), badge(word))]
        line(*spaced[1:], stderr=True)
