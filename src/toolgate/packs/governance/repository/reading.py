"""The files of one call: each read once, a portion at a time, and no more of them in all than a call may have."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.kit.paths import plain
from toolgate.model.tool import Limit
from toolgate.packs.governance.repository.answers import bad_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolgate.model.powers import ReadFiles

MAX_TOTAL_BYTES: Final = 32 * 1024 * 1024
"""Bytes of all files of one call: a thousand workflows of 10 KB and a contract are a third of it."""
LIMITS: Final = (
    Limit(
        "MAX_TOTAL_BYTES",
        MAX_TOTAL_BYTES,
        "Bytes of all files of one call: a thousand workflows of 10 KB and a contract are a third of it.",
        "the answer names what was not read",
    ),
)
PORTION_BYTES: Final = 2 * 1024 * 1024
"""Held at once, and sent to a worker in one trip; with the file that goes over it, twice as much."""
PORTION_FILES: Final = 50
"""Files of one trip: enough to outweigh the trip, few enough that progress moves."""


class SkippedFile(Struct, frozen=True):
    path: str
    reason: str


class Queue:
    """Paths that wait to be read, in their order, each once however it was spelt. What cannot be read is in `skipped`."""

    def __init__(self, files: ReadFiles, named: Iterable[str], *, max_bytes: int, also: Iterable[str] = ()) -> None:
        """`named` are the caller's own; `also` are ours, so a link among them is not the caller's fault."""
        self._files = files
        self._named = {plain(path) for path in named}
        self._seen = self._named | set(also)
        self._waiting = deque(sorted(self._seen))
        self._max_bytes = max_bytes
        self._left = MAX_TOTAL_BYTES
        self.size = len(self._waiting)
        self.skipped: list[SkippedFile] = []

    def add(self, paths: Iterable[str]) -> bool:
        """More of ours; False when all were there already."""
        new = sorted(set(paths) - self._seen)
        self._seen.update(new)
        self._waiting.extend(new)
        self.size += len(new)
        return bool(new)

    def portion(self) -> list[tuple[str, bytes]]:
        """The next files; none when all have been read. Blocks.

        Raises: ToolError INVALID_INPUT: a path of the caller's leaves the workspace.
        """
        found: list[tuple[str, bytes]] = []
        room = PORTION_BYTES
        while self._waiting and room > 0 and len(found) < PORTION_FILES:
            path = self._waiting.popleft()
            data = self._read(path)
            if data is not None:
                found.append((path, data))
                room -= len(data)
                self._left -= len(data)
        return found

    def _read(self, path: str) -> bytes | None:
        try:
            return self._files.read_bytes(path, max_bytes=min(self._left, self._max_bytes))
        except ToolError as fault:
            if fault.code == "INVALID_PATH" and path in self._named:
                raise bad_path(fault) from None
            over_all = fault.code == "FILE_TOO_LARGE" and self._left < self._max_bytes
            self.skipped.append(SkippedFile(path, "total_too_large" if over_all else fault.code.lower()))
            return None
