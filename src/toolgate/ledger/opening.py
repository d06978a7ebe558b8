"""The start of a run: what earlier runs left is found, told and tidied before the first call."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import LedgerUnavailable, StartRefused
from toolgate.ledger import files, recovery
from toolgate.ledger.anchors import Anchors
from toolgate.ledger.files import RunName
from toolgate.ledger.local import LocalLedger, Rules

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.kit.note import Signer
    from toolgate.model.clock import Clock

ORIGIN: Final = "toolgate/audit"
"""Which log speaks, in a checkpoint; a deployment with several logs names each."""


def open_ledger(
    directory: Path,
    *,
    clock: Clock,
    key_file: Path,
    run_id: str | None = None,
    rules: Rules = Rules(),  # noqa: B008 (frozen)
    anchors: Anchors = Anchors(),  # noqa: B008 (frozen)
    deterministic: bool = False,
    origin: str = ORIGIN,
) -> LocalLedger:
    """Begin a run: find what runs before it left, write that down, and be ready for records.

    `directory` is the settings' runs directory joined with `LOG_PATH`.
    Raises: StartRefused: the log cannot be written here; the text says what to do.
    Side effects: creates directory, key and segment; may delete runs by age; starts threads. `close` ends it.
    """
    try:
        files.make_directory(directory)
        signer = files.load_or_create_key(key_file, origin)
        files.write_file(directory / files.PUBLIC_KEY, f"{signer.verifier}\n")
        return _begin(
            directory, clock, signer, run_id or os.urandom(8).hex(), rules, anchors, deterministic=deterministic
        )
    except (OSError, LedgerUnavailable) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else str(fault)
        raise StartRefused(
            f"The audit log cannot be written: {reason}.\nMake its directory writable, with room for records."
        ) from None


def _begin(
    directory: Path, clock: Clock, signer: Signer, run_id: str, rules: Rules, anchors: Anchors, *, deterministic: bool
) -> LocalLedger:
    name = RunName.make(clock.wall(), run_id)
    lock = files.Lock.create(directory / f"{name}.lock")
    try:
        return _begin_locked(directory, clock, signer, name, lock, rules, anchors, deterministic=deterministic)
    except BaseException:
        lock.release(finished=True)
        raise


def _begin_locked(
    directory: Path,
    clock: Clock,
    signer: Signer,
    name: RunName,
    lock: files.Lock,
    rules: Rules,
    anchors: Anchors,
    *,
    deterministic: bool,
) -> LocalLedger:
    earlier = files.runs_in(directory)
    dead = list(files.dead_runs(directory))
    first: dict[str, Any] = {"previous": recovery.last_checkpoint(earlier)}
    retired = recovery.retire(directory, earlier, clock.wall(), rules.retention_days)
    if retired:
        first["retired"] = retired
    ledger = LocalLedger(directory, name, signer=signer, rules=rules, clock=clock, deterministic=deterministic)
    if anchors:
        ledger.copy_checkpoints_to(anchors)
    ledger.start(lock, first, [recovery.describe(directory, one, earlier.get(one, [])) for one, _ in dead])
    for one, dead_lock in dead:
        ledger.copy_for(one, earlier.get(one, []))
        dead_lock.release(finished=True)
    return ledger
