"""`toolgate analyze --fix`: what can be mended without a judgement, written back to the repository's workflows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from toolgate.kit.yamldoc import YamlFault
from toolgate.local import OwnFiles
from toolgate.packs.governance.repository.model import MAX_FILE_BYTES, governed
from toolgate.packs.governance.workflows.fixes import PINS, Pins, fixed, read_pins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.packs.governance.cli.target import CommandTarget


def fix_files(target: CommandTarget, pins: Path | None) -> Iterator[tuple[str, list[str]]]:
    """(path, what was done) for each file that changed. Raises: typer.BadParameter: the pins or a file cannot be read.

    Side effects: rewrites workflows and actions, when all have been read; each is whole before and after.
    """
    for path, after, changes in list(_mended(target, pins)):
        whole = target.root / path
        temporary = whole.with_name(f".{whole.name}.toolgate")
        temporary.write_bytes(after)
        temporary.chmod(whole.stat().st_mode)
        temporary.replace(whole)
        yield path, changes


def _mended(target: CommandTarget, pins: Path | None) -> Iterator[tuple[str, bytes, list[str]]]:
    known = _pins(target.root, pins)
    files = OwnFiles(target.root)
    for path in sorted(target.files or governed(files)[0]):
        if not path.endswith((".yml", ".yaml")):
            continue
        before = files.read_bytes(path, max_bytes=MAX_FILE_BYTES)
        try:
            after, changes = fixed(path, before, known)
        except YamlFault:
            continue  # it is a finding; there is nothing to mend by machine
        except UnicodeDecodeError as fault:
            line = before.count(b"\n", 0, fault.start) + 1
            raise typer.BadParameter(f"--fix: {path}:{line}: not UTF-8, so nothing was mended") from None
        if changes:
            yield path, after, changes


def _pins(root: Path, given: Path | None) -> Pins:
    path = given or root / PINS
    if given is None and not path.is_file():
        return {}
    try:
        return read_pins(path.read_bytes())
    except OSError as fault:
        raise typer.BadParameter(f"--pins: {path} cannot be read: {fault.strerror}") from None
    except YamlFault as fault:
        raise typer.BadParameter(f"--pins: {path}:{fault.line}: {fault.text}") from None
