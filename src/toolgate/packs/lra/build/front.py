"""The front matter: YAML between two lines of dashes, checked key by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.kit import yamldoc
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


class ClaimSource(Struct, frozen=True):
    text: str
    evidence: str
    """An id of the page, or nothing."""
    line: int


class Front(Struct, frozen=True):
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
        root = yamldoc.read("\n".join(lines[1:end]).encode())
    except yamldoc.YamlFault as fault:
        raise BuildFault(file, fault.line + 1, str(fault)) from None
    if not isinstance(root, yamldoc.Mapping):
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


class _Reader(Struct, frozen=True):
    root: yamldoc.Mapping
    file: str

    def fault(self, node: yamldoc.Node | None, text: str) -> BuildFault:
        return BuildFault(self.file, node.line + 1 if node is not None else 1, text)

    def require_known(self) -> None:
        for key, _ in self.root.pairs():
            if yamldoc.text_of(key) not in KEYS:
                raise self.fault(key, f"unknown key; known are {', '.join(sorted(KEYS))}")

    def text(self, key: str, *, required: bool = False) -> str:
        node = self.root.get(key)
        value = " ".join((yamldoc.text_of(node) or "").split())
        if node is not None and not value:
            raise self.fault(node, f"{key} is text")
        if required and not value:
            raise self.fault(node, f"the front matter lacks {key}")
        return value

    def words(self, key: str) -> Iterator[str]:
        node = self.root.get(key)
        listed = yamldoc.items_of(node)
        if node is not None and not listed:
            raise self.fault(node, f"{key} is a list such as [one, two]")
        for one in listed:
            word = yamldoc.text_of(one)
            if not word:
                raise self.fault(one, f"{key} is a list of words")
            yield word

    def authors(self) -> Iterator[metadata.Author]:
        node = self.root.get("authors") or self.root.get("author")
        if node is None:
            raise self.fault(None, "the front matter lacks author")
        for one in yamldoc.items_of(node) or [node]:
            name = yamldoc.text_of(one) or yamldoc.text_of(yamldoc.value_of(one, "name")) or ""
            orcid = yamldoc.text_of(yamldoc.value_of(one, "orcid")) or ""
            try:
                yield metadata.author(name, orcid)
            except ToolError as fault:
                raise self.fault(one, fault.text) from None

    def date(self) -> str:
        value = self.text("date", required=True)
        try:
            return metadata.require_date(value)
        except ToolError as fault:
            raise self.fault(self.root.get("date"), fault.text) from None

    def licence(self) -> str:
        value = self.text("license") or licences.DEFAULT
        if value not in licences.LICENCES:
            known = ", ".join(licences.LICENCES)
            raise self.fault(self.root.get("license"), f"license is one of {known}")
        return value

    def claims(self) -> Iterator[ClaimSource]:
        node = self.root.get("claims")
        listed = yamldoc.items_of(node)
        if not 1 <= len(listed) <= MAX_CLAIMS:
            raise self.fault(node, f"claims is a list of 1 to {MAX_CLAIMS} entries with text and evidence")
        for one in listed:
            text = yamldoc.text_of(one) or yamldoc.text_of(yamldoc.value_of(one, "text")) or ""
            evidence = yamldoc.text_of(yamldoc.value_of(one, "evidence")) or ""
            if not text.strip():
                raise self.fault(one, "a claim has a text")
            yield ClaimSource(" ".join(text.split()), evidence.removeprefix("#"), one.line + 1)
