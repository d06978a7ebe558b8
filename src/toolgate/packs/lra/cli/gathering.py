"""A paper as its author has it: in any directory, links followed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolgate.errors import ToolError
from toolgate.packs.lra.paper.artifact import MAX_FILES, MAX_SIDE_BYTES, gather, is_looked_into
from toolgate.powers.files import open_directory

if TYPE_CHECKING:
    from toolgate.packs.lra.paper.artifact import Artifact


def gather_paper(path: Path) -> Artifact:
    """Read the paper the user named, wherever it is. Raises: ToolError."""
    directory = path if path.is_dir() else path.parent
    shown = str(path / "index.html") if path.is_dir() else str(path)
    if not directory.is_dir() or not (path / "index.html" if path.is_dir() else path).exists():
        raise ToolError("FILE_NOT_FOUND", f"Cannot read {shown}: file not found", missing=True)
    with open_directory(directory) as files:
        found = gather(files, "." if path.is_dir() else path.name)
    return replace(_with_links(found, directory), shown=shown)


def _with_links(artifact: Artifact, directory: Path) -> Artifact:
    """A person's own links count as the files they lead to: git-annex and DVC keep large figures like that."""
    sizes, files = dict(artifact.sizes), dict(artifact.files)
    for folder, names, leaves in os.walk(directory):
        names[:] = [name for name in names if not name.startswith(".") and name != "node_modules"]
        for leaf in leaves:
            link = Path(folder, leaf)
            name = link.relative_to(directory).as_posix()
            if (
                leaf.startswith(".")
                or name in sizes
                or len(sizes) >= MAX_FILES
                or not (link.is_symlink() and link.is_file())
            ):
                continue
            sizes[name] = link.stat().st_size
            if is_looked_into(name) and sizes[name] <= MAX_SIDE_BYTES:
                files[name] = link.read_bytes()
    return replace(artifact, sizes=sizes, files=files)
