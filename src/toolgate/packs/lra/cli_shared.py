# ruff: noqa: PLC0415 (heavy imports wait for the command that needs them)
"""What the commands of `lra` share: a person's files, the time, and the two streams."""

from __future__ import annotations

import contextlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toolgate.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.powers.files import Workspace

KEYS: Final = Path("~/.lra")
"""Where a person's signing keys and trust file are."""
MAX_FILE: Final = 16 * 1024 * 1024

Json = Annotated[bool, typer.Option("--json", help="Answer as JSON.")]


@contextlib.contextmanager
def workspace(directory: Path) -> Iterator[Workspace]:
    from toolgate.powers.files import Workspace

    try:
        files = Workspace(directory)
    except OSError:
        raise ToolError("FILE_NOT_FOUND", f"{directory} is not a directory that can be opened", missing=True) from None
    try:
        yield files
    finally:
        files.close()


def read(path: Path) -> bytes:
    """A person's own file, links followed: this is not a tool's workspace. Raises ToolError."""
    real = path.resolve()
    with workspace(real.parent) as files:
        try:
            return files.read_bytes(real.name, max_bytes=MAX_FILE)
        except ToolError as fault:
            if not fault.missing:
                raise
    raise ToolError("FILE_NOT_FOUND", f"Cannot read {path}: file not found", missing=True)


def read_if_there(path: Path) -> bytes | None:
    return read(path) if path.is_file() else None


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def say(text: str) -> None:
    sys.stdout.write(text)


def note(text: str) -> None:
    sys.stderr.write(text + "\n")
