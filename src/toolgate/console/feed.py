"""The live list: what is written to the log from now on, to the pages that are open.

The log is looked at ten times a second while somebody looks at a page, once for all of them, and its newest records alone are
read: a busy server's pages miss some, and say how many. Nothing is asked of the road.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from toolgate.console.index.building import milliseconds
from toolgate.console.index.filters import NONE
from toolgate.console.rendering import iso
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
"""New files of the log are looked for when its directory has changed, and at every tenth look: not every file system says so."""
SETTLED_NS: Final = 50_000_000
"""A directory that changed so lately may change again without another stamp."""
MOST_BYTES: Final = 32_768
"""Read of one file at one look: some forty records."""
MOST_COUNTED: Final = 256 * 1024
"""Bytes before those, of which only the calls are counted."""
_PIECE: Final = 32_768
"""In which they are counted: large texts cost more than many small ones."""
MOST_RECORDS: Final = 20
"""Shown of one look."""
MAX_LISTENERS: Final = 64
MAX_OF_ONE: Final = 8
"""Open lists of one key."""
MAX_WAITING: Final = 200
"""Records that wait for a page that does not read."""
WATCHED: Final = 16
"""Files that are looked at: the newest of each of the newest runs."""
_OUTCOME: Final = b'"event":"outcome"'


class FeedRow(Struct, frozen=True):
    """A record of a call: as the page's script reads it, and what else filters ask for."""

    told: Mapping[str, Any]
    upstream: str


class Look(Struct, frozen=True):
    """What one look at the log has found."""

    rows: Sequence[FeedRow] = ()
    """Oldest first."""
    unread: int = 0
    """Calls before those, which were only counted."""
    is_least: bool = False
    """There were more than were counted."""
    since: str = ""
    """When the first of those that were not read was."""


class LeftOut(Struct):
    """Calls that a page was not shown, and when they were."""

    count: int = 0
    is_least: bool = False
    since: str = ""
    until: str = ""

    def add(self, rows: Sequence[FeedRow]) -> None:
        if rows:
            self.count += len(rows)
            self.since = self.since or rows[0].told["ts"]
            self.until = rows[-1].told["ts"]

    def add_unread(self, look: Look, *, is_known: bool) -> None:
        """`is_known`: all of them would have been shown, so they are counted."""
        self.count += look.unread if is_known else 0
        self.is_least = self.is_least or look.is_least or not is_known
        self.since = self.since or look.since
        self.until = look.rows[0].told["ts"] if look.rows else look.since


class FeedListener(Struct, eq=False):
    session: ConsoleSession
    wanted: CallFilter
    ids: Mapping[str, str]
    queue: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    left_out: LeftOut = field(default_factory=LeftOut)

    def hear(self, look: Look) -> None:
        """What this page may see and asks for: the newest of it, and how much more there was."""
        found = [row for row in look.rows if self._matches(row)]
        room = min(MOST_RECORDS, MAX_WAITING - self.queue.qsize())
        shown = found[len(found) - room :] if 0 < room < len(found) else found if room > 0 else []
        if look.unread or look.is_least:
            self.left_out.add_unread(look, is_known=self.session.owner is None and not self.wanted.is_set)
        self.left_out.add(found[: len(found) - len(shown)])
        if room > 0 and (self.left_out.count or self.left_out.is_least):
            self.queue.put_nowait(b"event: left-out\ndata: " + _left_out(self.left_out) + b"\n\n")
            self.left_out = LeftOut()
        for row in shown:
            self.queue.put_nowait(b"data: " + strictjson.dumps(row.told) + b"\n\n")

    def _matches(self, row: FeedRow) -> bool:
        told, owner, wanted = row.told, self.session.owner, self.wanted
        if owner is not None and told["caller"] != owner:
            return False
        pairs = (
            (wanted.caller, told["caller"]),
            (self.ids.get(wanted.tool, wanted.tool), told["tool"]),
            (wanted.upstream, row.upstream),
            (wanted.tier, told["tier"]),
            (wanted.decision, told["decision"]),
        )
        is_verdict = not wanted.verdict or wanted.verdict == told["verdict"]
        is_refused = wanted.verdict == "refused" and told["verdict"] != "ok"
        is_rest = (not wanted.clamped or told["clamps"]) and (not wanted.timed or told["ms"])
        is_named = all(not want or (has == "" if want == NONE else want == has) for want, has in pairs)
        return bool((is_verdict or is_refused) and is_rest and is_named)


