"""From a source file to a document whose every part has been looked at: what `build` and `export` have in common."""

from __future__ import annotations

import posixpath
from typing import Any, Final

import orjson
from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.kit import yamldoc
from toolgate.packs.lra.build import front_matter as fronts
from toolgate.packs.lra.build import messages
from toolgate.packs.lra.build.bibliography import DEFAULT, Bibliography
from toolgate.packs.lra.build.convert import Converted, Converter
from toolgate.packs.lra.build.document import ast, leftovers
from toolgate.packs.lra.build.document.flow import Flow, Markup
from toolgate.packs.lra.build.document.living import Living
from toolgate.packs.lra.build.document.meta import plain_text
from toolgate.packs.lra.build.document.prepare import APPENDIX, prepare
from toolgate.packs.lra.build.document.resolve import ReferenceResolver
from toolgate.packs.lra.build.document.state import Document
from toolgate.packs.lra.build.faults import SourceFaults, SourcePlace
from toolgate.packs.lra.build.source import MAX_SOURCE_BYTES, Read, Source, load

KINDS: Final = {
    ".md": "markdown", ".markdown": "markdown", ".qmd": "markdown", ".rmd": "markdown", ".txt": "markdown",
    ".tex": "latex", ".latex": "latex", ".ipynb": "ipynb", ".docx": "docx",
}  # fmt: skip
FORMS: Final = ("markdown", "latex", "ipynb", "docx")
_READERS: Final = {
    "ipynb": "ipynb+bracketed_spans+citations+definition_lists+escaped_line_breaks+example_lists+fancy_lists+fenced_divs"
    "+fenced_code_attributes+footnotes+grid_tables+header_attributes+implicit_figures+implicit_header_references+smart"
    "+inline_code_attributes+inline_notes+latex_macros+line_blocks+link_attributes+multiline_tables+native_divs+startnum"
    "+native_spans+raw_attribute+raw_tex+simple_tables+subscript+superscript+table_captions"
}
"""A notebook's cells are Pandoc's Markdown here, as every other text; by itself Pandoc reads a part of it in them."""
WARNED: Final = "the citation processor warns about the bibliography"
_ABSTRACTS: Final = frozenset({"abstract", "zusammenfassung", "kurzfassung", "résumé", "resumen"})
_REFERENCES: Final = frozenset({"references", "bibliography", "literature", "literatur", "références", "referencias"})


class SourceRequest(Struct, frozen=True):
    """What to read, and by what."""

    file: str
    read: Read
    pandoc: Converter
    form: str = ""
    """markdown, latex, ipynb or docx, with Pandoc's extensions (`markdown+hard_line_breaks`); else by the ending."""

    @property
    def kind(self) -> str:
        base = self.form.replace("-", "+").split("+")[0]
        return base or KINDS.get(posixpath.splitext(self.file)[1].lower(), "")

    @property
    def reader(self) -> str:
        """Pandoc's reader for it, with its extensions."""
        return self.form or _READERS.get(self.kind, self.kind)


class DocumentBody(Struct):
    """The parts of a document, each worked through."""

    document: Document
    front: fronts.FrontMatter
    living: Living
    abstract: ast.Nodes
    abstract_text: str
    blocks: ast.Nodes
    meta: dict[str, Any]
    """What Pandoc's writer and its citation processor need to know."""
    api: list[int]
    cites: bool
    bibliographies: dict[str, bytes]
    """Files that the citation processor reads; the other references are in `meta`."""

    def cite_arguments(self, csl: bytes | None) -> tuple[list[str], dict[str, bytes]]:
        """What makes Pandoc's writer resolve the citations, and the files that it names."""
        if not self.cites:
            return [], {}
        files = self.bibliographies | ({"style.csl": csl} if csl is not None else {})
        styled = ["--csl=style.csl"] if csl is not None else []
        return ["--citeproc", *styled, *(f"--bibliography={name}" for name in self.bibliographies)], files


