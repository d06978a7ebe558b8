"""The log of one run: an entry becomes a line, gets its place in the chain, and is written.

What a caller was told is on disk as far as a killed process goes, because each record is handed to write(2) before the
answer leaves: at once, or together with its neighbours by `flush` where a server holds their answers until then. What had
an effect survives a power cut too, because the road waits for `durable`. Reads are synced in groups, by `sync_thread.py`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import orjson
from msgspec import Struct, to_builtins

from toolgate.errors import LedgerUnavailable
from toolgate.kit.merkle import LEAF, Tree
from toolgate.kit.note import Checkpoint, NoteSigner, Verifier, sign_checkpoint
from toolgate.ledger import files, record, recovery
from toolgate.ledger.anchors import Anchors, AnchorWorker
from toolgate.ledger.files import RunName
from toolgate.ledger.flood import Flood
from toolgate.ledger.handover import Handover
from toolgate.ledger.sync_thread import SyncThread
from toolgate.ledger.tips import Tips
from toolgate.model.call import NO_ORIGIN, Origin, Wire
from toolgate.model.clock import THOUSANDTHS, Clock
from toolgate.model.record import LedgerEntry, LedgerStanding, RecordPlace

SCHEMA_VERSION: Final = "0.1.0"
"""Version of a call's record."""


class Rules(Struct, frozen=True):
    """When to rotate, when to sign, what to keep."""

    segment_bytes: int = 64 * 1024 * 1024
    """A new segment after this: a file that tools still open at once."""
    checkpoint_seconds: float = 1.0
    checkpoint_records: int = 256
    retention_days: int = 0
    """Whole runs older than this are deleted at the next start, if their last checkpoint was copied elsewhere; 0 keeps all."""
    low_space_bytes: int = 0
    """With less than this free it is said on standard error, before the disk is full and every call refused; 0: never."""
    leads: bool = True
    """The link to the newest segment follows this run."""


