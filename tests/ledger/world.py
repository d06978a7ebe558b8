"""What the ledger's tests share: entries, a clock that stands still, a log in a temporary directory."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from toolgate.ledger import LocalLedger, Rules, open_ledger
from toolgate.ledger.files import runs_in
from toolgate.ledger.reading.query import lines_of_run
from toolgate.ledger.reading.verify import LogVerification, verify
from toolgate.model.call import Caller, Wire
from toolgate.model.clock import Ids, rfc3339
from toolgate.model.record import LedgerEntry

PATIENCE_S = 30.0
CALLER = Caller("k1", "builder")
MOMENT = 1_763_240_000.5
OUTCOME = LedgerEntry(
    event="outcome",
    wire=Wire("mcp", "http", "/mcp"),
    ids=Ids("r", "t", "s"),
    timestamp=rfc3339(MOMENT),
    tool_id="mcp.tool:lra.validate",
    status="ok",
    caller=CALLER,
    tier="experimental",
    environment="local",
    arguments_digest="ab" * 32,
    input_bytes=40,
    output_bytes=300,
    duration_ms=1.25,
)
INTENT = replace(OUTCOME, event="intent", durable=True, tool_id="mcp.tool:lra.init")
ANONYMOUS = replace(
    OUTCOME,
    caller=None,
    tool_id=None,
    status="error",
    error={"happening": "missing_key", "code": None, "reason": None},
)
QUIET = Rules(checkpoint_seconds=3600.0)
"""Checkpoints by count only: a test that counts lines does not depend on time."""


class StillClock:
    """Moves when told to."""

    def __init__(self) -> None:
        self.now = 1_763_240_000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def at(entry: LedgerEntry, seconds: float) -> LedgerEntry:
    """The entry as it would be so many seconds after `MOMENT`."""
    return replace(entry, timestamp=rfc3339(MOMENT + seconds))


def numbered(entry: LedgerEntry, number: object) -> LedgerEntry:
    return replace(entry, ids=Ids(f"request-{number}", f"trace-{number}", f"span-{number}"))


def later(seconds: float) -> StillClock:
    clock = StillClock()
    clock.now += seconds
    return clock


@contextmanager
def opened(directory: Path, clock: StillClock | None = None, **more: Any) -> Iterator[LocalLedger]:
    ledger = start(directory, clock, **more)
    try:
        yield ledger
    finally:
        ledger.close()


def start(directory: Path, clock: StillClock | None = None, **more: Any) -> LocalLedger:
    given = {"clock": clock or StillClock(), "key_file": directory.parent / "audit.key", "rules": QUIET} | more
    return open_ledger(directory, **given)


def written(directory: Path, count: int, **more: Any) -> LocalLedger:
    """A finished run with this many calls."""
    with opened(directory, **more) as ledger:
        for number in range(count):
            ledger.append(numbered(OUTCOME, number))
    return ledger


def lines(directory: Path) -> list[bytes]:
    return [line for segments in runs_in(directory).values() for line in lines_of_run(segments)]


def records(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(directory)]


def segments(directory: Path) -> list[Path]:
    return [one.path for found in runs_in(directory).values() for one in found]


def cut(path: Path, keep: int) -> None:
    """Leave the first so many lines of a segment."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:keep]))


def lock_of(path: Path) -> Path:
    """The lock file of a segment's run."""
    stamp, run_id = path.name.split(".")[:2]
    return path.with_name(f"{stamp}.{run_id}.lock")


def check(directory: Path, ledger: LocalLedger, **more: Any) -> LogVerification:
    return verify(directory, [ledger.verifier], **more)


def no_space(descriptor: int, data: bytes) -> int:
    """Stands for `os.write` on a full disk."""
    raise OSError(errno.ENOSPC, "No space left on device")


def python(code: str, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """A real process with this project's code."""
    command = [sys.executable, "-c", code, *(str(one) for one in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=check)
