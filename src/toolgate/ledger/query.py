"""Reading the log: which records, in which order, with which filters."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from toolgate.ledger import record
from toolgate.ledger.files import RunName, Segment, runs_in
from toolgate.ledger.recovery import lines_of, open_segment
from toolgate.model.clock import rfc3339

_SPAN: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MOMENT: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,3})?)?Z?")


class Filter(Struct, frozen=True):
    """Every field that is set must match."""

    caller: str | None = None
    """Key id."""
    tool: str | None = None
    """Canonical id, or its end: `lra.init`, `lra_init`."""
    status: str | None = None
    since: str | None = None
    """RFC 3339 in UTC: records from then on."""
    event: str | None = None
    run: str | None = None

    def matches(self, found: dict[str, Any]) -> bool:
        return (
            (self.caller is None or (found.get("caller") or {}).get("id") == self.caller)
            and (self.tool is None or _is_tool((found.get("metadata") or {}).get("toolId"), self.tool))
            and self.status in (None, found.get("status"))
            and (self.since is None or str(found.get("ts", "")) >= self.since)
            and self.event in (None, found.get("event"))
            and self.run in (None, found.get("run"))
        )


class Located(Struct, frozen=True):
    """A record's line and where it stands."""

    run: RunName
    seq: int
    line: bytes


def lines_of_run(segments: Sequence[Segment]) -> Iterator[bytes]:
    """Whole lines of a run, in order; a torn last one is left out. Raises: OSError."""
    for segment in segments:
        with open_segment(segment.path) as stream:
            for lines, _ in lines_of(stream):
                yield from lines


def records(directory: Path, wanted: Filter) -> Iterator[dict[str, Any]]:
    """Records of all runs by time, streamed. Raises: OSError."""
    runs = runs_in(directory)
    if wanted.run is not None:
        runs = {name: segments for name, segments in runs.items() if name.id == wanted.run}
    streams = [_records_of(segments) for segments in runs.values()]
    merged = heapq.merge(*streams, key=lambda found: str(found.get("ts", "")))
    return (found for found in merged if wanted.matches(found))


def find_request(directory: Path, request_id: str) -> list[Located]:
    """The records of one call, newest run first. Raises: OSError."""
    needle = record.request_mark(request_id)
    for name, segments in reversed(runs_in(directory).items()):
        found = [Located(name, seq, line) for seq, line in enumerate(lines_of_run(segments)) if needle in line]
        if found:
            return found
    return []


class Follower:
    """What is written from now on, by every run of a directory."""

    def __init__(self, directory: Path) -> None:
        """Raises: OSError."""
        self._directory = directory
        self._offsets = {one.path: one.path.stat().st_size for one in _segments(directory)}

    def records(self, wanted: Filter) -> Iterator[dict[str, Any]]:
        """Waits for more, until interrupted. A line is shown when it is whole. Raises: OSError."""
        from watchfiles import watch  # noqa: PLC0415 (only to follow)

        yield from self._new(wanted)
        for _ in watch(self._directory, recursive=False, raise_interrupt=True):
            yield from self._new(wanted)

    def _new(self, wanted: Filter) -> Iterator[dict[str, Any]]:
        for segment in _segments(self._directory):
            if segment.path.suffix == ".gz":
                continue
            with segment.path.open("rb") as stream:
                stream.seek(self._offsets.get(segment.path, 0))
                data = stream.read()
            whole = data.rpartition(b"\n")[0]
            self._offsets[segment.path] = self._offsets.get(segment.path, 0) + (len(whole) + 1 if whole else 0)
            for line in whole.split(b"\n") if whole else ():
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
    return (one for segments in runs_in(directory).values() for one in segments)


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
