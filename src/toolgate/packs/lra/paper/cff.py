"""CITATION.cff: read with places, and judged by the demands of Citation File Format 1.2.0 that a paper meets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.kit import yamldoc

if TYPE_CHECKING:
    from collections.abc import Iterator

REQUIRED: Final = ("authors", "cff-version", "message", "title")
_KEYS: Final = frozenset(
    {"abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords"}
    | {"license", "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact"}
    | {"repository-code", "title", "type", "url", "version"}
)
_DATE: Final = re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])")
_ORCID: Final = re.compile(r"https://orcid\.org/[0-9]{4}-[0-9]{4}-[0-9]{4}-[0-9]{3}[0-9X]")


class CffFault(Struct, frozen=True):
    text: str
    line: int | None = None
    column: int | None = None


class Citation(Struct, frozen=True):
    title: str
    licences: tuple[str, ...]
    authors: tuple[str, ...]
    """Display names: `Given Family`, or the name of an entity."""
    licence_place: tuple[int, int] | None
    root: yamldoc.Mapping

    def faults(self) -> Iterator[CffFault]:
        """Where the file breaks the format."""
        yield from _key_faults(self.root)
        yield from _author_faults(self.root)
        yield from _value_faults(self.root)


def read(text: str) -> Citation | CffFault:
    """The citation file, or why it cannot be read."""
    try:
        root = yamldoc.read(text.encode())
    except yamldoc.YamlFault as fault:
        return CffFault(str(fault), fault.line, fault.column)
    if root is None:
        return CffFault("the file is empty")
    if not isinstance(root, yamldoc.Mapping):
        return CffFault("the file is not a mapping of keys to values", root.line, root.column)
    licence = root.get("license")
    listed: list[yamldoc.Node | None] = [*yamldoc.items_of(licence)] or [licence]
    names = [yamldoc.text_of(author) for author in listed]
    return Citation(
        title=yamldoc.text_of(root.get("title")) or "",
        licences=tuple(name for name in names if name),
        authors=tuple(_name(author) for author in yamldoc.items_of(root.get("authors"))),
        licence_place=(licence.line, licence.column) if licence is not None else None,
        root=root,
    )


def _name(author: yamldoc.Node) -> str:
    entity = yamldoc.text_of(yamldoc.value_of(author, "name"))
    if entity:
        return entity
    parts = (yamldoc.text_of(yamldoc.value_of(author, key)) for key in ("given-names", "name-particle", "family-names"))
    return " ".join(part for part in parts if part)


def _key_faults(root: yamldoc.Mapping) -> Iterator[CffFault]:
    yield from (CffFault(f"the key {key} is missing") for key in REQUIRED if root.get(key) is None)
    for key, _ in root.pairs():
        if yamldoc.text_of(key) not in _KEYS:
            yield CffFault("a key is not one of Citation File Format 1.2.0", key.line, key.column)


def _author_faults(root: yamldoc.Mapping) -> Iterator[CffFault]:
    authors = root.get("authors")
    if authors is None:
        return
    if not yamldoc.items_of(authors):
        yield CffFault("authors is not a list with at least one author", authors.line, authors.column)
    for author in yamldoc.items_of(authors):
        if not _name(author):
            yield CffFault("an author has neither name nor family-names", author.line, author.column)
        orcid = yamldoc.value_of(author, "orcid")
        if orcid is not None and not _ORCID.fullmatch(yamldoc.text_of(orcid) or ""):
            yield CffFault("an orcid is written https://orcid.org/0000-0000-0000-0000", orcid.line, orcid.column)


def _value_faults(root: yamldoc.Mapping) -> Iterator[CffFault]:
    version = root.get("cff-version")
    if version is not None and yamldoc.text_of(version) != "1.2.0":
        yield CffFault("cff-version is not 1.2.0", version.line, version.column)
    date = root.get("date-released")
    if date is not None and not _DATE.fullmatch(yamldoc.text_of(date) or ""):
        yield CffFault("date-released is not a date such as 2026-11-15", date.line, date.column)
    kind = root.get("type")
    if kind is not None and yamldoc.text_of(kind) not in ("software", "dataset"):
        yield CffFault("type is software or dataset; say article under preferred-citation", kind.line, kind.column)
