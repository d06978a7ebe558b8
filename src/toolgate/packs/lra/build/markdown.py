"""The body: CommonMark with tables, formulas, citations, labels and references to them. Raw HTML is shown, not run."""

from __future__ import annotations

import re
from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct, field

from toolgate.packs.lra.build.faults import BuildFault
from toolgate.packs.lra.build.math import FormulaFault, to_mathml
from toolgate.packs.lra.urls import is_external, local_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

_KINDS: Final = {"fig": "Figure", "tbl": "Table", "eq": "Equation", "sec": "Section"}
_LABEL: Final = re.compile(r"\s*\{#([A-Za-z][\w-]{0,63})\}\s*$", re.ASCII)
_CITE: Final = re.compile(r"\[@([\w:./-]+(?:\s*;\s*@[\w:./-]+)*)\]", re.ASCII)
_XREF: Final = re.compile(r"@((?:fig|tbl|eq|sec)-[A-Za-z0-9][\w-]{0,60})", re.ASCII)
_INLINE_MATH: Final = re.compile(r"\$(?=\S)((?:[^$\\]|\\.)+?)(?<=\S)\$(?![0-9])", re.DOTALL)
_TABLE_CAPTION: Final = re.compile(r"^(?:Table)?:\s*(.+?)\s*\{#(tbl-[\w-]{1,60})\}\s*$", re.DOTALL | re.ASCII)
_RESERVED: Final = frozenset({"claims", "references", "citation"})
"""Sections that are made from the front matter and the bibliography."""


class BodySection(Struct, frozen=True):
    id: str
    title: str
    """HTML; empty for text before the first heading."""
    html: str
    text: str
    """Plain text of the paragraphs: for an abstract written in the body."""


class Document(Struct):
    file: str
    first_line: int
    """The line of the file on which the body begins."""
    cited: list[str] = field(default_factory=list)
    """Keys in the order of their first citation."""
    images: dict[str, int] = field(default_factory=dict)
    """Local image files, with the line that shows them."""
    labels: dict[str, str] = field(default_factory=dict)
    """Label -> `Figure 1`."""
    ids: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)

    def line(self, token: Token | None, within: int = 0) -> int:
        start = token.map[0] if token is not None and token.map else 0
        return self.first_line + start + within

    def fault(self, token: Token | None, text: str, within: int = 0) -> BuildFault:
        return BuildFault(self.file, self.line(token, within), text)


def render(body: str, document: Document, known: Mapping[str, Any]) -> list[BodySection]:
    """The sections of the body. `known`: the bibliography by key.

    Raises: BuildFault: an unknown reference, label or formula, an image without text, a heading out of place.
    """
    parser = _parser()
    tokens = _with_captions(parser.parse(body))
    _label(tokens, document)
    _resolve(tokens, document, known)
    return _sections(parser, tokens, document)


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.inline.ruler.before("escape", "formula", _inline_formula)
    parser.inline.ruler.before("link", "citation", _citation)
    parser.inline.ruler.before("text", "reference", _reference)
    parser.block.ruler.before("fence", "formula", _block_formula, {"alt": ["paragraph"]})
    # The text rule eats runs without special characters: `$` and `@` must stop it.
    parser.inline.ruler.at("text", _text)
    for name in ("formula", "citation", "reference", "figure", "ready"):
        parser.add_render_rule(name, _ready)
    parser.add_render_rule("table_open", _table_open)
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


def _table_open(_self: Any, tokens: Sequence[Token], index: int, *_: Any) -> str:
    """A wide table scrolls by itself and can be reached by keyboard."""
    label = tokens[index].meta.get("label")
    name = f'aria-labelledby="{label}"' if label else 'aria-label="Table"'
    return f'<div class="scroll prose-table" tabindex="0" role="group" {name}><table>\n'


def _ready(_self: Any, tokens: Sequence[Token], index: int, *_: Any) -> str:
    return tokens[index].content


_PLAIN: Final = re.compile(r"[^\n!#$%&*+\-:<=>@\[\\\]^_`{}~]+")


