"""The index: for each document how often it holds which word, kept equal to the files by path, size and time.

It is a cache in memory: nothing in it is needed after a restart. A search looks at each document once, whatever is written
in it: its cost is the number of documents times the number of words asked for, and there is nothing to lock or to stop.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from math import log
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.kit.paths import plain

if TYPE_CHECKING:
    from toolgate.model.powers import WatchedTree
    from toolgate.packs.library.search.documents import Indexed, Kind
    from toolgate.packs.library.search.words import Words

MAX_INDEX_WORDS: Final = 4_000_000
"""Words held, each once for every document that has it: 48 MB, some thousand papers. What does not fit is counted, and the
answer says so."""
MAX_FAILURES: Final = 3
"""Times that a document may overrun or crash its worker, before it is left out until it changes."""
TRUSTED_S: Final = 1.0
"""How long a look at the files is good for if the system tells of no change. It does not tell of all of them."""
MAX_ANSWERS: Final = 64
"""Kept for those who ask the same again: ten hits each, three megabytes at the very most."""
SCORE_DIGITS: Final = 6
"""BM25 is a sum of floats; rounded, equal documents have equal scores on every machine."""

# BM25's usual constants: how soon a word's repetitions stop counting, and how much a long document is discounted.
_K1: Final = 1.2
_B: Final = 0.75
_LEAST_IDF: Final = 1e-6
"""A word of more than half of the documents tells next to nothing, but it is there."""
_CLOCK_EVERY: Final = 256
"""Documents between two looks at the clock."""


class SearchHit(Struct, frozen=True):
    id: str
    path: str
    title: str
    score: float


class Stamp(Struct, frozen=True):
    """What tells that a file has changed."""

    size: int
    modified: float


class IndexEntry(Struct, frozen=True):
    stamp: Stamp
    document: Indexed | None
    """None: not text, no room, or never read to its end."""


class Index:
    """One workspace's. Changed on the event loop only; a search works on what it was given."""

    def __init__(self, *, max_words: int = MAX_INDEX_WORDS) -> None:
        self._entries: dict[str, IndexEntry] = {}
        self._failures: Counter[tuple[str, Stamp]] = Counter()
        self._max_words = max_words
        self._used = 0
        self.refreshing = asyncio.Lock()
        self.as_of = float("-inf")
        """Monotonic second at which the last complete look at the files began."""
        self.pending = 0
        """Files that were seen and not read yet."""
        self.tree: WatchedTree | None = None
        """What that look found."""
        self._answers: dict[bytes, Mapping[str, Any]] = {}

    def is_current(self, now: float) -> bool:
        """Is there nothing to look for? `now` in monotonic seconds."""
        return self.tree is not None and now - self.as_of < TRUSTED_S and self.tree.is_unchanged()

    def looked(self, tree: WatchedTree, began: float, *, at_changes: bool) -> None:
        """Everything that this look found is indexed. What was answered before still holds if nothing has changed: neither
        what is searched, nor, as far as is known, anything else in the files."""
        if at_changes or self.tree is None or not self.tree.is_unchanged():
            self._answers.clear()
        self.tree, self.as_of = tree, began

    def answered(self, question: bytes) -> Mapping[str, Any] | None:
        """While the index is current."""
        return self._answers.get(question)

    def keep(self, question: bytes, answer: Mapping[str, Any], tree: WatchedTree | None) -> None:
        """`tree`: what it was answered from."""
        if tree is not None and tree is self.tree:
            if len(self._answers) >= MAX_ANSWERS:
                del self._answers[next(iter(self._answers))]
            self._answers[question] = answer

    def changed(self, present: Mapping[str, Stamp]) -> list[str]:
        """Forget what is gone; name the files that are new or different: sorted, those that made trouble last."""
        for path in self._entries.keys() - present.keys():
            self._forget(path)
        for path, stamp in self._failures.keys() - present.items():
            del self._failures[path, stamp]
        todo = [
            path for path, stamp in present.items() if path not in self._entries or self._entries[path].stamp != stamp
        ]
        return sorted(todo, key=lambda path: (self._failures[path, present[path]], path))

    def paths(self) -> set[str]:
        return set(self._entries)

    def put(self, stamps: Mapping[str, Stamp], documents: Iterable[Indexed]) -> None:
        """Take in files that were read; those without a document are remembered, so that they are not read again."""
        by_path = {indexed.path: indexed for indexed in documents}
        for path, stamp in stamps.items():
            self._forget(path)
            document = by_path.get(path)
            if document is not None and not self._takes(document.words):
                document = None
            self._used += document.words.different if document else 0
            self._entries[path] = IndexEntry(stamp, document)

    def _takes(self, words: Words) -> bool:
        return words.sound and self._used + words.different <= self._max_words

    def failed(self, stamps: Mapping[str, Stamp]) -> None:
        """These could not be read together. A document that fails alone, again and again, is left out."""
        for path, stamp in stamps.items():
            self._failures[path, stamp] += 1
            if len(stamps) == 1 and self._failures[path, stamp] >= MAX_FAILURES:
                self.put(stamps, ())

    def has_failed(self, path: str, stamp: Stamp) -> bool:
        return (path, stamp) in self._failures

    @property
    def skipped(self) -> int:
        """Files that are not searched: not text, no room left, or never read to their end."""
        return sum(entry.document is None for entry in self._entries.values())

    def documents(self) -> list[Indexed]:
        return [entry.document for entry in self._entries.values() if entry.document is not None]

    def _forget(self, path: str) -> None:
        entry = self._entries.pop(path, None)
        if entry is not None and entry.document is not None:
            self._used -= entry.document.words.different


