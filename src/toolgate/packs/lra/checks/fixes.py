"""`lra validate --fix`: mechanical repairs only. Nothing is invented: no claim, no evidence, no text, no licence choice."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

import turbohtml
from msgspec import Struct

from toolgate.packs.lra.checks import advisories, required
from toolgate.packs.lra.paper import cff, licences, service_worker
from toolgate.packs.lra.paper import page as pages
from toolgate.packs.lra.paper.paper import Paper, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from turbohtml import Element, SourceSpan

    from toolgate.packs.lra.paper.artifact import Artifact

_HEADINGS: Final = {
    "abstract": ("abstract", "summary"),
    "claims": ("claims",),
    "references": ("references", "bibliography"),
    "citation": ("citation", "how to cite"),
}
_SECTION_RULES: Final = {"B6": "abstract", "B7": "claims", "B8": "references", "B9": "citation"}
_DEPRECATED: Final = {
    "GPL-3.0": "GPL-3.0-only",
    "GPL-3.0+": "GPL-3.0-or-later",
    "AGPL-3.0": "AGPL-3.0-only",
    "AGPL-3.0+": "AGPL-3.0-or-later",
}
"""SPDX's own replacements for ids it no longer uses."""


class _Edit(Struct, frozen=True):
    start: int
    end: int
    text: str
    rule: str


def repairs(artifact: Artifact, year: str) -> dict[str, bytes]:
    """New contents of the files that can be mended, by name. Raises: ToolError IO_ERROR: the page is not UTF-8."""
    subject = read(artifact)
    found: dict[str, bytes] = {}
    html = _mended_page(subject)
    if html != subject.page.source:
        found[artifact.page] = html.encode()
    found |= _mended_licence(subject, year)
    found |= _mended_citation(subject)
    found |= _mended_worker(subject, found)
    return found


def mendable(paper: Paper) -> set[str]:
    """The rules that `repairs` would really do something about in this paper."""
    files = {"B11": _mended_licence(paper, "2000"), "B15": _mended_citation(paper), "A402": _mended_worker(paper, {})}
    return {edit.rule for edit in _edits(paper)} | {rule for rule, mended in files.items() if mended}


def diff(artifact: Artifact, new: Mapping[str, bytes]) -> str:
    """What would change, as a unified diff."""
    parts: list[str] = []
    for name, data in new.items():
        old = artifact.html if name == artifact.page else artifact.files.get(name, b"")
        before, after = (text.decode("utf-8", "replace").splitlines(keepends=True) for text in (old, data))
        parts.extend(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"))
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in parts)


def _fails(paper: Paper, rule: str) -> bool:
    function = required.FUNCTIONS.get(rule) or advisories.FUNCTIONS[rule]
    return next(function(paper), None) is not None


def _mended_page(paper: Paper) -> str:
    source = paper.page.source
    for edit in sorted(_edits(paper), key=lambda edit: edit.start, reverse=True):
        source = source[: edit.start] + edit.text + source[edit.end :]
    return source


def _edits(paper: Paper) -> list[_Edit]:
    source = paper.page.source
    if "\r" in source:
        return []  # offsets count a line break once: leave files of that kind to their editor
    located = pages.Page(source, turbohtml.parse(source, scripting=False, source_locations=True))
    return [*_head(paper, located), *_section_ids(paper, located), *_claim_ids(paper, located)]


def _start_tag(element: Element | None) -> SourceSpan | None:
    where = element.source_location if element is not None else None
    return where.start_tag if where is not None else None


def _into_tag(page: pages.Page, element: Element | None, attribute: str, rule: str) -> Iterator[_Edit]:
    """Insert an attribute behind the tag's name."""
    span = _start_tag(element)
    if span is not None and element is not None:
        position = span.start_offset + 1 + len(element.tag)
        if page.source[span.start_offset + 1 : position].lower() == element.tag:
            yield _Edit(position, position, f" {attribute}", rule)


