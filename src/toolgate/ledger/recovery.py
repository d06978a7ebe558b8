"""What a start finds of earlier runs: the last checkpoint, runs that died, runs past their keeping time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from toolgate.kit import note
from toolgate.kit.merkle import leaf_hash
from toolgate.kit.note import Verifier
from toolgate.ledger import record
from toolgate.ledger.files import RunName, Segment
from toolgate.ledger.lines import SegmentDamaged, lines_in, tail_of
from toolgate.ledger.tips import Tips

TAIL_BYTES: Final = 1024 * 1024
"""Searched backwards for the last checkpoint: there is one at least every 256 records of some 900 bytes."""
MAX_UNFINISHED: Final = 100_000
"""Effects that a dead run is said to have left open: more than the settings let run at once is not a log of ours."""
MAX_RETIRED: Final = 10_000
"""Runs deleted by one start: its first record names them all, and stays a line that everyone reads."""
_SECONDS_A_DAY: Final = 86_400


def last_checkpoint(runs: Mapping[RunName, Sequence[Segment]]) -> dict[str, Any] | None:
    """The newest checkpoint of the newest run that has one: what a run's first record holds of the past."""
    # Names tell the second of a start; of two in one second the one written to last is the newer.
    by_age = sorted(runs, key=lambda name: (name.stamp, runs[name][-1].path.stat().st_mtime_ns))
    for name in reversed(by_age):
        found = last_checkpoint_of(runs[name])
        if found is not None:
            return {"run": name.id, "size": found["size"], "root": found["root"]}
    return None


def last_checkpoint_of(segments: Sequence[Segment], signed_by: Sequence[Verifier] = ()) -> dict[str, Any] | None:
    """Searched from the end; a torn last line is passed over, and so is what cannot be read: `audit verify` names it.
    `signed_by`: only what one of these keys signed."""
    for segment in reversed(segments):
        with suppress(SegmentDamaged):
            for line in reversed(tail_of(segment.path, TAIL_BYTES).split(b"\n")):
                found = record.read(line) if record.is_checkpoint(line) else None
                if found is not None and _is_statement(found, signed_by):
                    return found
    return None


def describe(directory: Path, name: RunName, segments: Sequence[Segment]) -> dict[str, Any]:
    """How far a dead run got: its records, a torn line, and the intents nobody knows the outcome of.

    `last` is the leaf of its last record, which no checkpoint may cover: each line holds the leaf before it, so whoever
    changes one of them later is found.
    """
    intents: dict[bytes, int] = {}
    count, torn, last = 0, 0, None
    with suppress(SegmentDamaged):  # what stands before the damage is told; `audit verify` names the damage
        for segment in segments:
            for lines, rest in lines_in(segment.path):
                for line in lines:
                    _follow(line, count, intents)
                    count += 1
                last = leaf_hash(lines[-1]).hex() if lines else last
                torn = len(rest)
    return {
        "run": name.id,
        "records": count,
        "last": last,
        "tornBytes": torn,
        "suspect": (directory / f"{name}.suspect").exists(),
        "unfinished": record.unfinished(intents),
    }


def past_their_time(
    directory: Path, runs: Mapping[RunName, Sequence[Segment]], wall: float, retention_days: int
) -> dict[RunName, dict[str, Any]]:
    """Runs that are to be deleted, and what a record says of each: only those whose last checkpoint someone else has.

    Raises: OSError.
    """
    gone: dict[RunName, dict[str, Any]] = {}
    newest = max(runs, default=None)
    for name in list(runs):
        # The newest stays: the next first record must have a checkpoint to hold.
        if not retention_days or len(gone) == MAX_RETIRED or name == newest or (directory / f"{name}.lock").exists():
            continue
        segments = runs[name]
        age = wall - max(segment.path.stat().st_mtime for segment in segments)
        last = last_checkpoint_of(segments)
        anchored = directory / f"{name}.anchored"
        copied = last is not None and anchored.exists() and anchored.read_text(encoding="utf-8") == last["note"]
        if age < retention_days * _SECONDS_A_DAY or not copied or last is None:
            continue
        gone[name] = {"run": name.id, "size": last["size"], "root": last["root"]}
    return gone


def delete(directory: Path, name: RunName, segments: Sequence[Segment], tips: Tips) -> None:
    """Raises: OSError. What is left of a deletion that was cut short is deleted by the next start."""
    tips.drop(name.id)
    for segment in segments:
        segment.path.unlink(missing_ok=True)
    (directory / f"{name}.anchored").unlink(missing_ok=True)
    (directory / f"{name}.suspect").unlink(missing_ok=True)


def _follow(line: bytes, seq: int, intents: dict[bytes, int]) -> None:
    if record.is_intent(line) and len(intents) < MAX_UNFINISHED:
        intents[record.request_id_of(line)] = seq
    elif intents:
        intents.pop(record.request_id_of(line), None)


def _is_statement(found: Mapping[str, Any], signed_by: Sequence[Verifier]) -> bool:
    """Has it what a checkpoint says? Whether that is true is for `audit verify`."""
    if not (
        isinstance(found.get("note"), str) and type(found.get("size")) is int and isinstance(found.get("root"), str)
    ):
        return False
    if signed_by:
        try:
            note.open_checkpoint(found["note"], signed_by)
        except note.NoteError:
            return False
    return True
