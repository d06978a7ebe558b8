"""The log of one run: `append` writes a line, `durable` waits for the disk, a keeper thread syncs and signs.

What a caller was told is on disk as far as a killed process goes, because each record is handed to write(2) before the
answer leaves: at once, or together with its neighbours by `flush` where a server holds their answers until then. What had
an effect survives a power cut too, because the road waits for `durable`. Reads are synced in groups.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from toolgate.errors import LedgerUnavailable
from toolgate.kit.merkle import Tree, leaf_hash
from toolgate.kit.note import Checkpoint, Signer, sign_checkpoint
from toolgate.ledger import files, record, recovery
from toolgate.ledger.anchors import Anchors, AnchorWorker
from toolgate.ledger.files import RunName
from toolgate.ledger.flood import Flood
from toolgate.ledger.segment import SegmentWriter
from toolgate.model.clock import Clock
from toolgate.model.record import Entry, Place

GROUP_SECONDS: Final = 0.05
"""A record of a read is synced within this time, together with its neighbours: one sync costs as much as 200 records."""


class Rules(Struct, frozen=True):
    """When to rotate, when to sign, what to keep."""

    segment_bytes: int = 64 * 1024 * 1024
    """A new segment after this: a file that tools still open at once."""
    checkpoint_seconds: float = 1.0
    checkpoint_records: int = 256
    retention_days: int = 0
    """Whole runs older than this are deleted at the next start, if their last checkpoint was copied elsewhere; 0 keeps all."""


class LocalLedger:
    """Implements `toolgate.model.record.Ledger`. Made by `open_ledger`."""

    gathering = False

    def __init__(
        self, directory: Path, name: RunName, *, signer: Signer, rules: Rules, clock: Clock, deterministic: bool
    ) -> None:
        self.run = name.id
        self.verifier = signer.verifier
        self._directory = directory
        self._name = name
        self._signer = signer
        self._rules = rules
        self._clock = clock
        self._deterministic = deterministic
        self._lock = threading.Lock()
        self._tree = Tree()
        self._leaves: list[bytes] = []
        """Written since the last checkpoint: the tree is only needed there, and takes many at once more cheaply."""
        self._gathered: list[bytes] = []
        """Lines that are chained, and wait for `flush` to be written."""
        self._before: tuple[int, str | None, int, int] = (0, None, 0, 0)
        """Where the chain stood before the first of them; see `_forget`."""
        self._size = 0
        self._prev: str | None = None
        self._step = 0
        self._flood = Flood()
        self._open_intents: dict[bytes, int] = {}
        self._number = 1
        self._segment = SegmentWriter(directory / name.segment(1))
        self._left: list[SegmentWriter] = []
        """Segments that are full and synced. Only the keeper closes them: it may be syncing one at this moment."""
        self._rotate_at = rules.segment_bytes
        self._uncovered = 0
        self._signed_at = clock.monotonic()
        self._failed = False
        self._closed = False
        self._synced = -1
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._dirty = False
        self._wake = threading.Event()
        self._urgent = threading.Event()
        self._keeper: threading.Thread | None = None
        self._anchor: AnchorWorker | None = None
        self._run_lock: files.Lock | None = None

    # What the road calls ---------------------------------------------------------------------------------------------

    def append(self, entry: Entry) -> Place:
        """One write(2), unless it is gathered. Raises: LedgerUnavailable: nothing may happen unrecorded."""
        with self._lock:
            suppressed = 0
            if entry.caller is None:
                # A log that cannot be written must say so to everyone: then nothing is only counted.
                if self._flood.is_one_too_many(self._clock.monotonic()) and not self._segment.failing:
                    return self._flood.place
                suppressed = self._flood.suppressed
            # Here and nowhere deeper: a checkpoint must stand exactly behind what it signs, also at a rotation.
            if self._segment.size >= self._rotate_at:
                self._rotate()
            line = record.call_line(
                entry,
                self._step + 1,
                self.run,
                self._size,
                self._prev,
                deterministic=self._deterministic,
                suppressed=suppressed,
            )
            gathers = self.gathering and entry.caller is not None and not entry.durable
            place = self._gather(line) if gathers else self._write(line)
            self._step += 1
            self._uncovered += 1
            if entry.caller is None:
                self._flood.written(place)
            if entry.durable or self._open_intents:
                self._follow(entry, place.seq)
            if self._uncovered >= self._rules.checkpoint_records:
                self._try_checkpoint()
            return place

    def flush(self) -> None:
        """One write(2) for all that was gathered. Raises: LedgerUnavailable: then none of it is recorded."""
        with self._lock:
            try:
                self._write_gathered()
            except LedgerUnavailable:
                self._forget()
                raise

    async def durable(self, place: Place) -> None:
        """Wait until the record survives a power cut. Raises: LedgerUnavailable: the sync failed; see `_sync`."""
        with self._lock:
            if place.seq <= self._synced:
                return
            self._refuse_if_over()
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((place.seq, waiter))
        self._urgent.set()
        self._wake.set()
        await waiter

    def probe(self) -> bool:
        """Can a record be written now? After a full disk this is also what finds out that space is back."""
        with self._lock:
            if self._failed or self._closed:
                return False
            if self._segment.failing:
                return self._try_checkpoint()
            return True

    def checkpoint(self) -> None:
        """Sign what is there now. Raises: LedgerUnavailable."""
        with self._lock:
            self._checkpoint({})

    def close(self) -> None:
        """The last checkpoint, synced and copied; then the run is over. Never raises: there is nobody left to tell."""
        with self._lock:
            if self._closed:
                return
            # An intent without outcome, or a last word that could not be written, is for the next start to tell.
            finished = (
                not self._failed and self._try_checkpoint(final=not self._open_intents) and not self._open_intents
            )
            self._closed = True
        self._stop_keeper()
        with suppress(OSError):
            self._segment.sync()
        for one in (*self._left, self._segment):
            one.close()
        if self._anchor is not None:
            self._anchor.close()
        if self._run_lock is not None:
            self._run_lock.release(finished=finished)

    # Start -----------------------------------------------------------------------------------------------------------

    def start(self, lock: files.Lock, first: Mapping[str, Any], dead: Sequence[Mapping[str, Any]]) -> None:
        """First records on disk, then the keeper. Raises: LedgerUnavailable, OSError."""
        self._run_lock = lock
        with self._lock:
            self._checkpoint(first)
            for one in dead:
                self._write(self._chained(record.recovered_body(self._clock.wall(), one)))
                self._uncovered += 1
        self._segment.sync()
        files.sync_directory(self._directory)
        self._synced = self._size - 1
        self._dirty = False
        self._wake.clear()
        files.point_latest(self._directory, self._segment.path.name)
        self._keeper = threading.Thread(target=self._keep, name="toolgate-ledger", daemon=True)
        self._keeper.start()

    def copy_checkpoints_to(self, anchors: Anchors) -> None:
        self._anchor = AnchorWorker(anchors, self._anchored)

    def copy_for(self, dead: RunName, segments: Sequence[files.Segment]) -> None:
        """A run that died could not copy its last checkpoint: do it now, or it can never be retired."""
        last = recovery.last_checkpoint_of(segments)
        if self._anchor is not None and last is not None:
            self._anchor.add(dead, last["note"])

    def _anchored(self, run: RunName, note: str) -> None:
        with suppress(OSError):
            files.write_file(self._directory / f"{run}.anchored", note)

    # Writing: always with the lock held ------------------------------------------------------------------------------

    def _chained(self, body: bytes) -> bytes:
        return record.with_chain(body, self.run, self._size, self._prev)

    def _write(self, line: bytes) -> Place:
        """Behind what was gathered, in the same write. If that fails, what was gathered goes on waiting for `flush`."""
        if self._failed or self._closed:
            self._refuse_if_over()
        self._hand_over([*self._gathered, line])
        return self._chain(line)

    def _gather(self, line: bytes) -> Place:
        if self._failed or self._closed:
            self._refuse_if_over()
        if not self._gathered:
            self._before = (self._size, self._prev, self._step, self._uncovered)
        self._gathered.append(line)
        return self._chain(line)

    def _write_gathered(self) -> None:
        """Raises: LedgerUnavailable: it is still gathered."""
        if self._gathered:
            self._refuse_if_over()
            self._hand_over(self._gathered)

    def _hand_over(self, lines: list[bytes]) -> None:
        self._segment.write(b"\n".join([*lines, b""]))
        self._gathered = []
        if not self._dirty:
            self._dirty = True
            self._wake.set()

    def _chain(self, line: bytes) -> Place:
        seq, leaf = self._size, leaf_hash(line)
        self._leaves.append(leaf)
        self._size = seq + 1
        self._prev = text = leaf.hex()
        return Place(self.run, seq, text)

    def _forget(self) -> None:
        """As if nothing had been gathered. The tree knows nothing of it yet: a checkpoint writes before it signs."""
        if self._gathered:
            self._size, self._prev, self._step, self._uncovered = self._before
            del self._leaves[-len(self._gathered) :]
            self._gathered = []

    def _refuse_if_over(self) -> None:
        if self._failed:
            raise LedgerUnavailable("the audit log stopped after a failed sync; restart to begin a new run")
        if self._closed:
            raise LedgerUnavailable("the audit log is closed")

    def _follow(self, entry: Entry, seq: int) -> None:
        request = entry.ids.request.encode()
        if entry.event == "intent":
            self._open_intents[request] = seq
        else:
            self._open_intents.pop(request, None)

    def _checkpoint(self, more: Mapping[str, Any]) -> None:
        self._write_gathered()
        self._tree.extend(self._leaves)
        self._leaves.clear()
        size, root = self._tree.size, self._tree.root()
        checkpoint = Checkpoint(self._signer.verifier.name, size, root, (f"run {self.run}",))
        note = sign_checkpoint(checkpoint, self._signer)
        if self._flood.suppressed:
            more = {**more, "suppressed": self._flood.suppressed}
        body = record.checkpoint_body(self._clock.wall(), size=size, root=root, note=note, more=more)
        self._write(self._chained(body))
        self._flood.told()
        self._uncovered = 0
        self._signed_at = self._clock.monotonic()
        if self._anchor is not None:
            self._anchor.add(self._name, note)

    def _try_checkpoint(self, *, final: bool = False) -> bool:
        """A checkpoint that does not fit now comes later; the records it would cover are written."""
        try:
            self._checkpoint({"final": True} if final else {})
        except LedgerUnavailable:
            return False
        return True

    def _rotate(self) -> None:
        """On to the next segment, the last one signed and synced. Without room for that, the old one grows on."""
        self._refuse_if_over()
        self._rotate_at = self._segment.size + self._rules.segment_bytes
        self._checkpoint({})
        try:
            self._segment.sync()
        except OSError:
            self._fail()
            self._refuse_if_over()
        try:
            following = SegmentWriter(self._directory / self._name.segment(self._number + 1))
        except OSError:
            return
        self._left.append(self._segment)
        self._segment = following
        self._number += 1
        self._rotate_at = self._rules.segment_bytes
        with suppress(OSError):
            files.sync_directory(self._directory)
            files.point_latest(self._directory, following.path.name)

    # The keeper: syncs groups, signs by time -------------------------------------------------------------------------

    def _keep(self) -> None:
        try:
            self._keep_on()
        except BaseException:  # the border of the thread: whoever waits for a sync must not wait for ever
            with self._lock:
                self._fail()
            raise

    def _keep_on(self) -> None:
        while not self._closed:
            self._wake.wait(self._until_checkpoint())
            self._wake.clear()
            if self._dirty and not self._waiters:
                self._urgent.wait(GROUP_SECONDS)
            self._urgent.clear()
            if self._dirty or self._waiters:
                self._sync()
            if self._until_checkpoint() == 0.0:
                with self._lock:
                    if not self._closed and not self._failed and not self._try_checkpoint():
                        self._signed_at = self._clock.monotonic()  # no room: not at once again

    def _until_checkpoint(self) -> float | None:
        if not self._uncovered and not self._flood.suppressed:
            return None
        return max(0.0, self._signed_at + self._rules.checkpoint_seconds - self._clock.monotonic())

    def _sync(self) -> None:
        """Everything written so far to disk, and whoever waits for it told.

        After a failed sync the kernel may have dropped the pages and report success next time, so it is not tried again:
        the run ends here, is marked, and every further append is refused.
        """
        with self._lock:
            self._dirty = False
            last, segment = self._size - len(self._gathered) - 1, self._segment
            left, self._left = self._left, []
        for one in left:
            one.close()
        try:
            segment.sync()
        except OSError:
            with self._lock:
                self._fail()
            return
        with self._lock:
            self._synced = max(self._synced, last)
            ready = [waiter for seq, waiter in self._waiters if seq <= last]
            self._waiters = [one for one in self._waiters if one[0] > last]
        for waiter in ready:
            _tell(waiter, lambda one: one.set_result(None))

    def _fail(self) -> None:
        """With the lock held."""
        self._failed = True
        waiters, self._waiters = self._waiters, []
        with suppress(OSError):
            files.write_file(self._directory / f"{self._name}.suspect", "a sync failed\n")
        for _, waiter in waiters:
            _tell(waiter, lambda one: one.set_exception(LedgerUnavailable("the audit log could not be synced")))

    def _stop_keeper(self) -> None:
        self._urgent.set()
        self._wake.set()
        if self._keeper is not None:
            self._keeper.join()
        if self._waiters and not self._failed:
            self._sync()


def _tell(waiter: asyncio.Future[None], what: Callable[[asyncio.Future[None]], None]) -> None:
    def set_it() -> None:
        if not waiter.done():
            what(waiter)

    # The loop may be gone: then nobody waits any more.
    with suppress(RuntimeError):
        waiter.get_loop().call_soon_threadsafe(set_it)
