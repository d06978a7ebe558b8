"""What the source says about itself: title, authors, date, claims and the rest, checked key by key.

The values come from Pandoc's metadata, so that a LaTeX file or a notebook is read as Markdown is; the lines come from the YAML.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from toolgate.errors import ToolError
from toolgate.kit import yamldoc
from toolgate.later import later
from toolgate.packs.lra.build.authors import ListedAuthor, read_authors
from toolgate.packs.lra.build.document import ast
from toolgate.packs.lra.build.document.meta import blocks as blocks_of
from toolgate.packs.lra.build.document.meta import entries as entries_of
from toolgate.packs.lra.build.document.meta import items, plain_text
from toolgate.packs.lra.build.faults import SourceFaults, SourcePlace
from toolgate.packs.lra.build.source import Source
from toolgate.packs.lra.paper import licences, metadata

_NEAR: Final = later("difflib:get_close_matches")
KEYS: Final = frozenset(
    {"title", "subtitle", "author", "authors", "affiliations", "date", "description", "abstract", "url", "doi"}
    | {"license", "keywords", "tags", "lang", "claims", "bibliography", "csl", "nocite", "scripts", "capability"}
    | {"number-sections", "numbersections", "link-citations", "reference-section-title", "references"}
)
OTHERS: Final = frozenset(
    {
        "documentclass",
        "classoption",
        "geometry",
        "fontsize",
        "papersize",
        "mainfont",
        "sansfont",
        "monofont",
        "mathfont",
    }
    | {"linestretch", "margin-left", "margin-right", "colorlinks", "linkcolor", "urlcolor", "citecolor", "toccolor"}
    | {"toc", "toc-depth", "toc-title", "lof", "lot", "secnumdepth", "header-includes", "output", "format", "execute"}
    | {"jupyter", "kernelspec", "title-meta", "thanks", "journal", "csquotes", "biblio-style", "natbib", "biblatex"}
    | {"aas-doi", "aas-journal", "archive_doi", "editor", "server", "toc-own-page", "titlepage"}
)
"""Keys of other tools: about a printed page or how a notebook runs. They may stand, and say nothing to this page."""
MAX_CLAIMS: Final = 100
"""The specification's own bound."""
CLAIM_KEYS: Final = frozenset({"text", "evidence", "run", "input", "tolerance", "id"})
_DELIMITER: Final = re.compile(r"^---\s*$")
_END: Final = re.compile(r"^(?:---|\.\.\.)\s*$")
_MONTHS: Final = {name[:3].lower(): number for number, name in enumerate(metadata.MONTHS, 1)}
_DAY_FIRST: Final = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?\.?\s+([A-Za-z]{3,9})\.?,?\s+(\d{4})")
_MONTH_FIRST: Final = re.compile(r"([A-Za-z]{3,9})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})")


class ClaimSource(NamedTuple):
    blocks: ast.Nodes
    evidence: tuple[str, ...]
    """Ids of the page."""
    place: SourcePlace
    run: str = ""
    input: str = ""
    tolerance: str = ""
    label: str = ""


class FrontMatter(NamedTuple):
    title: str
    subtitle: str
    authors: tuple[ListedAuthor, ...]
    affiliations: tuple[str, ...]
    date: str
    licence: str
    description: str
    abstract: ast.Nodes
    keywords: tuple[str, ...]
    url: str
    doi: str
    lang: str
    bibliography: tuple[str, ...]
    csl: str
    claims: tuple[ClaimSource, ...]
    scripts: tuple[str, ...]
    capability: str
    numbered: bool


class KeyLines(NamedTuple):
    """Where a key of the front matter stands."""

    source: Source
    root: yamldoc.Node | None
    first: int

    def place(self, *path: str | int) -> SourcePlace:
        line = self.first
        node = self.root
        for step in path:
            if isinstance(node, yamldoc.Mapping) and isinstance(step, str) and step in node.entries:
                line = node.key_line(step) + self.first
                node = node.get(step)
            elif isinstance(node, yamldoc.Sequence) and isinstance(step, int) and step < len(node.items):
                node = node.items[step]
                line = node.line + self.first
        return self.source.origin(max(line, 1))


def lines_of(source: Source, faults: SourceFaults) -> KeyLines:
    """Side effect: front matter that is not YAML is a fault, and is blanked so that the rest can be looked at."""
    if source.kind != "markdown":
        return KeyLines(source, None, 1)
    lines = source.text.split("\n")
    start = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if not _DELIMITER.match(lines[start]):
        return KeyLines(source, None, 1)
    end = next((number for number in range(start + 1, len(lines)) if _END.match(lines[number])), None)
    if end is None:
        faults.add(source.origin(start + 1), "the front matter is not closed by a line of ---")
        return KeyLines(source, None, 1)
    try:
        root = yamldoc.read("\n".join(lines[start + 1 : end]).encode())
    except yamldoc.YamlFault as fault:
        faults.add(source.origin(start + 1 + fault.line), str(fault))
        source.data = "\n".join([""] * (end + 1) + lines[end + 1 :]).encode()
        return KeyLines(source, None, 1)
    return KeyLines(source, root, start + 1)