class LocalLedger:
    """Implements `toolgate.model.record.Ledger`. Made by `open_ledger`."""

    def __init__(
        self,
        directory: Path,
        name: RunName,
        *,
        signer: NoteSigner,
        rules: Rules,
        clock: Clock,
        tips: Tips,
        deterministic: bool,
    ) -> None:
        self.run = name.id
        self.verifier = signer.verifier
        self._directory = directory
        self.name = name
        self._signer = signer
        self._rules = rules
        self._clock = clock
        self._deterministic = deterministic
        self._lock = threading.Lock()
        self._lost = 0
        """Gathered records that could not be written: their answers were withheld."""
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
        """Segments that are full and synced, for the sync thread to close."""
        self._rotate_at = rules.segment_bytes
        self._uncovered = 0
        self._signed_at = clock.monotonic()
        self._closed = False
        self._sync_thread = SyncThread(self, self._lock, directory, name, tips, low_space_bytes=rules.low_space_bytes)
        self._anchor: AnchorWorker | None = None
        self._run_lock: files.Lock | None = None

    # What the road calls ---------------------------------------------------------------------------------------------

    def append(self, entry: LedgerEntry, *, is_held: bool = False) -> RecordPlace:
        """One write(2), unless its answer is held. Raises: LedgerUnavailable: nothing may happen unrecorded."""
        with self._lock:
            return self._append(entry, is_held=is_held)

    def append_refusal(self, entry: LedgerEntry, *, is_held: bool = False) -> RecordPlace | None:
        """The same for a call of which nothing ran; None: its caller has too many of these, so it was counted instead.

        Raises: LedgerUnavailable.
        """
        with self._lock:
            if self._is_writable() and self._flood.is_one_too_many(_key_id(entry), self._clock.monotonic()):
                return None
            return self._append(entry, is_held=is_held, refused=True)

    def append_act(self, stage: Literal["intent", "outcome"], facts: Mapping[str, Any]) -> None:
        """What somebody does to the deployment itself, on disk when this returns. Raises: LedgerUnavailable."""
        with self._lock:
            place = self._write(self._chained(record.act_body(self._clock.wall(), stage, facts)))
            request = facts["requestId"].encode()
            self._open_intents[request] = place.seq
            self._sync()
            if stage == "outcome":
                del self._open_intents[request]

    def hand_over(self, former: NoteSigner, successor: NoteSigner, seen: Sequence[Mapping[str, Any]]) -> str:
        """The note of a handover to another key, recorded, covered and on disk. Raises: LedgerUnavailable."""
        names = {"former": str(former.verifier), "successor": str(successor.verifier)}
        stated = record.handover_statement(self._clock.wall(), seen=seen, **names)
        handover = Handover(former.verifier, successor.verifier, self.run, sha256(stated).hexdigest())
        note = handover.signed(former, successor)
        with self._lock:
            self._write(self._chained(record.signed_body(stated, note)))
            self._checkpoint({})
            self._sync()
        return note

    def flush(self) -> None:
        """One write(2) for all that was gathered. Raises: LedgerUnavailable: then none of it is recorded."""
        with self._lock:
            try:
                self._write_gathered()
            except LedgerUnavailable:
                self._lost += len(self._gathered)
                self._forget()
                raise

    async def durable(self, place: RecordPlace) -> None:
        """Wait until the record survives a power cut. Raises: LedgerUnavailable: the sync failed."""
        await self._sync_thread.durable(place, self._refuse_if_over)

    def probe(self) -> bool:
        """Can a record be written now? After a full disk this is also what finds out that space is back."""
        with self._lock:
            if self._sync_thread.has_failed or self._sync_thread.is_stuck() or self._closed:
                return False
            if self._segment.failing:
                return self._try_checkpoint()
            return True

    def standing(self) -> LedgerStanding:
        """Of what is known: nothing is tried or waited for."""
        with self._lock:
            thread, written = self._sync_thread, self._size - len(self._gathered)
            return LedgerStanding(
                records=written,
                unsynced=max(0, written - 1 - thread.synced),
                unsigned=self._uncovered,
                checkpoint_age_s=self._clock.monotonic() - self._signed_at if self._uncovered else 0.0,
                syncs=thread.syncs,
                sync_s=thread.sync_s,
                is_writable=self._is_writable(),
                free_bytes=thread.free_bytes,
                lost=self._lost,
            )

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
                not self._sync_thread.has_failed
                and self._try_checkpoint(final=not self._open_intents)
                and not self._open_intents
            )
            self._closed = True
        self._sync_thread.stop()
        with suppress(OSError):
            self._segment.sync()
            if not self._sync_thread.has_failed:
                self._sync_thread.keep_newest(self._size - 1)
        for segment in (*self._left, self._segment):
            segment.close()
        if self._anchor is not None:
            self._anchor.close()
        if self._run_lock is not None:
            self._run_lock.release(finished=finished)

    # Start -----------------------------------------------------------------------------------------------------------

    def start(self, lock: files.Lock, first: Mapping[str, Any], dead: Sequence[Mapping[str, Any]]) -> None:
        """First records on disk, then the sync thread. Raises: LedgerUnavailable, OSError."""
        self._run_lock = lock
        with self._lock:
            self._checkpoint(first)
            for name in dead:
                self._write(self._chained(record.recovered_body(self._clock.wall(), name)))
            if dead:  # what vouches for a run that ended without a word is signed before anything else happens
                self._checkpoint({})
        self._segment.sync()
        files.sync_directory(self._directory)
        if self._rules.leads:
            files.point_latest(self._directory, self._segment.path.name)
        self._sync_thread.start(self._size - 1)

    def copy_checkpoints_to(self, anchors: Anchors) -> None:
        self._anchor = AnchorWorker(anchors, self._anchored)

    def copy_for(self, dead: RunName, segments: Sequence[files.Segment], keys: Sequence[Verifier]) -> None:
        """A run that died could not copy its last checkpoint: do it now, or it can never be retired."""
        last = recovery.last_checkpoint_of(segments, keys)
        if self._anchor is not None and last is not None:
            self._anchor.add(dead, last["note"])

    def _anchored(self, run: RunName, note: str) -> None:
        with suppress(OSError):
            files.write_file(self._directory / f"{run}.anchored", note)

    # Writing: always with the lock held ------------------------------------------------------------------------------

    def _append(self, entry: LedgerEntry, *, is_held: bool, refused: bool = False) -> RecordPlace:
        # Here and nowhere deeper: a checkpoint must stand exactly behind what it signs, also at a rotation.
        if self._segment.size >= self._rotate_at:
            self._rotate()
        # Between the rotation's checkpoint and the next: a checkpoint tells every count that no record has told.
        suppressed = self._flood.suppressed_of(_key_id(entry)) if refused else 0
        line = call_line(
            entry,
            self._step + 1,
            self.run,
            self._size,
            self._prev,
            deterministic=self._deterministic,
            suppressed=suppressed,
        )
        # A count must not be forgotten with what was gathered, should that not be written.
        gathers = is_held and entry.caller is not None and not entry.durable and not suppressed
        place = self._gather(line) if gathers else self._write(line, is_awaited=entry.durable)
        if suppressed:
            self._flood.told(_key_id(entry))
        self._step += 1
        self._uncovered += 1
        if entry.durable or self._open_intents:
            self._follow(entry, place.seq)
        if self._uncovered >= self._rules.checkpoint_records:
            self._try_checkpoint()
        return place

    def _sync(self) -> None:
        try:
            self._segment.sync()
        except OSError:
            self._sync_thread.fail()
            raise LedgerUnavailable("the audit log could not be synced") from None

    def _chained(self, body: bytes) -> bytes:
        return record.with_chain(body, self.run, self._size, self._prev)

    def _write(self, line: bytes, *, is_awaited: bool = False) -> RecordPlace:
        """Behind what was gathered, in the same write. If that fails, what was gathered goes on waiting for `flush`.
        `is_awaited`: `durable` comes next, and wakes the sync thread."""
        if self._sync_thread.has_failed or self._closed:
            self._refuse_if_over()
        self._hand_over([*self._gathered, line], is_awaited=is_awaited)
        return self._chain(line)

    def _gather(self, line: bytes) -> RecordPlace:
        if self._sync_thread.has_failed or self._closed:
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

    def _hand_over(self, lines: list[bytes], *, is_awaited: bool = False) -> None:
        self._segment.write(b"\n".join([*lines, b""]))
        self._gathered = []
        if not is_awaited and not self._sync_thread.is_dirty:
            self._sync_thread.is_dirty = True
            self._sync_thread.bell.ring()

    def _chain(self, line: bytes) -> RecordPlace:
        seq, leaf = self._size, sha256(LEAF + line).digest()
        self._leaves.append(leaf)
        self._size = seq + 1
        self._prev = text = leaf.hex()
        return RecordPlace(self.run, seq, text)

    def _forget(self) -> None:
        """As if nothing had been gathered. The tree knows nothing of it yet: a checkpoint writes before it signs."""
        if self._gathered:
            self._size, self._prev, self._step, self._uncovered = self._before
            del self._leaves[-len(self._gathered) :]
            self._gathered = []

    def _is_writable(self) -> bool:
        """As far as is known. A log that cannot be written must say so to everyone: then nothing is only counted."""
        return not (self._segment.failing or self._sync_thread.has_failed or self._closed)

    def _refuse_if_over(self) -> None:
        if self._sync_thread.has_failed:
            raise LedgerUnavailable("the audit log stopped after a failed sync; restart to begin a new run")
        if self._closed:
            raise LedgerUnavailable("the audit log is closed")

    def _follow(self, entry: LedgerEntry, seq: int) -> None:
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
        stated = record.statement(self._clock.wall(), size=size, root=root, more={**more, **self._flood.counts()})
        extensions = (f"run {self.run}", f"statement {sha256(stated).hexdigest()}")
        note = sign_checkpoint(Checkpoint(self._signer.verifier.name, size, root, extensions), self._signer)
        self._write(self._chained(record.signed_body(stated, note)))
        self._sync_thread.signed(size, note)
        self._flood.all_told()
        self._uncovered = 0
        self._signed_at = self._clock.monotonic()
        if self._anchor is not None:
            self._anchor.add(self.name, note)

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
            self._sync_thread.fail()
            self._refuse_if_over()
        try:
            following = SegmentWriter(self._directory / self.name.segment(self._number + 1))
        except OSError:
            return
        self._left.append(self._segment)
        self._segment = following
        self._number += 1
        self._rotate_at = self._rules.segment_bytes
        with suppress(OSError):
            files.sync_directory(self._directory)
            files.point_latest(self._directory, following.path.name)

    # What the sync thread asks --------------------------------------------------------------------------------------------

    def written(self) -> tuple[int, SegmentWriter, list[SegmentWriter]]:
        full, self._left = self._left, []
        return self._size - len(self._gathered) - 1, self._segment, full

    def until_checkpoint(self) -> float | None:
        if self._closed or self._sync_thread.has_failed or not (self._uncovered or self._flood):
            return None  # nothing is due, or can be signed any more
        return max(0.0, self._signed_at + self._rules.checkpoint_seconds - self._clock.monotonic())

    def sign_in_time(self) -> None:
        with self._lock:
            if not self._closed and not self._sync_thread.has_failed and not self._try_checkpoint():
                self._signed_at = self._clock.monotonic()  # no room: not at once again


