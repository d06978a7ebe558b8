"""Reading the log: which records, in which order, with which filters."""

from __future__ import annotations

import heapq
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from toolgate.ledger import record
from toolgate.ledger.files import RunName, Segment, runs_in
from toolgate.ledger.lines import lines_in, tail_of
from toolgate.model.clock import from_rfc3339, rfc3339

MAX_LOOKED_AT: Final = 4 * 1024 * 1024
"""Bytes of the log that are read for somebody's latest records: some eight thousand."""
TICK_S: Final = 0.001
"""Records have milliseconds: by one, two moments may seem to have changed places."""
_SPAN: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MOMENT: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,3})?)?Z?")


class Filter(Struct, frozen=True):
    """Every field that is set must match."""

    caller: str | None = None
    """Key id."""
    tool: str | None = None
    """Canonical id, or its end: `notes.add`, `notes_add`."""
    status: str | None = None
    since: str | None = None
    """RFC 3339 in UTC: records from then on."""
    event: str | None = None
    run: str | None = None
    upstream: str | None = None
    """Calls of its tools, and what happened to it."""

    def matches(self, found: dict[str, Any]) -> bool:
        return (
            (self.caller is None or (found.get("caller") or {}).get("id") == self.caller)
            and (self.tool is None or _is_tool((found.get("metadata") or {}).get("toolId"), self.tool))
            and self.status in (None, found.get("status"))
            and (self.since is None or str(found.get("ts", "")) >= self.since)
            and self.event in (None, found.get("event"))
            and self.run in (None, found.get("run"))
            and self.upstream in (None, found.get("upstream"), _about(found).get("upstream"))
        )


def _about(found: dict[str, Any]) -> dict[str, Any]:
    about = found.get("about")
    return about if isinstance(about, dict) else {}


class Located(Struct, frozen=True):
    """A record's line and where it stands."""

    run: RunName
    seq: int
    line: bytes


def lines_of_run(segments: Sequence[Segment]) -> Iterator[bytes]:
    """Whole lines of a run, in order; a torn last one is left out. Raises: SegmentDamaged, OSError."""
    for segment in segments:
        for lines, _ in lines_in(segment.path):
            yield from lines


def records(directory: Path, wanted: Filter) -> Iterator[dict[str, Any]]:
    """Records of all runs by time, streamed. Raises: SegmentDamaged, OSError."""
    runs = runs_in(directory)
    if wanted.run is not None:
        runs = {name: segments for name, segments in runs.items() if name.id == wanted.run}
    return (found for found in _by_time(runs) if wanted.matches(found))


def latest(directory: Path, wanted: Filter, most: int) -> list[dict[str, Any]]:
    """The newest records that match, oldest first, as far as they stand in the last `MAX_LOOKED_AT` bytes of the log.

    Raises: SegmentDamaged, OSError.
    """
    found: list[dict[str, Any]] = []
    left = MAX_LOOKED_AT
    for segment in reversed(list(_segments(directory))):
        if left <= 0 or len(found) >= most:
            break
        tail = tail_of(segment.path, left)
        lines = tail.split(b"\n")
        whole = (
            lines[1:-1] if len(tail) == left else lines[:-1]
        )  # the first one may be cut, what follows the last break is torn
        left -= len(tail)
        records_of_segment = [one for line in whole if (one := record.read(line)) is not None and wanted.matches(one)]
        found = records_of_segment[-(most - len(found)) :] + found
    return found


def _by_time(runs: Mapping[RunName, Sequence[Segment]]) -> Iterator[dict[str, Any]]:
    """Of all runs. One is opened when its time has come: a log of thousands of runs is read with a few open files."""
    waiting = deque((_moment(name), number, segments) for number, (name, segments) in enumerate(runs.items()))
    open_runs: list[tuple[str, int, dict[str, Any], Iterator[dict[str, Any]]]] = []
    while waiting or open_runs:
        if waiting and (not open_runs or waiting[0][0] <= open_runs[0][0]):
            _, number, segments = waiting.popleft()
            stream = _records_of(segments)
        else:
            _, number, found, stream = heapq.heappop(open_runs)
            yield found
        following = next(stream, None)
        if following is not None:
            heapq.heappush(open_runs, (str(following.get("ts", "")), number, following, stream))


