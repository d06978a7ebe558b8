"""What the log may know of arguments: everything marked secret is replaced before they are hashed, and of chosen tools it
keeps chosen fields (`[ledger.keep]`), short, and no secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import SettingsError
from toolgate.gate.keys import without_keys
from toolgate.model import strictjson

if TYPE_CHECKING:
    from toolgate.gate.validate import SecretPaths
    from toolgate.model.tool import Tool

REPLACEMENT: Final = "[secret]"
"""Stands for a secret value before hashing: the digest says that one was sent, and nothing about it."""

MAX_FIELDS: Final = 8
"""Of one tool: what tells calls apart. Whoever wants all arguments wants another log."""
MAX_TEXT: Final = 256
"""Characters of a value: a name, a path, a ticket."""


def check_kept(keep: Mapping[str, Sequence[str]], tools: Mapping[str, Tool]) -> None:
    """Raises: SettingsError: no such tool, no such argument, too many, or one that may hold a secret."""
    for name, chosen in keep.items():
        place = f"ledger.keep.{name}"
        if name not in tools:
            raise SettingsError(f"{place}: there is no tool {name}.\nSee: toolgate tools list")
        if len(chosen) > MAX_FIELDS:
            raise SettingsError(f"{place} names {len(chosen)} arguments.\nChoose at most {MAX_FIELDS}.")
        schema = tools[name].input_schema
        known = schema.get("properties", {})
        for argument in chosen:
            if argument not in known:
                raise SettingsError(
                    f"{place}: {name} has no argument {argument}.\nIt takes: {', '.join(known) or 'none'}."
                )
            if _may_hold_secret(known[argument], schema):
                raise SettingsError(f"{place}: {argument} is secret, and no secret is written down.\nLeave it out.")


def kept(chosen: Sequence[str], arguments: Any) -> dict[str, Any] | None:
    """The arguments that the record keeps. They are not validated yet. None: it keeps nothing."""
    if not chosen or not isinstance(arguments, dict):
        return None
    found = {name: _short(arguments[name]) for name in chosen if name in arguments}
    return {"arguments": found} if found else None


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else strictjson.dumps(value).decode()
    safe = without_keys(text)
    if len(safe) > MAX_TEXT:
        return f"{safe[:MAX_TEXT]}... ({len(text)} characters)"
    return value if safe == text else safe


def _may_hold_secret(schema: Any, whole: Mapping[str, Any]) -> bool:
    """Anywhere below; what a reference points to is not followed, so then nothing in the tool's schema may be secret."""
    if _has(schema, "$ref") or _has(schema, "$dynamicRef"):
        return _has(whole, "x-secret")
    return whole.get("x-secret") is True or _has(schema, "x-secret")


def _has(node: Any, name: str) -> bool:
    if isinstance(node, Mapping):
        return name in node or any(_has(value, name) for value in node.values())
    return isinstance(node, list | tuple) and any(_has(value, name) for value in node)


def redacted(secrets: SecretPaths, arguments: Any) -> Any:
    """A copy of the arguments without what lies at `secrets`, the paths of `"x-secret": true` in the tool's schema; `*`
    stands for every item of an array."""
    for path in secrets:
        arguments = _replaced(arguments, path)
    return arguments


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
