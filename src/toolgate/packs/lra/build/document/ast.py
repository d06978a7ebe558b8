"""Pandoc's document as JSON: nodes `{"t": kind, "c": content}`, made, searched and rewritten."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

Node: TypeAlias = dict[str, Any]
Nodes: TypeAlias = list[Node]
Action: TypeAlias = Callable[[Node], Nodes | None]
"""What becomes of a node: other nodes in its place, or None: it stays, and its inside is looked at."""

SPACE: Final[Node] = {"t": "Space"}
BREAKS: Final = frozenset({"Space", "SoftBreak", "LineBreak"})
BLOCKS: Final = frozenset(
    {"Plain", "Para", "LineBlock", "CodeBlock", "RawBlock", "BlockQuote", "OrderedList", "BulletList", "DefinitionList"}
    | {"Header", "HorizontalRule", "Table", "Figure", "Div"}
)

INLINES: Final = frozenset(
    {
        "Str",
        "Emph",
        "Underline",
        "Strong",
        "Strikeout",
        "Superscript",
        "Subscript",
        "SmallCaps",
        "Quoted",
        "Cite",
        "Code",
    }
    | {"Space", "SoftBreak", "LineBreak", "Math", "RawInline", "Link", "Image", "Note", "Span"}
)


# -- making --------------------------------------------------------------------------------------------------


def attr(ident: str = "", classes: Iterable[str] = (), pairs: Mapping[str, str] | None = None) -> list[Any]:
    return [ident, list(classes), [list(pair) for pair in (pairs or {}).items()]]


def words(text: str) -> Nodes:
    """Plain text as inlines."""
    found: Nodes = []
    for word in text.split(" "):
        if found:
            found.append(SPACE)
        if word:
            found.append({"t": "Str", "c": word})
    return found


def html(text: str) -> Node:
    return {"t": "RawBlock", "c": ["html", text]}


def html_inline(text: str) -> Node:
    return {"t": "RawInline", "c": ["html", text]}


def plain(inlines: Nodes) -> Node:
    return {"t": "Plain", "c": inlines}


def para(inlines: Nodes) -> Node:
    return {"t": "Para", "c": inlines}


def strong(inlines: Nodes) -> Node:
    return {"t": "Strong", "c": inlines}


def span(inlines: Nodes, classes: Iterable[str] = (), pairs: Mapping[str, str] | None = None) -> Node:
    return {"t": "Span", "c": [attr("", classes, pairs), inlines]}


def div(blocks: Nodes, ident: str = "", classes: Iterable[str] = (), pairs: Mapping[str, str] | None = None) -> Node:
    return {"t": "Div", "c": [attr(ident, classes, pairs), blocks]}


def link(inlines: Nodes, target: str, classes: Iterable[str] = ()) -> Node:
    return {"t": "Link", "c": [attr("", classes), inlines, [target, ""]]}


def header(level: int, ident: str, inlines: Nodes) -> Node:
    return {"t": "Header", "c": [level, attr(ident), inlines]}


# -- attributes ----------------------------------------------------------------------------------------------


def attr_of(node: Node) -> list[Any]:
    """`[id, classes, pairs]` of a node that has them. Raises: KeyError."""
    at = _ATTR_AT[node["t"]]
    found: list[Any] = node["c"][at]
    return found


_ATTR_AT: Final = {
    "Header": 1,
    "Div": 0,
    "CodeBlock": 0,
    "Table": 0,
    "Figure": 0,
    "Span": 0,
    "Link": 0,
    "Image": 0,
    "Code": 0,
}


# -- reading -------------------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """What a reader sees of inlines or blocks, as plain text; notes and comments are left out."""
    return " ".join("".join(_pieces(value)).split())


def spoken(value: Any) -> str:
    """The same without citations: for a picture's text, or a summary that stands alone."""
    return re.sub(r"\s+(?=[.,;:)])|\(\s*\)", "", text_of(rewrite(value, {"Cite": lambda _: []})))


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _pieces(item)
    elif isinstance(value, dict) and "t" in value:
        yield from _piece(value)


def _piece(node: Node) -> Iterator[str]:
    kind = node["t"]
    if kind == "Str":
        yield node["c"]
    elif kind in BREAKS:
        yield " "
    elif kind in {"Code", "Math", "CodeBlock"}:
        yield node["c"][1]
    elif kind == "Quoted":
        left, right = ("‘", "’") if node["c"][0]["t"] == "SingleQuote" else ("“", "”")
        yield left
        yield from _pieces(node["c"][1])
        yield right
    elif kind == "Cite":
        yield from _pieces(node["c"][1])
    elif kind not in {"Note", "RawInline", "RawBlock"}:
        if kind in BLOCKS:
            yield " "
        yield from _pieces(node.get("c"))


def each(value: Any, kind: str) -> Iterator[Node]:
    """All nodes of a kind, outermost first."""
    if isinstance(value, list):
        for item in value:
            yield from each(item, kind)
    elif isinstance(value, dict):
        if value.get("t") == kind:
            yield value
        for item in value.values():
            if isinstance(item, list | dict):
                yield from each(item, kind)


# -- rewriting -----------------------------------------------------------------------------------------------


def rewrite(value: Any, actions: Mapping[str, Action]) -> Any:
    """The same value with every node of a named kind replaced by what its action gives, from the outside in."""
    if isinstance(value, list):
        return _rewrite_list(value, actions)
    if isinstance(value, dict):
        return {key: rewrite(item, actions) if isinstance(item, list | dict) else item for key, item in value.items()}
    return value


def _rewrite_list(value: list[Any], actions: Mapping[str, Action]) -> list[Any]:
    found: list[Any] = []
    for item in value:
        if isinstance(item, dict):
            action = actions.get(item.get("t", ""))
            new = action(item) if action is not None else None
            if new is not None:
                found += new
            else:
                found.append(item if _is_leaf(item) else rewrite(item, actions))
        else:
            found.append(_rewrite_list(item, actions) if isinstance(item, list) else item)
    return found


def _is_leaf(node: Node) -> bool:
    """A word or a blank: most of a document, and nobody changes one in place."""
    return "t" in node and not isinstance(node.get("c"), list | dict)
