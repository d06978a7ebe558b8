"""Decision records: which exist, and which of them are accepted. A tool that binds must name an accepted one."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.errors import StartRefused
from toolgate.kit.adr import MAX_BYTES, read

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

_FILE_NAME: Final = re.compile(r"(ADR-[0-9]+)(-[A-Za-z0-9._-]+)?\.md")


class Adr(Struct, frozen=True):
    id: str
    status: str
    """One of `kit.adr.STATUSES`, or `unknown`."""
    sha256: str
    """Over the file's bytes: an edited record is another record."""
    title: str = ""
    file: str = ""

    @property
    def accepted(self) -> bool:
        return self.status == "accepted"


def parse(file: str, data: bytes) -> Adr:
    """Read one record; `file` is its name. Raises: StartRefused: not UTF-8, or no record's name."""
    match = _FILE_NAME.fullmatch(file)
    if match is None:
        raise StartRefused(f"{file} is not the name of a decision record.\nCall it ADR-0001-some-title.md.")
    try:
        head = read(data)
    except UnicodeDecodeError:
        raise StartRefused(f"{file} is not UTF-8 text.\nSave it as UTF-8.") from None
    return Adr(match[1], head.status, sha256(data).hexdigest(), head.title, file)


def load_directory(directory: Path | None, only: Collection[str] | None = None) -> dict[str, Adr]:
    """Every `ADR-*.md` of a directory, or those with the ids `only`, by id; none without a directory.

    Raises: StartRefused: a number used twice, a file too large, unreadable or not text.
    """
    found: dict[str, Adr] = {}
    if directory is None:
        return found
    for path in sorted(directory.glob("ADR-*.md")):
        name = _FILE_NAME.fullmatch(path.name)
        if only is not None and name is not None and name[1] not in only:
            continue
        record = parse(path.name, _read(path))
        if record.id in found:
            raise StartRefused(
                f"{record.id} is used by {found[record.id].file} and {path.name}.\nGive one a new number."
            )
        found[record.id] = record
    return found


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as fault:
        raise StartRefused(
            f"{path.name} cannot be read ({fault.strerror}).\nMake it readable, or take it away."
        ) from None
    if len(data) > MAX_BYTES:
        raise StartRefused(f"{path.name} is larger than {MAX_BYTES} bytes.\nA decision record is a page or two.")
    return data
