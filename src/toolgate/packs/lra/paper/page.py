"""The parsed paper: one pass over the tree, and the questions the checks ask of it.

What stands in a comment, a script, a template or a text area is not part of the document; what a browser without
scripting shows inside `noscript` is.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Final

import turbohtml
from msgspec import Struct, field
from turbohtml import Element, Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTROLS: Final = frozenset({"input", "button", "select", "textarea"})
MAX_SELECTOR: Final = 200
"""Characters: a path through 100 000 nested elements helps nobody."""


class Place(Struct, frozen=True):
    """Line and column count from 1; None where the source has no such tag (an implied `html`)."""

    line: int | None = None
    column: int | None = None


class Claim(Struct, frozen=True):
    number: str
    id: str
    text: str
    evidence: tuple[str, ...]
    """Ids named by the claim's evidence links, resolved or not."""
    element: Element


class Page(Struct):
    source: str
    document: turbohtml.Document
    elements: list[Element] = field(default_factory=list)
    attributed: list[Element] = field(default_factory=list)
    """Elements that have any attribute: most checks and loads need only these."""
    by_tag: dict[str, list[Element]] = field(default_factory=lambda: defaultdict(list))
    by_id: dict[str, list[Element]] = field(default_factory=lambda: defaultdict(list))
    """The first element of an id is the one a link reaches; the others are duplicates."""

    def first(self, tag: str) -> Element | None:
        found = self.by_tag.get(tag)
        return found[0] if found else None

    def meta(self, name: str) -> Element | None:
        """The first `meta` of that name (or property, for `og:`) that has content."""
        key = "property" if name.startswith("og:") else "name"
        for element in self.by_tag["meta"]:
            if (element.attr(key) or "").strip().lower() == name and (element.attr("content") or "").strip():
                return element
        return None

    def meta_content(self, name: str) -> str:
        element = self.meta(name)
        return (element.attr("content") or "").strip() if element else ""

    def target(self, ident: str) -> Element | None:
        found = self.by_id.get(ident)
        return found[0] if found else None

    def section(self, ident: str) -> Element | None:
        """The element of that id, when it is a `section` (LRA-1.0, 3.2)."""
        element = self.target(ident)
        return element if element is not None and element.tag == "section" else None

    def title(self) -> str:
        for element in self.by_tag["title"]:
            if element.namespace is Namespace.HTML:
                return squeeze(element.text)
        return ""

    def claims(self) -> list[Claim]:
        """Items of the claims section that carry a number; an item inside another claim is part of that claim."""
        section = self.section("claims")
        if section is None:
            return []
        found = []
        walk = section.iter_elements()
        for item in walk:
            if item.tag == "template":
                _skip(walk, item)
            elif item.tag == "li" and (item.attr("data-lra-claim") or "").strip():
                found.append(_claim(item))
                _skip(walk, item)
        return found


_SCRIPT_TYPES: Final = frozenset(
    {"", "module", "text/javascript", "application/javascript", "text/ecmascript", "application/ecmascript"}
)


def parse(source: str) -> Page:
    page = Page(source, turbohtml.parse(source, scripting=False))
    walk = page.document.iter_elements()
    for element in walk:
        if element.tag == "template" and element.namespace is Namespace.HTML:
            _skip(walk, element)
            continue
        page.elements.append(element)
        page.by_tag[element.tag].append(element)
        if element.attrs:
            page.attributed.append(element)
            ident = element.attr("id")
            if ident:
                page.by_id[ident].append(element)
    return page


def _skip(walk: Iterator[Element], element: Element) -> None:
    """Advance a walk past everything below `element`."""
    inside = sum(1 for _ in element.iter_elements())
    next(islice(walk, inside, inside), None)


def place(element: Element) -> Place:
    position = element.position
    return Place(position[0], position[1] + 1) if position else Place()


def selector(element: Element) -> str:
    path = element.css_path()
    return path if len(path) <= MAX_SELECTOR else "… " + path[-MAX_SELECTOR:]


def is_script(element: Element) -> bool:
    """Would a browser run it? Data blocks (JSON-LD) and import maps are not run."""
    return (element.attr("type") or "").strip().lower() in _SCRIPT_TYPES


def squeeze(text: str) -> str:
    return " ".join(text.split())


def evidence_links(claim: Element) -> list[Element]:
    """Links that name evidence: by attribute, or in the specification's form `href="#demo-…"`."""
    return [
        link
        for link in claim.find_all("a")
        if (link.attr("data-lra-evidence") or "").strip() or (link.attr("href") or "").startswith("#demo")
    ]


def evidence_id(link: Element) -> str:
    return (link.attr("data-lra-evidence") or link.attr("href") or "").strip().removeprefix("#")


def _claim(item: Element) -> Claim:
    links = evidence_links(item)
    text = squeeze(item.text)
    end = len(text)
    for link in links:
        # The badge is not part of what is claimed.
        badge = squeeze(link.text)
        end -= len(badge) if text.endswith(badge, 0, end) else 0
        end -= text.endswith(" ", 0, end)
    text = text[:end]
    return Claim(
        number=(item.attr("data-lra-claim") or "").strip(),
        id=item.attr("id") or "",
        text=text,
        evidence=tuple(evidence_id(link) for link in links),
        element=item,
    )
