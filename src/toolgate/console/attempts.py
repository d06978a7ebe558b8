"""Keys that were not accepted, by address: five at once, then one every twelve seconds.

A key cannot be guessed; this keeps those who try out of the log. Among several processes the counts stand in the memory in which
they count slots and rates, so an address has no more attempts where there are more processes.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from toolgate.errors import Refusal

if TYPE_CHECKING:
    from toolgate.gate.counted import CountTable
    from toolgate.model.clock import Clock

MAX_FAILED: Final = 5
"""Of one address, at once."""
FORGOTTEN_S: Final = 60.0
"""After so long all of them are forgotten; each takes its part of it."""
MAX_ADDRESSES: Final = 1024
"""Whose failures one process remembers: shared rows are the callers' first."""
_EACH_S: Final = FORGOTTEN_S / MAX_FAILED


class TooManyAttempts(Exception):
    pass


class Attempts:
    """To be used in one thread: the table's lock does not part those of a process everywhere."""

    def __init__(self, clock: Clock, table: CountTable | None = None) -> None:
        """`table`: what the processes of this server share. It is read by the machine's clock."""
        self._clock = clock
        self._seconds = _OwnSeconds() if table is None else _SharedSeconds(table)

    def begin(self, address: str) -> None:
        """Counts one, before the key is looked at: two at the same moment are two. Raises: TooManyAttempts."""
        now = self._clock.monotonic()
        if not self._seconds.move(address, now, _EACH_S, now + FORGOTTEN_S):
            raise TooManyAttempts

    def worked(self, address: str) -> None:
        """It was a key: what was counted is taken back."""
        now = self._clock.monotonic()
        self._seconds.move(address, now, -_EACH_S, now + FORGOTTEN_S)


class _OwnSeconds:
    """By address, when nothing of it is remembered any more."""

    def __init__(self) -> None:
        self._ends: OrderedDict[str, float] = OrderedDict()

    def move(self, address: str, now: float, by: float, latest: float) -> bool:
        """False: it would be later than `latest`, and stays."""
        end = max(self._ends.pop(address, now), now) + by
        is_within = end <= latest + 1e-9
        self._ends[address] = end if is_within else end - by
        if len(self._ends) > MAX_ADDRESSES:
            self._ends.popitem(last=False)
        return is_within


class _SharedSeconds:
    """The same in rows of the table, of which each process keeps so many."""

    def __init__(self, table: CountTable) -> None:
        self._table = table
        self._used: OrderedDict[str, None] = OrderedDict()

    def move(self, address: str, now: float, by: float, latest: float) -> bool:
        name = f"sign-in from {address}"
        try:
            with self._table.changing():
                place = self._table.row_of(name, now)
                end = max(self._table.second(place), now) + by
                is_within = end <= latest + 1e-9
                if is_within:
                    self._table.set_second(place, end)
                self._forget_beyond(name, now)
        except Refusal:
            return False  # nobody can count now, so nobody may try
        return is_within

    def _forget_beyond(self, name: str, now: float) -> None:
        self._used.pop(name, None)
        self._used[name] = None
        if len(self._used) > MAX_ADDRESSES:
            oldest, _ = self._used.popitem(last=False)
            place = self._table.known(oldest)
            if place is not None:
                self._table.set_second(place, now)
