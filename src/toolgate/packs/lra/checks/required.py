"""The 23 checks of LRA-1.0. Each yields the places where it does not hold; none means it passes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from turbohtml import Namespace

from toolgate.packs.lra.paper import cff
from toolgate.packs.lra.paper import page as pages
from toolgate.packs.lra.paper.paper import Paper, RuleHit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turbohtml import Element

_LANGUAGE: Final = re.compile(
    r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*|[A-Za-z]{4,8}(-[A-Za-z0-9]{1,8})*|x(-[A-Za-z0-9]{1,8})+"
)
"""Well-formed by BCP 47, without its registry."""
_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?\s*([^\s\"';]+)", re.IGNORECASE)
_CHARSET_WINDOW: Final = 1024
"""Bytes in which a browser looks for the encoding."""
_LIVE_ROLES: Final = frozenset({"status", "log", "alert"})
_KNOWN_VERSIONS: Final = frozenset({"1.0"})
_LICENCE_LIKE: Final = ("LICENSE.txt", "LICENSE.md", "LICENCE", "LICENCE.txt", "COPYING", "license")
_MAX_EXAMINED: Final = 500
"""Elements of one kind that a check walks up or down from: keeps deep, repetitive pages linear."""


def b1(paper: Paper) -> Iterator[RuleHit]:
    root = paper.page.first("html")
    if root is None:
        yield paper.missing("there is no html element")
        return
    language = (root.attr("lang") or "").strip()
    if not language:
        yield paper.at(root, "the html element has no lang")
    elif not _LANGUAGE.fullmatch(language):
        yield paper.at(root, "lang is not a language tag such as en or pt-BR")


def b2(paper: Paper) -> Iterator[RuleHit]:
    for element in paper.page.by_tag["meta"]:
        name = element.attr("charset")
        if name is None and (element.attr("http-equiv") or "").strip().lower() == "content-type":
            match = _CHARSET.search(element.attr("content") or "")
            name = match[1] if match else None
        if name is None:
            continue
        if name.strip().lower() not in ("utf-8", "utf8"):
            yield paper.at(element, "the declared encoding is not utf-8")
        elif _bytes_before(paper, element) > _CHARSET_WINDOW:
            yield paper.at(element, "the encoding is declared after the first 1024 bytes, where browsers do not look")
        return
    yield paper.missing("no meta element declares the encoding")


def _bytes_before(paper: Paper, element: Element) -> int:
    """Bytes up to the end of the element's tag (about: its source is not kept, its name and value are short)."""
    where = pages.place(element)
    if where.line is None or where.column is None:
        return 0
    lines = paper.page.source.split("\n", where.line)
    return len("\n".join([*lines[: where.line - 1], lines[where.line - 1][: where.column - 1]]).encode())


def b3(paper: Paper) -> Iterator[RuleHit]:
    yield from _meta(paper, "viewport")


def b4(paper: Paper) -> Iterator[RuleHit]:
    yield from _meta(paper, "description")


def _meta(paper: Paper, name: str) -> Iterator[RuleHit]:
    if paper.page.meta(name) is not None:
        return
    for element in paper.page.by_tag["meta"]:
        if (element.attr("name") or "").strip().lower() == name:
            yield paper.at(element, f"meta {name} is empty")
            return
    yield paper.missing(f"there is no meta {name}")


def b5(paper: Paper) -> Iterator[RuleHit]:
    titles = [title for title in paper.page.by_tag["title"] if title.namespace is Namespace.HTML]
    if not titles:
        yield paper.missing("there is no title element")
    elif not pages.squeeze(titles[0].text):
        yield paper.at(titles[0], "the title is blank")
    elif len(titles) > 1:
        yield paper.at(titles[1], "there is more than one title")


def _section(paper: Paper, ident: str) -> Iterator[RuleHit]:
    element = paper.page.target(ident)
    if element is None:
        yield paper.missing(f"there is no section with the id {ident}")
    elif element.tag != "section":
        yield paper.at(element, f"the id {ident} stands on a {element.tag} element, not on a section")


def b6(paper: Paper) -> Iterator[RuleHit]:
    yield from _section(paper, "abstract")


def b7(paper: Paper) -> Iterator[RuleHit]:
    yield from _section(paper, "claims")
    section = paper.page.section("claims")
    if section is not None and section.select_one("ol > li") is None:
        yield paper.at(section, "the claims section has no ordered list with an item")


def b8(paper: Paper) -> Iterator[RuleHit]:
    yield from _section(paper, "references")


def b9(paper: Paper) -> Iterator[RuleHit]:
    yield from _section(paper, "citation")


def b10(paper: Paper) -> Iterator[RuleHit]:
    if not paper.page.claims():
        section = paper.page.section("claims")
        text = "no item of the claims section carries data-lra-claim"
        yield paper.at(section, text) if section is not None else paper.missing(text)


def b11(paper: Paper) -> Iterator[RuleHit]:
    sizes = paper.artifact.sizes
    if "LICENSE" not in sizes:
        other = next((name for name in _LICENCE_LIKE if name in sizes), None)
        yield RuleHit(f"there is no file LICENSE; rename {other}" if other else "there is no file LICENSE", "LICENSE")
    elif not sizes["LICENSE"]:
        yield RuleHit("LICENSE is empty", "LICENSE", 1, 1)


def b12(paper: Paper) -> Iterator[RuleHit]:
    if paper.licence is None:
        there = paper.artifact.sizes.get("LICENSE", 0) > 0
        text = "LICENSE is not the complete, unchanged text of a known licence" if there else "there is no licence text"
        yield RuleHit(text, "LICENSE", 1 if there else None, 1 if there else None)


