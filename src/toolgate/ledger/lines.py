"""Lines of a segment, plain or compressed: a piece at a time, and none longer than any of ours can be.

Whoever can put a file into the log's directory could otherwise fill the memory of everyone who reads the log: a few
kilobytes of gzip unpack to a line without end.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from toolgate.errors import ToolgateError

CHUNK_BYTES: Final = 1024 * 1024
"""Read at once: memory stays flat however large a log is."""
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""The longest line of ours says which effects a killed run left open, some 80 bytes each, at most one a concurrent call
(100 000 by the settings)."""


class SegmentDamaged(ToolgateError):
    """A segment that cannot be read to its end. `why` names the fault alone."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} is damaged: {why}.\nSee which records are good with: toolgate audit verify.")
        self.why = why


def lines_in(path: Path, start: int = 0) -> Iterator[tuple[list[bytes], bytes]]:
    """Whole lines without their breaks, a chunk at a time, and at the end what follows the last break.

    Raises: SegmentDamaged, OSError.
    """
    rest = b""
    for chunk in _chunks(path, start):
        lines = (rest + chunk).split(b"\n")
        if len(lines[0]) > MAX_LINE_BYTES:  # the others are shorter than a chunk
            raise SegmentDamaged(path.name, f"it holds a line longer than {MAX_LINE_BYTES} bytes")
        rest = lines.pop()
        yield lines, b""
    yield [], rest


def tail_of(path: Path, size: int) -> bytes:
    """The last `size` bytes. Raises: SegmentDamaged, OSError."""
    kept = b""
    for chunk in _chunks(path, 0 if _is_packed(path) else max(0, path.stat().st_size - size)):
        kept = (kept + chunk)[-size:]
    return kept


def line_at(path: Path, offset: int, length: int) -> bytes:
    """The bytes that stand there. Raises: SegmentDamaged, OSError."""
    with _opened(path) as stream:
        try:
            stream.seek(offset)
            return stream.read(length)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise SegmentDamaged(path.name, "its compressed data cannot be unpacked") from None


def _chunks(path: Path, start: int) -> Iterator[bytes]:
    with _opened(path) as stream:
        stream.seek(start)
        while True:
            try:
                chunk = stream.read(CHUNK_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                raise SegmentDamaged(path.name, "its compressed data cannot be unpacked") from None
            if not chunk:
                return
            yield chunk


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if _is_packed(path) else path.open("rb")  # type: ignore[return-value]  # GzipFile reads


def _is_packed(path: Path) -> bool:
    return path.suffix == ".gz"
