"""What is known about a document while it is worked on: labels, numbers, notes, files, faults."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

from toolgate.packs.lra.build import words
from toolgate.packs.lra.build.document import ast
from toolgate.packs.lra.build.faults import SourceFaults, SourcePlace
from toolgate.packs.lra.build.source import Read, Source

RESERVED: Final = frozenset(
    {"abstract", "claims", "references", "citation", "contents-title", "theme", "copy", "copied"}
)
"""Ids that the page itself uses."""


class Label(NamedTuple):
    kind: str
    """fig, tbl, eq, sec, ..."""
    number: str
    anchor: str
    """The id on the page."""


class Heading(NamedTuple):
    level: int
    """1 for the sections of the page."""
    id: str
    number: str
    title: ast.Nodes


class ClaimBlock:
    def __init__(
        self,
        number: int,
        blocks: ast.Nodes,
        evidence: list[str],
        place: SourcePlace,
        run: str = "",
        input: str = "",  # noqa: A002 (the attribute's name)
        tolerance: str = "",
    ) -> None:
        self.number = number
        self.blocks = blocks
        self.evidence = evidence
        self.place = place
        self.run = run
        self.input = input
        self.tolerance = tolerance


class Document:
    def __init__(self, source: Source, faults: SourceFaults, read: Read, media: dict[str, bytes] | None = None) -> None:
        self.source = source
        self.faults = faults
        self.read = read
        self.lang = "en"
        self.numbered = True
        self.media = media or {}
        """Pictures that were inside the source."""
        self.labels: dict[str, Label] = {}
        self.ids: set[str] = set(RESERVED)
        self.counts: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        """How often a thing that may be at fault was met: the n-th in the document is the n-th in the source."""
        self.headings: list[Heading] = []
        self.claims: list[ClaimBlock] = []
        self.modules: dict[str, SourcePlace] = {}
        """WebAssembly modules and scripts that claims and demos run."""
        self.demos = 0
        self.files: dict[str, bytes] = {}
        """What the page shows or links, by its path in the paper."""
        self.data: dict[str, Any] = {}
        """JSON files that numbers come from, parsed."""

    def word(self, key: str) -> str:
        return words.word(self.lang, key)

    def fault(self, place: SourcePlace, text: str) -> None:
        self.faults.add(place, text)

    def nth(self, key: str) -> int:
        """How many of these came before."""
        self.seen[key] += 1
        return self.seen[key] - 1

    def place(self, needle: str, *, pattern: str = "", code: bool = False) -> SourcePlace:
        """Where the thing met now stands in the source; every call is one more of its kind."""
        return self.source.place(needle, self.nth(f"{needle} {pattern}"), pattern=pattern, code=code)

    def claim_id(self, ident: str, place: SourcePlace) -> None:
        """An id may be used once."""
        if ident in self.ids:
            self.fault(place, f"the id {ident} is used already")
        self.ids.add(ident)

    def free_id(self, wanted: str) -> str:
        """An id that nobody asked for by name gives way."""
        found = wanted
        number = 2
        while found in self.ids:
            found = f"{wanted}-{number}"
            number += 1
        self.ids.add(found)
        return found

    def label(self, ident: str, kind: str, number: str, anchor: str) -> None:
        self.labels[ident] = Label(kind, number, anchor)