def _head(paper: Paper, page: pages.Page) -> Iterator[_Edit]:
    """Missing meta elements, right behind the head's start tag."""
    span = _start_tag(page.document.select_one("head"))
    if span is None:
        return
    missing = {}
    if _fails(paper, "B2"):
        missing["B2"] = '<meta charset="utf-8">'
        for old in page.document.select("meta[charset]"):
            place = _start_tag(old)
            if place is not None:
                yield _Edit(place.start_offset, place.end_offset, "", "B2")
    if _fails(paper, "B3") and page.document.select_one('meta[name="viewport"]') is None:
        missing["B3"] = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    if _fails(paper, "B14") and page.document.select_one('meta[name="lra:version"]') is None:
        missing["B14"] = '<meta name="lra:version" content="1.0">'
    # Inserted back to front at one place, so in the order of the page: the encoding first.
    yield from (_Edit(span.end_offset, span.end_offset, f"\n{line}", rule) for rule, line in reversed(missing.items()))


def _section_ids(paper: Paper, page: pages.Page) -> Iterator[_Edit]:
    """A section without id whose heading says what it is."""
    for rule, ident in _SECTION_RULES.items():
        if not _fails(paper, rule) or paper.page.target(ident) is not None:
            continue
        for section in page.document.select("section:not([id])"):
            heading = section.select_one("h1, h2, h3")
            if heading is not None and pages.squeeze(heading.text).lower() in _HEADINGS[ident]:
                yield from _into_tag(page, section, f'id="{ident}"', rule)
                break


def _claim_ids(paper: Paper, page: pages.Page) -> Iterator[_Edit]:
    for item in page.document.select("#claims li[data-lra-claim]:not([id])"):
        number = (item.attr("data-lra-claim") or "").strip()
        if re.fullmatch(r"[1-9][0-9]{0,3}", number) and paper.page.target(f"claim-{number}") is None:
            yield from _into_tag(page, item, f'id="claim-{number}"', "A101")


def _mended_licence(paper: Paper, year: str) -> dict[str, bytes]:
    """A missing or empty LICENSE is written when CITATION.cff already names a licence whose text we have."""
    citation = paper.citation
    if paper.artifact.sizes.get("LICENSE") or not isinstance(citation, cff.Citation):
        return {}
    named = [licence for licence in licences.LICENCES.values() if licence.agrees.intersection(citation.licences)]
    if len(named) != 1 or not citation.authors:
        return {}
    return {"LICENSE": licences.text_of(named[0].spdx, year=year, holder=", ".join(citation.authors)).encode()}


def _mended_citation(paper: Paper) -> dict[str, bytes]:
    """`license` follows the text in LICENSE where there is only one way to say it."""
    citation, licence = paper.citation, paper.licence
    text = paper.artifact.text("CITATION.cff")
    if licence is None or text is None or not isinstance(citation, cff.Citation) or not _fails(paper, "B15"):
        return {}
    replacement = _DEPRECATED.get(citation.licences[0]) if len(citation.licences) == 1 else None
    if replacement not in licence.agrees:
        replacement = licence.spdx if len(licence.agrees) == 1 else None
    if replacement is None:
        return {}
    lines = text.splitlines()
    if citation.licence_place is None:
        lines.append(f"license: {replacement}")
    else:
        number = citation.licence_place[0] - 1
        if not re.match(r"license\s*:", lines[number]):
            return {}
        lines[number] = f"license: {replacement}"
    return {"CITATION.cff": ("\n".join(lines) + "\n").encode()}


def _mended_worker(paper: Paper, made: Mapping[str, bytes]) -> dict[str, bytes]:
    """`made`: files that are written by other repairs."""
    code = paper.artifact.text("sw.js")
    if code is None or not _fails(paper, "A402"):
        return {}
    there = {*paper.artifact.sizes, *made}
    listed = {name.removeprefix("./") for name in service_worker.assets(code) or ()} & there
    names = ["./", *sorted({paper.artifact.page, *advisories.own_files(paper), *listed})]
    return {"sw.js": service_worker.with_assets(code, names).encode()}
