"""Strangers' YAML (and JSON, which is YAML's inside) as nodes that know their line and column; nothing is constructed.

Aliases stay references to one node, so an anchor bomb costs what it weighs. What two readers could read differently
(duplicate keys, tags other than `!!str`, a second document) is a fault here, not a guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES: Final = 512 * 1024
"""Bytes of one document: citation files are a few KB, real workflows end below 100 KB, and this many parse in half a
second at worst."""
MAX_NODES: Final = 50_000
"""Scalars, maps and lists of one document: bounds memory where size does not (`a,a,a,...`)."""


class YamlFault(ValueError):
    """The document cannot be read the one way everybody would. One line of text that quotes nothing of it but a key;
    `line` and `column` count from 1."""

    def __init__(self, line: int, text: str, column: int | None = None) -> None:
        super().__init__(text)
        self.line = line
        self.text = text
        self.column = column


class Scalar(NamedTuple):
    text: str
    line: int
    column: int
    plain: bool
    """Not quoted, not a block and not `!!str`: `null`, `3.10` and `true` have their special meaning only then."""
    block: bool = False
    """`|` or `>`: the text starts on the next line."""


class Sequence(NamedTuple):
    items: list[Node]
    line: int
    column: int


class Mapping(NamedTuple):
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
    from toolgate.kit import yamlevents  # noqa: PLC0415 (yaml, 10 ms, when there is YAML to read)

    return yamlevents.build(text, max_nodes)


def is_null(node: Node | None) -> bool:
    return node is None or (isinstance(node, Scalar) and node.plain and node.text in {"", "~", "null", "Null", "NULL"})


def text_of(node: Node | None) -> str | None:
    """The text of a value; None for null, for a list or a map, and for nothing."""
    return node.text if isinstance(node, Scalar) and not is_null(node) else None


def value_of(node: Node | None, key: str) -> Node | None:
    """The value of a key; None when it is not there, or the node is not a map."""
    return node.get(key) if isinstance(node, Mapping) else None


def items_of(node: Node | None) -> list[Node]:
    """The items of a list; none for anything else."""
    return node.items if isinstance(node, Sequence) else []