def _key_id(entry: LedgerEntry) -> str | None:
    return entry.caller.key_id if entry.caller else None


def call_line(
    entry: LedgerEntry,
    step: int,
    run: str,
    seq: int,
    prev: str | None,
    *,
    deterministic: bool,
    suppressed: int = 0,
) -> bytes:
    """The line of one event on the road.

    What repeats from call to call is encoded once and kept. What differs is written between as text: ids, digests, times
    and numbers of our own making, in which nothing needs an escape (a third of the cost of encoding an object).
    """
    ids = entry.ids
    digest = f'"{entry.arguments_digest}"' if entry.arguments_digest else "null"
    milliseconds, rest = divmod(int(entry.duration_ms * 1000), 1000)
    changing = (
        f'{{"ts":"{entry.timestamp}","stepId":{step},"requestId":"{ids.request}","traceId":"{ids.trace}",'
        f'"spanId":"{ids.span}","durationMs":{milliseconds}.{THOUSANDTHS[rest]},"inputBytes":{entry.input_bytes},'
        f'"outputBytes":{entry.output_bytes},"error":{_json(entry.error) if entry.error else "null"},'
        f'"argumentsDigest":{digest},'
        f'"clamps":{_json(to_builtins(entry.clamps)) if entry.clamps else "[]"}'
    )
    if entry.origin is not NO_ORIGIN:
        changing += _origin(entry.origin)
    if entry.more:
        changing += "," + _json(entry.more)[1:-1]
    if suppressed:
        changing += f',"suppressed":{suppressed}'
    before, after = _repeating(
        entry.event,
        entry.wire,
        entry.status,
        entry.tool_id,
        entry.caller.role if entry.caller else None,
        entry.tier,
        entry.environment,
        entry.decision,
        deterministic,
    )
    linked = f'"{prev}"' if prev else "null"
    return f'{changing}{before}{_key_id(entry) or ""}{after},"run":"{run}","seq":{seq},"prev":{linked}}}'.encode()


