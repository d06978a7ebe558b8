"""The thread behind the log: it syncs records in groups and wakes the calls that wait for that, signs checkpoints on time and
keeps them beside the key, and warns when the disk fills up."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from toolgate.errors import LedgerUnavailable
from toolgate.ledger import files
from toolgate.ledger.tips import DIRECTORY, Tips

if TYPE_CHECKING:
    from toolgate.ledger.local import SegmentWriter
    from toolgate.model.record import RecordPlace

_STUCK: Final = "the audit log's disk does not answer"
GROUP_SECONDS: Final = 0.05
"""A record of a read is synced within this time, together with its neighbours: one sync costs as much as 200 records."""

STUCK_SECONDS: Final = 5.0
"""A sync that takes longer is not waited for: what needs it is refused. A busy disk takes tenths of a second."""

_log: Final = logging.getLogger("toolgate.ledger")


class SyncedLog(Protocol):
    """The log that is synced."""

    def written(self) -> tuple[int, SegmentWriter, list[SegmentWriter]]:
        """With the lock held: the number of the last record that is written, the segment that holds it, and those that are
        full and synced, to be closed: only the sync thread does that, because it may be syncing one at this moment."""
        ...

    def until_checkpoint(self) -> float | None:
        """Seconds; None: there is nothing to sign."""
        ...

    def sign_in_time(self) -> None: ...


class Bell:
    """Wakes the one thread that waits for it; rung while nobody waits, it ends the next wait at once. What an Event does with
    locks and lists in Python for each wait is here one call: a lone caller's effect waits for it twice."""

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        with suppress(RuntimeError):  # it was rung already
            self._silent.release()

    def wait(self, seconds: float | None) -> None:
        self._silent.acquire(timeout=-1 if seconds is None else seconds)


