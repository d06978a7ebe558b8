"""When to try an upstream again: after several failures in a row it is left alone, for longer each time, then probed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

FAILURES: Final = 5
"""Failed calls in a row before an upstream that still takes connections is left alone."""
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
_ANY_CALL: Final = nullcontext()
"""Around a call that nobody waits for to decide anything: the same for all."""


class Health:
    """A breaker. Closed: calls go through. Open: refused at once. Half open: one call goes through, and decides."""

    def __init__(self, clock: Callable[[], float], spread: Callable[[], float] = lambda: 1.0) -> None:
        """`spread`: a factor near 1 for each pause, so that many gates do not all come back at the same moment."""
        self._clock = clock
        self._spread = spread
        self._failures = 0
        self._pauses = 0
        self._until = 0.0
        self._probing = False
        self.is_good = True
        """Nothing has failed since a call was answered: nobody has to wait."""

    @property
    def failing(self) -> bool:
        return self._pauses > 0

    def wait_s(self) -> float:
        """Seconds until the next attempt may be made; 0: now."""
        left = self._until - self._clock()
        if left > 0:
            return left
        return FIRST_PAUSE_S if self._probing else 0.0

    def attempt(self) -> AbstractContextManager[None]:
        """Around a call that may be made now. While it is half open, this is the one that others wait for, however it ends."""
        return self._probe() if self._pauses and not self._probing else _ANY_CALL

    @contextmanager
    def _probe(self) -> Iterator[None]:
        self._probing = True
        try:
            yield
        finally:
            self._probing = False

    def succeeded(self) -> None:
        if not self.is_good:
            self._failures = self._pauses = 0
            self._until = 0.0
            self.is_good = True

    def connected(self) -> None:
        """It is there, and has said what it offers. Whether calls that failed would succeed now, only a call tells."""
        if self._failures < FAILURES:
            self._pauses, self._until = 0, 0.0

    def call_failed(self) -> None:
        self.is_good = False
        self._failures += 1
        if self._failures >= FAILURES or self._pauses:
            self._open()

    def connect_failed(self) -> None:
        """A connection that does not come about, or a child that ends, is left alone from the first time on."""
        self._open()

    def _open(self) -> None:
        now, self.is_good = self._clock(), False
        if self._until > now:
            return  # of many calls under way at once, the first that failed has opened it
        self._until = now + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**self._pauses) * self._spread()
        self._pauses = min(self._pauses + 1, 16)