def read(request: SourceRequest, markup: type[Markup], *, quick: bool = False) -> DocumentBody:
    """Everything but the writing. SourceFaults are collected in `document.faults`; the caller stops when it has them all.

    `quick`: a bibliography is left to the writer. With any fault, read again without: then what is said about it has its line.

    Raises: BuildFault: the source cannot be read at all. ToolError UNAVAILABLE: Pandoc did not end.
    """
    if request.kind not in FORMS:
        raise ToolError("INVALID_ARGUMENT", f"{request.file}: name its form: --from {', '.join(FORMS)}")
    faults = SourceFaults()
    source = load(request.file, request.kind, request.read, faults)
    source.form = request.form
    if not source.data and not source.text:
        faults.stop_if_any()
    lines, side = _lines(source, request.read, faults)
    running = _start(request, source, side)
    base = posixpath.dirname(request.file)
    bibliography = Bibliography(request.pandoc, request.read, base, quick=quick)
    bibliography.start(_named(lines), lines.place("bibliography"), faults)
    if not _named(lines):
        bibliography.start((DEFAULT,), None, faults)
    body = _work(running.result(), source, lines, bibliography, request, markup, faults)
    unread = bool(bibliography.files) and not body.cites  # the writer would not look at it at all
    return read(request, markup) if unread else body


def _lines(source: Source, read: Read, faults: SourceFaults) -> tuple[fronts.KeyLines, bytes]:
    """Where the front matter's keys stand. A form that has none may have it beside: paper.yaml for paper.docx."""
    if source.kind == "markdown":
        return fronts.lines_of(source, faults), b""
    name = posixpath.splitext(source.file)[0] + ".yaml"
    data = read(name, MAX_SOURCE_BYTES)
    if data is None:
        return fronts.KeyLines(source, None, 1), b""
    beside = Source(name, "", [SourcePlace(name, number) for number in range(1, data.count(b"\n") + 2)], "yaml")
    try:
        root = yamldoc.read(data)
    except yamldoc.YamlFault as fault:
        faults.add(SourcePlace(name, fault.line), str(fault))
        return fronts.KeyLines(beside, None, 0), b""
    return fronts.KeyLines(beside, root, 0), data


def _start(request: SourceRequest, source: Source, side: bytes) -> Any:
    data = source.data
    if source.kind == "latex":
        # Pandoc's reader drops the command, and with it where the appendices begin.
        data = data.replace(b"\\appendix", f"\\par {APPENDIX}\\par ".encode())
    arguments = [f"--from={request.reader}", "--to=json"]
    arguments += ["--metadata-file=front.yaml"] if side else []
    files = {"front.yaml": side} if side else None
    return request.pandoc.start(arguments, data, files, media=source.kind in {"ipynb", "docx"})


def _named(lines: fronts.KeyLines) -> tuple[str, ...]:
    """The bibliographies that the front matter names, before Pandoc has read it."""
    node = yamldoc.value_of(lines.root, "bibliography")
    alone = yamldoc.text_of(node)
    found = [alone, *(yamldoc.text_of(item) for item in yamldoc.items_of(node))]
    return tuple(name for name in found if name)


def _work(
    read_by_pandoc: Converted,
    source: Source,
    lines: fronts.KeyLines,
    bibliography: Bibliography,
    request: SourceRequest,
    markup: type[Markup],
    faults: SourceFaults,
) -> DocumentBody:
    if read_by_pandoc.error:
        bibliography.finish(faults)
        faults.add(SourcePlace(source.file), " ".join(read_by_pandoc.error.split())[:400])
        faults.stop_if_any()
    tree = orjson.loads(read_by_pandoc.data)
    document = Document(source, faults, request.read, media=_media(read_by_pandoc.media))
    messages.reading(document, read_by_pandoc.messages)
    meta, blocks = tree["meta"], _titled(tree)
    front = fronts.read(meta, lines, faults)
    document.lang, document.numbered = front.lang, front.numbered
    bibliography.start(front.bibliography, lines.place("bibliography"), faults)
    blocks = prepare(document, blocks)
    leftovers.report_leftovers(document, blocks)
    living = Living(document)
    flow = Flow(document, markup(document), living)  # type: ignore[call-arg]  # a markup is made for a document
    abstract, blocks = _abstract(front, _without_references(blocks), prepare, document)
    flow.top = min((block["c"][0] for block in blocks if block["t"] == "Header"), default=1)
    abstract_text = ast.spoken(abstract)
    abstract = flow.blocks(abstract)
    for stated in front.claims:
        living.add(flow, stated)
    blocks = flow.blocks(blocks)
    living.finish()
    bibliography.finish(faults)
    bibliography.include(meta.get("references"), source.file, faults)
    resolver = ReferenceResolver(document, bibliography.known())
    abstract, blocks = resolver.resolve(abstract), resolver.resolve(blocks)
    for claim in document.claims:
        claim.blocks = resolver.resolve(claim.blocks)
    return DocumentBody(
        document,
        front,
        living,
        abstract,
        abstract_text,
        blocks,
        _meta_for_writer(meta, resolver, bibliography, faults),
        tree["pandoc-api-version"],
        bool(resolver.cited) or "nocite" in meta,
        bibliography.files,
    )