class SyncThread:
    """The thread, and what it has done so far. `lock` is the log's own."""

    def __init__(
        self,
        log: SyncedLog,
        lock: threading.Lock,
        directory: Path,
        name: files.RunName,
        tips: Tips,
        *,
        low_space_bytes: int,
    ) -> None:
        self._log, self._lock, self._directory, self._name = log, lock, directory, name
        self.is_dirty = False
        """Something was written since the last sync began, and nobody waits for it. Whoever sets it rings."""
        self.bell = Bell()
        self.has_failed = False
        """A sync failed: nothing more may be written."""
        self.has_ended = False
        self.synced = -1
        """The last record that is known to be on disk."""
        self.syncs = 0
        self.sync_s = 0.0
        """How long they took, together."""
        self.free_bytes: int | None = None
        """On the log's disk, as last looked at."""
        self._sync_began = inf
        """When the sync that is under way began."""
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._thread: threading.Thread | None = None
        self._tips = tips
        self._newest: tuple[int, str] = (-1, "")
        """The last checkpoint: where it stands, and its note."""
        self._kept = -1
        self._keeps = True
        """False after the directory of the tips could not be written once."""
        self._low_space_bytes = low_space_bytes
        self._space_is_low = False
        self._space_seen_at = -1

    def start(self, last: int) -> None:
        """`last`: the record up to which all is on disk."""
        self.synced = last
        self.keep_newest(last)
        self.is_dirty = False
        self.look_at_space()
        self._thread = threading.Thread(target=self._keep, name="toolgate-ledger", daemon=True)
        self._thread.start()

    async def durable(self, place: RecordPlace, refuse_if_over: Callable[[], None]) -> None:
        """Raises: LedgerUnavailable: the sync failed (see `sync`), or takes too long."""
        with self._lock:
            if place.seq <= self.synced:
                return
            refuse_if_over()
            if self.is_stuck():
                self.is_dirty = True  # nobody waits for it any more, and the next sync has it
                self.bell.ring()
                raise LedgerUnavailable(_STUCK)
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            waiting = (place.seq, waiter)
            self._waiters.append(waiting)
        self.bell.ring()
        overdue = loop.call_later(STUCK_SECONDS, self._give_up, waiting)  # no asyncio.timeout: a call may have no task
        try:
            await waiter
        finally:
            overdue.cancel()

    def _give_up(self, waiting: tuple[int, asyncio.Future[None]]) -> None:
        with self._lock:
            self._waiters = [other for other in self._waiters if other is not waiting]
            self.is_dirty = True
        self.bell.ring()
        if not waiting[1].done():
            waiting[1].set_exception(LedgerUnavailable(_STUCK))

    def is_stuck(self) -> bool:
        """Does the disk not answer?"""
        return perf_counter() - self._sync_began > STUCK_SECONDS

    def signed(self, seq: int, note: str) -> None:
        self._newest = (seq, note)

    def stop(self) -> None:
        self.has_ended = True
        self.bell.ring()
        if self._thread is not None:
            self._thread.join()
        if self._waiters and not self.has_failed:
            self.sync()

    def fail(self) -> None:
        """With the lock held."""
        self.has_failed = True
        waiters, self._waiters = self._waiters, []
        with suppress(OSError):
            files.write_file(self._directory / f"{self._name}.suspect", "a sync failed\n")
        _tell([waiter for _, waiter in waiters], LedgerUnavailable("the audit log could not be synced"))

    def sync(self) -> None:
        """Everything written so far to disk, and whoever waits for it told.

        After a failed sync the kernel may have dropped the pages and report success next time, so it is not tried again:
        the run ends here, is marked, and every further append is refused.
        """
        with self._lock:
            self.is_dirty = False
            last, segment, full = self._log.written()
        for writer in full:
            writer.close()
        self._sync_began = began = perf_counter()
        try:
            segment.sync()
        except OSError:
            with self._lock:
                self.fail()
            return
        finally:
            self._sync_began = inf
        with self._lock:
            self.syncs += 1
            self.sync_s += perf_counter() - began
            self.synced = max(self.synced, last)
            ready = [waiter for seq, waiter in self._waiters if seq <= last]
            self._waiters = [waiting for waiting in self._waiters if waiting[0] > last]
        _tell(ready)
        self.keep_newest(last)

    def keep_newest(self, synced: int) -> None:
        """Beside the key, once it is on disk here: never more than the log holds."""
        seq, note = self._newest
        if not self._keeps or seq == self._kept or seq > synced:
            return
        try:
            self._tips.keep(self._name.id, note)
            self._kept = seq
        except OSError as fault:
            self._keeps = False
            lost = f"{DIRECTORY} beside the log's key cannot be written ({fault.strerror})"
            _log.warning("%s: only an anchor will show a log that was cut", lost)

    def look_at_space(self) -> None:
        """Say once that the disk fills up, and again only after there was twice the room. Looked at once a checkpoint."""
        limit, self._space_seen_at = self._low_space_bytes, self._newest[0]
        with suppress(OSError):
            free = files.free_bytes(self._directory) if limit else 0
            self.free_bytes = free if limit else None
            if free < limit and not self._space_is_low:
                left = free // 1_000_000
                _log.warning("%s MB are free for the audit log; when the disk is full, every call is refused", left)
                self._space_is_low = True
            elif free >= 2 * limit:
                self._space_is_low = False

    def _keep(self) -> None:
        try:
            self._keep_on()
        except BaseException:  # the border of the thread: whoever waits for a sync must not wait for ever
            with self._lock:
                self.fail()
            raise

    def _keep_on(self) -> None:
        while not self.has_ended:
            self.bell.wait(self._log.until_checkpoint())
            if self.is_dirty and not self._waiters and not self.has_ended:
                self.bell.wait(GROUP_SECONDS)
            if self.is_dirty or self._waiters:
                self.sync()
            if self._newest[0] != self._space_seen_at:
                self.look_at_space()
            if self._log.until_checkpoint() == 0.0:
                self._log.sign_in_time()


def _tell(waiters: Sequence[asyncio.Future[None]], fault: LedgerUnavailable | None = None) -> None:
    """All that wait on one loop at one cost."""
    for loop in {waiter.get_loop() for waiter in waiters}:
        with suppress(RuntimeError):  # the loop may be gone: then nobody waits any more
            loop.call_soon_threadsafe(_end, [each for each in waiters if each.get_loop() is loop], fault)


def _end(waiters: Sequence[asyncio.Future[None]], fault: LedgerUnavailable | None) -> None:
    for waiter in waiters:
        if not waiter.done():
            if fault is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(LedgerUnavailable(*fault.args))
