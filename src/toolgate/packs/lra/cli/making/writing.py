"""The files of a paper, put where they belong. What a person wrote is never lost by it."""

from __future__ import annotations

import sys
from os.path import relpath
from pathlib import Path

from toolgate.errors import ToolError
from toolgate.packs.lra.build import manifest
from toolgate.packs.lra.cli.border import note
from toolgate.packs.lra.cli.making.building import beside
from toolgate.powers.files import open_directory


def write_paper(source: Path, target: Path, files: dict[str, bytes], *, force: bool) -> None:
    """Raises: ToolError FILE_EXISTS."""
    there = beside(target)
    old = manifest.parse(there(manifest.NAME, manifest.MAX_BYTES))
    change = manifest.compare(old, files, lambda name: there(name, sys.maxsize))
    if change.replaced:
        _refuse_or_say(target, change.replaced, force=force)
    _write(target, files, change.stale, manifest.of(_relative(source, target), files))


def source_of(target: Path) -> str:
    """The source that the paper in this directory was built from, as its manifest names it."""
    return manifest.parse(beside(target)(manifest.NAME, manifest.MAX_BYTES)).source


def _refuse_or_say(target: Path, names: list[str], *, force: bool) -> None:
    listed = ", ".join(sorted(names)[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    if not force:
        raise ToolError(
            "FILE_EXISTS",
            f"{target} holds files that no build wrote, or that were edited since: {listed}. Nothing was written. "
            "Name another directory with -o, or replace them with --force",
        )
    note(f"Replacing in {target}: {listed}")


def _write(target: Path, files: dict[str, bytes], stale: list[str], manifest_data: bytes) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with open_directory(target) as place:
        for name, data in files.items():
            if (target / name).is_file() and (target / name).read_bytes() == data:
                continue
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(name, data)
        for name in stale:
            (target / name).unlink(missing_ok=True)
        place.write_bytes(manifest.NAME, manifest_data)


def _relative(source: Path, target: Path) -> str:
    return Path(relpath(source.resolve(), target.resolve())).as_posix()
