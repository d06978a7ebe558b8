"""What a start finds of earlier runs: the last checkpoint, runs that died, runs past their keeping time."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from toolgate.ledger import record
from toolgate.ledger.files import RunName, Segment

CHUNK_BYTES: Final = 1024 * 1024
"""Read at once: memory stays flat however large a log is."""
TAIL_BYTES: Final = 1024 * 1024
"""Searched backwards for the last checkpoint: there is one at least every 256 records of some 900 bytes."""
_SECONDS_A_DAY: Final = 86_400


def open_segment(path: Path) -> IO[bytes]:
    """Raises: OSError."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]  # GzipFile reads


def lines_of(stream: IO[bytes]) -> Iterator[tuple[list[bytes], bytes]]:
    """Whole lines without their breaks, a chunk at a time, and at the end what follows the last break."""
    rest = b""
    while chunk := stream.read(CHUNK_BYTES):
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        yield lines, b""
    yield [], rest


def last_checkpoint(runs: Mapping[RunName, Sequence[Segment]]) -> dict[str, Any] | None:
    """The newest checkpoint of the newest run that has one: what a run's first record holds of the past."""
    # Names tell the second of a start; of two in one second the one written to last is the newer.
    by_age = sorted(runs, key=lambda name: (name.stamp, runs[name][-1].path.stat().st_mtime_ns))
    for name in reversed(by_age):
        found = last_checkpoint_of(runs[name])
        if found is not None:
            return {"run": name.id, "size": found["size"], "root": found["root"]}
    return None


def last_checkpoint_of(segments: Sequence[Segment]) -> dict[str, Any] | None:
    """Searched from the end; a torn last line is passed over."""
    for segment in reversed(segments):
        for line in reversed(_tail(segment.path).split(b"\n")):
            if record.is_checkpoint(line):
                found = record.read(line)
                if found is not None and isinstance(found.get("note"), str):
                    return found
    return None


def describe(directory: Path, name: RunName, segments: Sequence[Segment]) -> dict[str, Any]:
    """How far a dead run got: its records, a torn line, and the intents nobody knows the outcome of."""
    intents: dict[bytes, int] = {}
    count, torn = 0, 0
    for segment in segments:
        with open_segment(segment.path) as stream:
            for lines, rest in lines_of(stream):
                for line in lines:
                    _follow(line, count, intents)
                    count += 1
                torn = len(rest)
    return {
        "run": name.id,
        "records": count,
        "tornBytes": torn,
        "suspect": (directory / f"{name}.suspect").exists(),
        "unfinished": record.unfinished(intents),
    }


def retire(
    directory: Path, runs: dict[RunName, list[Segment]], wall: float, retention_days: int
) -> list[dict[str, Any]]:
    """Delete runs past their time, but only those whose last checkpoint someone else has; say which.

    Raises: OSError. Side effects: deletes files; takes the runs out of `runs`.
    """
    gone: list[dict[str, Any]] = []
    newest = max(runs, default=None)
    for name in list(runs):
        # The newest stays: the next first record must have a checkpoint to hold.
        if not retention_days or name == newest or (directory / f"{name}.lock").exists():
            continue
        segments = runs[name]
        age = wall - max(one.path.stat().st_mtime for one in segments)
        last = last_checkpoint_of(segments)
        anchored = directory / f"{name}.anchored"
        copied = last is not None and anchored.exists() and anchored.read_text(encoding="utf-8") == last["note"]
        if age < retention_days * _SECONDS_A_DAY or not copied or last is None:
            continue
        for one in segments:
            one.path.unlink()
        anchored.unlink()
        (directory / f"{name}.suspect").unlink(missing_ok=True)
        del runs[name]
        gone.append({"run": name.id, "size": last["size"], "root": last["root"]})
    return gone


def _follow(line: bytes, seq: int, intents: dict[bytes, int]) -> None:
    if record.MARK_INTENT in line:
        intents[record.request_id_of(line)] = seq
    elif intents:
        intents.pop(record.request_id_of(line), None)


def _tail(path: Path) -> bytes:
    with open_segment(path) as stream:
        if path.suffix == ".gz":
            return stream.read()[-TAIL_BYTES:]
        stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return stream.read()
