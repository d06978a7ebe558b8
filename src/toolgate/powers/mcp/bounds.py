"""How much an upstream may send, and how fast. An upstream that sends more is disconnected; others are not affected."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec import Struct


class Bounds(Struct, frozen=True):
    message_bytes: int = 4 * 1024 * 1024
    """One message. A screenshot in base64 has one to two megabytes; what may be answered to a caller is bounded again."""
    values: int = 100_000
    """Values in one message: a list of a hundred tools has some five thousand."""
    list_bytes: int = 8 * 1024 * 1024
    """All pages of one list together."""
    pages: int = 100
    """Pages of one list; an endless list repeats itself or counts for ever."""
    items: int = 2000
    """Tools (or prompts, templates) of one upstream; the largest real ones have about a hundred."""
    notes_burst: int = 2000
    """Messages that answer nothing (progress, logs, changes) at one go."""
    notes_per_s: float = 200.0
    """And in the long run."""
    outbox_bytes: int = 4 * 1024 * 1024
    """What may wait for an upstream that does not read."""


STANDARD: Final = Bounds()
STDERR_BYTES: Final = 16 * 1024
"""The end of what a child says on standard error: enough for a traceback."""


class Allowance:
    """So many at one go, and so many a second."""

    def __init__(self, burst: int, per_s: float, now: float) -> None:
        self._burst = float(burst)
        self._per_s = per_s
        self._left = float(burst)
        self._at = now

    def take(self, now: float) -> bool:
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Ring:
    """The last bytes of a stream that may be endless."""

    def __init__(self, size: int = STDERR_BYTES) -> None:
        self._size = size
        self._kept = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._kept += data
        if len(self._kept) > self._size:
            del self._kept[: -self._size]

    def text(self, secrets: Collection[str] = ()) -> str:
        """For a person's terminal: what is not printable is a question mark, so nothing of it acts there. `secrets`: not shown,
        and neither is the rest of one whose beginning is gone."""
        longest = max((len(each.encode()) for each in secrets), default=0)
        said = self._kept[longest if self.total > self._size else 0 :].decode("utf-8", "replace")
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            said = said.replace(secret, "[secret]")
        lines = said.splitlines()
        return "\n".join("".join(char if char.isprintable() else "?" for char in line) for line in lines)
