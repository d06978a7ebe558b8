"""Reading the log: which records, in which order, with which filters."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolgate.ledger import record
from toolgate.ledger.files import RunName, Segment, runs_in
from toolgate.ledger.recovery import lines_of, open_segment


@dataclass(frozen=True, slots=True)
class Filter:
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


@dataclass(frozen=True, slots=True)
class Located:
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