@lru_cache(maxsize=1024)
def _origin(origin: Origin) -> str:
    """As members. Of most calls only the address is known, and the next call has the same."""
    named = {
        "clientAddress": origin.address,
        "clientRequestId": origin.request_id,
        "traceparent": origin.traceparent,
        "tracestate": origin.tracestate,
    }
    given = {name: value for name, value in named.items() if value is not None}
    return "," + _json(given)[1:-1] if given else ""


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


_CALLER: Final = "[caller]"
"""Stands where the caller's id comes, which is hexadecimal digits."""


@lru_cache(maxsize=4096)
def _repeating(  # noqa: PLR0913, PLR0917 (the key of the cache: every field that repeats)
    event: str,
    wire: Wire,
    status: str,
    tool_id: str | None,
    role: str | None,
    tier: str | None,
    environment: str | None,
    decision: str | None,
    deterministic: bool,  # noqa: FBT001
) -> tuple[str, str]:
    """What stands before the id of the caller and behind it: the same for all callers of a role, however many they are."""
    metadata = {"schemaVersion": SCHEMA_VERSION, "deterministic": deterministic, "toolId": tool_id, "promptId": None}
    fields = {
        "agentId": record.AGENT_ID,
        "taskId": record.TASK_ID,
        "event": event,
        "transport": wire.transport,
        "face": wire.face,
        "route": wire.route,
        "method": record.METHOD,
        "status": status,
        "attempt": 0,
        "metadata": metadata,
        "caller": None if role is None else {"id": _CALLER, "role": role},
        "tier": tier,
        "environment": environment,
        "decision": decision,
    }
    text = "," + _json(fields)[1:-1]
    if role is None:
        return text, ""
    before, _, after = text.rpartition(_CALLER)  # the last: a tool may be called anything, and stands before it
    return before, after


class SegmentWriter:
    """One file, one writer. A line that did not fit is taken back, so that the next one starts clean."""

    __slots__ = ("_descriptor", "failing", "path", "size")

    def __init__(self, path: Path) -> None:
        """Raises: OSError: also when the file exists."""
        self.path = path
        self._descriptor = files.create_segment(path)
        self.size = 0
        self.failing = False
        """True from a write that failed until one that works."""

    def write(self, line: bytes) -> None:
        """One write(2). Raises: LedgerUnavailable: nothing of the line counts as written."""
        if self.failing:
            self._take_back()
        try:
            written = os.write(self._descriptor, line)
        except OSError as fault:
            self.failing = True
            raise LedgerUnavailable(f"the audit log cannot be written ({fault.strerror})") from None
        if written != len(line):  # the disk is full, or a file-size limit is reached: a piece of the line is there
            self._take_back()
            raise LedgerUnavailable("the audit log cannot be written (no space for a whole record)")
        self.size += written
        self.failing = False

    def sync(self) -> None:
        """Raises: OSError."""
        files.sync_data(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def _take_back(self) -> None:
        """Cut off a piece of a line. Raises: LedgerUnavailable: it stays, so nothing may be written behind it."""
        self.failing = True
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError as fault:
            raise LedgerUnavailable(f"the audit log holds a torn record ({fault.strerror})") from None
