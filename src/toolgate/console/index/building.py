"""From the log into the index: what is new since the last time, newest file first, a piece at a time.

Each piece is one transaction that also says how far it came, so several processes can do this to one index, and a process that is
killed has done a piece or has not. If a file of the log is gone or shorter than it was, the index is made again.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from toolgate.console.index.tables import BUCKET_MS, KINDS, MAX_ENTRIES, drop_index, open_index
from toolgate.ledger import record
from toolgate.ledger.files import RunName, Segment, runs_in
from toolgate.ledger.lines import SegmentDamaged, lines_in

PIECE_BYTES: Final = 2 * 1024 * 1024
"""Of the log, in one transaction."""
MAX_WORD: Final = 160
"""Characters of a name that the index keeps: our own are shorter."""
NO_ONE: Final = 0
"""The number of the empty word: no caller, no tool."""

_ENTRY: Final = "INSERT OR IGNORE INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_TALLY: Final = """INSERT INTO tally VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
calls = calls + excluded.calls, clamped = clamped + excluded.clamped, last = max(last, excluded.last)"""


class CatchUp(Struct, frozen=True):
    """What `catch_up` is asked: the log's directory, the index, and how much of the log to read at most."""

    log: str
    index: str
    most_bytes: int


class Behind(Struct, frozen=True):
    """How far the index is behind the log."""

    waiting: int
    """Bytes of the log that are not in the index yet."""
    indexed: int
    """Those that are."""


def catch_up(asked: CatchUp) -> Behind:
    """Raises: sqlite3.Error, OSError. Side effects: the index grows, and loses what is too old."""
    log, path = Path(asked.log), Path(asked.index)
    runs = runs_in(log) if log.is_dir() else {}
    connection = open_index(path)
    try:
        if _is_of_another_log(connection, runs):
            connection.close()
            drop_index(path)
            connection = open_index(path)
        left = asked.most_bytes
        for name, segment in _newest_first(runs):
            while left > 0 and (read := _piece(connection, name, segment, min(left, PIECE_BYTES))):
                left -= read
        _forget_oldest(connection)
        return _behind(connection, runs)
    finally:
        connection.close()


def behind(log: Path, path: Path) -> Behind:
    """The same without changing anything. Raises: sqlite3.Error, OSError."""
    runs = runs_in(log) if log.is_dir() else {}
    connection = open_index(path)
    try:
        return _behind(connection, runs)
    finally:
        connection.close()


def _newest_first(runs: Mapping[RunName, Sequence[Segment]]) -> Iterator[tuple[RunName, Segment]]:
    for name in reversed(list(runs)):
        for segment in reversed(runs[name]):
            yield name, segment


def _is_of_another_log(connection: sqlite3.Connection, runs: Mapping[RunName, Sequence[Segment]]) -> bool:
    """A file that the index knows is gone, or holds less than was read of it."""
    there = {(str(name), segment.number): segment.path for name, segments in runs.items() for segment in segments}
    rows = connection.execute("SELECT name, number, offset FROM segment JOIN run ON run.no = segment.run")
    for name, number, offset in rows:
        path = there.get((name, number))
        if path is None or (path.suffix != ".gz" and path.stat().st_size < offset):
            return True
    return False


def _behind(connection: sqlite3.Connection, runs: Mapping[RunName, Sequence[Segment]]) -> Behind:
    rows = connection.execute("SELECT name, number, offset, is_packed FROM segment JOIN run ON run.no = segment.run")
    known = {(name, number): (offset, is_packed) for name, number, offset, is_packed in rows}
    waiting = 0
    for name, segment in _newest_first(runs):
        offset, is_packed = known.get((str(name), segment.number), (0, 0))
        if segment.path.suffix == ".gz":
            waiting += 0 if is_packed or offset else segment.path.stat().st_size
        else:
            waiting += max(0, segment.path.stat().st_size - offset)
    return Behind(waiting, sum(offset for offset, _ in known.values()))


# -- one piece --------------------------------------------------------------------------------------------------


