"""The start of a run: what earlier runs left is found, told and tidied before the first call."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from toolgate.errors import LedgerUnavailable, StartRefused
from toolgate.ledger import files, handover, recovery
from toolgate.ledger.anchors import Anchors
from toolgate.ledger.files import RunName
from toolgate.ledger.local import LocalLedger, Rules
from toolgate.ledger.tips import Tips
from toolgate.model.clock import RandomIds
from toolgate.ownership import process_origin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from toolgate.kit.note import Checkpoint, NoteSigner, Verifier
    from toolgate.ledger.files import Segment
    from toolgate.model.clock import Clock
    from toolgate.settings import Settings

_log: Final = logging.getLogger("toolgate.ledger")
ORIGIN: Final = "toolgate/audit"
"""Which log speaks, in a checkpoint; a deployment with several logs names each."""


def open_ledger(  # noqa: PLR0913 (all that a run is told at its start)
    directory: Path,
    *,
    clock: Clock,
    key_file: Path,
    run_id: str | None = None,
    rules: Rules = Rules(),  # noqa: B008 (frozen)
    anchors: Anchors = Anchors(),  # noqa: B008 (frozen)
    deterministic: bool = False,
    origin: str = ORIGIN,
    serves: Mapping[str, str] | None = None,
) -> LocalLedger:
    """Begin a run: find what runs before it left, write that down, and be ready for records.

    `directory` is the settings' runs directory joined with `LOG_PATH`; `serves` names what calls are decided by, for the first
    record.
    Raises: StartRefused: the log cannot be written here; the text says what to do.
    Side effects: creates directory, key and segment; may delete runs by age; starts threads. `close` ends it.
    """
    try:
        files.make_directory(directory)
        with handover.held(directory):
            handover.finish(directory, key_file)
            signer = files.load_or_create_key(key_file, origin)
            files.write_file(directory / files.PUBLIC_KEY, f"{signer.verifier}\n")
            name = RunName.make(clock.wall(), run_id or os.urandom(8).hex())
            notes = handover.kept_notes(key_file)
            keys = handover.followed([signer.verifier], handover.opened(notes))
            start = _Start(directory, clock, signer, name, rules, Tips(key_file, directory), notes, keys, serves)
            return start.begin(anchors, deterministic=deterministic)
    except (OSError, LedgerUnavailable) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else str(fault)
        raise StartRefused(
            f"The audit log cannot be written: {reason}.\nMake its directory writable, with room for records."
        ) from None


def open_for_server(
    settings: Settings, clock: Clock, *, leads: bool = True, serves: Mapping[str, str] | None = None
) -> LocalLedger:
    """Where and how the settings say. Of several processes of a server one leads: it deletes old runs, and the link to the newest
    segment follows its run. `serves`: digests of policy and contract. Raises: StartRefused."""
    rules = _rules(settings)
    rules = rules if leads else replace(rules, retention_days=0, leads=False)
    return _open(settings, clock, rules, deterministic=settings.deterministic_ids, serves=serves)


def open_for_act(settings: Settings, clock: Clock) -> LocalLedger:
    """For one act of the command line: deletes no old runs, and leaves the link to the server's. Raises: StartRefused."""
    rules = replace(_rules(settings), retention_days=0, leads=False)
    return _open(settings, clock, rules, deterministic=False)


def _open(
    settings: Settings, clock: Clock, rules: Rules, *, deterministic: bool, serves: Mapping[str, str] | None = None
) -> LocalLedger:
    return open_ledger(
        settings.paths.runs / files.LOG_PATH,
        clock=clock,
        key_file=settings.paths.secrets / files.KEY_FILE,
        rules=rules,
        anchors=Anchors(settings.ledger.anchor_file, settings.ledger.anchor_command),
        deterministic=deterministic,
        serves=serves,
    )


def _rules(settings: Settings) -> Rules:
    chosen = settings.ledger
    return Rules(
        chosen.segment_bytes,
        chosen.checkpoint_seconds,
        chosen.checkpoint_records,
        chosen.retention_days,
        chosen.low_space_bytes,
    )


