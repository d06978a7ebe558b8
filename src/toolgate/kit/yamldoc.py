"""Strangers' YAML (and JSON, which is YAML's inside) as nodes that know their line and column; nothing is constructed.

Built from libyaml's event stream with a stack of our own: its composer recurses in C, and a hundred thousand opening
brackets end the process. Aliases stay references to one node, so an anchor bomb costs what it weighs. What two readers
could read differently (duplicate keys, tags other than `!!str`, a second document) is a fault here, not a guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES: Final = 512 * 1024
"""Bytes of one document: citation files are a few KB, real workflows end below 100 KB, and this many parse in half a
second at worst."""
MAX_NODES: Final = 50_000
"""Scalars, maps and lists of one document: bounds memory where size does not (`a,a,a,...`)."""
MAX_DEPTH: Final = 64
"""Levels: a workflow has about ten."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT_TAG: Final = "tag:yaml.org,2002:str"
"""`!!str`: says that the value is text, which is what a quoted value says too."""


class YamlFault(ValueError):
    """The document cannot be read the one way everybody would. One line of text that quotes nothing of it but a key;
    `line` and `column` count from 1."""

    def __init__(self, line: int, text: str, column: int | None = None) -> None:
        super().__init__(text)
        self.line = line
        self.text = text
        self.column = column


@dataclass(slots=True)
class Scalar:
    text: str
    line: int
    column: int
    plain: bool
    """Not quoted, not a block and not `!!str`: `null`, `3.10` and `true` have their special meaning only then."""
    block: bool = False
    """`|` or `>`: the text starts on the next line."""


@dataclass(slots=True)
class Sequence:
    items: list[Node]
    line: int
    column: int


@dataclass(slots=True)
class Mapping:
    entries: dict[str, tuple[Scalar, Node]]
    line: int
    column: int

    def get(self, key: str) -> Node | None:
        entry = self.entries.get(key)
        return None if entry is None else entry[1]

    def key_line(self, key: str) -> int:
        return self.entries[key][0].line

    def pairs(self) -> Iterator[tuple[Scalar, Node]]:
        return iter(self.entries.values())


Node: TypeAlias = "Scalar | Sequence | Mapping"


@dataclass(slots=True)
class _Open:
    """A collection whose end has not come yet."""

    node: Sequence | Mapping
    anchor: str | None
    key: Scalar | None = field(default=None)


def read(data: bytes, *, max_bytes: int = MAX_BYTES, max_nodes: int = MAX_NODES) -> Node | None:
    """The one document, or None when there is nothing but comments.

    Raises: YamlFault.
    """
    if len(data) > max_bytes:
        raise YamlFault(1, f"larger than {max_bytes} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise YamlFault(data.count(b"\n", 0, fault.start) + 1, "not UTF-8") from None
    try:
        return _build(yaml.parse(text, Loader=_LOADER), max_nodes)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, None)
        raise YamlFault(line, f"not YAML: {fault.problem or fault.context or 'malformed'}", column) from None
    except yaml.YAMLError:
        raise YamlFault(1, "not YAML: it holds characters that YAML forbids") from None


def _build(events: Iterator[Any], max_nodes: int) -> Node | None:
    anchors: dict[str, Node] = {}
    stack: list[_Open] = []
    root: Node | None = None
    documents = nodes = 0
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _fault(event, "more than one document")
            continue
        if isinstance(event, yaml.NodeEvent):
            nodes += 1
            if nodes > max_nodes:
                raise _fault(event, f"more than {max_nodes} values")
        if isinstance(event, yaml.CollectionStartEvent):
            if len(stack) == MAX_DEPTH:
                raise _fault(event, f"nested more than {MAX_DEPTH} levels")
            stack.append(_opened(event))
            continue
        finished = _finished(event, stack, anchors)
        if finished is None:
            continue
        if stack:
            _attach(stack[-1], finished, event)
        else:
            root = finished
    return root


def _opened(event: Any) -> _Open:
    if event.tag is not None:
        raise _fault(event, "an explicit tag (`!...`)")
    is_map = isinstance(event, yaml.MappingStartEvent)
    return _Open(Mapping({}, *_place(event)) if is_map else Sequence([], *_place(event)), event.anchor)


def _finished(event: Any, stack: list[_Open], anchors: dict[str, Node]) -> Node | None:
    """The node that is complete with this event, or None."""
    node: Node
    anchor: str | None = None
    if isinstance(event, yaml.ScalarEvent):
        node, anchor = _scalar(event), event.anchor
    elif isinstance(event, yaml.AliasEvent):
        # An alias inside its own anchor is not known yet, so no node can hold itself.
        if event.anchor not in anchors:
            raise _fault(event, "an alias without its anchor before it")
        return anchors[event.anchor]
    elif isinstance(event, yaml.CollectionEndEvent):
        opened = stack.pop()
        node, anchor = opened.node, opened.anchor
    else:
        return None
    if anchor is not None:
        anchors[anchor] = node
    return node


def _scalar(event: Any) -> Scalar:
    if event.tag not in (None, _TEXT_TAG):
        raise _fault(event, "an explicit tag (`!...`)")
    plain = event.style in (None, "") and event.tag is None
    return Scalar(event.value, *_place(event), plain=plain, block=event.style in ("|", ">"))


def _attach(parent: _Open, node: Node, event: Any) -> None:
    if isinstance(parent.node, Sequence):
        parent.node.items.append(node)
    elif parent.key is None:
        if not isinstance(node, Scalar):
            raise _fault(event, "a key that is not text")
        if node.text in parent.node.entries:
            raise _fault(event, f"a key stands twice in one mapping: {_shown(node.text)}")
        parent.key = node
    else:
        parent.node.entries[parent.key.text] = parent.key, node
        parent.key = None


def _place(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _fault(event: Any, text: str) -> YamlFault:
    line, column = _place(event)
    return YamlFault(line, text, column)


def _shown(key: str) -> str:
    return repr(key if len(key) <= 40 else key[:40] + "…")


def is_null(node: Node | None) -> bool:
    return node is None or (isinstance(node, Scalar) and node.plain and node.text in {"", "~", "null", "Null", "NULL"})


def text_of(node: Node | None) -> str | None:
    """The text of a value; None for null, for a list or a map, and for nothing."""
    return node.text if isinstance(node, Scalar) and not is_null(node) else None


def value_of(node: Node | None, key: str) -> Node | None:
    """The value of a key; None when it is not there, or the node is no map."""
    return node.get(key) if isinstance(node, Mapping) else None


def items_of(node: Node | None) -> list[Node]:
    """The items of a list; none for anything else."""
    return node.items if isinstance(node, Sequence) else []
