"""From the log into the index: what is new since the last time, newest file first, a piece at a time.

Each piece is one transaction that also says how far it came, so several processes can do this to one index, and a process that is
killed has done a piece or has not. If a file of the log is gone or shorter than it was, the index is made again.

Reading a piece and writing it are two steps: a worker process may read and not write, and reading takes most of the time.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
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
PACKED_PIECES: Final = 8
"""A packed file is unpacked from its beginning for each piece, so that one is read in fewer."""
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


ReadRow = tuple[int, int, int, bytes | None, str, str, str, str, str, str, int, int, int, int]
"""ts, seq, kind, request; caller, tool, upstream, verdict, decision, tier; microseconds, clamps, offset, length."""


class PieceAsked(Struct, frozen=True):
    """Lines of one file of the log, from here on."""

    run: str
    segment: int
    path: str
    offset: int
    size: int


class ReadPiece(Struct, frozen=True):
    """What a piece of the log says that pages speak of."""

    rows: list[ReadRow]
    lines: int
    read: int
    """Bytes; 0: there was nothing new."""


class Behind(Struct, frozen=True):
    """How far the index is behind the log."""

    waiting: int
    """Bytes of the log that are not in the index yet."""
    indexed: int
    """Those that are."""


def catch_up(asked: CatchUp) -> Behind:
    """Raises: sqlite3.Error, OSError. Side effects: the index grows, and loses what is too old."""
    runs, connection = _opened(asked)
    try:
        left = asked.most_bytes
        for name, segment in _newest_first(runs):
            while left > 0 and (read := _piece(connection, name, segment, min(left, PIECE_BYTES))):
                left -= read
        _forget_oldest(connection)
        return _behind(connection, runs)
    finally:
        connection.close()


def next_piece(asked: CatchUp, done: Collection[tuple[str, int]]) -> PieceAsked | None:
    """What to read next, newest file first; None: nothing. `done`: files that were read to their end a moment ago.

    Raises: sqlite3.Error, OSError.
    """
    runs, connection = _opened(asked)
    try:
        for name, segment in _newest_first(runs):
            offset, _, is_done = _place(connection, str(name), segment.number)
            is_read = is_done or (segment.path.suffix != ".gz" and segment.path.stat().st_size <= offset)
            if not is_read and (str(name), segment.number) not in done:
                size = asked.most_bytes * (PACKED_PIECES if segment.path.suffix == ".gz" else 1)
                return PieceAsked(str(name), segment.number, str(segment.path), offset, size)
        return None
    finally:
        connection.close()


def put_piece(asked: CatchUp, place: PieceAsked, piece: ReadPiece) -> None:
    """Raises: sqlite3.Error, OSError. Side effects: as `catch_up`."""
    connection = open_index(Path(asked.index))
    try:
        _put(connection, place, piece)
        _forget_oldest(connection)
    finally:
        connection.close()


def _opened(asked: CatchUp) -> tuple[Mapping[RunName, Sequence[Segment]], sqlite3.Connection]:
    """The log's files, and the index of these and no others."""
    log, path = Path(asked.log), Path(asked.index)
    runs = runs_in(log) if log.is_dir() else {}
    connection = open_index(path)
    if _is_of_another_log(connection, runs):
        connection.close()
        drop_index(path)
        connection = open_index(path)
    return runs, connection


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
    offset, _, is_done = _place(connection, str(name), segment.number)
    if is_done:
        return 0
    place = PieceAsked(str(name), segment.number, str(segment.path), offset, size)
    piece = read_piece(place)
    _put(connection, place, piece)
    return piece.read


def _place(connection: sqlite3.Connection, run: str, segment: int) -> tuple[int, int, int]:
    """Where reading goes on: the offset, the lines before it, and whether all of a packed file was read."""
    query = "SELECT offset, seq, is_packed FROM segment JOIN run ON run.no = segment.run WHERE name = ? AND number = ?"
    found = connection.execute(query, (run, segment)).fetchone()
    return found or (0, 0, 0)


