"""Numbered things as the page writes them (docs/reference/paper-markup.md): HTML around what Pandoc writes."""

from __future__ import annotations

from html import escape
from typing import Final

from toolgate.packs.lra.build.document import ast
from toolgate.packs.lra.build.document.state import Document, Heading

TITLE: Final = "-title"
"""What a heading's id adds to its section's."""
_ROLE: Final = 'role="group"'


class PageMarkup:
    """Implements `flow.Markup`."""

    keeps_alignment = False

    def __init__(self, document: Document) -> None:
        self.document = document

    def heading(self, heading: Heading, level: int, classes: list[str]) -> ast.Nodes:
        del classes
        title = heading.title
        if heading.number:
            title = [ast.html_inline(f'<span class="section-number">{heading.number}</span>'), ast.SPACE, *title]
        return [ast.header(min(level + 1, 6), heading.id + TITLE, title)]

    def image(self, url: str, alt: str, size: tuple[int, int], classes: list[str]) -> ast.Nodes:
        names = f' class="{escape(" ".join(classes))}"' if classes else ""
        sizes = f' width="{size[0]}" height="{size[1]}"' if size[0] else ""
        return [ast.html_inline(f'<img src="{escape(url)}"{sizes} alt="{escape(alt)}" loading="lazy"{names}>')]

    def figure(
        self, ident: str, label: str, caption: ast.Nodes, panels: list[ast.Nodes], classes: list[str]
    ) -> ast.Nodes:
        names = [*(["panels"] if len(panels) > 1 else []), *classes]
        inner = [block for panel in panels for block in _as_blocks(panel)]
        return [
            ast.html(f"<figure{_id(ident)}{_class(names)}>"),
            *inner,
            *_caption(label, caption),
            ast.html("</figure>"),
        ]

    def table(self, ident: str, label: str, caption: ast.Nodes, table: ast.Node) -> ast.Nodes:
        if not ident:
            return [ast.html('<div class="scroll">'), table, ast.html("</div>")]
        named = f'{ident}-caption"'
        head = _caption(label, caption, f' id="{escape(named[:-1])}"')
        scroll = f'<div class="scroll" {_ROLE} aria-labelledby="{escape(named[:-1])}">'
        opening = ast.html(f'<figure class="table"{_id(ident)}>')
        return [opening, *head, ast.html(scroll), table, ast.html("</div></figure>")]

    def equation(self, ident: str, number: str, formula: ast.Node) -> ast.Nodes:
        if not number:
            return [
                ast.html('<div class="equation"><div class="scroll">'),
                ast.plain([formula]),
                ast.html("</div></div>"),
            ]
        name = f'{_ROLE} aria-label="{escape(self.document.word("equation"))} {escape(number)}"'
        return [
            ast.html(f'<div class="equation"{_id(ident)}><div class="scroll" {name}>'),
            ast.plain([formula]),
            ast.html(f'</div><span class="number">({escape(number)})</span></div>'),
        ]

    def code(self, node: ast.Node) -> ast.Nodes:
        return [ast.html('<div class="scroll">'), node, ast.html("</div>")]

    def listing(self, ident: str, label: str, caption: ast.Nodes, code: ast.Node) -> ast.Nodes:
        opening = ast.html(f'<figure class="listing"{_id(ident)}>')
        return [opening, *_caption(label, caption), *self.code(code), ast.html("</figure>")]

    def theorem(self, ident: str, kind: str, title: str, name: str, blocks: ast.Nodes) -> ast.Nodes:
        lead = [ast.html_inline(f'<b class="theorem-title">{escape(title)}</b>')]
        lead += [ast.SPACE, *ast.words(f"({name}).")] if name else [{"t": "Str", "c": "."}]
        first = blocks[0] if blocks and blocks[0]["t"] in {"Para", "Plain"} else None
        rest = blocks[1:] if first is not None else blocks
        opening = ast.para([*lead, ast.SPACE, *(first["c"] if first is not None else [])])
        names = ["proof"] if kind == "proof" else ["theorem", *([kind] if kind != "theorem" else [])]
        return [ast.html(f"<div{_class(names)}{_id(ident)}>"), opening, *rest, ast.html("</div>")]

    def callout(self, kind: str, title: ast.Nodes, blocks: ast.Nodes) -> ast.Nodes:
        self.document.counts["callout"] += 1
        ident = f"callout-{self.document.counts['callout']}"
        return [
            ast.html(f'<div class="callout" data-kind="{kind}" role="note" aria-labelledby="{ident}">'),
            ast.html(f'<p class="callout-title" id="{ident}">'),
            ast.plain(title),
            ast.html("</p>"),
            *blocks,
            ast.html("</div>"),
        ]

    def note(self, number: int, blocks: ast.Nodes) -> tuple[ast.Nodes, ast.Nodes]:
        ident = f"note-{number}"
        name = escape(f"{self.document.word('note-ref')} {number}")
        mark = (
            f'<a class="note-ref" id="{ident}-ref" href="#{ident}" role="doc-noteref" aria-label="{name}">{number}</a>'
        )
        back = (
            f'<a class="note-back" href="#{ident}-ref" role="doc-backlink" '
            f'aria-label="{escape(self.document.word("back"))}">↩</a>'
        )
        opening = ast.html(f'<aside class="sidenote" id="{ident}" role="doc-footnote">')
        inner = [ast.plain(blocks[0]["c"])] if [block["t"] for block in blocks] == ["Para"] else blocks
        lead = [ast.html_inline(f'<span class="note-number">{number}</span>'), ast.SPACE]
        inner = _around(inner, lead, [ast.SPACE, ast.html_inline(back)])
        return [ast.html_inline(mark)], [opening, *inner, ast.html("</aside>")]


