"""The page of a paper from its source: read, written by Pandoc, put into the shell. Pure but for Pandoc; the caller writes."""

from __future__ import annotations

import posixpath
import re
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

from toolgate.later import later, load
from toolgate.packs.lra.build import messages, reading, shell, styles
from toolgate.packs.lra.build.convert import Converted, Opened, Pending, SourceRequest, as_json
from toolgate.packs.lra.build.document import ast
from toolgate.packs.lra.build.document.page_markup import TITLE, PageMarkup, sections
from toolgate.packs.lra.build.document.state import Document, Heading
from toolgate.packs.lra.build.faults import BuildFault, SourcePlace
from toolgate.packs.lra.build.front_matter import MAX_CLAIMS, FrontMatter
from toolgate.packs.lra.build.reading import WARNED, DocumentBody
from toolgate.packs.lra.build.shell import Script, Section
from toolgate.packs.lra.paper import wasm
from toolgate.packs.lra.paper.metadata import Metadata

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DESCRIPTION: Final = 200
"""Characters that search engines show."""
_TIDY: Final = later("toolgate.packs.lra.build.document.written:tidy")
_STYLE: Final = re.compile(r'<(\w+)[^>]*\sstyle="([^"]*)"')
_INNER: Final = re.compile(r"</?a\b[^>]*>|<span class=\"citation\"[^>]*>")


class Built(NamedTuple):
    files: dict[str, bytes]
    title: str
    claims: int
    script: Script


def build(request: SourceRequest, opened: Opened | None = None, meanwhile: Callable[[], None] = lambda: None) -> Built:
    """The files of the paper. `opened`: Pandoc reads the source already. `meanwhile`: done while it writes.

    Raises: BuildFault: all that is wrong, with files and lines. ToolError UNAVAILABLE: Pandoc did not end.
    """
    try:
        return _build(reading.read(request, PageMarkup, quick=True, opened=opened), request, meanwhile)
    except BuildFault:
        return _build(reading.read(request, PageMarkup), request, meanwhile)


def _build(body: DocumentBody, request: SourceRequest, meanwhile: Callable[[], None]) -> Built:
    _require_claims(body)
    writing = _start_writing(body, request)
    meanwhile()
    load(_TIDY)
    reading.look_at_keys(body)
    meta = _metadata(request.file, body)
    script = _script(body)
    _check_programs(body.document, [claim.run for claim in body.document.claims if claim.run])
    html = _html(writing.result(), body)
    body.document.faults.stop_if_any()
    modules = {name: body.document.files[name] for name in body.document.modules}
    page = shell.page(
        meta,
        html,
        _contents(body.document, html),
        script,
        own_scripts=_own_scripts(body),
        modules=modules,
        masthead=_masthead(body.front),
        subtitle=body.front.subtitle,
    )
    return Built(shell.files_of(meta, page, script, body.document.files), meta.title, len(body.document.claims), script)


def _require_claims(body: DocumentBody) -> None:
    count = len(body.document.claims)
    if not 1 <= count <= MAX_CLAIMS:
        body.document.fault(
            body.document.source.origin(1),
            f"a living paper states 1 to {MAX_CLAIMS} claims, this one {count}: "
            "add claims to the front matter, or ::: claim blocks",
        )


def _page_blocks(body: DocumentBody) -> ast.Nodes:
    document = body.document
    references = document.word("none-cited")
    shown = [ast.div([], "refs", ["references"])] if body.cites else [ast.para(ast.words(references))]
    return [
        *_section(document, "abstract", body.abstract),
        *_section(document, "claims", body.living.claims_html()),
        *sections(body.blocks),
        *_section(document, "references", shown),
    ]


def _section(document: Document, ident: str, blocks: ast.Nodes) -> ast.Nodes:
    title = ast.words(document.word(ident))
    opening = ast.html(f'<section id="{ident}" aria-labelledby="{ident}{TITLE}">')
    return [opening, ast.header(2, ident + TITLE, title), *blocks, ast.html("</section>")]


def _start_writing(body: DocumentBody, request: SourceRequest) -> Pending:
    """Side effect: Pandoc starts to write the whole text."""
    tree = {"pandoc-api-version": body.api, "meta": body.meta, "blocks": _page_blocks(body)}
    arguments = ["--from=json", "--to=html5", "--mathml", "--wrap=none"]
    citing, files = body.cite_arguments(styles.find(body.front.csl, request, body.document))
    return request.pandoc.start([*arguments, *citing], as_json(tree), files)


