"""Strangers' YAML as a tree of nodes with line and column: bounded, no duplicate keys, nothing constructed.

The C composer recurses once a level and kills the process on deep nesting, so the events are counted first: they come
from a parser that keeps its own stack.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

MAX_BYTES: Final = 1024 * 1024
"""Citation files and workflows are a few KB."""
MAX_DEPTH: Final = 64
"""Nesting levels: a workflow has about 8."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlFault(ValueError):
    """The text is not YAML we read. The message is one line and quotes nothing; `line` and `column` count from 1."""

    def __init__(self, text: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(text)
        self.line = line
        self.column = column


def compose(text: str) -> yaml.Node | None:
    """The root node; None for an empty document. Aliases stay references to one node.

    Raises: YamlFault: too large, nested too deeply, not YAML, more than one document, a key twice in one mapping.
    """
    if len(text) > MAX_BYTES:
        raise YamlFault(f"larger than {MAX_BYTES} characters")
    try:
        _require_shallow(text)
        root: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    except YamlFault:
        raise
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise YamlFault(f"not YAML: {fault.problem or fault.context or 'malformed'}", *place) from None
    except (yaml.YAMLError, ValueError):
        raise YamlFault("not YAML: a character is not allowed") from None
    if root is not None:
        _require_distinct_keys(root)
    return root


def scalar(node: yaml.Node | None) -> str | None:
    """The text of a plain value; None for anything else, and for null."""
    if isinstance(node, yaml.ScalarNode) and node.tag != "tag:yaml.org,2002:null":
        return str(node.value)
    return None


def get(node: yaml.Node | None, key: str) -> yaml.Node | None:
    """The value of a key of a mapping, if there."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if isinstance(name, yaml.ScalarNode) and name.value == key:
                found: yaml.Node = value
                return found
    return None


def items(node: yaml.Node | None) -> list[yaml.Node]:
    """The items of a sequence; none for anything else."""
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def place(node: yaml.Node) -> tuple[int, int]:
    """Line and column, from 1."""
    return node.start_mark.line + 1, node.start_mark.column + 1


def _require_shallow(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise YamlFault(f"nested more than {MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _require_distinct_keys(root: yaml.Node) -> None:
    pending, seen = [root], {id(root)}
    while pending:
        node = pending.pop()
        below: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                name = scalar(key)
                if name is not None and name in keys:
                    raise YamlFault("a key stands twice in one mapping", *place(key))
                keys.add(name or "")
                below += [key, value]
        elif isinstance(node, yaml.SequenceNode):
            below = node.value
        for one in below:
            if id(one) not in seen:
                seen.add(id(one))
                pending.append(one)
