"""Slots and rates of one server that has several processes, counted in memory that they share (ADR-0028).

A table of rows, one a caller: when its rate is full again, and how many slots each process holds. Whoever changes it holds a
lock that ends with its holder, and writes only its own column of counts; so what a process that was killed held is known, and
its supervisor gives that back. A process that is stopped in the middle of a change would hold the lock: others wait for 20 ms,
and then refuse. Without several processes none of this is used.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.errors import Ending, Refusal
from toolgate.gate.admit import SECONDS_A_MINUTE, Rate, Slots, too_fast, too_many
from toolgate.gate.process_lock import LOCK_BYTES, ProcessLock, make_lock, uncounted

if TYPE_CHECKING:
    from toolgate.model.call import Caller

ROWS: Final = 1 << 17
"""Callers that are known at once: twice the keys that a key file may hold. A row that says nothing any more is used again."""
LEASE_S: Final = 0.02
"""What a process may take of a rate beforehand, in seconds of it: at 6 000 calls a minute two calls."""
LEASES: Final = 4096
"""Callers of whom a process remembers what it took beforehand. What is forgotten is lost to its caller for `LEASE_S`."""
_HEAD: Final = 4096
"""Bytes before the rows: what each process holds of all callers, and the lock."""
_LOCK_AT: Final = _HEAD - LOCK_BYTES
_WORD: Final = 8
"""Bytes. A row is words: the caller's name, its second, and the counts, two in a word."""
_SECOND: Final = 1
_COUNTS: Final = 2
_FREE: Final = 0
"""The name of a row that was never used."""