def _left_out(found: LeftOut) -> bytes:
    """`until` is the first moment that is not among them."""
    last = milliseconds(found.until)
    until = found.until if last is None else iso(last + 1)
    return strictjson.dumps({"count": found.count, "least": found.is_least, "since": found.since, "until": until})


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


def _row(found: Mapping[str, Any]) -> FeedRow:
    return FeedRow(told(found), str(found.get("upstream") or ""))


class Feed:
    def __init__(self, log: Path, live: Callable[[ConsoleSession], bool]) -> None:
        """`live`: whether a session still is."""
        self._live = live
        self._tail = Tail(log)
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
                elif found is not None:
                    listener.hear(found)


class Tail:
    """What was added to the log's newest files since the last look."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._ends: dict[Path, int] = {}
        self._looks = 0
        self._stamp = 0

    def begin(self) -> None:
        """From what is there now on. Raises: OSError."""
        self._looks = 0
        self._ends = {path: path.stat().st_size for path in self._newest()}

    def new(self) -> Look | None:
        """Outcomes of calls; None: there is nothing new."""
        self._looks += 1
        newest = self._newest() if self._has_changed() or self._looks % SCAN_LOOKS == 0 else list(self._ends)
        # A file that was the newest of its run until now may have grown before the next one began.
        looks = [look for path in {*self._ends, *newest} if (look := self._added(path)) is not None]
        self._ends = {path: self._ends.get(path, 0) for path in newest}
        if not looks:
            return None
        return Look(
            rows=sorted((row for look in looks for row in look.rows), key=lambda row: str(row.told["ts"])),
            unread=sum(look.unread for look in looks),
            is_least=any(look.is_least for look in looks),
            since=min((look.since for look in looks if look.since), default=""),
        )

    def _has_changed(self) -> bool:
        """Whether files may have come or gone since the last time that they were looked for."""
        try:
            return self._log.stat().st_mtime_ns != self._stamp
        except OSError:
            return False

    def _newest(self) -> list[Path]:
        if not self._log.is_dir():
            return []
        stamp = self._log.stat().st_mtime_ns
        self._stamp = stamp if time.time_ns() - stamp > SETTLED_NS else 0
        newest = [segments[-1].path for segments in runs_in(self._log).values()][-WATCHED:]
        return [path for path in newest if path.suffix != ".gz"]

    def _added(self, path: Path) -> Look | None:
        start = self._ends.get(path, 0)
        try:
            size = path.stat().st_size
            if size <= start:
                return None
            begin = max(start, size - MOST_BYTES)
            data = line_at(path, begin, size - begin)
            whole = data[: data.rfind(b"\n") + 1]
            if not whole:
                return None  # a line that is still being written is whole at the next look
            # What begins in the middle of a line leaves that line to those that are only counted.
            cut = 0 if begin == start else whole.find(b"\n") + 1
            unread, first, since = _counted(path, start, begin + cut)
        except OSError:
            return None
        self._ends[path] = begin + len(whole)
        found = (record.read(line) for line in whole[cut:].split(b"\n") if _OUTCOME in line)
        rows = [_row(each) for each in found if each is not None and each.get("event") == "outcome"]
        return Look(rows, unread, first > start, since)


def _counted(path: Path, start: int, end: int) -> tuple[int, int, str]:
    """Calls before `end`, from where on they were counted, and when the first whole one of those was. Raises: OSError."""
    first = max(start, end - MOST_COUNTED)
    calls, since, rest = 0, "", b""
    for place in range(first, end, _PIECE):
        piece = rest + line_at(path, place, min(_PIECE, end - place))
        calls += piece.count(_OUTCOME)
        rest = piece[1 - len(_OUTCOME) :]  # shorter than the mark, so nothing counts twice
        since = since or _first_moment(piece)
    return calls, first, since


def _first_moment(lines: bytes) -> str:
    """When the first whole call of these was; empty: there is none."""
    for line in lines.split(b"\n", 3)[:3]:
        found = record.read(line)
        if found is not None:
            return str(found.get("ts", ""))
    return ""
