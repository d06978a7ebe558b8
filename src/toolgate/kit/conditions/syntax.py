"""The syntax tree of a condition, read from the bytes in which the CEL library hands it out (`cel.expr.ParsedExpr`), and the
types that its checker found (`cel.expr.CheckedExpr`).

Only what is looked at: names, constants, calls, loops and where each stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack
from typing import Any, Final

from msgspec import Struct

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2


class SyntaxNode(Struct, frozen=True):
    """One expression. `kind` says which of the other fields count."""

    kind: str
    """const, name, select, call, list, loop or other."""
    offset: int
    """Characters before it in the text of the condition."""
    name: str = ""
    """Of a name, a field, a function, or of what a loop calls each item."""
    value: Any = None
    """Of a constant."""
    parts: tuple[SyntaxNode, ...] = ()
    """What it is made of: the operand of a select, the target and arguments of a call, the items of a list; of a loop what it
    goes over, and then the rest."""
    is_test: bool = False
    """A select that stands in `has(...)`."""
    id: int = 0

    def walk(self) -> Iterator[SyntaxNode]:
        yield self
        for part in self.parts:
            yield from part.walk()

    def path(self) -> str | None:
        """`args.options.depth`; None: it is not a chain of names."""
        if self.kind == "name":
            return self.name
        if self.kind == "select":
            before = self.parts[0].path()
            return None if before is None else f"{before}.{self.name}"
        return None


def read(serialized: bytes) -> SyntaxNode:
    """The tree of an expression that was not checked: checking replaces chains of names."""
    parsed = _first(serialized, 2)  # a google.protobuf.Any
    positions = dict(_position(entry) for number, entry in _fields(_first(parsed, 3)) if number == 4)
    return _node(_first(parsed, 2), positions)


def message_types(serialized: bytes) -> dict[int, str]:
    """Of an expression that was checked: the id of each part that is a message, and its type."""
    entries = (dict(_fields(entry)) for number, entry in _fields(_first(serialized, 2)) if number == 3)
    found = ((entry.get(1, 0), dict(_fields(entry.get(2, b""))).get(9)) for entry in entries)
    return {at: name.decode() for at, name in found if name is not None}


def _position(entry: bytes) -> tuple[int, int]:
    found = dict(_fields(entry))
    return found.get(1, 0), found.get(2, 0)


def _node(data: bytes, positions: dict[int, int]) -> SyntaxNode:
    found = dict(_fields(data))
    at = found.get(2, 0)
    offset = positions.get(at, 0)
    if 3 in found:
        return SyntaxNode("const", offset, value=_constant(found[3]), id=at)
    if 4 in found:
        return SyntaxNode("name", offset, name=_text(found[4], 1), id=at)
    kind, name, below, is_test = "other", "", [], False
    if 5 in found:
        kind, name, below = "select", _text(found[5], 2), [_first(found[5], 1)]
        is_test = bool(dict(_fields(found[5])).get(3))
    elif 6 in found:
        kind, name = "call", _text(found[6], 2)
        below = [value for number, value in _fields(found[6]) if number in (1, 3)]
    elif 7 in found:
        kind, below = "list", [each for number, each in _fields(found[7]) if number == 1]
    elif 8 in found:
        below = [each for number, entry in _fields(found[8]) if number == 2 for each in _entry(entry)]
    elif 9 in found:
        kind, name = "loop", _text(found[9], 1)
        below = [each for number, each in _fields(found[9]) if number in _COMPREHENSION]
    parts = tuple(_node(each, positions) for each in below)
    return SyntaxNode(kind, offset, name, None, parts, is_test, at)


def _entry(data: bytes) -> Iterator[bytes]:
    """Key and value of one entry of a map."""
    return (value for number, value in _fields(data) if number in (3, 4))


_COMPREHENSION: Final = frozenset({2, 4, 5, 6, 7})
"""Fields of a comprehension that hold expressions: range, start, condition, step, result."""


def _constant(data: bytes) -> Any:
    number, value = next(_fields(data))
    match number:
        case 1:
            return None
        case 2:
            return bool(value)
        case 3:
            return value - (1 << 64) if value >= 1 << 63 else value
        case 5:
            return unpack("<d", value)[0]
        case 6:
            return value.decode()
    return value


def _text(data: bytes, number: int) -> str:
    return str(dict(_fields(data)).get(number, b"").decode())


def _first(data: bytes, number: int) -> bytes:
    return next((value for at, value in _fields(data) if at == number), b"")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: whole numbers, or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if key & 7 == _BYTES:
            size, at = _varint(data, at)
        else:
            size = 8 if key & 7 == _FIXED64 else 4
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
