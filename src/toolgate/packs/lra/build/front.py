"""The front matter: YAML between two lines of dashes, checked key by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import yaml

from toolgate.errors import ToolError
from toolgate.kit import yamlnodes
from toolgate.packs.lra import licences, metadata
from toolgate.packs.lra.build.faults import BuildFault

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS: Final = frozenset(
    {"title", "author", "authors", "date", "description", "abstract", "url", "license", "keywords", "lang", "claims"}
    | {"bibliography"}
)
MAX_CLAIMS: Final = 100
"""The specification's own bound."""
_FENCE: Final = "---"


@dataclass(frozen=True, slots=True)
class ClaimSource:
    text: str
    evidence: str
    """An id of the page, or nothing."""
    line: int


@dataclass(frozen=True, slots=True)
class Front:
    title: str
    authors: tuple[metadata.Author, ...]
    date: str
    licence: str
    description: str
    abstract: str
    keywords: tuple[str, ...]
    url: str
    lang: str
    bibliography: str
    claims: tuple[ClaimSource, ...]
    body: str
    body_line: int
    """The line of the file on which the body begins, from 1."""


def read(source: str, file: str) -> Front:
    """Raises: BuildFault: no front matter, a key that is unknown, missing or of the wrong kind."""
    lines = source.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise BuildFault(file, 1, "the file begins with front matter: YAML between two lines of ---")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if end is None:
        raise BuildFault(file, 1, "the front matter is not closed by a line of ---")
    try:
        root = yamlnodes.compose("\n".join(lines[1:end]))
    except yamlnodes.YamlFault as fault:
        raise BuildFault(file, (fault.line or 0) + 1, str(fault)) from None
    if not isinstance(root, yaml.MappingNode):
        raise BuildFault(file, 2, "the front matter is a mapping of keys to values")
    reader = _Reader(root, file)
    reader.require_known()
    return Front(
        title=reader.text("title", required=True),
        authors=tuple(reader.authors()),
        date=reader.date(),
        licence=reader.licence(),
        description=reader.text("description"),
        abstract=reader.text("abstract"),
        keywords=tuple(reader.words("keywords")),
        url=reader.text("url"),
        lang=reader.text("lang") or "en",
        bibliography=reader.text("bibliography"),
        claims=tuple(reader.claims()),
        body="\n".join(lines[end + 1 :]),
        body_line=end + 2,
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    root: yaml.MappingNode
    file: str

    def fault(self, node: yaml.Node | None, text: str) -> BuildFault:
        return BuildFault(self.file, yamlnodes.place(node)[0] + 1 if node is not None else 1, text)

    def require_known(self) -> None:
        for key, _ in self.root.value:
            if yamlnodes.scalar(key) not in KEYS:
                raise self.fault(key, f"unknown key; known are {', '.join(sorted(KEYS))}")

    def text(self, key: str, *, required: bool = False) -> str:
        node = yamlnodes.get(self.root, key)
        value = " ".join((yamlnodes.scalar(node) or "").split())
        if node is not None and not value:
            raise self.fault(node, f"{key} is text")
        if required and not value:
            raise self.fault(node, f"the front matter lacks {key}")
        return value

    def words(self, key: str) -> Iterator[str]:
        node = yamlnodes.get(self.root, key)
        listed = yamlnodes.items(node)
        if node is not None and not listed:
            raise self.fault(node, f"{key} is a list such as [one, two]")
        for one in listed:
            word = yamlnodes.scalar(one)
            if not word:
                raise self.fault(one, f"{key} is a list of words")
            yield word

    def authors(self) -> Iterator[metadata.Author]:
        node = yamlnodes.get(self.root, "authors") or yamlnodes.get(self.root, "author")
        if node is None:
            raise self.fault(None, "the front matter lacks author")
        for one in yamlnodes.items(node) or [node]:
            name = yamlnodes.scalar(one) or yamlnodes.scalar(yamlnodes.get(one, "name")) or ""
            orcid = yamlnodes.scalar(yamlnodes.get(one, "orcid")) or ""
            try:
                yield metadata.author(name, orcid)
            except ToolError as fault:
                raise self.fault(one, fault.text) from None

    def date(self) -> str:
        value = self.text("date", required=True)
        try:
            return metadata.require_date(value)
        except ToolError as fault:
            raise self.fault(yamlnodes.get(self.root, "date"), fault.text) from None

    def licence(self) -> str:
        value = self.text("license") or licences.DEFAULT
        if value not in licences.LICENCES:
            known = ", ".join(licences.LICENCES)
            raise self.fault(yamlnodes.get(self.root, "license"), f"license is one of {known}")
        return value

    def claims(self) -> Iterator[ClaimSource]:
        node = yamlnodes.get(self.root, "claims")
        listed = yamlnodes.items(node)
        if not 1 <= len(listed) <= MAX_CLAIMS:
            raise self.fault(node, f"claims is a list of 1 to {MAX_CLAIMS} entries with text and evidence")
        for one in listed:
            text = yamlnodes.scalar(one) or yamlnodes.scalar(yamlnodes.get(one, "text")) or ""
            evidence = yamlnodes.scalar(yamlnodes.get(one, "evidence")) or ""
            if not text.strip():
                raise self.fault(one, "a claim has a text")
            yield ClaimSource(" ".join(text.split()), evidence.removeprefix("#"), yamlnodes.place(one)[0] + 1)