def search(
    documents: Sequence[Indexed],
    keys: Sequence[int],
    *,
    kind: Kind | None = None,
    under: str = "",
    is_late: Callable[[], bool] = lambda: False,
) -> list[SearchHit]:
    """Every document with all the words, best first; without one, every document with any of them.

    Raises: TimeoutError: `is_late` said so.
    """
    below = plain(under.strip("/"))
    prefix = "" if below == "." else f"{below}/"
    holders = [0] * len(keys)
    found: list[tuple[Indexed, list[int]]] = []
    for number, document in enumerate(documents):
        if number % _CLOCK_EVERY == 0 and is_late():
            raise TimeoutError
        weights = _weights(document.words, keys)
        if not any(weights):
            continue
        for at, weight in enumerate(weights):
            holders[at] += weight > 0
        if document.path.startswith(prefix) and kind in (None, document.kind):
            found.append((document, weights))
    wanted = [match for match in found if all(match[1])] or found
    score = _Bm25(documents, holders)
    hits = [
        SearchHit(
            document_id(document.path), document.path, document.title, round(score(document, weights), SCORE_DIGITS)
        )
        for document, weights in wanted
    ]
    return sorted(hits, key=lambda hit: (-hit.score, hit.path))


class _Bm25:
    def __init__(self, documents: Sequence[Indexed], holders: Sequence[int]) -> None:
        lengths = sum(document.words.length for document in documents)
        self._average = lengths / len(documents) if lengths else 1.0
        self._idf = [max(_LEAST_IDF, log((len(documents) - held + 0.5) / (held + 0.5))) for held in holders]

    def __call__(self, document: Indexed, weights: Sequence[int]) -> float:
        long = _K1 * (1 - _B + _B * document.words.length / self._average)
        return sum(idf * weight * (_K1 + 1) / (weight + long) for idf, weight in zip(self._idf, weights, strict=True))


def _weights(words: Words, keys: Sequence[int]) -> list[int]:
    known, weights, end = words.keys, words.weights, words.different
    found = []
    for key in keys:
        at = bisect_left(known, key)
        found.append(weights[at] if at < end and known[at] == key else 0)
    return found


def document_id(path: str) -> str:
    """Stable for a path, whatever else is in the library."""
    return sha256(path.encode()).hexdigest()[:16]