def _text(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 (the parser's own signature)
    match = _PLAIN.match(state.src, state.pos)
    if not match:
        return False
    if not silent:
        state.pending += match[0]
    state.pos = match.end()
    return True


def _push(state: StateInline, kind: str, match: re.Match[str], *, silent: bool) -> bool:
    if not silent:
        token = state.push(kind, "", 0)
        token.meta = {"source": match[1], "within": state.src.count("\n", 0, match.start())}
    state.pos = match.end()
    return True


def _inline_formula(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 (as above)
    match = _INLINE_MATH.match(state.src, state.pos) if state.src[state.pos] == "$" else None
    return match is not None and _push(state, "formula", match, silent=silent)


def _citation(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 (as above)
    match = _CITE.match(state.src, state.pos) if state.src[state.pos] == "[" else None
    return match is not None and _push(state, "citation", match, silent=silent)


def _reference(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 (as above)
    match = _XREF.match(state.src, state.pos) if state.src[state.pos] == "@" else None
    if not match or (state.pos and state.src[state.pos - 1].isalnum()):
        return False
    return _push(state, "reference", match, silent=silent)


def _block_formula(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 (as above)
    """`$$` on a line of its own, the formula, `$$` again with an optional `{#eq-label}`."""
    first = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    if first.strip() != "$$":
        return False
    for number in range(start + 1, end):
        line = state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]].strip()
        if line.startswith("$$"):
            label = _LABEL.match(line[2:])
            if line[2:].strip() and not label:
                return False
            if not silent:
                token = state.push("formula", "", 0)
                token.block = True
                token.map = [start, number + 1]
                source = state.getLines(start + 1, number, state.tShift[start], keepLastLF=False)
                token.meta = {"source": source, "within": 1, "label": label[1] if label else "", "block": True}
            state.line = number + 1
            return True
    return False


def _with_captions(tokens: Sequence[Token]) -> list[Token]:
    """A paragraph `: caption {#tbl-label}` below a table becomes the table's caption."""
    found: list[Token] = []
    opening = 0
    index = 0
    while index < len(tokens):
        found.append(tokens[index])
        if tokens[index].type == "table_open":
            opening = len(found) - 1
        following = tokens[index + 2] if index + 3 < len(tokens) else None
        caption = _TABLE_CAPTION.match(following.content) if following is not None else None
        if tokens[index].type == "table_close" and following is not None and caption:
            label = caption[2]
            found[opening].meta = {"label": label}
            begin, end = Token("caption_open", "caption", 1), Token("caption_close", "caption", -1)
            begin.attrSet("id", label)
            _trim_caption(following)
            found[opening + 1 : opening + 1] = [begin, following, end]
            index += 3
        index += 1
    return found


def _trim_caption(inline: Token) -> None:
    """Drop the leading colon and the trailing label; room for the number in front."""
    children = inline.children or []
    first, last = children[0], children[-1]
    first.content = re.sub(r"^(?:Table)?:\s*", "", first.content)
    last.content = _LABEL.sub("", last.content)
    inline.children = [Token("ready", "", 0), *children]


def _label(tokens: list[Token], document: Document) -> None:
    """First pass: give every figure, table, equation and section its number, so that references may point forward."""
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            _label_heading(token, tokens[index + 1], document)
        elif token.type == "formula" and token.meta.get("label"):
            _claim_label(token.meta["label"], "eq", token, document)
        elif token.type == "inline" and token.children and tokens[index - 1].type == "paragraph_open":
            is_figure = _label_figure(token, document)
            tokens[index - 1].hidden = tokens[index + 1].hidden = is_figure or tokens[index - 1].hidden
        elif token.type == "table_open" and token.meta.get("label"):
            caption = tokens[index + 2]
            _claim_label(token.meta["label"], "tbl", caption, document)
            assert caption.children  # put there by _trim_caption
            caption.children[0].content = f"<b>{document.labels[token.meta['label']]}.</b> "


def _claim_label(label: str, kind: str, token: Token, document: Document) -> None:
    if not label.startswith(f"{kind}-"):
        raise document.fault(token, f"the label of this begins with {kind}-")
    _claim_id(label, token, document)
    document.counts[kind] += 1
    document.labels[label] = f"{_KINDS[kind]} {document.counts[kind]}"


def _claim_id(ident: str, token: Token, document: Document) -> None:
    if ident in document.ids or ident in _RESERVED:
        raise document.fault(token, f"the id {ident} is used already")
    document.ids.add(ident)


def _label_heading(heading: Token, inline: Token, document: Document) -> None:
    if heading.tag == "h1":
        raise document.fault(heading, "the title is in the front matter; sections begin with ##")
    label = _LABEL.search(inline.content)
    title = _LABEL.sub("", inline.content)
    if label:
        inline.content = title
        _strip_label(inline)
    ident = label[1] if label else _slug(title, document)
    _claim_id(ident, heading, document)
    heading.meta = {"id": ident}
    if ident.startswith("sec-"):
        document.counts["sec"] += 1
        document.labels[ident] = f"Section “{title}”"


def _slug(title: str, document: Document) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
    while slug in document.ids:
        slug += "-x"
    return slug


def _strip_label(inline: Token) -> None:
    last = inline.children[-1] if inline.children else None
    if last is not None and last.type == "text":
        last.content = _LABEL.sub("", last.content)


def _label_figure(inline: Token, document: Document) -> bool:
    """A paragraph that is one image, perhaps with a label, is a figure."""
    children = inline.children or []
    if not children or children[0].type != "image":
        return False
    rest = "".join(child.content for child in children[1:])
    label = _LABEL.match(rest)
    if rest.strip() and not label:
        return False
    image = children[0]
    image.meta = {"figure": label[1] if label else ""}
    if label:
        _claim_label(label[1], "fig", inline, document)
        del children[1:]
    return True


def _resolve(tokens: Sequence[Token], document: Document, known: Mapping[str, Any]) -> None:
    """Second pass: formulas, citations, references and images become HTML, or errors with their line."""
    for block in tokens:
        if block.type == "formula":
            _resolve_formula(block, block, document)
        for token in block.children or []:
            if token.type == "formula":
                _resolve_formula(token, block, document)
            elif token.type == "citation":
                _resolve_citation(token, block, document, known)
            elif token.type == "reference":
                label = token.meta["source"]
                if label not in document.labels:
                    raise document.fault(block, f"there is no label {label}", token.meta["within"])
                token.content = f'<a href="#{label}">{escape(document.labels[label])}</a>'
            elif token.type == "image":
                _resolve_image(token, block, document)


def _resolve_formula(token: Token, block: Token, document: Document) -> None:
    is_block = bool(token.meta.get("block"))
    try:
        content = to_mathml(token.meta["source"], block=is_block)
    except FormulaFault as fault:
        raise document.fault(block, f"this formula cannot be shown: {fault}", token.meta["within"]) from None
    if is_block:
        label = token.meta["label"]
        ident = f' id="{label}"' if label else ""
        number = f'<span class="number">({document.labels[label].rsplit(" ", 1)[1]})</span>' if label else ""
        content = (
            f'<div class="equation"{ident} tabindex="0" role="group" aria-label="Equation">{content}{number}</div>\n'
        )
    token.content = content


def _resolve_citation(token: Token, block: Token, document: Document, known: Mapping[str, Any]) -> None:
    links = []
    for key in (part.strip().removeprefix("@") for part in token.meta["source"].split(";")):
        if key not in known:
            raise document.fault(block, f"there is no reference {key} in the bibliography", token.meta["within"])
        if key not in document.cited:
            document.cited.append(key)
        number = document.cited.index(key) + 1
        links.append(f'<a href="#{ref_id(key)}">{number}</a>')
    token.content = f"[{', '.join(links)}]"


def ref_id(key: str) -> str:
    return "ref-" + re.sub(r"[^A-Za-z0-9_-]", "-", key)


def _resolve_image(token: Token, block: Token, document: Document) -> None:
    source = str(token.attrs.get("src", ""))
    alternative = token.content.strip()
    if not alternative:
        raise document.fault(block, "the image has no text: write ![what it shows](file)")
    path = local_path(source)
    if is_external(source) or (path is None and not source.startswith("data:")):
        raise document.fault(block, "an image is a file beside the Markdown, named by a relative path without ..")
    if path is not None:
        document.images.setdefault(path, document.line(block))
    image = f'<img src="{escape(source)}" alt="{escape(alternative)}" loading="lazy" decoding="async">'
    label = (token.meta or {}).get("figure")
    caption = escape(str(token.attrs.get("title", "")), quote=False)
    token.type = "figure"
    if label is None:
        token.content = image
        return
    name = f"<b>{document.labels[label]}.</b> " if label else ""
    ident = f' id="{label}"' if label else ""
    text = f"<figcaption>{name}{caption}</figcaption>" if name or caption else ""
    token.content = f"<figure{ident}>{image}{text}</figure>"


def _sections(parser: MarkdownIt, tokens: Sequence[Token], document: Document) -> list[BodySection]:
    groups: list[tuple[str, str, list[Token]]] = [("text", "", [])]
    if document.ids.isdisjoint({"text"}):
        document.ids.add("text")
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.type == "heading_open" and token.tag == "h2":
            title = parser.renderer.render(list(tokens[index + 1].children or []), parser.options, {})
            groups.append((token.meta["id"], title, []))
            index += 3
            continue
        if token.type == "heading_open":
            token.attrSet("id", token.meta["id"])
        groups[-1][2].append(token)
        index += 1
    return [_section(parser, *group) for group in groups if group[1] or group[2]]


def _section(parser: MarkdownIt, ident: str, title: str, tokens: list[Token]) -> BodySection:
    html = parser.renderer.render(tokens, parser.options, {})
    text = "".join(_plain(child) for token in tokens for child in [*(token.children or []), _BREAK])
    return BodySection(ident, title, html, " ".join(text.split()))


_BREAK: Final = Token("softbreak", "", 0)


def _plain(token: Token) -> str:
    """What a reader without any markup would see; a formula as its TeX, a citation not at all."""
    if token.type in ("text", "code_inline"):
        return token.content
    if token.type in ("softbreak", "hardbreak"):
        return " "
    return f"${token.meta['source']}$" if token.type == "formula" else ""
