"""The paper in other formats: Word, JATS, LaTeX, EPUB, from the same document as the page."""

from __future__ import annotations

from typing import Any, Final

from toolgate.packs.lra.build import messages, reading, styles
from toolgate.packs.lra.build.convert import SourceRequest, as_json
from toolgate.packs.lra.build.document import ast
from toolgate.packs.lra.build.document.export_markup import EmbeddingMarkup, ExportMarkup, LatexMarkup
from toolgate.packs.lra.build.faults import BuildFault, SourcePlace
from toolgate.packs.lra.build.front_matter import FrontMatter
from toolgate.packs.lra.build.reading import WARNED, DocumentBody

WRITERS: Final[dict[str, tuple[str, type[ExportMarkup]]]] = {
    "docx": ("docx", EmbeddingMarkup),
    "epub": ("epub3", EmbeddingMarkup),
    "jats": ("jats_publishing", ExportMarkup),
    "latex": ("latex", LatexMarkup),
}


def export(request: SourceRequest, to: str) -> bytes:
    """Raises: BuildFault: all that is wrong with the source. ToolError UNAVAILABLE: Pandoc did not end."""
    try:
        return _export(request, to, quick=True)
    except BuildFault:
        return _export(request, to, quick=False)


def _export(request: SourceRequest, to: str, *, quick: bool) -> bytes:
    writer, markup = WRITERS[to]
    body = reading.read(request, markup, quick=quick)
    reading.look_at_keys(body)
    csl = styles.find(body.front.csl, request, body.document)
    tree = {
        "pandoc-api-version": body.api,
        "meta": body.meta | _meta(body, named=to != "jats"),
        "blocks": _blocks(body),
    }
    arguments = ["--from=json", f"--to={writer}", "--standalone", "--mathml", "--output=-"]
    citing, files = body.cite_arguments(csl)
    done = request.pandoc.start([*arguments, *citing], as_json(tree), files).result()
    if done.error:
        body.document.fault(SourcePlace(request.file), " ".join(done.error.split())[:400])
    messages.writing(body.document, [message for message in done.messages if not _is_of_the_page(message)])
    if body.bibliographies and any(message["type"] == "CiteprocWarning" for message in done.messages):
        body.document.fault(SourcePlace(request.file), WARNED)
    body.document.faults.stop_if_any()
    return done.data


def _is_of_the_page(message: dict[str, Any]) -> bool:
    """Raw HTML (demos, numbers' marks) has no place in other formats; its text stays."""
    return message["type"] in {"InlineNotRendered", "BlockNotRendered"} and '(Format "html")' in message["pretty"]


def _blocks(body: DocumentBody) -> ast.Nodes:
    document = body.document
    found: ast.Nodes = []
    if document.claims:
        items = [claim.blocks for claim in document.claims]
        style = [1, {"t": "Decimal"}, {"t": "Period"}]
        found += [
            ast.header(1, "claims", ast.words(document.word("claims"))),
            {"t": "OrderedList", "c": [style, items]},
        ]
    found += body.blocks
    if body.cites:
        found += [ast.header(1, "references", ast.words(document.word("references"))), ast.div([], "refs")]
    return found


def _text(value: str) -> dict[str, Any]:
    return {"t": "MetaInlines", "c": ast.words(value)}


def _authors(front: FrontMatter) -> dict[str, Any]:
    """Authors and affiliations in parts, as Pandoc's JATS template has them."""
    authors = []
    for listed in front.authors:
        fields = {
            "surname": _text(listed.author.family),
            "given-names": _text(listed.author.given),
            "name": _text(listed.author.name),
        }
        fields |= {"orcid": _text(listed.author.orcid)} if listed.author.orcid else {}
        fields |= {"email": _text(listed.email)} if listed.email else {}
        places = [{"t": "MetaString", "c": str(number)} for number in listed.places]
        fields |= {"affiliation": {"t": "MetaList", "c": places}} if places else {}
        authors.append({"t": "MetaMap", "c": fields})
    affiliations = [
        {"t": "MetaMap", "c": {"id": {"t": "MetaString", "c": str(at)}, "organization": _text(name)}}
        for at, name in enumerate(front.affiliations, 1)
    ]
    places_of = {"affiliation": {"t": "MetaList", "c": affiliations}} if affiliations else {}
    return {"author": {"t": "MetaList", "c": authors}, **places_of}


def _meta(body: DocumentBody, *, named: bool) -> dict[str, Any]:
    """`named`: the format knows authors by their whole names."""
    front = body.front
    names = {"author": {"t": "MetaList", "c": [_text(listed.author.name) for listed in front.authors]}}
    return {
        "title": _text(front.title),
        **({"subtitle": _text(front.subtitle)} if front.subtitle else {}),
        **(names if named else _authors(front)),
        "date": _text(front.date),
        "abstract": {"t": "MetaBlocks", "c": body.abstract},
        "keywords": {"t": "MetaList", "c": [_text(word) for word in front.keywords]},
    }
