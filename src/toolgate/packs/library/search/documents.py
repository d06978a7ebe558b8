"""What a document is, and what of it can be searched. Pure; strangers' bytes are read by `index_documents` in a worker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from toolgate.packs.library.search.words import Counter, Words

Kind = Literal["paper", "adr", "markdown", "text"]
KINDS: Final[tuple[Kind, ...]] = ("paper", "adr", "markdown", "text")
MAX_DOCUMENT_BYTES: Final = 512 * 1024
"""A larger file is not a document that a person reads; its JSON would also not fit an answer of 1 MiB."""
MAX_TITLE: Final = 200
"""Characters: a title fits a line."""

_HTML: Final = (".html", ".htm")
_MARKDOWN: Final = (".md", ".markdown")
_SUFFIXES: Final = (*_HTML, *_MARKDOWN, ".txt")
_DECISION_RECORD: Final = re.compile(r"adr-?[0-9]+", re.IGNORECASE)
_HEADING: Final = re.compile(r"#{1,6}[ \t]+(.+)")


class LibraryDocument(Struct, frozen=True):
    path: str
    kind: Kind
    title: str
    text: str


def kind_of(path: str) -> Kind | None:
    """None: not a document. Nothing below a name that begins with a dot is one."""
    parts = path.split("/")
    name = parts[-1].lower()
    if any(part.startswith(".") for part in parts) or not name.endswith(_SUFFIXES):
        return None
    if name.endswith(_HTML):
        return "paper"
    if name.endswith(_MARKDOWN):
        return "adr" if _DECISION_RECORD.match(name) else "markdown"
    return "text"


class Indexed(Struct, frozen=True):
    """What the index keeps of a document: not its text."""

    path: str
    kind: Kind
    title: str
    words: Words


def index_documents(files: Sequence[tuple[str, bytes]]) -> list[Indexed]:
    """The documents among these files, their words counted; what is not UTF-8 text is left out."""
    found = (read(path, data) for path, data in files)
    with Counter() as counter:
        return [
            Indexed(document.path, document.kind, document.title, counter.count(document.title, document.text))
            for document in found
            if document is not None
        ]


def read(path: str, data: bytes) -> LibraryDocument | None:
    """None: not a document, or not text."""
    kind = kind_of(path)
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    if kind is None or "\0" in source:
        return None
    title, text = _from_html(source) if kind == "paper" else (_markdown_title(source), source)
    return LibraryDocument(path, kind, _one_line(title)[:MAX_TITLE] or path.rpartition("/")[2], text)


def _from_html(source: str) -> tuple[str, str]:
    """Title and what a reader sees: no scripts, no styles, no markup."""
    import turbohtml  # noqa: PLC0415 (25 ms, in the worker only)

    page = turbohtml.parse(source, scripting=False)
    heading = page.select_one("title") or page.select_one("h1")
    return (heading.text if heading is not None else ""), page.to_text()


def _markdown_title(source: str) -> str:
    """The first heading outside of fenced code. Line by line: a pattern over all of it could take quadratic time."""
    fence = ""
    for line in source.splitlines():
        mark = line[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        elif not fence and (found := _HEADING.fullmatch(line)):
            return found[1].rstrip("# \t")
    return ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