def read(meta: dict[str, Any], lines: KeyLines, faults: SourceFaults) -> FrontMatter:
    reader = _Reader(meta, lines, faults)
    reader.require_known()
    listed, affiliations = read_authors(meta, lines.place, faults)
    return FrontMatter(
        title=reader.text("title", required=True),
        subtitle=reader.text("subtitle"),
        authors=listed,
        affiliations=affiliations,
        date=reader.date(),
        licence=reader.licence(),
        description=reader.text("description"),
        abstract=reader.blocks("abstract"),
        keywords=(*reader.words("keywords"), *reader.words("tags")),
        url=reader.text("url"),
        doi=re.sub(r"^(?:https?://(?:dx\.)?doi\.org/|doi:)", "", reader.text("doi")),
        lang=reader.text("lang") or "en",
        bibliography=reader.words("bibliography"),
        csl=reader.text("csl"),
        claims=reader.claims(),
        scripts=reader.words("scripts"),
        capability=reader.text("capability"),
        numbered=reader.flag("number-sections") and reader.flag("numbersections"),
    )


class _Reader(NamedTuple):
    meta: dict[str, Any]
    lines: KeyLines
    faults: SourceFaults

    def require_known(self) -> None:
        for key in self.meta:
            if key not in KEYS and key not in OTHERS:
                near = _NEAR(key, KEYS, 1)
                hint = f"is it {near[0]}?" if near else f"known are {', '.join(sorted(KEYS))}"
                self.faults.add(self.lines.place(key), f"unknown key {key}; {hint}")

    def text(self, key: str, *, required: bool = False) -> str:
        value = plain_text(self.meta.get(key))
        if key in self.meta and not value:
            self.faults.add(self.lines.place(key), f"{key} is text")
        elif required and not value:
            self.faults.add(self.lines.place(), f"the front matter lacks {key}")
        return value

    def blocks(self, key: str) -> ast.Nodes:
        found = blocks_of(self.meta.get(key))
        if key in self.meta and not found:
            self.faults.add(self.lines.place(key), f"{key} is text")
        return found

    def words(self, key: str) -> tuple[str, ...]:
        found = tuple(plain_text(item) for item in items(self.meta.get(key)))
        if not all(found):
            self.faults.add(self.lines.place(key), f"{key} is a list such as [one, two]")
        if key in {"keywords", "tags"} and len(found) == 1:
            return tuple(word for word in (part.strip() for part in re.split(r"[,;]", found[0])) if word)
        return tuple(word for word in found if word)

    def flag(self, key: str) -> bool:
        return plain_text(self.meta.get(key)) not in {"false", "no"}

    def date(self) -> str:
        text = self.text("date", required=True)
        if not text:
            return "1970-01-01"
        try:
            return metadata.require_date(_iso(text))
        except ToolError as fault:
            self.faults.add(self.lines.place("date"), f"{fault.text}, not {text[:40]}")
            return "1970-01-01"

    def licence(self) -> str:
        value = self.text("license") or licences.DEFAULT
        if value not in licences.LICENCES:
            self.faults.add(self.lines.place("license"), f"license is one of {', '.join(licences.LICENCES)}")
            return licences.DEFAULT
        return value

    def claims(self) -> tuple[ClaimSource, ...]:
        listed = items(self.meta.get("claims"))
        if "claims" in self.meta and not listed:
            self.faults.add(
                self.lines.place("claims"), "claims is a list of texts, or of entries with text and evidence"
            )
        return tuple(self._claim(claim, at) for at, claim in enumerate(listed))

    def _claim(self, value: dict[str, Any], at: int) -> ClaimSource:
        place = self.lines.place("claims", at)
        entries = entries_of(value, "text")
        for key in sorted(set(entries) - CLAIM_KEYS):
            self.faults.add(place, f"unknown key {key} in a claim; known are {', '.join(sorted(CLAIM_KEYS))}")
        blocks = blocks_of(entries.get("text"))
        if not blocks:
            self.faults.add(place, "a claim has a text")
        evidence = tuple(plain_text(item).removeprefix("#") for item in items(entries.get("evidence")))
        rest = {key: plain_text(entries.get(key)) for key in ("run", "input", "tolerance")}
        return ClaimSource(blocks, evidence, place, label=plain_text(entries.get("id")), **rest)


def _iso(text: str) -> str:
    """A date as people write it, as 2026-11-15; the text itself when it is none."""
    if match := re.fullmatch(r"(\d{4})[/.](\d{1,2})[/.](\d{1,2})", text):
        return f"{match[1]}-{int(match[2]):02}-{int(match[3]):02}"
    for pattern, day, month in ((_DAY_FIRST, 1, 2), (_MONTH_FIRST, 2, 1)):
        match = pattern.fullmatch(text)
        number = _MONTHS.get(match[month][:3].lower()) if match else None
        if match and number:
            return f"{match[3]}-{number:02}-{int(match[day]):02}"
    return text
