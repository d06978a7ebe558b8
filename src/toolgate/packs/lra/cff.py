"""CITATION.cff: read with places, and judged by the demands of Citation File Format 1.2.0 that a paper meets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import yaml

from toolgate.kit import yamlnodes

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


@dataclass(frozen=True, slots=True)
class Fault:
    text: str
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Citation:
    title: str
    licences: tuple[str, ...]
    authors: tuple[str, ...]
    """Display names: `Given Family`, or the name of an entity."""
    licence_place: tuple[int, int] | None
    root: yaml.Node

    def faults(self) -> Iterator[Fault]:
        """Where the file breaks the format."""
        yield from _key_faults(self.root)
        yield from _author_faults(self.root)
        yield from _value_faults(self.root)


def read(text: str) -> Citation | Fault:
    """The citation file, or why it cannot be read."""
    try:
        root = yamlnodes.compose(text)
    except yamlnodes.YamlFault as fault:
        return Fault(str(fault), fault.line, fault.column)
    if root is None:
        return Fault("the file is empty")
    if not isinstance(root, yaml.MappingNode):
        return Fault("the file is not a mapping of keys to values", *yamlnodes.place(root))
    licence = yamlnodes.get(root, "license")
    listed: list[yaml.Node | None] = [*yamlnodes.items(licence)] or [licence]
    names = [yamlnodes.scalar(one) for one in listed]
    return Citation(
        title=yamlnodes.scalar(yamlnodes.get(root, "title")) or "",
        licences=tuple(name for name in names if name),
        authors=tuple(_name(author) for author in yamlnodes.items(yamlnodes.get(root, "authors"))),
        licence_place=yamlnodes.place(licence) if licence is not None else None,
        root=root,
    )


def _name(author: yaml.Node) -> str:
    entity = yamlnodes.scalar(yamlnodes.get(author, "name"))
    if entity:
        return entity
    parts = (yamlnodes.scalar(yamlnodes.get(author, key)) for key in ("given-names", "name-particle", "family-names"))
    return " ".join(part for part in parts if part)


def _key_faults(root: yaml.Node) -> Iterator[Fault]:
    yield from (Fault(f"the key {key} is missing") for key in REQUIRED if yamlnodes.get(root, key) is None)
    for key, _ in root.value:
        if yamlnodes.scalar(key) not in _KEYS:
            yield Fault("a key is not one of Citation File Format 1.2.0", *yamlnodes.place(key))


def _author_faults(root: yaml.Node) -> Iterator[Fault]:
    authors = yamlnodes.get(root, "authors")
    if authors is None:
        return
    if not yamlnodes.items(authors):
        yield Fault("authors is not a list with at least one author", *yamlnodes.place(authors))
    for author in yamlnodes.items(authors):
        if not _name(author):
            yield Fault("an author has neither name nor family-names", *yamlnodes.place(author))
        orcid = yamlnodes.get(author, "orcid")
        if orcid is not None and not _ORCID.fullmatch(yamlnodes.scalar(orcid) or ""):
            yield Fault("an orcid is written https://orcid.org/0000-0000-0000-0000", *yamlnodes.place(orcid))


def _value_faults(root: yaml.Node) -> Iterator[Fault]:
    version = yamlnodes.get(root, "cff-version")
    if version is not None and yamlnodes.scalar(version) != "1.2.0":
        yield Fault("cff-version is not 1.2.0", *yamlnodes.place(version))
    date = yamlnodes.get(root, "date-released")
    if date is not None and not _DATE.fullmatch(yamlnodes.scalar(date) or ""):
        yield Fault("date-released is not a date such as 2026-11-15", *yamlnodes.place(date))
    kind = yamlnodes.get(root, "type")
    if kind is not None and yamlnodes.scalar(kind) not in ("software", "dataset"):
        yield Fault("type is software or dataset; say article under preferred-citation", *yamlnodes.place(kind))
