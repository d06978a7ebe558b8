"""Second step: every block in its turn. Sections, figures, tables, equations, listings and theorems get their numbers.

References may point forward, so they wait for the third step (`resolve`), when all numbers are known.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

from toolgate.packs.lra.build.convert import APPENDIX
from toolgate.packs.lra.build.document import ast, data, media, tex
from toolgate.packs.lra.build.document.state import Document, Heading
from toolgate.packs.lra.build.faults import SourcePlace
from toolgate.packs.lra.build.words import CALLOUTS, THEOREMS

_LOSSY: Final = re.compile(
    r"\\(?:color|textcolor|colorbox|fcolorbox|hline|hdashline|cline|intertext|shortintertext)(?![A-Za-z])"
    r"|\\begin\{array\}\s*\{[^{}]*\|[^{}]*\}"
)
"""Commands that Pandoc reads and then leaves out of the formula without a word."""
_ASIDE: Final = frozenset({"aside", "sidenote", "column-margin", "marginnote"})


class Markup(Protocol):
    """How a numbered thing is written: for the page, or for another format."""

    keeps_alignment: bool
    """Whether cells keep their alignment, or get a class for it."""

    def heading(self, heading: Heading, level: int, classes: list[str]) -> ast.Nodes: ...
    def figure(
        self, ident: str, label: str, caption: ast.Nodes, panels: list[ast.Nodes], classes: list[str]
    ) -> ast.Nodes: ...
    def image(self, url: str, alt: str, size: tuple[int, int], classes: list[str]) -> ast.Nodes: ...
    def table(self, ident: str, label: str, caption: ast.Nodes, table: ast.Node) -> ast.Nodes: ...
    def equation(self, ident: str, number: str, formula: ast.Node) -> ast.Nodes: ...
    def code(self, node: ast.Node) -> ast.Nodes: ...
    def listing(self, ident: str, label: str, caption: ast.Nodes, code: ast.Node) -> ast.Nodes: ...
    def theorem(self, ident: str, kind: str, title: str, name: str, blocks: ast.Nodes) -> ast.Nodes: ...
    def callout(self, kind: str, title: ast.Nodes, blocks: ast.Nodes) -> ast.Nodes: ...
    def note(self, number: int, blocks: ast.Nodes) -> tuple[ast.Nodes, ast.Nodes]: ...


class Flow:
    """Raises nothing: faults are told to the document."""

    def __init__(self, document: Document, markup: Markup, special: Any = None) -> None:
        self.document = document
        self.markup = markup
        self.special = special
        """What becomes of claims, evidence and demos: `claims.Living`."""
        self.top = 1
        self.numbers: list[int] = []
        self.appendix = False
        self.waiting: ast.Nodes = []
        """Side notes that follow the block that holds their mark."""
        self.actions: dict[str, ast.Action] = {
            "Note": self._note,
            "Image": self._image,
            "Link": self._link,
            "Span": self._span,
            "Math": self._inline_math,
        }

    # -- blocks ------------------------------------------------------------------------------------------------

    def blocks(self, blocks: ast.Nodes) -> ast.Nodes:
        found: ast.Nodes = []
        for block in blocks:
            handler = getattr(self, f"_{block['t'].lower()}", None)
            found += handler(block) if handler is not None else [block]
            found += self.waiting
            self.waiting = []
        return found

    def inlines(self, inlines: ast.Nodes) -> ast.Nodes:
        found: ast.Nodes = ast.rewrite(inlines, self.actions)
        return found

    def _para(self, node: ast.Node) -> ast.Nodes:
        """A display formula inside a paragraph divides it."""
        found: ast.Nodes = []
        part: ast.Nodes = []
        for inline in node["c"]:
            if inline["t"] == "Math" and inline["c"][0]["t"] == "DisplayMath":
                found += self._text(node["t"], part)
                found += self._equation(inline)
                part = []
            else:
                part.append(inline)
        return found + self._text(node["t"], part)

    _plain = _para

    def _text(self, kind: str, inlines: ast.Nodes) -> ast.Nodes:
        while inlines and inlines[0]["t"] in ast.BREAKS:
            inlines = inlines[1:]
        while inlines and inlines[-1]["t"] in ast.BREAKS:
            inlines = inlines[:-1]
        if not inlines:
            return []
        notes_before = self.waiting
        self.waiting = []
        found = [{"t": kind, "c": self.inlines(inlines)}, *self.waiting]
        self.waiting = notes_before
        return found

    def _lineblock(self, node: ast.Node) -> ast.Nodes:
        return [{"t": "LineBlock", "c": [self.inlines(line) for line in node["c"]]}]

    def _blockquote(self, node: ast.Node) -> ast.Nodes:
        return [{"t": "BlockQuote", "c": self.blocks(node["c"])}]

    def _bulletlist(self, node: ast.Node) -> ast.Nodes:
        return [{"t": "BulletList", "c": [self.blocks(item) for item in node["c"]]}]

    def _orderedlist(self, node: ast.Node) -> ast.Nodes:
        return [{"t": "OrderedList", "c": [node["c"][0], [self.blocks(item) for item in node["c"][1]]]}]

    def _definitionlist(self, node: ast.Node) -> ast.Nodes:
        items = [[self.inlines(term), [self.blocks(meaning) for meaning in meanings]] for term, meanings in node["c"]]
        return [{"t": "DefinitionList", "c": items}]

    # -- sections ----------------------------------------------------------------------------------------------

    def _header(self, node: ast.Node) -> ast.Nodes:
        level, (ident, classes, _), inlines = node["c"]
        own = _labels_in(inlines)
        depth = max(level - self.top + 1, 1)
        if "appendix" in classes and depth == 1:
            self._start_appendix()
        number = "" if not self.document.numbered or "unnumbered" in classes else self._next(depth)
        anchor = self._section_id(ident)
        kind = "app" if self.appendix and depth == 1 else "sec"
        for label in (ident, *own):
            if label:
                self.document.label(label, kind, number, anchor)
        heading = Heading(depth, anchor, number, self.inlines(_without_labels(inlines)))
        self.document.headings.append(heading)
        return self.markup.heading(heading, depth, classes)

    def _section_id(self, ident: str) -> str:
        if ident in self.document.labels:
            self.document.fault(self.document.source.place(f"#{ident}", 1), f"the id {ident} is used already")
        return self.document.free_id(ident or "section")

    def _next(self, depth: int) -> str:
        self.numbers = [*self.numbers[:depth], *[0] * (depth - len(self.numbers))]
        self.numbers[depth - 1] += 1
        first = chr(ord("A") + (self.numbers[0] - 1) % 26) if self.appendix else str(self.numbers[0])
        return ".".join([first, *(str(number) for number in self.numbers[1:])])

    def _start_appendix(self) -> None:
        if not self.appendix:
            self.appendix = True
            self.numbers = []

    # -- numbered things ---------------------------------------------------------------------------------------

    def numbered(self, kind: str, ident: str, labels: list[str], place: SourcePlace | None = None) -> tuple[str, str]:
        """The id and the number of the next figure, table, ... A thing without a label is numbered all the same."""
        self.document.counts[kind] += 1
        number = str(self.document.counts[kind])
        known = [label for label in (ident, *labels) if label]
        anchor = known[0] if known else self.document.free_id(f"{kind}-{number}")
        for label in known:
            if label in self.document.labels:
                self.document.fault(place or self.document.place(label), f"the label {label} is used already")
            self.document.label(label, kind, number, anchor)
        if known:
            self.document.claim_id(anchor, place or self.document.place(anchor))
        return anchor, number

    def _equation(self, node: ast.Node) -> ast.Nodes:
        shown = tex.equation(node["c"][1])
        formula = {"t": "Math", "c": [{"t": "DisplayMath"}, shown.tex]}
        self._check_formula(shown.tex)
        anchor, numbers = "", []
        for row in shown.rows:
            if not row.numbered:
                continue
            if not row.tag:
                self.document.counts["eq"] += 1
            number = row.tag or str(self.document.counts["eq"])
            anchor = anchor or (row.labels[0] if row.labels else self.document.free_id(f"eq-{number}"))
            numbers.append(number)
            for label in row.labels:
                if label in self.document.labels:
                    self.document.fault(self.document.place(label), f"the label {label} is used already")
                self.document.label(label, "eq", number, anchor)
        if anchor and anchor in self.document.labels:
            self.document.ids.add(anchor)
        text = f"{numbers[0]}–{numbers[-1]}" if len(numbers) > 1 else "".join(numbers)
        return self.markup.equation(anchor, text, formula)

    def _check_formula(self, text: str) -> None:
        lossy = _LOSSY.search(text)
        if lossy:
            self.document.fault(self.document.place(lossy[0]), f"the page cannot show {lossy[0]} in a formula")

    def _figure(self, node: ast.Node) -> ast.Nodes:
        (ident, classes, pairs), (_, caption_blocks), blocks = node["c"]
        caption = _joined(caption_blocks)
        labels = _labels_in(caption)
        caption = self.inlines(_without_labels(caption))
        images = list(ast.each(blocks, "Image"))
        for image in images:  # LaTeX has no other text for a picture than its caption
            image["c"][1] = image["c"][1] or ast.words(ast.text_of(caption_blocks))
        if len(images) == 1 and data.is_table(images[0]["c"][2][0]):
            return self._csv(images[0], ident, labels, caption, dict(pairs))
        if not images:
            return self._figure_of_blocks(blocks, ident, labels, caption, classes)
        anchor, number = self.numbered("fig", ident, labels)
        inner = list(ast.each(blocks, "Figure"))
        panels = [self._panel(node) for node in inner] if inner else [self._pictures(images)]
        kinds = [name for name in (*classes, *ast.attr_of(images[0])[1]) if name in {"wide", "drawing", "photo"}]
        return self.markup.figure(anchor, f"{self.document.word('fig')} {number}.", caption, panels, kinds)

    def _pictures(self, images: ast.Nodes) -> ast.Nodes:
        return [part for image in images for part in self._image(image)]

    def _panel(self, node: ast.Node) -> ast.Nodes:
        (ident, _, _), (_, caption_blocks), blocks = node["c"]
        caption = _joined(caption_blocks)
        for label in (ident, *_labels_in(caption)):
            if label:
                number = f"{self.document.counts['fig']}"
                self.document.label(label, "fig", number, label)
                self.document.ids.add(label)
        pictures = self._pictures(list(ast.each(blocks, "Image")))
        return self.markup.figure(ident, "", self.inlines(_without_labels(caption)), [pictures], [])

    def _figure_of_blocks(
        self, blocks: ast.Nodes, ident: str, labels: list[str], caption: ast.Nodes, classes: list[str]
    ) -> ast.Nodes:
        """A figure that shows something else: a table or code with a caption."""
        table = next(ast.each(blocks, "Table"), None)
        if table is not None:
            return self._numbered_table(table, ident, labels, caption)
        anchor, number = self.numbered("fig", ident, labels)
        label = f"{self.document.word('fig')} {number}."
        return self.markup.figure(anchor, label, caption, [self.blocks(blocks)], classes)

    def _csv(
        self, image: ast.Node, ident: str, labels: list[str], caption: ast.Nodes, pairs: dict[str, str]
    ) -> ast.Nodes:
        (own, _, more), _, (url, _) = image["c"]
        found = data.table(self.document, url, pairs | dict(more), lambda: self.document.place(url))
        return [] if found is None else self._numbered_table(found, ident or own, labels, caption)

    def _table(self, node: ast.Node) -> ast.Nodes:
        (ident, _, _), (_, caption_blocks), *_ = node["c"]
        caption = _joined(caption_blocks)
        labels = _labels_in(caption)
        return self._numbered_table(node, ident, labels, self.inlines(_without_labels(caption)))

    def _numbered_table(self, node: ast.Node, ident: str, labels: list[str], caption: ast.Nodes) -> ast.Nodes:
        inner = {"t": "Table", "c": [ast.attr(), [None, []], *self._cells(node["c"][2:])]}
        if not ident and not labels and not caption:
            return self.markup.table("", "", [], inner)
        anchor, number = self.numbered("tbl", ident, labels)
        return self.markup.table(anchor, f"{self.document.word('tbl')} {number}.", caption, inner)

    def _cells(self, parts: list[Any]) -> list[Any]:
        columns, head, bodies, foot = parts
        plain = [[{"t": "AlignDefault"}, {"t": "ColWidthDefault"}] for _ in columns]
        aligns = [column[0]["t"] for column in columns]
        return [
            columns if self.markup.keeps_alignment else plain,
            [head[0], self._rows(head[1], aligns)],
            [[body[0], body[1], self._rows(body[2], aligns), self._rows(body[3], aligns)] for body in bodies],
            [foot[0], self._rows(foot[1], aligns)],
        ]

    def _rows(self, rows: list[Any], aligns: list[str]) -> list[Any]:
        """Alignment as a class of each cell: a style attribute would be against the page's policy."""
        found = []
        below: dict[int, int] = {}
        for attributes, cells in rows:
            at, new = 0, []
            for (ident, classes, pairs), align, down, across, blocks in cells:
                while below.get(at, 0):
                    below[at] -= 1
                    at += 1
                name = align["t"] if align["t"] != "AlignDefault" else aligns[at] if at < len(aligns) else ""
                more = {"AlignRight": ["num"], "AlignCenter": ["mid"]}.get(name, [])
                kept = [pair for pair in pairs if pair[0] != "style"]
                shown = align if self.markup.keeps_alignment else {"t": "AlignDefault"}
                new.append([[ident, [*classes, *more], kept], shown, down, across, self.blocks(blocks)])
                for column in range(at, at + across):
                    below[column] = down - 1
                at += across
            found.append([attributes, new])
        return found

    def _codeblock(self, node: ast.Node) -> ast.Nodes:
        (ident, classes, pairs), text = node["c"]
        attributes = dict(pairs)
        caption = ast.words(attributes.get("caption") or attributes.get("lst-cap") or "")
        place = text.split("\n")[0] or "```"
        if "csv" in classes and (caption or ident or "table" in classes):
            found = data.from_csv(
                self.document, text, attributes, "the block", lambda: self.document.place(place, code=True)
            )
            return [] if found is None else self._numbered_table(found, ident, [], caption)
        bare = {"t": "CodeBlock", "c": [ast.attr("", classes), text]}
        if not caption and not ident:
            return self.markup.code(bare)
        anchor, number = self.numbered("lst", ident, [])
        return self.markup.listing(anchor, f"{self.document.word('lst')} {number}.", caption, bare)

    # -- fenced blocks -----------------------------------------------------------------------------------------

    def _div(self, node: ast.Node) -> ast.Nodes:
        (ident, classes, pairs), blocks = node["c"]
        attributes = dict(pairs)
        if APPENDIX in classes:
            self._start_appendix()
            return []
        if self.special is not None and set(classes) & {"claim", "evidence", "demo"}:
            found: ast.Nodes = self.special.block(self, node)
            return found
        kind = next((name for name in classes if name in THEOREMS or name == "proof"), "")
        if kind:
            return self._theorem(kind, ident, attributes, blocks)
        callout = _callout_of(classes, attributes)
        if callout:
            return self._callout(callout, attributes, blocks)
        if set(classes) & _ASIDE:
            return self._aside(blocks)
        inner = [block["t"] for block in blocks]
        if ident and inner == ["Table"]:
            table = blocks[0]
            table["c"][0] = [ident, *table["c"][0][1:]]
            return self._table(table)
        if "Figure" in inner and (ident.startswith(("fig-", "fig:")) or "figure" in classes or "panels" in classes):
            return self._panels(ident, classes, blocks)
        if ident:
            self.document.claim_id(ident, self.document.place(f"#{ident}"))
        return [ast.div(self.blocks(blocks), ident, classes)]

    def _panels(self, ident: str, classes: list[str], blocks: ast.Nodes) -> ast.Nodes:
        """Several figures and a last paragraph: one figure with panels."""
        text = [block for block in blocks if block["t"] == "Para"]
        anchor, number = self.numbered("fig", ident, [])
        panels = [self._panel(block) for block in blocks if block["t"] == "Figure"]
        caption = self.inlines(text[-1]["c"]) if text else []
        kinds = [name for name in classes if name in {"wide", "drawing", "photo"}]
        return self.markup.figure(anchor, f"{self.document.word('fig')} {number}.", caption, panels, kinds)

    def _theorem(self, kind: str, ident: str, attributes: dict[str, str], blocks: ast.Nodes) -> ast.Nodes:
        printed, blocks = _without_printed_title(kind, blocks)
        name = attributes.get("name", printed)
        if kind == "proof":
            title = self.document.word("proof")
            if ident:
                self.document.claim_id(ident, self.document.place(f"#{ident}"))
            return self.markup.theorem(ident, kind, title, name, self.blocks(blocks))
        anchor, number = self.numbered(THEOREMS[kind], ident, [])
        title = f"{self.document.word(THEOREMS[kind])} {number}"
        return self.markup.theorem(anchor, kind, title, name, self.blocks(blocks))

    def _callout(self, kind: str, attributes: dict[str, str], blocks: ast.Nodes) -> ast.Nodes:
        title = ast.words(attributes.get("title", ""))
        if not title and blocks and blocks[0]["t"] == "Header":
            title, blocks = self.inlines(blocks[0]["c"][2]), blocks[1:]
        return self.markup.callout(kind, title or ast.words(self.document.word(kind)), self.blocks(blocks))

    def _aside(self, blocks: ast.Nodes) -> ast.Nodes:
        self.document.counts["note"] += 1
        mark, note = self.markup.note(self.document.counts["note"], self.blocks(blocks))
        return [ast.plain(mark), *note]

    # -- inlines -----------------------------------------------------------------------------------------------

    def _note(self, node: ast.Node) -> ast.Nodes:
        self.document.counts["note"] += 1
        number = self.document.counts["note"]
        outside, self.waiting = self.waiting, []
        blocks = self.blocks(node["c"])
        mark, note = self.markup.note(number, blocks)
        self.waiting = [*outside, *note]
        return mark

    def _image(self, node: ast.Node) -> ast.Nodes:
        (_, classes, pairs), inlines, (url, _) = node["c"]
        attributes = dict(pairs)
        alt = attributes.get("alt") or ast.text_of(inlines)
        if not alt and self.document.source.kind == "ipynb":
            alt = self.document.word("code-picture")
        if not alt:
            self.document.fault(self._file_place(url), f"the image {url[:80]} has no text for those who cannot see it")
        url, *size = media.picture(self.document, url, attributes, lambda: self._file_place(url))
        return self.markup.image(url, alt, (size[0], size[1]), classes)

    def _file_place(self, url: str) -> SourcePlace:
        return self.document.place(url.rsplit("/", 1)[-1])

    def _link(self, node: ast.Node) -> ast.Nodes:
        (ident, classes, pairs), inlines, (url, title) = node["c"]
        kept = [pair for pair in pairs if pair[0] not in {"style", "reference", "reference-type"}]
        reference = dict(pairs).get("reference")
        if reference is not None:
            return tex.cross_references(dict(pairs).get("reference-type", "ref"), reference)
        if media.is_local(url):
            url = media.take(self.document, url, "file", lambda: self._file_place(url))
        return [{"t": "Link", "c": [[ident, classes, kept], self.inlines(inlines), [url, title]]}]

    def _span(self, node: ast.Node) -> ast.Nodes | None:
        (ident, classes, pairs), inlines = node["c"]
        attributes = dict(pairs)
        if "style" in attributes:
            self.document.fault(self.document.place("style="), "a style attribute is against the page's own policy")
        if set(classes) & _ASIDE:
            return self._note({"t": "Note", "c": [ast.para(inlines)]})
        if "data" in attributes and "expect" not in classes:
            return data.compared(self.document, self.inlines(inlines), attributes["data"])
        if "label" in classes and not inlines:
            label = attributes.get("to", "")
            last = self.document.headings[-1] if self.document.headings else None
            if label and last is not None:
                self.document.label(label, "sec", last.number, last.id)
            return []
        if ident:
            self.document.claim_id(ident, self.document.place(f"#{ident}"))
        return None

    def _inline_math(self, node: ast.Node) -> ast.Nodes | None:
        self._check_formula(node["c"][1])
        return [{"t": "Math", "c": [node["c"][0], tex.known(node["c"][1])]}]


