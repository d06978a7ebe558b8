"""Raw HTML in the source: what the page's own policy forbids, or what loads from elsewhere, is a fault; comments go."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from html.parser import HTMLParser
from typing import Final

from toolgate.packs.lra.build.document import media
from toolgate.packs.lra.build.document.state import Document
from toolgate.packs.lra.build.faults import SourcePlace

_FORBIDDEN: Final = {
    "script": "name the file in scripts of the front matter",
    "style": "the page has one style sheet",
    "link": "the page has one style sheet",
    "iframe": "a paper shows nothing of other sites",
    "object": "a paper shows nothing of other sites",
    "embed": "a paper shows nothing of other sites",
    "frame": "a paper shows nothing of other sites",
    "base": "links are relative to the page",
    "meta": "the front matter makes the head",
    "html": "the page has one already",
    "head": "the page has one already",
    "body": "the page has one already",
    "title": "the front matter has the title",
    "h1": "the title is the only one",
}
_LOADING: Final = frozenset({"src", "poster", "data", "background"})


def checked(document: Document, raw: str, place: Callable[[], SourcePlace]) -> str:
    """The same HTML without comments, local files copied. Faults are told."""
    reader = _Reader(document, place)
    reader.feed(raw)
    reader.close()
    return "".join(reader.out)


class _Reader(HTMLParser):
    def __init__(self, document: Document, place: Callable[[], SourcePlace]) -> None:
        super().__init__(convert_charrefs=False)
        self.document = document
        self.place = place
        self.out: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _FORBIDDEN:
            self.document.fault(self.place(), f"<{tag}> has no place in a paper: {_FORBIDDEN[tag]}")
        found = "".join(self._attribute(tag, name, value) for name, value in attrs)
        self.out.append(f"<{tag}{found}>")

    def _attribute(self, tag: str, name: str, value: str | None) -> str:
        if name.startswith("on") or name in {"style", "srcdoc", "srcset"}:
            self.document.fault(self.place(), f"the attribute {name} of <{tag}> is against the page's own policy")
            return ""
        if name in _LOADING and value is not None:
            if media.is_local(value):
                value = media.take(self.document, value, "file", self.place)
            elif not value.startswith("data:image/"):
                self.document.fault(self.place(), f"<{tag}> loads {value[:80]}: a paper carries its own files")
        if name == "href" and tag == "a" and value is not None and media.is_local(value):
            value = media.take(self.document, value, "file", self.place)
        if name == "id" and value:
            self.document.ids.add(value)
        return f" {name}" if value is None else f' {name}="{escape(value)}"'

    def handle_endtag(self, tag: str) -> None:
        self.out.append(f"</{tag}>")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.out[-1] = self.out[-1][:-1] + " />"

    def handle_data(self, data: str) -> None:
        self.out.append(data)

    def handle_entityref(self, name: str) -> None:
        self.out.append(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.out.append(f"&#{name};")

    def handle_comment(self, data: str) -> None:
        """Private notes of the authors stay private."""
