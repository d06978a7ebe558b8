"""The live list: what is written to the log from now on, to the pages that are open.

The log is looked at ten times a second while somebody looks at a page, once for all of them, and its newest records alone are
read: a busy server's pages miss some, and say how many. Nothing is asked of the road.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from toolgate.ledger import record
from toolgate.ledger.files import runs_in
from toolgate.ledger.lines import line_at
from toolgate.model import strictjson
from toolgate.model.threads import in_thread

if TYPE_CHECKING:
    from toolgate.console.index.filters import CallFilter
    from toolgate.console.session import ConsoleSession

LOOK_S: Final = 0.1
SCAN_LOOKS: Final = 10
"""New files of the log are looked for at every tenth look."""
MOST_BYTES: Final = 65_536
"""Read of one file at one look: some hundred records."""
MOST_RECORDS: Final = 20
"""Shown of one look."""
MAX_LISTENERS: Final = 64
MAX_OF_ONE: Final = 8
"""Open lists of one key."""
MAX_WAITING: Final = 200
"""Records that wait for a page that does not read."""
WATCHED: Final = 16
"""Files that are looked at: the newest of each of the newest runs."""


class FeedListener(Struct, eq=False):
    session: ConsoleSession
    wanted: CallFilter
    ids: Mapping[str, str]
    queue: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)

    def offer(self, found: Mapping[str, Any]) -> None:
        if self.queue.qsize() < MAX_WAITING and self._matches(found):
            self.queue.put_nowait(b"data: " + strictjson.dumps(told(found)) + b"\n\n")

    def _matches(self, found: Mapping[str, Any]) -> bool:
        caller, owner = _object(found, "caller").get("id", ""), self.session.owner
        if owner is not None and caller != owner:
            return False
        wanted, row = self.wanted, told(found)
        pairs = (
            (wanted.caller, caller),
            (self.ids.get(wanted.tool, wanted.tool), row["tool"]),
            (wanted.upstream, found.get("upstream", "")),
            (wanted.tier, row["tier"]),
            (wanted.decision, row["decision"]),
        )
        is_verdict = not wanted.verdict or wanted.verdict == row["verdict"]
        is_refused = wanted.verdict == "refused" and row["verdict"] != "ok"
        is_rest = not wanted.clamped or bool(row["clamps"])
        return (is_verdict or is_refused) and is_rest and all(not want or want == has for want, has in pairs)


def told(found: Mapping[str, Any]) -> dict[str, Any]:
    """A record of a call as the page's script reads it."""
    error = _object(found, "error")
    happening = error.get("happening")
    return {
        "ts": str(found.get("ts", "")),
        "request": str(found.get("requestId", "")),
        "tool": str(_object(found, "metadata").get("toolId") or ""),
        "caller": str(_object(found, "caller").get("id") or ""),
        "verdict": str(happening or "ok"),
        "decision": str(found.get("decision") or ""),
        "tier": str(found.get("tier") or ""),
        "ms": found.get("durationMs") or 0,
        "clamps": len(found.get("clamps") or ()),
    }


def _object(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = found.get(name)
    return value if isinstance(value, dict) else {}


class Feed:
    def __init__(self, log: Path, live: Callable[[ConsoleSession], bool]) -> None:
        """`live`: whether a session still is."""
        self._live = live
        self._tail = _Tail(log)
        self._listeners: set[FeedListener] = set()
        self._looking: asyncio.Task[None] | None = None

    def listen(self, session: ConsoleSession, wanted: CallFilter, ids: Mapping[str, str]) -> FeedListener | None:
        """None: too many are open."""
        own = sum(each.session.caller.key_id == session.caller.key_id for each in self._listeners)
        if len(self._listeners) >= MAX_LISTENERS or own >= MAX_OF_ONE:
            return None
        listener = FeedListener(session, wanted, ids)
        if self._looking is None or self._looking.done():
            self._tail.begin()
            self._looking = asyncio.get_running_loop().create_task(self._look())
        self._listeners.add(listener)
        return listener

    def leave(self, listener: FeedListener) -> None:
        self._listeners.discard(listener)
        listener.queue.put_nowait(None)

    def close(self) -> None:
        for listener in list(self._listeners):
            self.leave(listener)

    async def _look(self) -> None:
        while self._listeners:
            await asyncio.sleep(LOOK_S)
            found = await in_thread(self._tail.new)
            for listener in list(self._listeners):
                if not self._live(listener.session):
                    self.leave(listener)
                    continue
                for each in found:
                    listener.offer(each)


class _Tail:
    """What was added to the log's newest files since the last look."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._ends: dict[Path, int] = {}
        self._looks = 0

    def begin(self) -> None:
        """From what is there now on. Raises: OSError."""
        self._looks = 0
        self._ends = {path: path.stat().st_size for path in self._newest()}

    def new(self) -> list[dict[str, Any]]:
        """Outcomes of calls, oldest first."""
        self._looks += 1
        if self._looks % SCAN_LOOKS == 0:
            self._ends = {path: self._ends.get(path, 0) for path in self._newest()}
        found: list[dict[str, Any]] = []
        for path in self._ends:
            found += self._added(path)
        return sorted(found, key=lambda each: str(each.get("ts")))[-MOST_RECORDS:]

    def _newest(self) -> list[Path]:
        if not self._log.is_dir():
            return []
        newest = [segments[-1].path for segments in runs_in(self._log).values()][-WATCHED:]
        return [path for path in newest if path.suffix != ".gz"]

    def _added(self, path: Path) -> list[dict[str, Any]]:
        try:
            size, start = path.stat().st_size, self._ends[path]
            if size <= start:
                return []
            begin = max(start, size - MOST_BYTES)
            data = line_at(path, begin, size - begin)
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            return []  # a line that is still being written is whole at the next look
        self._ends[path] = begin + len(whole)
        lines = (
            whole.split(b"\n")[-1 - MOST_RECORDS : -1] if begin == start else whole.split(b"\n")[1:-1][-MOST_RECORDS:]
        )
        return [each for line in lines if (each := record.read(line)) is not None and each.get("event") == "outcome"]
