"""Canonical JSON (RFC 8785): one spelling for each value, for everything that is signed.

Only values that `toolgate.model.strictjson` could have read are taken: what another reader might read differently must
never come under a signature.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

import rfc8785

from toolgate.model.strictjson import MAX_DEPTH, MAX_SAFE_INTEGER

_EXPONENT_FROM: Final = 1e21
"""From here on ECMAScript, and so RFC 8785, writes numbers with an exponent."""


class NotCanonicalError(ValueError):
    """The value has no single spelling. The text names the kind of fault, never the value."""


def dumps(value: Any) -> bytes:
    """Raises: NotCanonicalError: not a JSON type, or NaN, a huge integer, a lone surrogate, NUL, too deep."""
    _refuse_ambiguous(value, MAX_DEPTH)
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        raise NotCanonicalError("a string is not valid Unicode") from None


def _refuse_ambiguous(value: Any, depth: int) -> None:
    kind = type(value)
    if kind is str:
        _refuse_nul(value)
    elif kind is int:
        if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            raise NotCanonicalError("an integer is beyond ±(2^53-1)")
    elif kind is float:
        _refuse_bad_float(value)
    elif kind is dict or kind is list:
        if not depth:
            raise NotCanonicalError(f"nested more than {MAX_DEPTH} levels")
        _refuse_ambiguous_items(value, depth)
    elif value is not None and kind is not bool:
        raise NotCanonicalError(f"{kind.__name__} is not a JSON type")


def _refuse_ambiguous_items(value: dict[Any, Any] | list[Any], depth: int) -> None:
    if isinstance(value, list):
        for item in value:
            _refuse_ambiguous(item, depth - 1)
        return
    for key, item in value.items():
        if type(key) is not str:
            raise NotCanonicalError("a key is not text")
        _refuse_nul(key)
        _refuse_ambiguous(item, depth - 1)


def _refuse_bad_float(value: float) -> None:
    if not isfinite(value):
        raise NotCanonicalError("a number is not finite")
    # RFC 8785 spells these without an exponent, so a reader takes them for integers that it cannot hold exactly.
    if MAX_SAFE_INTEGER < abs(value) < _EXPONENT_FROM:
        raise NotCanonicalError("a number would be spelt as an integer beyond ±(2^53-1)")


def _refuse_nul(text: str) -> None:
    if "\0" in text:
        raise NotCanonicalError("a string contains NUL")