def read_piece(asked: PieceAsked) -> ReadPiece:
    """Reads alone, so that a worker process can do it."""
    lines, read = _lines(Path(asked.path), asked.offset, asked.size)
    rows: list[ReadRow] = []
    offset = asked.offset
    for line in lines:
        found = record.read(line)
        if found is not None and (row := _row(found, offset, len(line))) is not None:
            rows.append(row)
        offset += len(line) + 1
    return ReadPiece(rows, len(lines), read)


def _put(connection: sqlite3.Connection, place: PieceAsked, piece: ReadPiece) -> None:
    """In one transaction, unless another process has put it there meanwhile."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        offset, seq, is_done = _place(connection, place.run, place.segment)
        is_packed = not piece.read and place.path.endswith(".gz")
        if offset == place.offset and not is_done and (piece.read or is_packed):
            run = _number(connection, "run", "name", place.run)
            _insert(connection, run, place.segment, piece.rows)
            now = (run, place.segment, offset + piece.read, seq + piece.lines, int(is_packed))
            connection.execute("INSERT OR REPLACE INTO segment VALUES (?, ?, ?, ?, ?)", now)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


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


def _insert(connection: sqlite3.Connection, run: int, segment: int, read: Sequence[ReadRow]) -> None:
    words = _Words(connection)
    rows: list[tuple[Any, ...]] = []
    sums: dict[tuple[int, int, int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for ts, seq, kind, request, *named, us, clamps, offset, length in read:
        caller, tool, upstream, verdict, decision, tier = map(words, named)
        names = (caller, tool, upstream, verdict, decision, tier)
        rows.append((ts, run, seq, kind, request, *names, us, clamps, segment, offset, length))
        if kind == KINDS["outcome"]:
            entry = sums[ts // BUCKET_MS, caller, tool, verdict]
            entry[0] += 1
            entry[1] += bool(clamps)
            entry[2] = max(entry[2], ts)
    connection.executemany(_ENTRY, rows)
    connection.executemany(_TALLY, [(*key, *values) for key, values in sums.items()])
    connection.execute("UPDATE total SET entries = entries + ?", (len(rows),))


class _Words:
    """Names as numbers."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[str, int] = {}

    def __call__(self, value: Any) -> int:
        text = _word(value)
        if text not in self._known:
            self._known[text] = _number(self._connection, "word", "text", text) if text else NO_ONE
        return self._known[text]


def _number(connection: sqlite3.Connection, table: str, column: str, text: str) -> int:
    connection.execute(f"INSERT OR IGNORE INTO {table} ({column}) VALUES (?)", (text,))  # noqa: S608 (our own names)
    query = f"SELECT no FROM {table} WHERE {column} = ?"  # noqa: S608 (as above)
    (number,) = connection.execute(query, (text,)).fetchone()
    return int(number)


def _row(found: Mapping[str, Any], offset: int, length: int) -> ReadRow | None:
    """None: not a record that pages speak of."""
    kind, ts, seq = KINDS.get(str(found.get("event"))), milliseconds(found.get("ts")), found.get("seq")
    if kind is None or ts is None or type(seq) is not int:
        return None
    caller, metadata, about = (_object(found, name) for name in ("caller", "metadata", "about"))
    clamps = found.get("clamps")
    return (
        ts,
        seq,
        kind,
        _request(found.get("requestId")),
        _word(caller.get("id") or _object(found, "by").get("key")),
        _word(metadata.get("toolId") or found.get("act")),
        _word(found.get("upstream") or about.get("upstream")),
        _word(_verdict(found)),
        _word(found.get("decision")),
        _word(found.get("tier")),
        _microseconds(found.get("durationMs")),
        len(clamps) if isinstance(clamps, list) else 0,
        offset,
        length,
    )


def _word(value: Any) -> str:
    return value[:MAX_WORD] if isinstance(value, str) else ""


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
