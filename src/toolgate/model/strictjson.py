"""The one JSON reader of every face, and the one writer.

JSON libraries disagree about duplicate keys, NaN, huge numbers and lone surrogates; whoever signs, hashes or authorises
what one of them read can be made to see something else than the next reader. So everything ambiguous is refused here,
once, before anything looks at the value.
"""

from __future__ import annotations

from functools import partial
from math import isfinite
from typing import Any, Final

import jiter
import orjson

MAX_BYTES: Final = 1024 * 1024
"""Body size in bytes: the largest argument object of any tool is far below, and one decode must stay under a few ms."""
MAX_DEPTH: Final = 32
"""Nesting levels: no schema of ours is deeper than 8; recursion attacks start in the hundreds."""
MAX_VALUES: Final = 20_000
"""Commas and opening brackets outside texts, which are at least as many as there are values. The largest arguments of our own
tools have 3000. A megabyte of `{},` has 300 000 values, and everything behind the reader looks at each of them: read,
validated and digested on the event loop, they would keep every other caller waiting for a fifth of a second."""
PLAIN_BYTES: Final = 16 * 1024
"""Texts up to this size are first read as if our own writer had made them, which takes half the time where it is true:
clients write without blanks. Where it is not, a longer text would have been read in vain."""
MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON reader in the field reads as the same number."""


_SHAPES: Final = {**dict.fromkeys(b"0123456789", b"0"), **dict.fromkeys(b"eE", b"e")}
_SHAPE: Final = b"".join(_SHAPES.get(byte, b"+" if byte == ord("+") else b" ") for byte in range(256))
"""Digits become 0, an exponent's letter e, a plus stays, anything else is a blank."""


_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")


_PLAIN: Final = (
    orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_STRICT_INTEGER
)
"""Encode the types that JSON has, and nothing that would have to be turned into one of them; no integer beyond 2^53-1."""


