"""`lra`: commands of authors and reviewers, on their own files, keys and network. No key to a gate, no workspace, no server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from toolgate.cli.output import run_program
from toolgate.later import later

_MAIN: Final = later("toolgate.packs.lra.cli.commands:main")
_SHORT: Final = later("toolgate.packs.lra.cli.making.short:short")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is the answer."""
    return int(_MAIN(arguments))


def short(arguments: Sequence[str]) -> bool:
    """Did these arguments have a short way, and was it taken? Raises: SystemExit."""
    return bool(_SHORT(arguments))


def run() -> None:
    """The program, by the long way."""
    sys.exit(run_program(main))
