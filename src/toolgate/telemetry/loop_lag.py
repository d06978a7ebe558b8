"""How late the event loop comes: what a handler that blocks it does to everybody else."""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from typing import Final

INTERVAL_S: Final = 0.5
KEPT: Final = 120
"""Looks that are remembered: a minute's."""


class LoopLag:
    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._lags: deque[float] = deque(maxlen=KEPT)
        self._next: TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        """Side effects: a timer on the loop, until `stop`."""
        self._due = self._loop.time() + INTERVAL_S
        self._next = self._loop.call_at(self._due, self._look)

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()

    def longest_s(self) -> float:
        """Within the last minute, the delay that has not ended yet among them."""
        now_late = self._loop.time() - self._due if self._next is not None else 0.0
        return max(0.0, now_late, *self._lags)

    def _look(self) -> None:
        self._lags.append(max(0.0, self._loop.time() - self._due))
        self.start()
