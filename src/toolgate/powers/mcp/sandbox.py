"""Confining a program with bubblewrap: it sees the file system read only and nothing of the gate's, and no other process."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from toolgate.powers.mcp.failures import NotSent

PROGRAM: Final = "bwrap"
_ALWAYS: Final = (
    *("--die-with-parent", "--unshare-all", "--share-net", "--cap-drop", "ALL"),
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),  # noqa: S108 (its own, in memory)
)
"""The network stays: most upstreams are there to reach something."""


def is_there(path: str | None) -> bool:
    return shutil.which(PROGRAM, path=path) is not None


def confined(command: Sequence[str], directory: str, hidden: Sequence[Path], path: str | None) -> tuple[str, ...]:
    """The command inside its confinement. It may write to `directory`, unless that is the root, and to a /tmp of its own; what is
    `hidden` is empty to it.

    Raises: NotSent: there is no bubblewrap. A program that is to be confined does not run otherwise.
    """
    found = shutil.which(PROGRAM, path=path)
    if found is None:
        raise NotSent("no_sandbox", f"{PROGRAM} is not on the PATH; install bubblewrap, or take sandbox out")
    covers = [part for place in hidden if place.is_dir() for part in ("--tmpfs", str(place.resolve()))]
    own = () if directory == "/" else ("--bind", directory, directory)
    return (found, *_ALWAYS, *covers, *own, "--chdir", directory, "--", *command)
