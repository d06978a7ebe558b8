"""From a source file to a document whose every part has been looked at: what `build` and `export` have in common."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolgate.kit import yamldoc
from toolgate.packs.lra.build import front_matter as fronts
from toolgate.packs.lra.build import messages
from toolgate.packs.lra.build.bibliography import DEFAULT, Bibliography
from toolgate.packs.lra.build.convert import (
    Converted,
    Opened,
    SourceRequest,
    from_json,
    open_source,
    side_name,
    start_reading,
)
from toolgate.packs.lra.build.document import ast, leftovers
from toolgate.packs.lra.build.document.flow import Flow, Markup
from toolgate.packs.lra.build.document.living import Living
from toolgate.packs.lra.build.document.meta import plain_text
from toolgate.packs.lra.build.document.prepare import prepare
from toolgate.packs.lra.build.document.resolve import ReferenceResolver
from toolgate.packs.lra.build.document.state import Document
from toolgate.packs.lra.build.faults import SourceFaults, SourcePlace
from toolgate.packs.lra.build.source import Source

WARNED: Final = "the citation processor warns about the bibliography"
_ABSTRACTS: Final = frozenset({"abstract", "zusammenfassung", "kurzfassung", "résumé", "resumen"})
_REFERENCES: Final = frozenset({"references", "bibliography", "literature", "literatur", "références", "referencias"})


class DocumentBody(NamedTuple):
    """The parts of a document, each worked through."""

    opened: Opened
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


def read(
    request: SourceRequest, markup: type[Markup], *, quick: bool = False, opened: Opened | None = None
) -> DocumentBody:
    """Everything but the writing. SourceFaults are collected in `document.faults`; the caller stops when it has them all.

    `quick`: a bibliography is left to the writer, and the lines of keys to `look_at_keys`, which the caller owes. With any fault,
    read again without: then what is said about it has its line.

    Raises: BuildFault: the source cannot be read at all. ToolError UNAVAILABLE: Pandoc did not end.
    """
    opened = opened or open_source(request)
    source, faults, side, running = opened
    lines = fronts.KeyLines(source, None, 1) if quick else _lines(source, side, faults)
    if lines is None:
        running.result()  # of front matter that cannot be read; what is wrong with it is told already
        lines, running = fronts.KeyLines(source, None, 0), start_reading(request, source, b"")
    base = posixpath.dirname(request.file)
    bibliography = Bibliography(request.pandoc, request.read, base, quick=quick)
    bibliography.start(_named(lines), lines.place("bibliography"), faults)
    body = _work(running.result(), opened, lines, bibliography, request, markup)
    unread = bool(bibliography.files) and not body.cites  # the writer would not look at it at all
    return read(request, markup) if unread else body


def look_at_keys(body: DocumentBody) -> None:
    """What Pandoc passes over in front matter, such as a key that stands twice. It changes nothing but the faults."""
    _lines(body.opened.source, body.opened.side, body.document.faults)


def _lines(source: Source, side: bytes, faults: SourceFaults) -> fronts.KeyLines | None:
    """Where the front matter's keys stand. None: what is beside the source cannot be read."""
    if source.kind == "markdown":
        return fronts.lines_of(source, faults)
    if not side:
        return fronts.KeyLines(source, None, 1)
    name = side_name(source)
    beside = Source(name, "", [SourcePlace(name, number) for number in range(1, side.count(b"\n") + 2)], "yaml")
    try:
        return fronts.KeyLines(beside, yamldoc.read(side), 0)
    except yamldoc.YamlFault as fault:
        faults.add(SourcePlace(name, fault.line), str(fault))
        return None


def _named(lines: fronts.KeyLines) -> tuple[str, ...]:
    """The bibliographies that the front matter names, before Pandoc has read it."""
    node = yamldoc.value_of(lines.root, "bibliography")
    alone = yamldoc.text_of(node)
    found = [alone, *(yamldoc.text_of(item) for item in yamldoc.items_of(node))]
    return tuple(name for name in found if name)


def _work(
    read_by_pandoc: Converted,
    opened: Opened,
    lines: fronts.KeyLines,
    bibliography: Bibliography,
    request: SourceRequest,
    markup: type[Markup],
) -> DocumentBody:
    source, faults = opened.source, opened.faults
    if read_by_pandoc.error:
        bibliography.finish(faults)
        faults.add(SourcePlace(source.file), " ".join(read_by_pandoc.error.split())[:400])
        faults.stop_if_any()
    tree = from_json(read_by_pandoc.data)
    document = Document(source, faults, request.read, media=_media(read_by_pandoc.media))
    messages.reading(document, read_by_pandoc.messages)
    meta, blocks = tree["meta"], _titled(tree)
    front = fronts.read(meta, lines, faults)
    document.lang, document.numbered = front.lang, front.numbered
    named = front.bibliography
    bibliography.start(named or (DEFAULT,), lines.place("bibliography") if named else None, faults)
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
        opened,
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


def _media(media: Mapping[str, bytes]) -> dict[str, bytes]:
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