def _media(media: dict[str, bytes]) -> dict[str, bytes]:
    return {f"media/{name.removeprefix('media/')}": data for name, data in media.items()} | {
        f"media/{name}": data for name, data in media.items()
    }


def _titled(tree: dict[str, Any]) -> ast.Nodes:
    """A first heading that stands alone on its level is the title, when there is no other."""
    blocks: ast.Nodes = tree["blocks"]
    cell = blocks[0]["c"][1] if blocks and blocks[0]["t"] == "Div" and "cell" in blocks[0]["c"][0][1] else blocks
    first = cell[0] if cell else None
    if "title" in tree["meta"] or first is None or first["t"] != "Header" or first["c"][0] != 1:
        return blocks
    if sum(1 for header in ast.each(blocks, "Header") if header["c"][0] == 1) > 1:
        return blocks
    tree["meta"]["title"] = {"t": "MetaInlines", "c": first["c"][2]}
    del cell[0]
    return blocks


def _abstract(
    front: fronts.FrontMatter, blocks: ast.Nodes, prepare: Any, document: Document
) -> tuple[ast.Nodes, ast.Nodes]:
    """From the front matter, from a section of that name, or the first paragraph of a section Summary."""
    own, rest = _section(blocks, _ABSTRACTS)
    if front.abstract and own:
        document.fault(
            document.place("# Abstract", pattern="#+ *[Aa]bstract"),
            "the abstract is in the front matter, too: keep one",
        )
    if front.abstract:
        return prepare(document, front.abstract), rest if own else blocks
    if own:
        return own, rest
    at = next(
        (
            at
            for at, block in enumerate(blocks)
            if block["t"] == "Header" and ast.text_of(block["c"][2]).lower() == "summary"
        ),
        None,
    )
    if at is not None and at + 1 < len(blocks) and blocks[at + 1]["t"] == "Para":
        following = blocks[at + 2] if at + 2 < len(blocks) else {"t": "Header"}
        kept = (
            blocks[:at]
            if following["t"] == "Header" and following.get("c", [1])[0] <= blocks[at]["c"][0]
            else blocks[: at + 1]
        )
        return [blocks[at + 1]], [*kept, *blocks[at + 2 :]]
    document.fault(
        document.source.origin(1),
        "there is no abstract: add abstract to the front matter, or a section Abstract or Summary",
    )
    return [], blocks


def _section(blocks: ast.Nodes, names: frozenset[str]) -> tuple[ast.Nodes, ast.Nodes]:
    """The blocks under a heading of one of these names, and all the others."""
    for at, block in enumerate(blocks):
        if block["t"] == "Header" and ast.text_of(block["c"][2]).lower() in names:
            level = block["c"][0]
            end = next(
                (n for n in range(at + 1, len(blocks)) if blocks[n]["t"] == "Header" and blocks[n]["c"][0] <= level),
                len(blocks),
            )
            return blocks[at + 1 : end], [*blocks[:at], *blocks[end:]]
    return [], blocks


def _without_references(blocks: ast.Nodes) -> ast.Nodes:
    """An empty section for the references: the page has its own."""
    own, rest = _section(blocks, _REFERENCES)
    empty = all(block["t"] == "Div" and block["c"][0][0] == "refs" for block in own)
    return rest if empty else blocks


def _meta_for_writer(
    meta: dict[str, Any], resolver: ReferenceResolver, bibliography: Bibliography, faults: SourceFaults
) -> dict[str, Any]:
    keys = list(resolver.cited)
    for cite in ast.each(meta.get("nocite"), "Cite"):
        for citation in cite["c"][0]:
            wanted = list(bibliography.entries) if citation["citationId"] == "*" else [citation["citationId"]]
            keys += [key for key in wanted if key in bibliography.entries]
    found: dict[str, Any] = {key: meta[key] for key in ("nocite", "lang") if key in meta}
    found["references"] = {"t": "MetaList", "c": bibliography.chosen(list(dict.fromkeys(keys)), faults)}
    found["link-citations"] = {"t": "MetaBool", "c": plain_text(meta.get("link-citations")) != "false"}
    return found
