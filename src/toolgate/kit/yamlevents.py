"""Nodes of `yamldoc` from libyaml's event stream, with a stack of our own: its composer recurses in C, and a hundred
thousand opening brackets end the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from toolgate.kit.yamldoc import Mapping, Scalar, Sequence, YamlFault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.kit.yamldoc import Node

MAX_DEPTH: Final = 64
"""Levels: a workflow has about ten."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT_TAG: Final = "tag:yaml.org,2002:str"
"""`!!str`: says that the value is text, which is what a quoted value says too."""


class _Open:
    """A collection whose end has not come yet."""

    __slots__ = ("anchor", "key", "node")

    def __init__(self, node: Sequence | Mapping, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.key: Scalar | None = None


def build(text: str, max_nodes: int) -> Node | None:
    """The one document of the text. Raises: YamlFault."""
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
