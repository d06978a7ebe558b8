"""Strangers' YAML (and JSON, which is YAML's inside) as nodes with line numbers.

Built from libyaml's event stream with a stack of our own: its composer recurses in C, and a hundred thousand opening
brackets end the process. Aliases stay references to one node, so an anchor bomb costs what it weighs. What two readers
could read differently (duplicate keys, tags, a second document) is a fault here, not a guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES: Final = 512 * 1024
"""Bytes of one document: real workflows end below 100 KB, and this many parse in half a second at worst."""
MAX_NODES: Final = 50_000
"""Scalars, maps and lists of one document: bounds memory where size does not (`a,a,a,...`)."""
MAX_DEPTH: Final = 64
"""Levels: a workflow has about ten."""


class YamlFault(ValueError):
    """The document cannot be read the one way everybody would. The text quotes nothing of it but a key."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


@dataclass(slots=True)
class Scalar:
    text: str
    line: int
    plain: bool
    """Not quoted and not a block: `null`, `3.10` and `true` have their special meaning only then."""
    block: bool = False
    """`|` or `>`: the text starts on the next line."""


@dataclass(slots=True)
class Sequence:
    items: list[Node]
    line: int


@dataclass(slots=True)
class Mapping:
    entries: dict[str, tuple[Scalar, Node]]
    line: int

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
        return _build(yaml.parse(text, Loader=yaml.CSafeLoader), max_nodes)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark
        raise YamlFault(mark.line + 1 if mark else 1, f"not YAML: {fault.problem}") from None
    except yaml.YAMLError:
        raise YamlFault(1, "not YAML: it holds characters that YAML forbids") from None


def _build(events: Iterator[Any], max_nodes: int) -> Node | None:
    anchors: dict[str, Node] = {}
    stack: list[_Open] = []
    root: Node | None = None
    documents = nodes = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise YamlFault(line, "more than one document")
            continue
        if isinstance(event, yaml.NodeEvent):
            nodes += 1
            if nodes > max_nodes:
                raise YamlFault(line, f"more than {max_nodes} values")
        if isinstance(event, yaml.CollectionStartEvent):
            _refuse_tag(event, line)
            if len(stack) == MAX_DEPTH:
                raise YamlFault(line, f"nested more than {MAX_DEPTH} levels")
            is_map = isinstance(event, yaml.MappingStartEvent)
            started = Mapping({}, line) if is_map else Sequence([], line)
            stack.append(_Open(started, event.anchor))
            continue
        finished = _finished(event, line, stack, anchors)
        if finished is None:
            continue
        if stack:
            _attach(stack[-1], finished, line)
        else:
            root = finished
    return root


def _finished(event: Any, line: int, stack: list[_Open], anchors: dict[str, Node]) -> Node | None:
    """The node that is complete with this event, or None."""
    node: Node
    anchor: str | None = None
    if isinstance(event, yaml.ScalarEvent):
        _refuse_tag(event, line)
        node = Scalar(event.value, line, plain=event.style in (None, ""), block=event.style in ("|", ">"))
        anchor = event.anchor
    elif isinstance(event, yaml.AliasEvent):
        # An alias inside its own anchor is not known yet, so no node can hold itself.
        if event.anchor not in anchors:
            raise YamlFault(line, "an alias without its anchor before it")
        return anchors[event.anchor]
    elif isinstance(event, yaml.CollectionEndEvent):
        opened = stack.pop()
        node, anchor = opened.node, opened.anchor
    else:
        return None
    if anchor is not None:
        anchors[anchor] = node
    return node


def _attach(parent: _Open, node: Node, line: int) -> None:
    if isinstance(parent.node, Sequence):
        parent.node.items.append(node)
    elif parent.key is None:
        if not isinstance(node, Scalar):
            raise YamlFault(line, "a key that is not text")
        if node.text in parent.node.entries:
            raise YamlFault(node.line, f"duplicate key {_shown(node.text)}")
        parent.key = node
    else:
        parent.node.entries[parent.key.text] = parent.key, node
        parent.key = None


def _refuse_tag(event: Any, line: int) -> None:
    if event.tag is not None:
        raise YamlFault(line, "an explicit tag (`!...`)")


def _shown(key: str) -> str:
    return repr(key if len(key) <= 40 else key[:40] + "…")


def is_null(node: Node | None) -> bool:
    return node is None or (isinstance(node, Scalar) and node.plain and node.text in {"", "~", "null", "Null", "NULL"})
