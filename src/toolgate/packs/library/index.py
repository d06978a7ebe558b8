"""The index: SQLite's full-text search (FTS5, BM25) in memory, kept equal to the files by path, size and time.

It is a cache: nothing in it is needed after a restart, so it has no file, no migration and no writer's rights.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Final

from msgspec import Struct

from toolgate.packs.library.documents import Document, Kind

MAX_INDEX_BYTES: Final = 64 * 1024 * 1024
"""Characters of text held: some thousand papers. What does not fit is counted, and the answer says so."""
SNIPPET_TOKENS: Final = 32
MAX_SNIPPET: Final = 240
"""Characters: two lines, enough to see why a document was found."""
SCORE_DIGITS: Final = 6
"""BM25 is a sum of floats; rounded, equal documents have equal scores on every machine."""

# Both tables share their row numbers: looking a path up in a full-text table would read all of it.
_TABLES: Final = """
CREATE TABLE files (
    id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, size INTEGER NOT NULL, modified REAL NOT NULL,
    kind TEXT, title TEXT, length INTEGER NOT NULL
);
CREATE VIRTUAL TABLE words USING fts5(title, text, tokenize = 'porter unicode61 remove_diacritics 2');
"""
# A word in the title says more about a document than one in its text.
_SEARCH: Final = """
SELECT files.path, files.title, -bm25(words, 4.0, 1.0), snippet(words, -1, '', '', '…', ?)
FROM words JOIN files ON files.id = words.rowid
WHERE words MATCH ? AND (? IS NULL OR files.kind = ?) AND substr(files.path, 1, length(?)) = ?
"""


class Hit(Struct, frozen=True):
    id: str
    path: str
    title: str
    snippet: str
    score: float


class Stamp(Struct, frozen=True):
    """What tells that a file has changed."""

    size: int
    modified: float


class Index:
    """Safe to use from several threads."""

    def __init__(self, *, max_bytes: int = MAX_INDEX_BYTES) -> None:
        import sqlite3  # noqa: PLC0415 (2 ms, once somebody searches)

        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._database.executescript(_TABLES)
        self._max_bytes = max_bytes
        self._used = 0

    def __del__(self) -> None:
        self._database.close()  # memory only; from Python 3.13 on a database that nobody closes is reported

    def changed(self, present: Mapping[str, Stamp]) -> list[str]:
        """Forget what is gone; name the files that are new or different, sorted."""
        with self._lock:
            known = {
                path: Stamp(size, modified)
                for path, size, modified in self._database.execute("SELECT path, size, modified FROM files")
            }
            with self._transaction():
                for path in known.keys() - present.keys():
                    self._forget(path)
        return sorted(path for path, stamp in present.items() if known.get(path) != stamp)

    def put(self, stamps: Mapping[str, Stamp], documents: Iterable[Document]) -> None:
        """Take in files that were read; those without a document are remembered, so that they are not read again."""
        by_path = {one.path: one for one in documents}
        with self._lock, self._transaction():
            for path, stamp in stamps.items():
                self._forget(path)
                self._add(path, stamp, by_path.get(path))

    def skipped(self) -> int:
        """Files that are not searched: not text, or no room left."""
        with self._lock:
            return int(self._database.execute("SELECT count(*) FROM files WHERE kind IS NULL").fetchone()[0])

    def search(self, query: str, *, kind: Kind | None = None, under: str = "") -> list[Hit]:
        """Every document with all the words, best first; without one, every document with any of them."""
        words = words_of(query)
        if not words:
            return []
        prefix = f"{under.strip('/')}/" if under.strip("/.") else ""
        for joint in (" AND ", " OR "):
            match = joint.join(words)
            with self._lock:
                rows = self._database.execute(_SEARCH, (SNIPPET_TOKENS, match, kind, kind, prefix, prefix)).fetchall()
            if rows:
                break
        hits = [_hit(*row) for row in rows]
        return sorted(hits, key=lambda one: (-one.score, one.path))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def _add(self, path: str, stamp: Stamp, document: Document | None) -> None:
        if document is not None and self._used + len(document.text) > self._max_bytes:
            document = None
        kind, title, length = (document.kind, document.title, len(document.text)) if document else (None, None, 0)
        row = (path, stamp.size, stamp.modified, kind, title, length)
        added = self._database.execute(
            "INSERT INTO files (path, size, modified, kind, title, length) VALUES (?, ?, ?, ?, ?, ?)", row
        )
        self._used += length
        if document is not None:
            words = (added.lastrowid, document.title, document.text)
            self._database.execute("INSERT INTO words (rowid, title, text) VALUES (?, ?, ?)", words)

    def _forget(self, path: str) -> None:
        found = self._database.execute("SELECT id, length FROM files WHERE path = ?", (path,)).fetchone()
        if found is not None:
            self._used -= found[1]
            self._database.execute("DELETE FROM words WHERE rowid = ?", (found[0],))
            self._database.execute("DELETE FROM files WHERE id = ?", (found[0],))


def words_of(query: str) -> Sequence[str]:
    """The query's words, each quoted: FTS5's own operators, columns and prefixes are plain text here."""
    quoted = (word.replace('"', '""') for word in query.split() if any(one.isalnum() for one in word))
    return [f'"{word}"' for word in quoted]


def document_id(path: str) -> str:
    """Stable for a path, whatever else is in the library."""
    return sha256(path.encode()).hexdigest()[:16]


def _hit(path: str, title: str, score: float, snippet: str) -> Hit:
    text = " ".join(snippet.split())
    clipped = text if len(text) <= MAX_SNIPPET else text[: MAX_SNIPPET - 1] + "…"
    return Hit(document_id(path), path, title, clipped, round(score, SCORE_DIGITS))