def _piece(connection: sqlite3.Connection, name: RunName, segment: Segment, size: int) -> int:
    """Bytes that were read; 0: there was nothing new."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        run = _number(connection, "run", "name", str(name))
        found = connection.execute(
            "SELECT offset, seq, is_packed FROM segment WHERE run = ? AND number = ?", (run, segment.number)
        ).fetchone()
        offset, seq, is_done = found or (0, 0, 0)
        lines, read = ([], 0) if is_done else _lines(segment.path, offset, size)
        if read:
            _insert(connection, run, segment.number, offset, lines)
            place = (run, segment.number, offset + read, seq + len(lines), 0)
            connection.execute("INSERT OR REPLACE INTO segment VALUES (?, ?, ?, ?, ?)", place)
        elif segment.path.suffix == ".gz" and not is_done:
            place = (run, segment.number, offset, seq, 1)
            connection.execute("INSERT OR REPLACE INTO segment VALUES (?, ?, ?, ?, ?)", place)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return read


def _lines(path: Path, offset: int, size: int) -> tuple[list[bytes], int]:
    """Whole lines from here on, some `size` bytes of them. What cannot be read is left to `toolgate audit verify`."""
    found: list[bytes] = []
    read = 0
    try:
        for lines, _ in lines_in(path, offset):
            found += lines
            read += sum(map(len, lines)) + len(lines)
            if read >= size:
                break
    except (SegmentDamaged, OSError):
        pass
    return found, read


def _insert(connection: sqlite3.Connection, run: int, segment: int, offset: int, lines: Sequence[bytes]) -> None:
    words = _Words(connection)
    rows: list[tuple[Any, ...]] = []
    sums: dict[tuple[int, int, int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for line in lines:
        found = record.read(line)
        if found is not None and (row := _row(found, run, segment, offset, len(line), words)) is not None:
            rows.append(row)
            if row[3] == KINDS["outcome"]:
                entry = sums[row[0] // BUCKET_MS, row[5], row[6], row[8]]
                entry[0] += 1
                entry[1] += bool(row[12])
                entry[2] = max(entry[2], row[0])
        offset += len(line) + 1
    connection.executemany(_ENTRY, rows)
    connection.executemany(_TALLY, [(*key, *values) for key, values in sums.items()])
    connection.execute("UPDATE total SET entries = entries + ?", (len(rows),))


class _Words:
    """Names as numbers."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[str, int] = {}

    def __call__(self, value: Any) -> int:
        text = value[:MAX_WORD] if isinstance(value, str) else ""
        if text not in self._known:
            self._known[text] = _number(self._connection, "word", "text", text) if text else NO_ONE
        return self._known[text]


def _number(connection: sqlite3.Connection, table: str, column: str, text: str) -> int:
    connection.execute(f"INSERT OR IGNORE INTO {table} ({column}) VALUES (?)", (text,))  # noqa: S608 (our own names)
    query = f"SELECT no FROM {table} WHERE {column} = ?"  # noqa: S608 (as above)
    (number,) = connection.execute(query, (text,)).fetchone()
    return int(number)


def _row(
    found: Mapping[str, Any], run: int, segment: int, offset: int, length: int, words: _Words
) -> tuple[Any, ...] | None:
    """None: not a record that pages speak of."""
    kind, ts, seq = KINDS.get(str(found.get("event"))), milliseconds(found.get("ts")), found.get("seq")
    if kind is None or ts is None or type(seq) is not int:
        return None
    caller, metadata, about = (_object(found, name) for name in ("caller", "metadata", "about"))
    clamps = found.get("clamps")
    return (
        ts,
        run,
        seq,
        kind,
        _request(found.get("requestId")),
        words(caller.get("id") or _object(found, "by").get("key")),
        words(metadata.get("toolId") or found.get("act")),
        words(found.get("upstream") or about.get("upstream")),
        words(_verdict(found)),
        words(found.get("decision")),
        words(found.get("tier")),
        _microseconds(found.get("durationMs")),
        len(clamps) if isinstance(clamps, list) else 0,
        segment,
        offset,
        length,
    )


def _verdict(found: Mapping[str, Any]) -> str:
    happening = _object(found, "error").get("happening") if found.get("error") else None
    if found.get("event") == "act":
        return str(found.get("status") or found.get("stage"))
    return happening if isinstance(happening, str) else "ok"


def _object(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = found.get(name)
    return value if isinstance(value, dict) else {}


def _request(value: Any) -> bytes | None:
    return value.encode()[: record.MAX_ID_BYTES] if isinstance(value, str) and value else None


def _microseconds(value: Any) -> int:
    return int(value * 1000) if isinstance(value, int | float) and 0 <= value < 1e12 else 0


def milliseconds(moment: Any) -> int | None:
    """Since the epoch, of a record's `ts`."""
    try:
        return round(datetime.fromisoformat(moment).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        return None


def _forget_oldest(connection: sqlite3.Connection) -> None:
    """When there are too many, by whole buckets, so that sums and rows go together."""
    (entries,) = connection.execute("SELECT entries FROM total").fetchone()
    if entries <= MAX_ENTRIES:
        return
    connection.execute("BEGIN IMMEDIATE")
    kept = MAX_ENTRIES - MAX_ENTRIES // 10
    (ts,) = connection.execute("SELECT ts FROM entry ORDER BY ts DESC LIMIT 1 OFFSET ?", (kept,)).fetchone()
    (newest,) = connection.execute("SELECT max(ts) FROM entry").fetchone()
    first = min(ts // BUCKET_MS + 1, newest // BUCKET_MS)
    gone = connection.execute("DELETE FROM entry WHERE ts < ?", (first * BUCKET_MS,)).rowcount
    connection.execute("DELETE FROM tally WHERE bucket < ?", (first,))
    connection.execute("UPDATE total SET entries = entries - ?", (gone,))
    connection.execute("COMMIT")
