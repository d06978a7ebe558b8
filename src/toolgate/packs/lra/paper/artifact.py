"""A paper's files as one value: what is read, how much of it, and under which names the checks find it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from toolgate.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolgate.model.powers import FileEntry, ReadFiles

MAX_PAGE_BYTES: Final = 10 * 1024 * 1024
"""The page: the specification's own bound."""
MAX_SIDE_BYTES: Final = 2 * 1024 * 1024
"""Any other file the checks look into: scripts and style sheets of papers are KBs, WASM modules here too."""
MAX_TOTAL_BYTES: Final = 24 * 1024 * 1024
"""All files together, so that one call holds a known amount of memory."""
MAX_FILES: Final = 10_000
MAX_DEPTH: Final = 8
"""Directory levels below the paper that are searched, as in the specification's checker."""

_READ_NAMES: Final = frozenset({"LICENSE", "CITATION.cff"})
_READ_ENDINGS: Final = (".css", ".js", ".mjs", ".json", ".wasm", ".wat")
_NOT_THE_PAPER: Final = frozenset({"node_modules", "__pycache__"})


class Artifact(Struct, frozen=True):
    """`page` names the HTML file; every path is relative to the paper's directory."""

    page: str
    html: bytes
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files whose content was read."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Every file that is there, read or not, with its size in bytes."""
    shown: str = ""
    """What the caller called the page; for titles and messages."""

    def text(self, path: str) -> str | None:
        """A side file as text; None when absent, too large or not UTF-8."""
        data = self.files.get(path)
        if data is None:
            return None
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None


def gather(files: ReadFiles, path: str) -> Artifact:
    """Read the paper at `path`: an HTML file, or a directory that holds `index.html` (ADR-0011).

    Raises: ToolError: FILE_NOT_FOUND, INVALID_PATH, IO_ERROR, FILE_TOO_LARGE, as the files say.
    """
    is_directory = files.is_dir(path)
    page_path = posixpath.join(path, "index.html") if is_directory else path
    page_path = posixpath.normpath(page_path)
    html = files.read_bytes(page_path, max_bytes=MAX_PAGE_BYTES)
    root, page = posixpath.split(page_path)
    entries = _below(files.walk(root or ".", max_files=MAX_FILES), root)
    sizes = {name: entry.size for name, entry in entries.items()}
    read: dict[str, bytes] = {}
    room = MAX_TOTAL_BYTES
    for name, entry in entries.items():
        if name == page or not is_looked_into(name) or entry.size > min(MAX_SIDE_BYTES, room):
            continue
        try:
            read[name] = files.read_bytes(entry.path, max_bytes=MAX_SIDE_BYTES)
        except ToolError:
            continue  # unreadable or changed under our hands: absent, and the checks that want it say so
        room -= len(read[name])
    return Artifact(page=page, html=html, files=read, sizes=sizes, shown=page_path)


def _below(entries: Iterable[FileEntry], root: str) -> dict[str, FileEntry]:
    prefix = f"{root}/" if root else ""
    found = {}
    for entry in entries:
        name = entry.path.removeprefix(prefix)
        parts = name.split("/")
        if len(parts) <= MAX_DEPTH and not _NOT_THE_PAPER.intersection(parts):
            found[name] = entry
    return found


def is_looked_into(name: str) -> bool:
    return name in _READ_NAMES or name.lower().endswith(_READ_ENDINGS)
