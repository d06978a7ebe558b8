"""Authors and where they work, in the forms that journals and tools have: names, ORCID iDs, affiliations by number or by text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from toolgate.errors import ToolError
from toolgate.packs.lra.build.document.meta import entries as entries_of
from toolgate.packs.lra.build.document.meta import items, plain_text
from toolgate.packs.lra.build.faults import SourceFaults, SourcePlace
from toolgate.packs.lra.paper import metadata

PlaceOf = Callable[..., SourcePlace]
AUTHOR_KEYS: Final = frozenset(
    {"name", "given", "family", "given-names", "surname", "literal", "orcid", "affiliation", "affiliations", "email"}
    | {"corresponding", "equal-contrib", "url", "id", "roles", "degrees", "dropping-particle", "suffix"}
)
AFFILIATION_KEYS: Final = frozenset(
    {"name", "index", "id", "ref", "department", "group", "address", "city", "region", "country", "ror", "url"}
    | {"postal-code"}
)
_PARTS: Final = ("group", "department", "name", "address", "city", "region", "postal-code", "country")


class ListedAuthor(NamedTuple):
    author: metadata.Author
    places: tuple[int, ...] = ()
    """Numbers of the affiliations, from 1."""
    email: str = ""


def read_authors(
    meta: dict[str, Any], place: PlaceOf, faults: SourceFaults
) -> tuple[tuple[ListedAuthor, ...], tuple[str, ...]]:
    """The authors, and the affiliations they refer to by number."""
    key = "authors" if "authors" in meta else "author"
    reader = _Reader(place, faults, [], {}, declared="affiliations" in meta)
    reader.declare(meta.get("affiliations"))
    listed = items(meta.get(key))
    if not listed:
        faults.add(place(key), "the front matter lacks author")
    found = tuple(reader.person(value, place(key, at)) for at, value in enumerate(listed))
    return tuple(author for author in found if author is not None), tuple(reader.names)


class _Reader(NamedTuple):
    place: PlaceOf
    faults: SourceFaults
    names: list[str]
    numbers: dict[str, int]
    """The number of an affiliation by its index, id or name."""
    declared: bool

    def declare(self, value: dict[str, Any] | None) -> None:
        for at, item in enumerate(items(value)):
            entries = entries_of(item, "name")
            self._require(entries, AFFILIATION_KEYS, self.place("affiliations", at), "an affiliation")
            number = self._number(_full(entries))
            for key in ("index", "id"):
                if key in entries:
                    self.numbers[plain_text(entries[key])] = number
            self.numbers.setdefault(str(at + 1), number)

    def person(self, value: dict[str, Any], place: SourcePlace) -> ListedAuthor | None:
        entries = entries_of(value, "name")
        self._require(entries, AUTHOR_KEYS, place, "an author")
        numbers = [
            number
            for key in ("affiliation", "affiliations")
            for item in items(entries.get(key))
            for number in self._places(item, place)
        ]
        try:
            author = metadata.author(_name(entries), plain_text(entries.get("orcid")))
        except ToolError as fault:
            self.faults.add(place, fault.text)
            return None
        return ListedAuthor(author, tuple(dict.fromkeys(numbers)), plain_text(entries.get("email")))

    def _places(self, value: dict[str, Any], place: SourcePlace) -> list[int]:
        if value["t"] == "MetaMap":
            entries = value["c"]
            self._require(entries, AFFILIATION_KEYS, place, "an affiliation")
            return (
                self._known(plain_text(entries["ref"]), place) if "ref" in entries else [self._number(_full(entries))]
            )
        text = plain_text(value)
        if not self.declared or text in self.numbers:
            return self._known(text, place) if text in self.numbers else [self._number(text)]
        return [number for part in text.split(",") for number in self._known(part.strip(), place)]

    def _known(self, key: str, place: SourcePlace) -> list[int]:
        if key in self.numbers:
            return [self.numbers[key]]
        self.faults.add(place, f"there is no affiliation {key[:60]} in affiliations")
        return []

    def _number(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name) + 1

    def _require(self, entries: dict[str, Any], known: frozenset[str], place: SourcePlace, what: str) -> None:
        for key in sorted(set(entries) - known):
            self.faults.add(place, f"unknown key {key} in {what}; known are {', '.join(sorted(known))}")


def _name(entries: dict[str, Any]) -> str:
    name = entries.get("name")
    inner = name["c"] if name is not None and name["t"] == "MetaMap" else entries
    family = plain_text(inner.get("family")) or plain_text(inner.get("surname"))
    given = plain_text(inner.get("given")) or plain_text(inner.get("given-names"))
    if family:
        return f"{family}, {given}" if given else family
    return plain_text(inner.get("literal")) or plain_text(name)


def _full(entries: dict[str, Any]) -> str:
    return ", ".join(text for text in (plain_text(entries.get(key)) for key in _PARTS) if text)