class _Start(Struct, frozen=True):
    """One start: what it works with."""

    directory: Path
    clock: Clock
    signer: NoteSigner
    name: RunName
    rules: Rules
    tips: Tips
    handovers: Sequence[str]
    keys: Sequence[Verifier]
    """The one that signs, and those before it."""
    serves: Mapping[str, str] | None

    def begin(self, anchors: Anchors, *, deterministic: bool) -> LocalLedger:
        lock = files.Lock.create(self.directory / f"{self.name}.lock")
        with ExitStack() as undo:
            undo.callback(lambda: lock.release(finished=self._take_back()))
            ledger = self._begin_locked(lock, anchors, deterministic=deterministic)
            undo.pop_all()
        return ledger

    def _take_back(self) -> bool:
        """A start that failed before its first record leaves nothing; what it wrote is for the next one to tell."""
        segment = self.directory / self.name.segment(1)
        with suppress(OSError):
            if segment.stat().st_size:
                return False
            segment.unlink()
        return True

    def _begin_locked(self, lock: files.Lock, anchors: Anchors, *, deterministic: bool) -> LocalLedger:
        earlier = files.runs_in(self.directory)
        dead = list(files.dead_runs(self.directory))
        first: dict[str, Any] = {"began": self.name.stamp, "previous": recovery.last_checkpoint(earlier)}
        retired = recovery.past_their_time(self.directory, earlier, self.clock.wall(), self.rules.retention_days)
        if retired:
            first["retired"] = list(retired.values())
        if self.serves:
            first["serves"] = self.serves
        if self.handovers:
            first["handovers"] = self.handovers
        known = {run: seen for run, seen in self._known().items() if run not in {name.id for name in retired}}
        if known:
            first["seen"] = [_seen(run, checkpoint) for run, checkpoint in known.items()]
        self._warn_of_what_is_gone(known, earlier)
        ledger = LocalLedger(
            self.directory,
            self.name,
            signer=self.signer,
            rules=self.rules,
            clock=self.clock,
            tips=self.tips,
            deterministic=deterministic,
        )
        if anchors:
            ledger.copy_checkpoints_to(anchors)
        found_dead = [recovery.describe(self.directory, name, earlier.get(name, [])) for name, _ in dead]
        ledger.start(lock, first, found_dead)
        if retired:
            self._delete(ledger, {name: earlier[name] for name in retired})
        for run, dead_lock in dead:
            ledger.copy_for(run, earlier.get(run, []), self.keys)
            dead_lock.release(finished=True)
        self._forget(known)
        return ledger

    def _delete(self, ledger: LocalLedger, runs: Mapping[RunName, Sequence[Segment]]) -> None:
        """Our first record, on disk by now, has their last checkpoints; the act says by whose process, and by which rule."""
        facts = {
            "act": "retention.delete",
            "requestId": RandomIds().for_call(None, None).request,
            **process_origin("server start"),
            "about": {"runs": [name.id for name in runs], "retention_days": self.rules.retention_days},
        }
        ledger.append_act("intent", facts)
        for name, segments in runs.items():
            recovery.delete(self.directory, name, segments, self.tips)
        ledger.append_act("outcome", facts | {"status": "ok"})

    def _known(self) -> Mapping[str, Checkpoint]:
        """What was kept beside the key of runs that go on, or ended since the last start."""
        try:
            return self.tips.read(self.keys)
        except OSError:
            return {}  # a directory that cannot be read is said when it cannot be written

    def _warn_of_what_is_gone(self, known: Mapping[str, Checkpoint], runs: Mapping[RunName, Sequence[Segment]]) -> None:
        """A run that is shorter than what was signed of it. The first record says so, too, and `audit verify` finds it."""
        by_id = {name.id: segments for name, segments in runs.items()}
        for run, checkpoint in known.items():
            last = recovery.last_checkpoint_of(by_id.get(run, ()), self.keys)
            if last is None or last["size"] < checkpoint.size:
                what = "cut" if run in by_id else "missing"
                _log.warning("run %s of the audit log is %s; see: toolgate audit verify", run, what)

    def _forget(self, known: Mapping[str, Checkpoint]) -> None:
        """Our first record, on disk by now, remembers those that are over. A run is over when its lock is gone."""
        going_on = {run.id for run in files.locked_runs(self.directory)}
        for run, checkpoint in known.items():
            if run not in going_on:
                with suppress(OSError):
                    self.tips.forget(run, checkpoint, self.keys)


def _seen(run: str, checkpoint: Checkpoint) -> dict[str, Any]:
    return {"run": run, "size": checkpoint.size, "root": checkpoint.root.hex()}
