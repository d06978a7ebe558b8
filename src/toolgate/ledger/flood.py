"""Refusals are counted, not written one by one, when one caller makes too many (ADR-0005).

Otherwise anyone who can reach the port, or who holds the weakest key, could fill the disk and with it stop the server.
Each key is counted alone and everyone without a key together, so nobody's flood hides the refusals of someone else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

PER_SECOND: Final = 20
"""Refusals of one caller that are written in one second; a person who mistypes makes a few, a broken loop thousands."""
MAX_CALLERS: Final = 1024
"""Callers told apart at a time. Those beyond it, in one second, share one count: memory does not grow with the keys."""
OTHERS: Final = "*"
"""Stands for callers beyond `MAX_CALLERS`; no key id looks like this."""


class Flood:
    """Counts within whole seconds of the monotonic clock. A caller is a key id; None is everyone without one."""

    __slots__ = ("_second", "_suppressed", "_written")

    def __init__(self) -> None:
        self._second = -1
        self._written: dict[str | None, int] = {None: 0}
        """In this second."""
        self._suppressed: dict[str | None, int] = {}
        """Since the last record that told a caller's count."""

    def is_one_too_many(self, caller: str | None, now: float) -> bool:
        """Count one more; True: do not write it."""
        second = int(now)
        if second != self._second:
            self._second, self._written = second, {None: 0}
        caller = _place_in(self._written, caller)
        count = self._written.get(caller, 0)
        if count < PER_SECOND:
            self._written[caller] = count + 1
            return False
        caller = _place_in(self._suppressed, caller)
        self._suppressed[caller] = self._suppressed.get(caller, 0) + 1
        return True

    def suppressed_of(self, caller: str | None) -> int:
        return self._suppressed.get(caller, 0)

    def told(self, caller: str | None) -> None:
        """A record of this caller holds its count."""
        self._suppressed.pop(caller, None)

    def __bool__(self) -> bool:
        """Is there a count that no record holds yet?"""
        return bool(self._suppressed)

    def counts(self) -> Mapping[str, Any]:
        """What a checkpoint says: all of them, and whose; what is nobody's in `suppressedOf` came without a key."""
        if not self._suppressed:
            return {}
        by_key = {caller: count for caller, count in self._suppressed.items() if caller is not None}
        total = {"suppressed": sum(self._suppressed.values())}
        return total | {"suppressedOf": by_key} if by_key else total

    def all_told(self) -> None:
        self._suppressed = {}


def _place_in(table: Mapping[str | None, int], caller: str | None) -> str | None:
    return caller if caller in table or caller is None or len(table) < MAX_CALLERS else OTHERS