def _callout_of(classes: list[str], attributes: dict[str, str]) -> str:
    for class_ in classes:
        name = class_.removeprefix("callout-")
        if name in CALLOUTS:
            return name
    return attributes.get("kind", "note") if "callout" in classes and attributes.get("kind", "note") in CALLOUTS else ""


def _joined(blocks: ast.Nodes) -> ast.Nodes:
    """A caption's blocks as one run of inlines."""
    found: ast.Nodes = []
    for block in blocks:
        if block["t"] in {"Para", "Plain"}:
            found += ([ast.SPACE] if found else []) + block["c"]
    return found


def _labels_in(inlines: ast.Nodes) -> list[str]:
    return [
        dict(inline["c"][0][2]).get("to", "")
        for inline in inlines
        if inline["t"] == "Span" and inline["c"][0][1] == ["label"]
    ]


def _without_labels(inlines: ast.Nodes) -> ast.Nodes:
    found = [inline for inline in inlines if not (inline["t"] == "Span" and inline["c"][0][1] == ["label"])]
    while found and found[-1]["t"] in ast.BREAKS:
        found = found[:-1]
    return found


def _without_printed_title(kind: str, blocks: ast.Nodes) -> tuple[str, ast.Nodes]:
    """Pandoc's LaTeX reader prints `Theorem 1 (Gauss).` and sets the rest in italics: the page does that itself.

    The name in brackets, and the blocks without all this.
    """
    first = blocks[0]["c"] if blocks and blocks[0]["t"] == "Para" else []
    if not first or first[0]["t"] not in {"Strong", "Emph"} or not ast.text_of(first[0]).lower().startswith(kind):
        return "", blocks
    rest = _trimmed(first[1:])
    name = ""
    if rest and rest[0]["t"] == "Str" and rest[0]["c"].startswith("("):
        end = next((at for at, node in enumerate(rest) if node.get("c", "")[-2:] == ")."), None)
        if end is not None:
            name, rest = ast.text_of(rest[: end + 1])[1:-2], _trimmed(rest[end + 1 :])
    if len(rest) == 1 and rest[0]["t"] == "Emph":
        rest = rest[0]["c"]
    return name, [ast.para(rest), *blocks[1:]]


def _trimmed(inlines: ast.Nodes) -> ast.Nodes:
    while inlines and (inlines[0]["t"] in ast.BREAKS or inlines[0].get("c") == "."):
        inlines = inlines[1:]
    return inlines
