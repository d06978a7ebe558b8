"""The passage of a document that shows why it was found. For a worker: documents are strangers', and time is bounded there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolgate.packs.library.search.documents import read
from toolgate.packs.library.search.words import TOKENIZER, quoted

if TYPE_CHECKING:
    from sqlite3 import Connection

MAX_SNIPPET: Final = 240
"""Characters: two lines, enough to see why a document was found."""
PIECE: Final = 1_000
"""Characters that are weighed against each other: a paragraph."""
STRETCH: Final = 64 * PIECE
"""Characters that are looked through at once: a word that stands early is found without reading the rest."""
_BEFORE: Final = 60
"""Characters shown before the first word that was asked for."""
_MARK: Final = "\x02"
_CUT: Final = "…"

_TABLE: Final = f"CREATE VIRTUAL TABLE piece USING fts5(text, tokenize = '{TOKENIZER}')"
# `ORDER BY rank` lets FTS5 sort, so that only the best row is marked; marking is linear, its own snippet() is not.
_BEST: Final = f"""
SELECT highlight(piece, 0, '{_MARK}', '') FROM piece WHERE piece MATCH ? ORDER BY rank LIMIT 1
"""  # noqa: S608 (a constant of this file)


def snippets(work: tuple[str, list[tuple[str, bytes]]]) -> dict[str, str]:
    """(query, files): a passage by path, for each that is a document."""
    import sqlite3  # noqa: PLC0415 (2 ms, in the worker)

    query, files = work
    match = " OR ".join(quoted(query))
    database = sqlite3.connect(":memory:", isolation_level=None)
    try:
        database.execute(_TABLE)
        found = ((path, read(path, data)) for path, data in files)
        return {path: _snippet(database, document.text, match) for path, document in found if document is not None}
    finally:
        database.close()


def _snippet(database: Connection, text: str, match: str) -> str:
    """Around the first of the words in the best piece of the first stretch that has any; else how the text begins."""
    squeezed = " ".join(text.replace(_MARK, " ").split())
    for start in range(0, len(squeezed) if match else 0, STRETCH):
        marked = _best_piece(database, squeezed[start : start + STRETCH], match)
        if marked is not None:
            return _around(marked)
    return _clipped(squeezed)


def _best_piece(database: Connection, stretch: str, match: str) -> str | None:
    pieces = [(stretch[start : start + PIECE],) for start in range(0, len(stretch), PIECE)]
    database.execute("BEGIN")
    database.executemany("INSERT INTO piece (text) VALUES (?)", pieces)
    row = database.execute(_BEST, (match,)).fetchone()
    database.execute("ROLLBACK")
    return row[0] if row else None


def _around(marked: str) -> str:
    first = marked.find(_MARK)
    start = marked.find(" ", max(0, first - _BEFORE), first) + 1 if first > _BEFORE else 0
    shown = marked[start:].replace(_MARK, "")
    return _clipped(f"{_CUT} {shown}" if start else shown)


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_SNIPPET else text[: MAX_SNIPPET - 1] + _CUT
