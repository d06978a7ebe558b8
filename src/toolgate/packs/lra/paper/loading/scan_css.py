"""What a style sheet loads: `url()`, `@import`, `image-set()`, with line and column."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import tinycss2
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Tokenising costs a millisecond per 10 KB; most sheets load nothing, and say so by lacking all of these.
_MAY_LOAD: Final = re.compile(r"url\s*\(|@import|image-set|src\s*\(|\\", re.IGNORECASE)
_ENDLESS_NUMBER: Final = re.compile(r"[0-9]{1000,}+")
"""More digits than Python turns into a number, which the tokenizer would try."""
_LOADING_FUNCTIONS: Final = frozenset({"url", "src", "image-set", "-webkit-image-set", "image"})


class CssLoad(Struct, frozen=True):
    url: str
    line: int
    column: int
    is_import: bool = False


def loads(css: str) -> list[CssLoad]:
    """Of a whole style sheet."""
    if not _MAY_LOAD.search(css):
        return []
    return list(_of_nodes(tinycss2.parse_stylesheet(_tame(css), skip_comments=True, skip_whitespace=True)))


def loads_of_style(css: str) -> list[CssLoad]:
    """Of a `style` attribute or a presentation attribute."""
    if not _MAY_LOAD.search(css):
        return []
    return list(_of_nodes(tinycss2.parse_component_value_list(_tame(css), skip_comments=True)))


def _tame(css: str) -> str:
    """Letters instead of the digits of endless numbers: nothing moves, and no load is a number."""
    return _ENDLESS_NUMBER.sub(lambda found: "x" * len(found[0]), css)


def _of_nodes(nodes: Sequence[Any]) -> Iterator[CssLoad]:
    """Depth first with a stack of our own: a sheet may nest deeper than Python recurses."""
    stack: list[tuple[Any, str]] = [(node, "") for node in reversed(nodes)]
    while stack:
        node, function = stack.pop()
        kind = node.type
        if kind == "url":
            yield CssLoad(node.value, node.source_line, node.source_column, function == "@import")
        elif kind == "string":
            if function == "@import" or function in _LOADING_FUNCTIONS:
                yield CssLoad(node.value, node.source_line, node.source_column, function == "@import")
        elif kind == "function":
            inner = node.lower_name if node.lower_name in _LOADING_FUNCTIONS else ""
            inner = "@import" if function == "@import" and inner == "url" else inner
            stack.extend((child, inner) for child in reversed(node.arguments))
        elif kind == "at-rule":
            if node.lower_at_keyword == "namespace":
                continue  # its url() is a name, nothing is loaded
            word = "@import" if node.lower_at_keyword == "import" else ""
            stack.extend((child, "") for child in reversed(node.content or ()))
            stack.extend((child, word) for child in reversed(node.prelude))
        else:
            stack.extend((child, "") for child in reversed(_content(node)))


def _content(node: Any) -> Sequence[Any]:
    """The children of a rule or a bracketed block."""
    prelude = getattr(node, "prelude", None) or []
    content = getattr(node, "content", None) or []
    return [*prelude, *content]