class JsonFault(ValueError):
    """The bytes are not JSON that every reader would read alike. `reason` is stable; the text never quotes the input."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def loads(data: bytes, *, max_bytes: int = MAX_BYTES, max_values: int | None = MAX_VALUES) -> Any:
    """Read one JSON value. Without `max_values` only our own files are read, or what never shares a process with callers.

    Raises: JsonFault: too large (`body_too_large`), too many values (`too_many_values`) or not strict JSON
    (`malformed_json`).
    """
    if len(data) > max_bytes:
        raise JsonFault("body_too_large", f"the JSON text is larger than {max_bytes} bytes")
    if len(data) <= PLAIN_BYTES:
        try:
            value = orjson.loads(data)
            # If re-encoding reproduces the input, no key was duplicated and every number is in its shortest form.
            if orjson.dumps(value, option=_PLAIN) == data and _is_shallow_and_plain(data):
                return value
        except (TypeError, ValueError):
            pass  # the strict reader says what is wrong
    elif max_values is not None and _has_more_values(data, max_values):
        raise JsonFault("too_many_values", f"the JSON text has more than {max_values} values")
    return _read_strictly(data)


def _has_more_values(data: bytes, most: int) -> bool:
    """Asked before anything is made of the text. Texts that are not JSON get an answer, too; the reader refuses them."""
    if data.count(b",") + _opened(data) < most:
        return False
    outside = _outside_texts(data, most * 2)  # each value has at most one name
    return outside is None or outside.count(b",") + _opened(outside) >= most


def _outside_texts(data: bytes, most: int) -> bytes | None:
    """The JSON without its texts; None if it holds more of them than `most`. A few scans in C."""
    pieces = data.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"', most * 2)
    return None if len(pieces) > most * 2 else b"".join(pieces[::2])


def _read_strictly(data: bytes) -> Any:
    """What every reader reads alike, however it is written. Raises: JsonFault: `malformed_json`."""
    try:
        value = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="keys")
    except ValueError as fault:
        # jiter names the fault and the place, and quotes at most a key: the place is useful, the quotation is not ours to echo.
        raise JsonFault("malformed_json", f"not strict JSON{_place(str(fault))}") from None
    except RecursionError:
        raise JsonFault("malformed_json", "not strict JSON: nested too deeply") from None
    if _may_be_odd(data):
        _check(value)
    return value


def encode_checked(value: Any) -> bytes:
    """Write a value that `loads` would have returned, and refuse any other: for what tools answer, which never was text.

    Raises: JsonFault.
    """
    try:
        encoded = orjson.dumps(value, option=_PLAIN)
    except TypeError:
        _check(value)
        raise JsonFault("malformed_json", "a text is not Unicode") from None
    # Reading it back shows in C what a walk over the value would: a tuple, NaN or UUID comes back as something else.
    if orjson.loads(encoded) != value or (
        not _is_shallow_and_plain(encoded) and (_may_hold_nul(encoded) or _may_be_deep(encoded))
    ):
        _check(value)
    return encoded


def _is_shallow_and_plain(data: bytes) -> bool:
    """True is certain: no NUL, and not nested too deeply: a bracket too many needs its twin, too. Most texts are so small that
    this is all there is to ask."""
    # find, not in: for bytes, `in` first tries the needle as a number, which makes and drops an exception.
    if data.find(b"\\") >= 0 and data.find(rb"\u0000") >= 0:
        return False
    return len(data) <= 2 * MAX_DEPTH or _opened(data) <= MAX_DEPTH


def _may_be_odd(data: bytes) -> bool:
    """Could text that the decoder took still hold what `_check` refuses? False is certain, True means: look at each value.

    A few scans in C instead of a walk in Python. NUL has one spelling; an integer beyond 2^53 has 16 digits; an overflow has
    16 digits or an exponent of three.
    """
    if _may_hold_nul(data) or _may_be_deep(data):
        return True
    shape = data.translate(_SHAPE)
    if shape.find(b"0000000000000000") >= 0:
        return True
    return shape.find(b"0e") >= 0 and (shape.find(b"0e0") >= 0 or shape.find(b"0e+") >= 0)


def _may_hold_nul(data: bytes) -> bool:
    # find, not in: for bytes, `in` first tries the needle as a number, which makes and drops an exception.
    return data.find(b"\\") >= 0 and data.find(rb"\u0000") >= 0


def _may_be_deep(data: bytes) -> bool:
    """Nesting cannot be deeper than there are opening brackets. Where there are more, pairs are taken away level by level."""
    if _opened(data) <= MAX_DEPTH:
        return False
    outside = _outside_texts(data, len(data))
    assert outside is not None  # there cannot be more texts than bytes
    brackets = outside.translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _opened(data: bytes) -> int:
    """How many arrays and objects begin, at most: brackets in a text count, too."""
    if len(data) <= PLAIN_BYTES:
        # Where there are few of them, to leave them out takes less than half the time of `count`, which looks at every byte.
        return len(data) - len(data.replace(b"[", b"").replace(b"{", b""))
    return data.count(b"[") + data.count(b"{")


def _place(text: str) -> str:
    """` at line 1 column 8` out of the library's message."""
    _, found, place = text.rpartition(" at line ")
    return f" at line {place}" if found else ""


def _check(value: Any) -> None:  # noqa: C901, PLR0912 (one branch a JSON type)
    """Refuse what the decoder lets through: infinities from 1e400, integers beyond 2^53-1, NUL in text, deep nesting.

    Level by level, so that depth is counted once a level and a plain value costs no call.
    """
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                if "\0" in item:
                    raise JsonFault("malformed_json", "a string contains NUL")
            elif kind is dict:
                for key in item:
                    if type(key) is not str:
                        raise JsonFault("malformed_json", "a key is not a string")
                    if "\0" in key:
                        raise JsonFault("malformed_json", "a key contains NUL")
                below += item.values() or _EMPTY
            elif kind is int:
                if not -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER:
                    raise JsonFault("malformed_json", "an integer is beyond ±(2^53-1) and would change between readers")
            elif kind is list:
                below += item or _EMPTY
            elif kind is float:
                if not isfinite(item):
                    raise JsonFault("malformed_json", "a number is too large for a double")
            elif item is not None and kind is not bool:
                raise JsonFault("malformed_json", "a value is not of a JSON type")
        if not below:
            return
        level = below
    raise JsonFault("malformed_json", f"nested more than {MAX_DEPTH} levels")


_EMPTY: Final = (None,)
"""Stands below an empty container, which is a level of its own."""

dumps: Final = orjson.dumps
"""Write compact JSON. Not canonical: what is signed goes through `toolgate.kit.canonical`."""

dumps_sorted: Final = partial(orjson.dumps, option=orjson.OPT_SORT_KEYS)
"""Write compact JSON with sorted keys: for digests of our own values, where both sides are this function."""

dumps_pretty: Final = partial(orjson.dumps, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
"""Write indented JSON for people."""