def _moment(run: RunName) -> str:
    """When a run began, to compare with the times of records."""
    stamp = run.stamp
    return f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}T{stamp[9:11]}:{stamp[11:13]}:{stamp[13:15]}"


def find_request(directory: Path, request_id: str) -> list[Located]:
    """The records of one call, newest run first. Raises: SegmentDamaged, OSError."""
    needle = record.request_mark(request_id)
    for name, segments in reversed(runs_in(directory).items()):
        found = [Located(name, seq, line) for seq, line in enumerate(lines_of_run(segments)) if needle in line]
        if found:
            return found
    return []


def serving_at(directory: Path, located: Located) -> dict[str, str]:
    """Digests of policy and contract by which a call was decided: those of its run when it began. Empty: the run does not say.

    Raises: SegmentDamaged, OSError.
    """
    began = _began(record.read(located.line) or {})
    before = islice(lines_of_run(runs_in(directory)[located.run]), located.seq)
    first = record.read(next(before, b"")) or {}
    reloads = (record.read(line) or {} for line in before if record.is_reload(line))
    told = [first.get("serves"), *(_about(act).get("serves") for act in reloads if _began(act) <= began + TICK_S)]
    return next((serves for serves in reversed(told) if isinstance(serves, dict)), {})


def _began(found: Mapping[str, Any]) -> float:
    """To the millisecond, as records have it; 0: it does not say. What a call ends by are the rules it began with."""
    took = found.get("durationMs")
    try:
        return round(from_rfc3339(found.get("ts")) - (took / 1000 if isinstance(took, float) else 0.0), 3)
    except ValueError:
        return 0.0


class Follower:
    """What is written from now on, by every run of a directory."""

    def __init__(self, directory: Path) -> None:
        """Raises: OSError."""
        self._directory = directory
        self._offsets = {segment.path: segment.path.stat().st_size for segment in _segments(directory)}

    def records(self, wanted: Filter) -> Iterator[dict[str, Any]]:
        """Waits for more, until interrupted. A line is shown when it is whole. Raises: SegmentDamaged, OSError."""
        from watchfiles import watch  # noqa: PLC0415 (only to follow)

        yield from self._new(wanted)
        for _ in watch(self._directory, recursive=False, raise_interrupt=True):
            yield from self._new(wanted)

    def _new(self, wanted: Filter) -> Iterator[dict[str, Any]]:
        for segment in _segments(self._directory):
            if segment.path.suffix == ".gz":
                continue
            for lines, _ in lines_in(segment.path, self._offsets.get(segment.path, 0)):
                for line in lines:
                    self._offsets[segment.path] = self._offsets.get(segment.path, 0) + len(line) + 1
                    found = record.read(line)
                    if found is not None and wanted.matches(found):
                        yield found


def parse_since(text: str, now: float) -> str | None:
    """RFC 3339 in UTC from a moment (`2026-11-15T21:00:00Z`, `2026-11-15`) or a span back from now (`90m`); None: neither."""
    span = _SPAN.fullmatch(text)
    if span:
        return rfc3339(max(0.0, now - int(span[1]) * _SECONDS[span[2]]))
    moment = _MOMENT.fullmatch(text)
    if moment is None:
        return None
    try:
        datetime.fromisoformat(moment[1] + (moment[2] or ""))
    except ValueError:
        return None
    return moment[1] + (moment[2] or "")


def _segments(directory: Path) -> Iterator[Segment]:
    return (segment for segments in runs_in(directory).values() for segment in segments)


def _records_of(segments: Sequence[Segment]) -> Iterator[dict[str, Any]]:
    for line in lines_of_run(segments):
        found = record.read(line)
        if found is not None:
            yield found


def _is_tool(tool_id: str | None, wanted: str) -> bool:
    if tool_id is None:
        return False
    short = tool_id.rpartition(":")[2]
    return wanted in (tool_id, short, short.replace(".", "_")) or short.endswith(f".{wanted}")
