"""What the log may know of arguments: a digest and a length, with everything marked secret replaced first."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from toolgate.model import strictjson

REPLACEMENT: Final = "[secret]"
"""Stands for a secret value before hashing: the digest says that one was sent, and nothing about it."""


def arguments_digest(secrets: tuple[tuple[str, ...], ...], arguments: Any) -> tuple[str, int]:
    """(SHA-256 over the sorted JSON of the arguments with secrets replaced, length of the arguments' own JSON).

    `secrets` are the paths of `"x-secret": true` in the tool's schema; `*` stands for every item of an array.
    """
    text = strictjson.dumps_sorted(arguments)
    if not secrets:
        return sha256(text).hexdigest(), len(text)
    redacted = arguments
    for path in secrets:
        redacted = _replaced(redacted, path)
    return sha256(strictjson.dumps_sorted(redacted)).hexdigest(), len(text)


def _replaced(value: Any, path: tuple[str, ...]) -> Any:
    """A copy with what lies at `path` replaced; the caller's own value stays as it is.

    Arguments are redacted before they are validated, so a value may be of another kind than the path expects. A kind
    that cannot be walked further down is replaced whole: whatever the caller meant, the secret may be inside.
    """
    if not path:
        return REPLACEMENT
    name, rest = path[0], path[1:]
    if name == "*":
        return [_replaced(item, rest) for item in value] if isinstance(value, list) else REPLACEMENT
    if isinstance(value, dict):
        return {**value, name: _replaced(value[name], rest)} if name in value else value
    return REPLACEMENT
