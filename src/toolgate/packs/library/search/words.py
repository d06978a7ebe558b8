"""From a text to the words it is found by: SQLite's own tokenizer (FTS5: letters and digits, no accents, English endings).

Only its tokenizer. Its search is not used: what that costs depends on what strangers wrote, and nothing can stop it.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

TITLE_WEIGHT: Final = 4
"""A word in the title says more about a document than one in its text."""

_KEY: Final = "Q"
_KEY_BYTES: Final = 8
_WEIGHT: Final = "I"
_WEIGHT_BYTES: Final = 4
TOKENIZER: Final = "porter unicode61 remove_diacritics 2"
_TABLES: Final = f"""
CREATE VIRTUAL TABLE document USING fts5(title, text, content = '', columnsize = 0, tokenize = '{TOKENIZER}');
CREATE VIRTUAL TABLE word USING fts5vocab(document, 'col');
"""


class Words(Struct, frozen=True):
    """How often a document holds each of its words, without the words: 12 bytes for each. Crosses a process border."""

    packed_keys: bytes
    packed_weights: bytes
    length: int
    """Words in all."""

    @property
    def keys(self) -> memoryview:
        """Sorted."""
        return memoryview(self.packed_keys).cast(_KEY)

    @property
    def weights(self) -> memoryview:
        """How often, a title's words more than once: for each key."""
        return memoryview(self.packed_weights).cast(_WEIGHT)

    @property
    def different(self) -> int:
        return len(self.packed_keys) // _KEY_BYTES

    @property
    def sound(self) -> bool:
        """A weight for each key, and no half ones: a worker that a document took over may say anything."""
        odd = len(self.packed_keys) % _KEY_BYTES
        return not odd and self.length >= 0 and len(self.packed_weights) == self.different * _WEIGHT_BYTES


class Counter:
    """Counts words, one document after the other."""

    def __init__(self) -> None:
        import sqlite3  # noqa: PLC0415 (2 ms, once somebody searches)

        self._database = sqlite3.connect(":memory:", isolation_level=None)
        self._database.executescript(_TABLES)

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def count(self, title: str, text: str) -> Words:
        """Time and memory are linear in the text, and a word's for each different one."""
        self._database.execute("INSERT INTO document (rowid, title, text) VALUES (1, ?, ?)", (title, text))
        found = self._database.execute("SELECT term, col, cnt FROM word")
        weights: dict[int, int] = {}
        length = 0
        for word, column, count in found:
            key = _key(word)
            weights[key] = weights.get(key, 0) + count * (TITLE_WEIGHT if column == "title" else 1)
            length += count
        self._database.execute("INSERT INTO document (document) VALUES ('delete-all')")
        keys = array(_KEY, sorted(weights))
        return Words(keys.tobytes(), array(_WEIGHT, map(weights.__getitem__, keys)).tobytes(), length)


def keys_of(query: str) -> list[int]:
    """The different words of a query, as `Words` knows them."""
    with Counter() as counter:
        return counter.count("", query).keys.tolist()


def quoted(query: str) -> Iterable[str]:
    """The query's words for FTS5, whose own operators, columns and prefixes are plain text here."""
    bare = "".join(character if character.isalnum() else " " for character in query)
    return [f'"{word}"' for word in dict.fromkeys(bare.split())]


def _key(word: str) -> int:
    """64 bits: two words of one library never share a key by chance. Not `hash`, which differs between processes."""
    return int.from_bytes(blake2b(word.encode(errors="surrogatepass"), digest_size=8).digest())