class CountTable:
    """Of `processes`, of which this one is `own`; -1: a supervisor, which holds nothing.

    A place is the number of a row's first word.
    """

    def __init__(self, descriptor: int, processes: int, own: int) -> None:
        """`descriptor`: of a file that `make_table` has made; it is kept open."""
        self._file, self.processes, self.own = descriptor, processes, own
        self._row_words = _row_words(processes)
        self._memory = mmap.mmap(descriptor, table_bytes(processes))
        whole = memoryview(self._memory)
        self._names, self._seconds, self._counts = whole.cast("Q"), whole.cast("d"), whole.cast("i")
        self._row_counts = struct.Struct(f"={processes}i").unpack_from
        self._places: dict[str, tuple[int, int]] = {}
        """Where rows of callers are, as this process has found them, and their names, which say whether they still are."""
        self.lock = ProcessLock(self._memory, _LOCK_AT, descriptor)

    def changing(self) -> ProcessLock:
        """Entered by whoever changes something."""
        return self.lock

    # Without the lock: what is read may be a moment old ---------------------------------------------------------------

    def known(self, caller: str) -> int | None:
        """Where its row is, if this process has seen it and it is still its own."""
        found = self._places.get(caller)
        return found[0] if found is not None and self._names[found[0]] == found[1] else None

    def held(self, place: int) -> int:
        return sum(self._row_counts(self._memory, (place + _COUNTS) * _WORD))

    def all_held(self) -> int:
        return sum(self._row_counts(self._memory, 0))

    def second(self, place: int) -> float:
        """When its rate is full again."""
        return self._seconds[place + _SECOND]

    # With the lock held ----------------------------------------------------------------------------------------------

    def row_of(self, caller: str, now: float) -> int:
        """Where its row is; it gets one. Raises: Refusal UNAVAILABLE: the table is full of callers that count."""
        place = self.known(caller)
        if place is not None:
            return place
        name = _name(caller)
        place = self._found(name, now)
        if place is None:
            raise uncounted()
        if len(self._places) >= ROWS:
            self._places = {known: found for known, found in self._places.items() if self.held(found[0])}
        self._places[caller] = (place, name)
        return place

    def _found(self, name: int, now: float) -> int | None:
        """Its row, or the first on the way to it that says nothing any more, or a new one. A row is looked for until one that
        was never used: behind that none can be."""
        usable = None
        for step in range(ROWS):
            place = _HEAD // _WORD + (name + step) % ROWS * self._row_words
            found = self._names[place]
            if found == name:
                return place
            if usable is None and (found == _FREE or (self.second(place) <= now and not self.held(place))):
                usable = place
            if found == _FREE:
                break
        if usable is not None:
            self._seconds[usable + _SECOND] = 0.0
            self._names[usable] = name
        return usable

    def add(self, place: int, change: int) -> None:
        """To what this process holds of a caller, and of all. Nobody else writes there, so less is said without the lock, too: a
        row on which something is held stays its caller's."""
        counts, own = self._counts, self.own
        counts[2 * (place + _COUNTS) + own] += change
        counts[own] += change

    def set_second(self, place: int, second: float) -> None:
        self._seconds[place + _SECOND] = second

    def forget(self, process: int) -> None:
        """A process has ended: what it held is free. Nobody else writes there, so no lock is needed."""
        first, words = 2 * (_HEAD // _WORD + _COUNTS) + process, 2 * self._row_words
        held = self._counts[first::words]
        for number in [number for number, count in enumerate(held) if count]:
            held[number] = 0
        self._counts[process] = 0

    def close(self) -> None:
        for view in (self._names, self._seconds, self._counts):
            view.release()
        self.lock.close()
        self._memory.close()
        os.close(self._file)


def make_table(processes: int) -> int:
    """A descriptor of an empty table. Raises: OSError."""
    with tempfile.TemporaryFile() as file:
        file.truncate(table_bytes(processes))
        with mmap.mmap(file.fileno(), _HEAD) as memory:
            make_lock(memory, _LOCK_AT)
        return os.dup(file.fileno())


def table_bytes(processes: int) -> int:
    return _HEAD + ROWS * _row_words(processes) * _WORD


def _row_words(processes: int) -> int:
    return _COUNTS + (processes + 1) // 2


class TableSlots(Slots):
    """As `Slots`, of all processes together."""

    def __init__(self, table: CountTable, *, per_caller: int, total: int, may_exceed: bool = False) -> None:
        super().__init__(per_caller=per_caller, total=total, may_exceed=may_exceed)
        self._table = table

    def check(self, caller: Caller) -> None:
        running = self._table.all_held()
        most = self.per_caller if caller.bounds is None else self.most_of(caller)
        if running < most and running < self.total:
            return  # a caller holds no more than all do
        place = self._table.known(caller.key_id)
        if place is None:
            with self._table.lock:
                place = self._table.row_of(caller.key_id, time.monotonic())
        self._check(place, most)

    def _check(self, place: int, most: int) -> None:
        if self._table.held(place) >= most:
            raise too_many(most)
        if self._table.all_held() >= self.total:
            raise Refusal(Ending.TOO_MANY, f"{self.total} calls are running on this server; try again shortly.")

    def take(self, caller: Caller) -> None:
        table, key_id = self._table, caller.key_id
        with table.lock:
            place = table.row_of(key_id, time.monotonic())
            self._check(place, self.per_caller if caller.bounds is None else self.most_of(caller))
            table.add(place, 1)
        self._held[key_id] = self._held.get(key_id, 0) + 1

    def give_back(self, caller: Caller) -> None:
        place = self._table.known(caller.key_id)
        assert place is not None  # a row on which something is held is not given to another
        self._table.add(place, -1)
        held = self._held[caller.key_id] - 1
        if held:
            self._held[caller.key_id] = held
        else:
            del self._held[caller.key_id]

    def held(self) -> int:
        """By this process."""
        return sum(self._held.values())


class _Lease(Struct, eq=False):
    """Calls of one caller that this process has taken of its rate and not used."""

    left: int
    until: float


class TableRate(Rate):
    """As `Rate`, of all processes together. The clock of `now` is the machine's, which they share.

    Where `LEASE_S` is worth several calls, a process takes those at once, and uses them without the lock. What it has not used
    of them it gives back when it takes the next, even if they were full again in the meantime. So the table may know of
    `LEASE_S` too few calls for each process, and count one `LEASE_S` before it comes. The burst is shorter by all that: no more
    calls pass in any stretch of time than one process would let pass.
    """

    def __init__(self, table: CountTable, *, per_minute: int, may_exceed: bool = False) -> None:
        self._table = table
        super().__init__(per_minute=per_minute, may_exceed=may_exceed)

    def limit(self, *, per_minute: int, may_exceed: bool = False) -> None:
        super().limit(per_minute=per_minute, may_exceed=may_exceed)
        self._at_once = max(1, int(LEASE_S / self._interval)) if self._interval else 1
        self._burst_s = SECONDS_A_MINUTE
        if self._at_once > 1:
            self._burst_s -= (self._table.processes + 1) * LEASE_S
        self._leases: dict[str, _Lease] = {}

    def take(self, caller: Caller, now: float) -> None:
        if caller.bounds is not None and caller.bounds.per_minute is not None:
            self._take_own(caller, now, self.interval_of(caller.bounds))
            return
        if not self._interval:
            return
        lease = self._leases.get(caller.key_id)
        if lease is not None and lease.left and now < lease.until:
            lease.left -= 1
            return
        table, unused = self._table, 0 if lease is None else lease.left
        with table.lock:
            place = table.row_of(caller.key_id, now)
            begun = max(table.second(place) - unused * self._interval, now)
            taken, wait = self._at_once, begun + self._at_once * self._interval - now - self._burst_s
            if wait > 1e-9:
                taken, wait = 1, begun + self._interval - now - self._burst_s
            if wait <= 1e-9:
                begun += taken * self._interval
            table.set_second(place, begun)
        if self._at_once > 1:
            self._keep(caller.key_id, _Lease(taken - 1 if wait <= 1e-9 else 0, now + LEASE_S), now)
        if wait > 1e-9:
            raise too_fast(wait)

    def _take_own(self, caller: Caller, now: float, interval: float) -> None:
        """For a key with a rate of its own nothing is taken beforehand."""
        with self._table.lock:
            place = self._table.row_of(caller.key_id, now)
            due = max(self._table.second(place), now) + interval
            wait = due - now - SECONDS_A_MINUTE
            if wait <= 1e-9:
                self._table.set_second(place, due)
        if wait > 1e-9:
            raise too_fast(wait)

    def _keep(self, key_id: str, lease: _Lease, now: float) -> None:
        if len(self._leases) > LEASES:
            self._leases = {key: kept for key, kept in self._leases.items() if kept.until > now}
        self._leases[key_id] = lease


def _name(caller: str) -> int:
    """Never that of a free row."""
    return int.from_bytes(blake2b(caller.encode(), digest_size=_WORD).digest(), "little") | 1 << 63
