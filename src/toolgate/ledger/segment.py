"""The open segment of a run: whole lines or nothing, whatever the disk does."""

from __future__ import annotations

import os
from pathlib import Path

from toolgate.errors import LedgerUnavailable
from toolgate.ledger import files


class SegmentWriter:
    """One file, one writer. A line that did not fit is taken back, so that the next one starts clean."""

    __slots__ = ("_descriptor", "failing", "path", "size")

    def __init__(self, path: Path) -> None:
        """Raises: OSError: also when the file exists."""
        self.path = path
        self._descriptor = files.create_segment(path)
        self.size = 0
        self.failing = False
        """True from a write that failed until one that works."""

    def write(self, line: bytes) -> None:
        """One write(2). Raises: LedgerUnavailable: nothing of the line counts as written."""
        if self.failing:
            self._take_back()
        try:
            written = os.write(self._descriptor, line)
        except OSError as fault:
            self.failing = True
            raise LedgerUnavailable(f"the audit log cannot be written ({fault.strerror})") from None
        if written != len(line):  # the disk is full, or a file-size limit is reached: a piece of the line is there
            self._take_back()
            raise LedgerUnavailable("the audit log cannot be written (no space for a whole record)")
        self.size += written
        self.failing = False

    def sync(self) -> None:
        """Raises: OSError."""
        sync_data(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def _take_back(self) -> None:
        """Cut off a piece of a line. Raises: LedgerUnavailable: it stays, so nothing may be written behind it."""
        self.failing = True
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError as fault:
            raise LedgerUnavailable(f"the audit log holds a torn record ({fault.strerror})") from None


def sync_data(descriptor: int) -> None:
    """Data and size on disk; times may lag. Raises: OSError."""
    # macOS has no fdatasync in Python's os module.
    getattr(os, "fdatasync", os.fsync)(descriptor)