def _html(done: Converted, body: DocumentBody) -> str:
    """What Pandoc wrote. Formulas that it cannot write are faults."""
    file = body.document.source.file
    if done.error:
        body.document.fault(SourcePlace(file), " ".join(done.error.split())[:400])
        return ""
    messages.writing(body.document, done.messages)
    if body.bibliographies and any(message["type"] == "CiteprocWarning" for message in done.messages):
        body.document.fault(SourcePlace(file), WARNED)
    html: str = _TIDY(done.data.decode())
    for tag, style in [] if body.document.faults.found else _STYLE.findall(html):
        body.document.fault(body.document.place(style), f"<{tag}> has a style attribute, against the page's own policy")
    return html


def _metadata(file: str, body: DocumentBody) -> Metadata:
    front = body.front
    title = front.title or "untitled"
    return Metadata(
        slug=re.sub(r"[^A-Za-z0-9_-]+", "-", posixpath.splitext(posixpath.basename(file))[0]),
        title=title,
        authors=tuple(author.author for author in front.authors),
        date=front.date,
        licence=front.licence,
        description=front.description or _shortened(body.abstract_text),
        abstract=body.abstract_text,
        keywords=front.keywords or ("living paper",),
        capability=front.capability or _capability(body, title),
        url=front.url or (f"https://doi.org/{front.doi}" if front.doi else ""),
        lang=front.lang,
    )


def _capability(body: DocumentBody, title: str) -> str:
    """A name for what the page can do, which registries ask for: the function it runs, else what it is about."""
    run = next((claim.run for claim in body.document.claims if claim.run), "")
    words = run.partition("#")[2] or "-".join(re.findall(r"[a-z0-9]+", title.lower())[:5])
    return words or "paper"


def _shortened(text: str) -> str:
    if len(text) <= MAX_DESCRIPTION:
        return text
    return text[: MAX_DESCRIPTION - 1].rsplit(" ", 1)[0] + "…"


# -- programs ------------------------------------------------------------------------------------------------


def _script(body: DocumentBody) -> Script:
    if body.document.modules:
        return "wasm"
    return "js" if body.document.demos or body.living.scripts or body.front.scripts else "none"


def _own_scripts(body: DocumentBody) -> list[str]:
    return list(dict.fromkeys([*body.front.scripts, *body.living.scripts]))


def _check_programs(document: Document, runs: list[str]) -> None:
    """A module that is none, or lacks the function, would only fail in a reader's browser."""
    for name, place in document.modules.items():
        data = document.files.get(name)
        reason = wasm.fault(data) if data is not None else None
        if reason:
            document.fault(place, f"{name} is not a module to run: {reason}")
    for run in runs:
        name, _, function = run.partition("#")
        data = document.files.get(name, b"") if name.endswith(".wasm") else b""
        if data and bytes([len(function)]) + function.encode() + b"\0" not in data:
            document.fault(document.modules[name], f"{name} exports no function {function}")


# -- the page around it --------------------------------------------------------------------------------------


def _contents(document: Document, html: str) -> list[Section]:
    """Titles as the page shows them, without the links that are inside some of them."""
    titles = {
        ident: _INNER.sub("", re.sub(r'<a class="note-ref".*?</a>', "", title))
        for ident, title in re.findall(rf'<h[2-6] id="([^"]+){TITLE}"[^>]*>(.*?)</h[2-6]>', html, re.DOTALL)
    }
    inner = _nested(document.headings, titles, 1)
    fixed = [Section(ident, titles.get(ident, ident)) for ident in ("abstract", "claims", "references")]
    return [*fixed[:2], *inner, fixed[2], Section("citation", escape(document.word("cite")))]


def _nested(headings: list[Heading], titles: dict[str, str], level: int) -> tuple[Section, ...]:
    found = []
    for at, heading in enumerate(headings):
        if heading.level != level:
            continue
        end = next((n for n in range(at + 1, len(headings)) if headings[n].level <= level), len(headings))
        deeper = _nested(headings[at + 1 : end], titles, level + 1) if level == 1 else ()
        found.append(Section(escape(heading.id), titles.get(escape(heading.id), escape(heading.id)), deeper))
    return tuple(found)


def _masthead(front: FrontMatter) -> str:
    """Affiliations, whose they are, and addresses."""
    rows = []
    if front.affiliations:
        items = "".join(
            f"<li>{escape(name, quote=False)}{_members(front, at)}</li>"
            for at, name in enumerate(front.affiliations, 1)
        )
        rows.append(f'<ol class="affiliations">{items}</ol>')
    mails = [
        f'<a href="mailto:{escape(author.email)}">{escape(author.email)}</a>'
        for author in front.authors
        if author.email
    ]
    if mails:
        rows.append(f'<p class="facts">{" ".join(mails)}</p>')
    return "".join(f"{row}\n" for row in rows)


def _members(front: FrontMatter, number: int) -> str:
    """Who is where, unless everybody is."""
    names = [author.author.name for author in front.authors if number in author.places]
    if len(names) == len(front.authors):
        return ""
    return f" ({escape(', '.join(names), quote=False)})" if names else ""
