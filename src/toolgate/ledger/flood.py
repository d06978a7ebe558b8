"""Refusals of callers without a key are counted, not written one by one, when there are too many (decision 97).

Otherwise anyone who can reach the port could fill the disk, and with it stop the server."""

from __future__ import annotations

from typing import Final

from toolgate.model.record import Place

PER_SECOND: Final = 20
"""Anonymous refusals written in one second; a person who mistypes a key makes a few."""


class Flood:
    """Counts within whole seconds of the monotonic clock."""

    __slots__ = ("_count", "_second", "place", "suppressed")

    def __init__(self) -> None:
        self._second = -1
        self._count = 0
        self.suppressed = 0
        """Not written since the last record that told a count."""
        self.place = Place("", -1, "")
        """The last anonymous refusal that was written: where the ones not written are pointed to."""

    def is_one_too_many(self, now: float) -> bool:
        """Count one more; True: do not write it."""
        second = int(now)
        if second != self._second:
            self._second, self._count = second, 0
        self._count += 1
        if self._count <= PER_SECOND:
            return False
        self.suppressed += 1
        return True

    def written(self, place: Place) -> None:
        self.place = place
        self.suppressed = 0

    def told(self) -> None:
        self.suppressed = 0
