"""The tables of the index: one row a record, with where its line stands, and sums of calls by ten minutes.

Nothing in it is true by itself: a page that shows a record reads the line from the log. Delete the file, and it is made again.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

FORMAT: Final = 1
"""Of these tables. A file of another format is thrown away."""
MAX_ENTRIES: Final = 1_500_000
"""Records that the index holds; the oldest go first. Some 130 bytes each."""
BUCKET_MS: Final = 600_000
"""Sums are kept by ten minutes."""
BUSY_S: Final = 5.0
"""How long one process waits for another that writes."""

KINDS: Final = {"outcome": 0, "intent": 1, "act": 2, "checkpoint": 3, "recovered": 4}

_TABLES: Final = """
CREATE TABLE word (no INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE run (no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE segment (
  run INTEGER NOT NULL, number INTEGER NOT NULL, offset INTEGER NOT NULL, seq INTEGER NOT NULL, is_packed INTEGER NOT NULL,
  PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE TABLE entry (
  ts INTEGER NOT NULL, run INTEGER NOT NULL, seq INTEGER NOT NULL, kind INTEGER NOT NULL,
  request BLOB, caller INTEGER, tool INTEGER, upstream INTEGER, verdict INTEGER NOT NULL, decision INTEGER, tier INTEGER,
  us INTEGER NOT NULL, clamps INTEGER NOT NULL, segment INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL,
  PRIMARY KEY (ts, run, seq)
) WITHOUT ROWID;
CREATE INDEX entry_request ON entry (request) WHERE request IS NOT NULL;
CREATE INDEX entry_tool ON entry (tool, ts);
CREATE INDEX entry_caller ON entry (caller, ts);
CREATE INDEX entry_verdict ON entry (verdict, ts);
CREATE INDEX entry_rare ON entry (kind, ts) WHERE kind > 1;
CREATE TABLE tally (
  bucket INTEGER NOT NULL, caller INTEGER NOT NULL, tool INTEGER NOT NULL, verdict INTEGER NOT NULL,
  calls INTEGER NOT NULL, clamped INTEGER NOT NULL, last INTEGER NOT NULL,
  PRIMARY KEY (bucket, caller, tool, verdict)
) WITHOUT ROWID;
CREATE TABLE total (entries INTEGER NOT NULL);
INSERT INTO total VALUES (0);
"""


def index_at(state: Path) -> Path:
    """Its file, in the state directory."""
    return state / "console" / "index.sqlite3"


def open_index(path: Path) -> sqlite3.Connection:
    """The index, made if it is missing, damaged or of another format.

    Raises: sqlite3.Error, OSError. Side effects: makes the file and its directory, for this user alone.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return _opened(path)
    except sqlite3.DatabaseError as fault:
        if isinstance(fault, sqlite3.OperationalError):
            raise
    drop_index(path)
    return _opened(path)


def drop_index(path: Path) -> None:
    """Raises: OSError."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


def _opened(path: Path) -> sqlite3.Connection:
    before = os.umask(0o077)
    try:
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    finally:
        os.umask(before)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")  # what a power cut takes is made again
        if _version(connection) == 0:
            connection.execute("BEGIN IMMEDIATE")
            if _version(connection) == 0:  # nobody was faster
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {FORMAT}")
            connection.execute("COMMIT")
        if _version(connection) != FORMAT:
            raise sqlite3.DatabaseError("another format")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
