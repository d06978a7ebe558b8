"""Objects of an input schema as types of their own, in the form in which the CEL library asks for them: protobuf descriptors.

The library's checker knows fields of messages and nothing else with names. It asks an object for files by two methods and reads
bytes, so no protobuf library is needed. No message is ever made: what runs is untyped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from toolgate.kit.conditions.declared import Shape

PACKAGE: Final = "object"
_FILE: Final = "object.proto"
_SCALARS: Final = {"double": 1, "int": 3, "bool": 8, "string": 9}
"""`FieldDescriptorProto.Type`."""
_MESSAGE: Final = 11
_OPTIONAL, _REPEATED = 1, 3
_KNOWN: Final = {"dyn": "google.protobuf.Value", "map<string, dyn>": "google.protobuf.Struct"}


class _File(Struct, frozen=True):
    serialized_pb: bytes


class Descriptors:
    """What the library takes for a descriptor pool."""

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        messages = [_message(name, shape) for name, shape in shapes.items()]
        used = [_text(3, f"google/protobuf/{name}.proto") for name in ("struct", "wrappers")]
        self._names = frozenset(shapes)
        self._file = _File(_text(1, _FILE) + _text(2, PACKAGE) + b"".join(used) + b"".join(messages))

    def FindFileContainingSymbol(self, name: str) -> _File:  # noqa: N802 (the library's word)
        """Raises: KeyError."""
        if name not in self._names:
            raise KeyError(name)
        return self._file

    def FindFileByName(self, name: str) -> _File:  # noqa: N802 (the library's word)
        """Raises: KeyError."""
        if name != _FILE:
            raise KeyError(name)
        return self._file


def _message(name: str, shape: Shape) -> bytes:
    fields = [_field(at, each, declared.type) for at, (each, declared) in enumerate(shape.fields.items(), 1)]
    return _bytes(4, _text(1, name.removeprefix(f"{PACKAGE}.")) + b"".join(fields))


def _field(number: int, name: str, kind: str) -> bytes:
    repeated = kind.startswith("list<")
    item = kind.removeprefix("list<")[:-1] if repeated else kind
    if item.startswith("list<"):  # protobuf has no list of lists
        repeated, item = False, "dyn"
    written = _text(1, name) + _number(3, number) + _number(4, _REPEATED if repeated else _OPTIONAL)
    if item in _SCALARS:
        written += _number(5, _SCALARS[item])
    else:
        written += _number(5, _MESSAGE) + _text(6, f".{_KNOWN.get(item, item)}")
    # Of two names that are one in JSON (a_b, aB) the library would take neither.
    return _bytes(2, written + _text(10, f"f{number}"))


def _text(number: int, text: str) -> bytes:
    return _bytes(number, text.encode())


def _bytes(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
