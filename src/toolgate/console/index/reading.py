"""Questions to the index, each bounded in what it reads and returns."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from toolgate.console.index.building import MAX_WORD, NO_ONE, milliseconds
from toolgate.console.index.filters import NONE, CallFilter, EntryPlace
from toolgate.console.index.tables import BUCKET_MS, KINDS, open_index
from toolgate.ledger.files import runs_in
from toolgate.ledger.lines import MAX_LINE_BYTES, SegmentDamaged, line_at

SAMPLE: Final = 5000
"""The newest calls by which latency is told."""
_KINDS: Final = {"": (0,), "call": (0,), "act": (2,), "all": (0, 2)}
_COLUMNS: Final = "ts, run, seq, kind, request, us, clamps, segment, offset, length"
_NAMED: Final = ("caller", "tool", "upstream", "verdict", "decision", "tier")


class Entry(Struct, frozen=True):
    """One record as the index has it."""

    ts: int
    run: int
    seq: int
    kind: int
    request: str
    us: int
    clamps: int
    segment: int
    offset: int
    length: int
    caller: str
    tool: str
    upstream: str
    verdict: str
    decision: str
    tier: str

    @property
    def place(self) -> EntryPlace:
        return EntryPlace(self.ts, self.run, self.seq)


class CallSum(Struct, frozen=True):
    """Calls that have something in common."""

    name: str
    calls: int
    clamped: int
    last: int


class IndexReader:
    """Open questions over one connection. `owner`: whose calls are seen; None: everybody's. `ids`: of tools, by the names that
    callers know."""

    def __init__(self, connection: sqlite3.Connection, log: Path, owner: str | None, ids: Mapping[str, str]) -> None:
        self._connection = connection
        self._log = log
        self._owner = owner
        self._ids = ids

    def entries(self, wanted: CallFilter, now: float, most: int, before: EntryPlace | None = None) -> list[Entry]:
        """The newest that match, newest first."""
        clauses, values = self._clauses(wanted, now)
        if before is not None:
            clauses.append("(ts, run, seq) < (?, ?, ?)")
            values += [before.ts, before.run, before.seq]
        return self._select(clauses, values, most)

    def of_request(self, request: str) -> list[Entry]:
        """The records of one call, oldest first."""
        clauses, values = self._owned()
        return self._select([*clauses, "request = ?"], [*values, request.encode()], 16)[::-1]

    def latest(self, kind: str, most: int, since_ms: int = 0) -> list[Entry]:
        """Of the records that are not calls: checkpoints, and what a start found. They are nobody's own."""
        return self._select(["kind = ?", "kind > 1", "ts >= ?"], [KINDS[kind], since_ms], most)

    def line(self, entry: Entry) -> bytes | None:
        """What the log itself says; None: it says so no longer."""
        found = self._connection.execute("SELECT name FROM run WHERE no = ?", (entry.run,)).fetchone()
        if found is None or entry.length > MAX_LINE_BYTES:
            return None
        segments = next((each for name, each in runs_in(self._log).items() if str(name) == found[0]), [])
        path = next((each.path for each in segments if each.number == entry.segment), None)
        try:
            return None if path is None else line_at(path, entry.offset, entry.length)
        except (OSError, SegmentDamaged):
            return None

    def run_name(self, entry: Entry) -> str:
        found = self._connection.execute("SELECT name FROM run WHERE no = ?", (entry.run,)).fetchone()
        return str(found[0]) if found else ""

    # Sums ----------------------------------------------------------------------------------------------------------

    def by(self, column: str, since_ms: int) -> list[CallSum]:
        """Calls since then, by `verdict`, `tool` or `caller`, most first."""
        assert column in ("verdict", "tool", "caller")
        clauses, values = self._owned()
        where = " AND ".join([*clauses, "bucket >= ?"])
        rows = self._connection.execute(
            f"SELECT coalesce(text, ''), sum(calls), sum(clamped), max(last) FROM tally LEFT JOIN word ON no = {column} "  # noqa: S608
            f"WHERE {where} GROUP BY {column} ORDER BY 2 DESC LIMIT 5000",
            [*values, since_ms // BUCKET_MS],
        )
        return [CallSum(*row) for row in rows]

    def refusals_by_tool(self, since_ms: int) -> dict[str, int]:
        clauses, values = self._owned()
        where = " AND ".join([*clauses, "bucket >= ?", "verdict != ?"])
        rows = self._connection.execute(
            "SELECT coalesce(text, ''), sum(calls) FROM tally LEFT JOIN word ON no = tool "  # noqa: S608
            f"WHERE {where} GROUP BY tool LIMIT 5000",
            [*values, since_ms // BUCKET_MS, self._word("ok")],
        )
        return dict(rows)

    def series(self, since_ms: int, step_ms: int) -> list[tuple[int, int, int]]:
        """(start, calls that ended well, calls that did not) in steps of whole buckets, oldest first."""
        clauses, values = self._owned()
        where, step = " AND ".join([*clauses, "bucket >= ?"]), max(1, step_ms // BUCKET_MS)
        rows = self._connection.execute(
            f"SELECT bucket / {step} * {step}, sum(CASE WHEN verdict = ? THEN calls ELSE 0 END), sum(calls) "  # noqa: S608
            f"FROM tally WHERE {where} GROUP BY 1 ORDER BY 1 LIMIT 5000",
            [self._word("ok"), *values, since_ms // BUCKET_MS],
        )
        return [(bucket * BUCKET_MS, good, calls - good) for bucket, good, calls in rows]

    def durations(self, since_ms: int) -> tuple[list[int], int]:
        """Microseconds of the newest calls that came to their arguments, sorted, and since when: a refusal before that takes
        none. All calls of a millisecond are among them, or none: a filter by time finds the same."""
        clauses, values = self._owned()
        where = " AND ".join([*clauses, "kind = 0", "us > 0", "ts >= ?"])
        query = f"SELECT us, ts FROM entry WHERE {where} ORDER BY ts DESC LIMIT {SAMPLE + 1}"  # noqa: S608
        found = list(self._connection.execute(query, [*values, since_ms]))
        first = found[-1][1] + 1 if len(found) > SAMPLE else since_ms
        return sorted(us for us, ts in found if ts >= first), first

    def last_use(self) -> dict[str, tuple[int, int]]:
        """Key id -> (calls, the last one's time) of all that the index holds."""
        rows = self._connection.execute(
            "SELECT text, sum(calls), max(last) FROM tally JOIN word ON no = caller GROUP BY caller LIMIT 50000"
        )
        return {name: (calls, last) for name, calls, last in rows}

    def extent(self) -> tuple[int, int, int | None]:
        """How many calls, how many records of acts, and since when there are any."""
        clauses, values = self._owned()
        owned = " AND ".join(["1", *clauses])
        query = f"SELECT coalesce(sum(calls), 0) FROM tally WHERE {owned}"  # noqa: S608
        (calls,) = self._connection.execute(query, values).fetchone()
        query = f"SELECT count(*) FROM entry WHERE kind > 1 AND kind = {KINDS['act']} AND {owned}"  # noqa: S608
        (acts,) = self._connection.execute(query, values).fetchone()
        (first,) = self._connection.execute("SELECT min(ts) FROM entry").fetchone()
        return int(calls), int(acts), first

    # How a question is put -----------------------------------------------------------------------------------------

    def _clauses(self, wanted: CallFilter, now: float) -> tuple[list[str], list[Any]]:
        clauses, values = self._owned()
        kinds = _KINDS.get(wanted.kind, (0,))
        clauses.append(f"kind IN ({', '.join(map(str, kinds))})")
        for name in ("caller", "tool", "upstream", "tier", "decision"):
            if text := getattr(wanted, name):
                clauses.append(f"{name} = ?")
                text = self._ids.get(text, text) if name == "tool" else text
                values.append(NO_ONE if text == NONE else self._word(text))
        if wanted.verdict:
            clauses.append("verdict != ?" if wanted.verdict == "refused" else "verdict = ?")
            values.append(self._word("ok" if wanted.verdict == "refused" else wanted.verdict))
        if wanted.clamped:
            clauses.append("clamps > 0")
        if wanted.timed:
            clauses.append("us > 0")
        since, until = wanted.moments(now)
        for moment, sign in ((since, ">="), (until, "<")):
            ms = milliseconds(_whole(moment)) if moment is not None else None
            if ms is not None:
                clauses.append(f"ts {sign} ?")
                values.append(ms)
        return clauses, values

    def _owned(self) -> tuple[list[str], list[Any]]:
        return ([], []) if self._owner is None else (["caller = ?"], [self._word(self._owner)])

    def _word(self, text: str) -> int:
        """-1: nothing in the index says so."""
        found = self._connection.execute("SELECT no FROM word WHERE text = ?", (text[:MAX_WORD],)).fetchone()
        return int(found[0]) if found else -1

    def _select(self, clauses: Sequence[str], values: Sequence[Any], most: int) -> list[Entry]:
        where = " AND ".join(clauses)
        names = ", ".join(f"coalesce((SELECT text FROM word WHERE no = found.{name}), '')" for name in _NAMED)  # noqa: S608
        rows = self._connection.execute(
            f"SELECT {_COLUMNS}, {names} FROM (SELECT * FROM entry WHERE {where} ORDER BY ts DESC, run DESC, seq DESC "  # noqa: S608
            f"LIMIT {int(most)}) AS found",
            values,
        )
        return [_entry(row) for row in rows]


def _entry(row: Sequence[Any]) -> Entry:
    values = list(row)
    values[4] = (values[4] or b"").decode(errors="replace")
    return Entry(*values)


def _whole(moment: str) -> str:
    """`2026-11-18` and `2026-11-18T09:30:00` are moments in UTC."""
    text = moment if "T" in moment else f"{moment}T00:00:00"
    return text if text.endswith("Z") else f"{text}Z"


@contextmanager
def reading(index: Path, log: Path, owner: str | None, ids: Mapping[str, str]) -> Iterator[IndexReader]:
    """Raises: sqlite3.Error, OSError."""
    connection = open_index(index)
    try:
        yield IndexReader(connection, log, owner, ids)
    finally:
        connection.close()
