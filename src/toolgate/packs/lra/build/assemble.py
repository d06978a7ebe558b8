"""Everything together: Markdown, bibliography and images in, the files of a paper out. Pure; the caller reads and writes."""

from __future__ import annotations

import posixpath
import re
from html import escape
from typing import TYPE_CHECKING, Final

from toolgate.packs.lra import shell
from toolgate.packs.lra.build import bibtex, front, markdown
from toolgate.packs.lra.build.faults import BuildFault
from toolgate.packs.lra.metadata import Metadata
from toolgate.packs.lra.shell import Section

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolgate.packs.lra.build.markdown import BodySection, Document

MAX_SOURCE_BYTES: Final = 2 * 1024 * 1024
"""Of the Markdown and of the bibliography, each: the specification's own bound for build input."""
MAX_IMAGE_BYTES: Final = 10 * 1024 * 1024
DEFAULT_BIBLIOGRAPHY: Final = "references.bib"
MAX_DESCRIPTION: Final = 200
"""Characters that search engines show."""


def build(file: str, read: Callable[[str, int], bytes | None]) -> dict[str, bytes]:
    """The files of the paper written in `file`.

    `read(path, limit)` gives a file beside the Markdown, or None when it is not there.
    Raises: BuildFault: what is wrong, with its file and line.
    """
    source = front.read(_text(file, read), file)
    bibliography = _bibliography(source, file, read)
    document = markdown.Document(file, source.body_line)
    body = markdown.render(source.body, document, bibliography)
    abstract, shown, body = _abstract(source, body, file)
    meta = Metadata(
        slug=re.sub(r"[^A-Za-z0-9_-]+", "-", posixpath.splitext(posixpath.basename(file))[0]),
        title=source.title,
        authors=source.authors,
        date=source.date,
        licence=source.licence,
        description=source.description or _shortened(abstract),
        abstract=abstract,
        keywords=source.keywords or ("living paper",),
        url=source.url,
        lang=source.lang,
    )
    references = [bibliography[key] for key in document.cited]
    html = shell.page(meta, _page(shown, source, body, references, document), _contents(body), "none")
    return shell.files_of(meta, html, "none", _images(document, file, read))


def _text(file: str, read: Callable[[str, int], bytes | None]) -> str:
    data = read(file, MAX_SOURCE_BYTES)
    if data is None:
        raise BuildFault(file, None, "there is no such file")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as fault:
        raise BuildFault(file, data.count(b"\n", 0, fault.start) + 1, "the file is not UTF-8 text") from None


def _bibliography(source: front.Front, file: str, read: Callable[[str, int], bytes | None]) -> dict[str, bibtex.Entry]:
    name = source.bibliography or DEFAULT_BIBLIOGRAPHY
    path = posixpath.join(posixpath.dirname(file), name)
    if not source.bibliography and read(path, MAX_SOURCE_BYTES) is None:
        return {}
    return bibtex.read(_text(path, read), path)


def _abstract(source: front.Front, body: list[BodySection], file: str) -> tuple[str, str, list[BodySection]]:
    """As plain text, as HTML, and the rest of the body: from the front matter, or from a section of that name."""
    own = [one for one in body if one.id == "abstract"]
    if source.abstract and own:
        raise BuildFault(file, None, "the abstract is in the front matter and in a section: keep one")
    text = source.abstract or (own[0].text if own else "")
    if not text:
        raise BuildFault(file, 1, "there is no abstract: add abstract to the front matter, or a section ## Abstract")
    shown = own[0].html if own else f"<p>{escape(text, quote=False)}</p>\n"
    return text, shown, [one for one in body if one.id != "abstract"]


def _shortened(text: str) -> str:
    if len(text) <= MAX_DESCRIPTION:
        return text
    return text[: MAX_DESCRIPTION - 1].rsplit(" ", 1)[0] + "…"


def _page(
    abstract: str,
    source: front.Front,
    body: Sequence[BodySection],
    references: Sequence[bibtex.Entry],
    document: Document,
) -> str:
    parts = [
        _section("abstract", "Abstract", abstract),
        _section("claims", "Claims", _claims(source, document)),
        *(_section(one.id, one.title, one.html) for one in body),
        _section("references", "References", _references(references)),
    ]
    return "\n".join(parts)


def _section(ident: str, title: str, html: str) -> str:
    if not title:
        return f'<section id="{ident}">\n{html}</section>\n'
    return f'<section id="{ident}" aria-labelledby="{ident}-title">\n<h2 id="{ident}-title">{title}</h2>\n{html}</section>\n'


def _claims(source: front.Front, document: Document) -> str:
    rows = []
    for number, claim in enumerate(source.claims, start=1):
        badge = ""
        if claim.evidence:
            if claim.evidence not in document.ids:
                raise BuildFault(document.file, claim.line, f"the evidence {claim.evidence} is no id of this paper")
            badge = (
                f'<a class="badge" href="#{claim.evidence}" data-lra-evidence="{claim.evidence}" '
                f'aria-label="evidence (claim {number})">evidence</a>'
            )
        text = escape(claim.text, quote=False)
        rows.append(f'<li id="claim-{number}" data-lra-claim="{number}"><p>{text}</p>{badge}</li>')
    return '<ol class="claims">\n' + "\n".join(rows) + "\n</ol>\n"


def _references(entries: Sequence[bibtex.Entry]) -> str:
    if not entries:
        return "<p>This paper cites no other work.</p>\n"
    rows = [f'<li id="{markdown.ref_id(one.key)}">{bibtex.show(one)}</li>' for one in entries]
    return '<ol class="references">\n' + "\n".join(rows) + "\n</ol>\n"


def _contents(body: Sequence[BodySection]) -> list[Section]:
    return [
        Section("abstract", "Abstract"),
        Section("claims", "Claims"),
        *(Section(one.id, one.title) for one in body if one.title),
        Section("references", "References"),
        Section("citation", "How to cite"),
    ]


def _images(document: Document, file: str, read: Callable[[str, int], bytes | None]) -> dict[str, bytes]:
    found = {}
    for path, line in document.images.items():
        data = read(posixpath.join(posixpath.dirname(file), path), MAX_IMAGE_BYTES)
        if data is None:
            raise BuildFault(file, line, f"there is no image {path}")
        found[path] = data
    return found
