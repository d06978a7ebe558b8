"""What the commands of `lra` share: flags, a person's files, and the time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from toolgate.errors import ToolError
from toolgate.model import strictjson
from toolgate.packs.lra.cli.border import say
from toolgate.powers.files import open_directory

KEYS: Final = Path("~/.lra")
"""Where a person's signing keys and trust file are."""
MAX_FILE: Final = 16 * 1024 * 1024

Json = Annotated[bool, typer.Option("--json", help="Answer as JSON.")]
JsonLine = Annotated[bool, typer.Option("--json", help="Answer as one line of JSON.")]

REGISTRY: Final = Path("lra-registry.json")
RegistryFile = Annotated[Path, typer.Option("--registry", "-r", help="The registry file.")]
Allow = Annotated[
    list[str] | None, typer.Option("--allow", help="HOST:PORT that may be private or without TLS; repeat for more.")
]
CaFile = Annotated[
    Path | None,
    typer.Option("--ca-file", help="PEM file of authorities that count beside the system's: an intranet's own."),
]


def read(path: Path) -> bytes:
    """A person's own file, links followed: this is not a tool's workspace. Raises ToolError."""
    real = path.resolve()
    with open_directory(real.parent) as files:
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


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def say_json_line(value: Any) -> None:
    say(strictjson.dumps(value).decode() + "\n")