def b13(paper: Paper) -> Iterator[RuleHit]:
    if paper.citation is None:
        yield RuleHit("there is no file CITATION.cff", "CITATION.cff")
    elif isinstance(paper.citation, cff.CffFault):
        fault = paper.citation
        yield RuleHit(f"CITATION.cff cannot be read: {fault.text}", "CITATION.cff", fault.line, fault.column)


def b14(paper: Paper) -> Iterator[RuleHit]:
    element = paper.page.meta("lra:version")
    if element is None:
        yield paper.missing("there is no meta lra:version")
    elif paper.page.meta_content("lra:version") not in _KNOWN_VERSIONS:
        yield paper.at(element, "lra:version is not a known version; the current one is 1.0")


def b15(paper: Paper) -> Iterator[RuleHit]:
    citation = paper.citation
    if not isinstance(citation, cff.Citation):
        yield RuleHit("there is no readable CITATION.cff that names a licence", "CITATION.cff")
        return
    line, column = citation.licence_place or (None, None)
    if not citation.licences:
        yield RuleHit("CITATION.cff has no license", "CITATION.cff", line, column)
    elif paper.licence is None:
        yield RuleHit("LICENSE is not recognised, so nothing can agree with it", "CITATION.cff", line, column)
    elif not paper.licence.agrees.intersection(citation.licences):
        expected = " or ".join(sorted(paper.licence.agrees))
        yield RuleHit(f"license is not {expected}, the text in LICENSE", "CITATION.cff", line, column)


def b16(paper: Paper) -> Iterator[RuleHit]:
    if paper.artifact.sizes.get("paper.css"):
        return
    if any(pages.squeeze(style.text) for style in paper.page.by_tag["style"]):
        return  # 3.1: "may be inlined"
    there = "paper.css" in paper.artifact.sizes
    yield RuleHit("paper.css is empty" if there else "there is no file paper.css", "paper.css")


def s1(paper: Paper) -> Iterator[RuleHit]:
    demos = [section for section in paper.page.by_tag["section"] if "demo" in (section.attr("class") or "").split()]
    if not demos:
        yield paper.missing("there is no section of class demo")
    elif not any(_has_control(demo) for demo in demos[:_MAX_EXAMINED]):
        yield paper.at(demos[0], "the demo section has no control")


def _has_control(element: Element) -> bool:
    return any(
        child.tag in pages.CONTROLS and (child.attr("type") or "").lower() != "hidden"
        for child in element.iter_elements()
    )


def s2(paper: Paper) -> Iterator[RuleHit]:
    found = paper.page.by_tag["noscript"]
    in_body = [element for element in found[:_MAX_EXAMINED] if element.closest("body") is not None]
    if not in_body:
        text = "noscript stands in the head only" if found else "there is no noscript"
        yield paper.at(found[0], text) if found else paper.missing(text)
    elif not any(pages.squeeze(element.text) for element in in_body):
        yield paper.at(in_body[0], "noscript is empty")


def s3(paper: Paper) -> Iterator[RuleHit]:
    if paper.artifact.sizes.get("paper.js"):
        return
    if any(pages.is_script(script) and pages.squeeze(script.text) for script in paper.page.by_tag["script"]):
        return  # 5.2: an inline script counts
    there = "paper.js" in paper.artifact.sizes
    yield RuleHit("paper.js is empty" if there else "there is no file paper.js", "paper.js")


def g1(paper: Paper) -> Iterator[RuleHit]:
    if not paper.wasm:
        yield RuleHit("there is no .wasm file in the artifact")
    elif all(paper.wasm.values()):
        yield from (RuleHit(f"this is not a WebAssembly module: {fault}", name) for name, fault in paper.wasm.items())


def g2(paper: Paper) -> Iterator[RuleHit]:
    claims = paper.page.claims()
    named = [(claim, ident) for claim in claims for ident in claim.evidence]
    if any(paper.page.target(ident) is not None for _, ident in named):
        return
    if named:
        yield paper.at(named[0][0].element, "the evidence this claim names does not exist on the page")
    else:
        section = paper.page.section("claims")
        text = "no claim links to its evidence"
        yield paper.at(section, text) if section is not None else paper.missing(text)


def g3(paper: Paper) -> Iterator[RuleHit]:
    for load in paper.loads:
        if load.level == "external":
            text = f"{load.what} loads from another server: {load.url[:200]}"
            yield RuleHit(text, load.file, load.line, load.column, load.selector)
    for load in paper.loads:
        if load.level == "undecidable":
            text = f"{load.what}: only running the page would tell what it loads"
            yield RuleHit(text, load.file, load.line, load.column, load.selector, warns=True)


def g4(paper: Paper) -> Iterator[RuleHit]:
    if any(not element.attrs for element in paper.page.by_tag["output"]):
        return  # announces itself: its implied role is status
    silent = None
    for element in paper.page.attributed:
        live = element.attr("aria-live")
        if live is not None:
            # What is said counts, whatever the element or its role would imply.
            if live.strip().lower() in ("polite", "assertive"):
                return
            silent = silent or element
        elif element.tag == "output" or (element.attr("role") or "").strip().lower() in _LIVE_ROLES:
            return
    if silent is not None:
        yield paper.at(silent, "aria-live is neither polite nor assertive")
    else:
        yield paper.missing("no element announces its changes")


FUNCTIONS: Final = {
    function.__name__.upper(): function
    for function in (b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15, b16, s1, s2, s3, g1, g2, g3, g4)
}
