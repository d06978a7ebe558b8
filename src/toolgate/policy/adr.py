"""Decision records: which exist, and which of them are accepted. A tool that binds must name an accepted one.

Four ways to write the status are read: front matter (`status: accepted`), a bold label (`**Status:** Accepted`), a list
item (`* Status: accepted`) and a heading (`## Status`, then the word). Absence denies: no status, an unknown one or two
different ones is `unknown`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from toolgate.errors import StartRefused

if TYPE_CHECKING:
    from pathlib import Path

STATUSES: Final = ("proposed", "accepted", "rejected", "deprecated", "superseded")
MAX_BYTES: Final = 256 * 1024
"""Of one record: a decision that needs more is not one."""

_FILE_NAME: Final = re.compile(r"(ADR-[0-9]+)(-[A-Za-z0-9._-]+)?\.md")
_TITLE: Final = re.compile(r"^#[ ]+(?:ADR-[0-9]+:?[ ]+)?(.+?)[ ]*$", re.MULTILINE)
_STATUS: Final = (
    re.compile(r"^\*\*Status:?\*\*:?[ ]*([A-Za-z]+)", re.MULTILINE),  # bold label
    re.compile(r"^[*-][ ]+Status:[ ]*([A-Za-z]+)", re.MULTILINE),  # MADR 2
    re.compile(r"^##[ ]+Status[ ]*\n+[ ]*([A-Za-z]+)", re.MULTILINE),  # Nygard
)
_FRONT_MATTER: Final = re.compile(r"\A---\n(.*?)^---$", re.DOTALL | re.MULTILINE)
_FRONT_STATUS: Final = re.compile(r"^status:[ ]*[\"']?([A-Za-z]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Adr:
    id: str
    status: str
    """One of STATUSES, or `unknown`."""
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
        raise StartRefused(f"{file} is no name of a decision record.\nCall it ADR-0001-some-title.md.")
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise StartRefused(f"{file} is not UTF-8 text.\nSave it as UTF-8.") from None
    title = _TITLE.search(text)
    return Adr(match[1], _status(text), sha256(data).hexdigest(), title[1] if title else "", file)


def _status(text: str) -> str:
    said = {word.lower() for pattern in _STATUS for word in pattern.findall(text)}
    front = _FRONT_MATTER.match(text)
    if front is not None:
        said |= {word.lower() for word in _FRONT_STATUS.findall(front[1])}
    word = said.pop() if len(said) == 1 else ""
    return word if word in STATUSES else "unknown"


def load_directory(directory: Path | None) -> dict[str, Adr]:
    """Every `ADR-*.md` of a directory, by id; none without a directory.

    Raises: StartRefused: a number used twice, a file too large, unreadable or not text.
    """
    found: dict[str, Adr] = {}
    if directory is None:
        return found
    for path in sorted(directory.glob("ADR-*.md")):
        adr = parse(path.name, _read(path))
        if adr.id in found:
            raise StartRefused(f"{adr.id} is used by {found[adr.id].file} and {path.name}.\nGive one a new number.")
        found[adr.id] = adr
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