def _around(blocks: ast.Nodes, lead: ast.Nodes, tail: ast.Nodes) -> ast.Nodes:
    """The same blocks with inlines before and after, inside of the first and the last paragraph."""
    found = list(blocks)
    for at, before, after in ((0, lead, []), (-1, [], tail)):
        if found and found[at]["t"] in {"Para", "Plain"}:
            found[at] = {"t": found[at]["t"], "c": [*before, *found[at]["c"], *after]}
        elif before:
            found.insert(0, ast.plain(before))
        else:
            found.append(ast.plain(after))
    return found


def _id(ident: str) -> str:
    return f' id="{escape(ident)}"' if ident else ""


def _class(names: list[str]) -> str:
    return f' class="{escape(" ".join(names))}"' if names else ""


def _as_blocks(nodes: ast.Nodes) -> ast.Nodes:
    return nodes if nodes and nodes[0]["t"] in ast.BLOCKS else [ast.plain(nodes)]


def _caption(label: str, caption: ast.Nodes, attributes: str = "") -> ast.Nodes:
    if not label and not caption:
        return []
    lead = [ast.html_inline(f"<b>{escape(label)}</b>"), ast.SPACE] if label else []
    return [ast.html(f"<figcaption{attributes}>"), ast.plain([*lead, *caption]), ast.html("</figcaption>")]


def sections(blocks: ast.Nodes) -> ast.Nodes:
    """Headings and what follows them, as nested sections."""
    found: ast.Nodes = []
    open_levels: list[int] = []
    for block in blocks:
        if block["t"] == "Header" and block["c"][1][0].endswith(TITLE):
            level, (ident, _, _), _ = block["c"]
            while open_levels and open_levels[-1] >= level:
                found.append(ast.html("</section>"))
                open_levels.pop()
            name = escape(ident.removesuffix(TITLE))
            found.append(ast.html(f'<section id="{name}" aria-labelledby="{escape(ident)}">'))
            open_levels.append(level)
        found.append(block)
    return found + [ast.html("</section>")] * len(open_levels)
