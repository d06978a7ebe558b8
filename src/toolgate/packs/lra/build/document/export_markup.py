"""Numbered things for other formats: Pandoc's own blocks, with the page's numbers written out."""

from __future__ import annotations

from collections.abc import Callable

from toolgate.packs.lra.build.document import ast
from toolgate.packs.lra.build.document.state import Document, Heading


class ExportMarkup:
    """Implements `flow.Markup`."""

    keeps_alignment = True
    numbers_captions = True
    """LaTeX numbers captions by itself, in the same order."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.address: Callable[[str], str] = lambda url: url
        """Where a picture is found by the writer."""

    def heading(self, heading: Heading, level: int, classes: list[str]) -> ast.Nodes:
        del classes
        number = [*ast.words(heading.number), ast.SPACE] if heading.number else []
        return [ast.header(level, heading.id, [*number, *heading.title])]

    def image(self, url: str, alt: str, size: tuple[int, int], classes: list[str]) -> ast.Nodes:
        pairs = {"width": f"{size[0]}px", "height": f"{size[1]}px"} if size[0] else {}
        return [{"t": "Image", "c": [ast.attr("", classes, pairs), ast.words(alt), [self.address(url), ""]]}]

    def figure(
        self, ident: str, label: str, caption: ast.Nodes, panels: list[ast.Nodes], classes: list[str]
    ) -> ast.Nodes:
        inner = [
            block
            for panel in panels
            for block in (panel if panel[:1] and panel[0]["t"] in ast.BLOCKS else [ast.plain(panel)])
        ]
        return [{"t": "Figure", "c": [ast.attr(ident, classes), self._caption(label, caption), inner]}]

    def _caption(self, label: str, caption: ast.Nodes) -> list[object]:
        lead = [ast.strong(ast.words(label)), ast.SPACE] if label and self.numbers_captions else []
        return [None, [ast.plain([*lead, *caption])] if lead or caption else []]

    def table(self, ident: str, label: str, caption: ast.Nodes, table: ast.Node) -> ast.Nodes:
        return [{"t": "Table", "c": [ast.attr(ident), self._caption(label, caption), *table["c"][2:]]}]

    def equation(self, ident: str, number: str, formula: ast.Node) -> ast.Nodes:
        if not number:
            return [ast.para([formula])]
        tag = f"\\tag{{{number}}}" if not self.numbers_captions else f"\\qquad({number})"
        shown = {"t": "Math", "c": [formula["c"][0], f"{formula['c'][1]}{tag}"]}
        return [ast.para([{"t": "Span", "c": [ast.attr(ident), [shown]]}])]

    def code(self, node: ast.Node) -> ast.Nodes:
        return [node]

    def listing(self, ident: str, label: str, caption: ast.Nodes, code: ast.Node) -> ast.Nodes:
        title = ast.para([ast.strong(ast.words(label)), ast.SPACE, *caption])
        return [ast.div([title, code], ident, ["listing"])]

    def theorem(self, ident: str, kind: str, title: str, name: str, blocks: ast.Nodes) -> ast.Nodes:
        lead = [ast.strong(ast.words(f"{title} ({name})." if name else f"{title}.")), ast.SPACE]
        first = blocks[0]["c"] if blocks and blocks[0]["t"] in {"Para", "Plain"} else []
        rest = blocks[1:] if first else blocks
        return [ast.div([ast.para([*lead, *first]), *rest], ident, [kind])]

    def callout(self, kind: str, title: ast.Nodes, blocks: ast.Nodes) -> ast.Nodes:
        del kind
        return [{"t": "BlockQuote", "c": [ast.para([ast.strong(title)]), *blocks]}]

    def note(self, number: int, blocks: ast.Nodes) -> tuple[ast.Nodes, ast.Nodes]:
        del number
        return [{"t": "Note", "c": blocks}], []


class LatexMarkup(ExportMarkup):
    numbers_captions = False


class EmbeddingMarkup(ExportMarkup):
    """Pictures inside the document: Pandoc's sandbox lets its writer read no file."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.address = self._embedded

    def _embedded(self, url: str) -> str:
        from base64 import b64encode  # noqa: PLC0415 (for documents with pictures)
        from mimetypes import guess_type  # noqa: PLC0415 (as above)

        data = self.document.files.get(url)
        kind = guess_type(url)[0] or "application/octet-stream"
        return f"data:{kind};base64,{b64encode(data).decode()}" if data is not None else url
