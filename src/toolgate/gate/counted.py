"""Slots and rates of one server that has several processes, counted in memory that they share (ADR-0028).

A table of rows, one a caller: when its rate is full again, and how many slots each process holds. Whoever changes it holds a lock
of the kernel's, which ends with its holder, and writes only its own column of counts; so what a process that was killed held is
known, and its supervisor gives that back. A process that is stopped in the middle of a change would hold the lock: others wait
for `WAIT_S`, and then refuse. Without several processes none of this is used.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from toolgate.errors import Ending, Refusal
from toolgate.gate.admit import SECONDS_A_MINUTE, Rate, Slots, too_fast, too_many

if TYPE_CHECKING:
    from toolgate.model.call import Caller

ROWS: Final = 1 << 17
"""Callers that are known at once: twice the keys that a key file may hold. A row that says nothing any more is used again."""
WAIT_S: Final = 0.02
"""For the lock: a change takes a few microseconds."""
PAUSE_S: Final = 0.0001
_KEY: Final = struct.Struct("<8sd")
_COUNT: Final = struct.Struct("<i")
_HEAD: Final = 4096
_FREE: Final = bytes(8)
_NONE: Final = bytes(4)


class CountTable:
    """Of `processes`, of which this one is `own`; -1: a supervisor, which holds nothing."""

    def __init__(self, descriptor: int, processes: int, own: int) -> None:
        """`descriptor`: of a file that `make` has made; it is kept open."""
        self._file, self.processes, self.own = descriptor, processes, own
        self._row_bytes = _KEY.size + processes * _COUNT.size
        self._memory = mmap.mmap(descriptor, table_bytes(processes))
        self._counts = struct.Struct(f"<{processes}i")
        self._places: dict[str, tuple[int, bytes]] = {}
        """Where rows of callers are, as this process has found them, and their names, which say whether they still are."""

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Raises: Refusal UNAVAILABLE: somebody holds the lock for too long."""
        due = 0.0
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                now = time.monotonic()
                due = due or now + WAIT_S
                if now >= due:
                    raise _locked() from None
                time.sleep(PAUSE_S)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    # Without the lock: what is read may be a moment old ---------------------------------------------------------------

    def known(self, caller: str) -> int | None:
        """Where its row is, if this process has seen it and it is still its own."""
        found = self._places.get(caller)
        return found[0] if found is not None and self._memory[found[0] : found[0] + 8] == found[1] else None

    def held(self, place: int) -> int:
        return sum(self._counts.unpack_from(self._memory, place + _KEY.size))

    def all_held(self) -> int:
        return sum(self._counts.unpack_from(self._memory, 0))

    # With the lock held ----------------------------------------------------------------------------------------------

    def row_of(self, caller: str, now: float) -> int:
        """Where its row is; it gets one. Raises: Refusal UNAVAILABLE: the table is full of callers that count."""
        place = self.known(caller)
        if place is not None:
            return place
        name = _name(caller)
        place = self._found(name, now)
        if place is None:
            raise _locked()
        if len(self._places) >= ROWS:
            self._places = {known: found for known, found in self._places.items() if self.held(found[0])}
        self._places[caller] = (place, name)
        return place

    def _found(self, name: bytes, now: float) -> int | None:
        """Its row, or the first on the way to it that says nothing any more, or a new one. A row is looked for until one that
        was never used: behind that none can be."""
        first, usable = int.from_bytes(name[:7], "little"), None
        for step in range(ROWS):
            place = _HEAD + (first + step) % ROWS * self._row_bytes
            found, due = _KEY.unpack_from(self._memory, place)
            if found == name:
                return place
            if usable is None and (found == _FREE or (due <= now and not self.held(place))):
                usable = place
            if found == _FREE:
                break
        if usable is not None:
            _KEY.pack_into(self._memory, usable, name, 0.0)
        return usable

    def add(self, place: int, change: int) -> None:
        """To what this process holds of a caller, and of all. Nobody else writes there, so less is said without the lock, too: a
        row on which something is held stays its caller's."""
        for at in (place + _KEY.size + self.own * _COUNT.size, self.own * _COUNT.size):
            (count,) = _COUNT.unpack_from(self._memory, at)
            _COUNT.pack_into(self._memory, at, count + change)

    def due(self, place: int) -> float:
        found: float = _KEY.unpack_from(self._memory, place)[1]
        return found

    def set_due(self, place: int, due: float) -> None:
        name, _ = _KEY.unpack_from(self._memory, place)
        _KEY.pack_into(self._memory, place, name, due)

    def forget(self, process: int) -> None:
        """A process has ended: what it held is free. Nobody else writes there, so no lock is needed."""
        for number in range(ROWS):
            at = _HEAD + number * self._row_bytes + _KEY.size + process * _COUNT.size
            if self._memory[at : at + 4] != _NONE:
                _COUNT.pack_into(self._memory, at, 0)
        _COUNT.pack_into(self._memory, process * _COUNT.size, 0)

    def close(self) -> None:
        self._memory.close()
        os.close(self._file)


def make_table(processes: int) -> int:
    """A descriptor of an empty table. Raises: OSError."""
    with tempfile.TemporaryFile() as file:
        file.truncate(table_bytes(processes))
        return os.dup(file.fileno())


def table_bytes(processes: int) -> int:
    return _HEAD + ROWS * (_KEY.size + processes * _COUNT.size)


class TableSlots(Slots):
    """As `Slots`, of all processes together."""

    def __init__(self, table: CountTable, *, per_caller: int, total: int) -> None:
        super().__init__(per_caller=per_caller, total=total)
        self._table = table

    def check(self, caller: Caller) -> None:
        place = self._table.known(caller.key_id)
        if place is None:
            with self._table.changing():
                place = self._table.row_of(caller.key_id, time.monotonic())
        self._check(place)

    def _check(self, place: int) -> None:
        if self._table.held(place) >= self.per_caller:
            raise too_many(self.per_caller)
        if self._table.all_held() >= self.total:
            raise Refusal(Ending.TOO_MANY, f"{self.total} calls are running on this server; try again shortly.")

    def take(self, caller: Caller) -> None:
        with self._table.changing():
            place = self._table.row_of(caller.key_id, time.monotonic())
            self._check(place)
            self._table.add(place, 1)
        self._held[caller.key_id] = self._held.get(caller.key_id, 0) + 1

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


class TableRate(Rate):
    """As `Rate`, of all processes together. The clock of `now` is the machine's, which they share."""

    def __init__(self, table: CountTable, *, per_minute: int) -> None:
        super().__init__(per_minute=per_minute)
        self._table = table

    def take(self, caller: Caller, now: float) -> None:
        if not self._interval:
            return
        with self._table.changing():
            place = self._table.row_of(caller.key_id, now)
            due = max(self._table.due(place), now) + self._interval
            wait = due - now - SECONDS_A_MINUTE
            if wait > 1e-9:
                raise too_fast(wait)
            self._table.set_due(place, due)


def _name(caller: str) -> bytes:
    """Never that of a free row."""
    return blake2b(caller.encode(), digest_size=7).digest() + b"\x01"


def _locked() -> Refusal:
    text = "The limits of this server cannot be checked now; try again shortly."
    return Refusal(Ending.UNAVAILABLE, text, reason="limits_unreachable", retry_after_s=1)
