"""Who a child is: digests of the files that would run, so that another program under the same name shows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from toolgate.errors import ToolError
from toolgate.powers.addresses import is_public, parse_address, parse_target
from toolgate.powers.mcp.failures import NotSent
from toolgate.powers.net import Resolver, system_resolver

MAX_PROGRAM_BYTES: Final = 1 << 30
"""A file that is larger is not a program."""
_PIECE: Final = 1 << 20
_INTERPRETERS: Final = ("python", "node", "deno", "bun", "ruby", "perl", "php", "sh", "bash", "zsh")
"""Programs whose first plain argument is the program that matters."""


def peer_of_command(command: Sequence[str], path: str | None, directory: str = "/") -> dict[str, Any]:
    """`command` as it is, and the SHA-256 of its program and, for an interpreter, of its script. Reads files: in a thread.

    What the program loads besides is not covered: a package runner (`npx`, `uvx`) is itself, not the package.
    Raises: NotSent: there is no such program.
    """
    found = shutil.which(command[0], path=path)
    if found is None:
        raise NotSent(
            "not_found", f"the program {command[0]!a} is not on the PATH that the gate gives it; name its full path"
        )
    peer: dict[str, Any] = {"command": list(command), "program": _digest(Path(found))}
    script = _script(command, directory)
    return peer if script is None else peer | {"script": _digest(script)}


def peer_of_url(url: str, *, private: bool) -> dict[str, Any]:
    return {"url": url, "private": private}


def _script(command: Sequence[str], directory: str) -> Path | None:
    if not Path(command[0]).name.rstrip("0123456789.").startswith(_INTERPRETERS):
        return None
    plain = next((each for each in command[1:] if not each.startswith("-")), None)
    if plain is None:
        return None
    script = Path(directory, plain)
    return script if script.is_file() else None


def _digest(file: Path) -> str:
    """Raises: NotSent."""
    digest = sha256()
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_size > MAX_PROGRAM_BYTES:
                raise NotSent("not_found", f"{file.name!a} is too large to be a program")
            while piece := opened.read(_PIECE):
                digest.update(piece)
    except OSError as fault:
        raise NotSent("not_found", f"{file.name!a} cannot be read ({fault.strerror})") from None
    return digest.hexdigest()


async def is_private(url: str, resolver: Resolver = system_resolver) -> bool:
    """Whether an upstream is at a private address today: asked once, at adoption. Raises: ToolError."""
    target = parse_target(url)
    try:
        answers = await resolver(target.host, target.port)
    except (OSError, UnicodeError):
        answers = ()
    if not answers:
        raise ToolError("TARGET_NOT_FOUND", "the upstream's host name does not resolve", missing=True)
    return not all(is_public(parse_address(text)) for text in answers)
