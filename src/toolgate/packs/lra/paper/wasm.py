"""Is this a WebAssembly module? Its structure is read, nothing is run: header, sections in order, sizes that fit,
bodies for all functions, and at least one exported function, without which it can show nothing."""

from __future__ import annotations

from typing import Final

_HEADER: Final = b"\0asm\x01\0\0\0"
_CUSTOM, _FUNCTION, _EXPORT, _CODE = 0, 3, 7, 10
_ORDER: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 13: 6, 6: 7, 7: 8, 8: 9, 9: 10, 12: 11, 10: 12, 11: 13}
"""Where each section id may stand: the tag section (13) after memories, the data count (12) before the code."""
_FUNCTION_EXPORT: Final = 0
_MAX_U32_BYTES: Final = 5


def fault(data: bytes) -> str | None:
    """Why this is not a module that could be evidence, in a few words; None when it is one."""
    if data[:4] != _HEADER[:4]:
        return "it does not begin with the WebAssembly magic bytes"
    if data[: len(_HEADER)] != _HEADER:
        return "its version is not 1"
    try:
        sections = _sections(data)
        if not sections:
            return "it is empty"
        functions = _u32(sections.get(_FUNCTION, b"\0"), 0)[0]
        bodies = _u32(sections.get(_CODE, b"\0"), 0)[0]
        if functions != bodies:
            return f"it declares {functions} functions and has {bodies} bodies"
        if not _exports_a_function(sections.get(_EXPORT, b"\0")):
            return "it exports no function"
    except ValueError as reason:
        return str(reason)
    return None


def _sections(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    position, last = len(_HEADER), 0
    while position < len(data):
        ident = data[position]
        size, start = _u32(data, position + 1)
        position = start + size
        if position > len(data):
            raise ValueError("a section is longer than the file")
        if ident == _CUSTOM:
            continue
        order = _ORDER.get(ident)
        if order is None:
            raise ValueError(f"section {ident} does not exist")
        if order <= last:
            raise ValueError("its sections are out of order")
        last = order
        found[ident] = data[start:position]
    return found


def _exports_a_function(section: bytes) -> bool:
    count, position = _u32(section, 0)
    for _ in range(count):
        length, position = _u32(section, position)
        position += length
        if position >= len(section):
            raise ValueError("its export section is cut short")
        kind = section[position]
        _, position = _u32(section, position + 1)
        if kind == _FUNCTION_EXPORT:
            return True
    return False


def _u32(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned LEB128 number and the position after it."""
    value = 0
    for index in range(_MAX_U32_BYTES):
        if position + index >= len(data):
            raise ValueError("it is cut short")
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise ValueError("a number is longer than 32 bits")
