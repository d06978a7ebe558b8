"""Suggests the nearest known name, for messages about an unknown one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAX_NAME: Final = 64
"""Characters of a name that is compared: comparing takes the product of both lengths."""
ALIKE: Final = 0.6
"""How alike two names must be, as difflib counts."""


def nearest(name: str, known: Iterable[str], alike: float = ALIKE) -> str | None:
    """The known name that is most similar, if one is similar enough. Case and `-` for `_` make no difference."""
    from difflib import get_close_matches  # noqa: PLC0415 (5 ms that only a mistake costs)

    if len(name) > MAX_NAME:
        return None
    by_letters = {_letters(each): each for each in known}
    near = get_close_matches(_letters(name), by_letters, n=1, cutoff=alike)
    return by_letters[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest name as a question; nothing where none is near."""
    near = nearest(name, known)
    return f"Did you mean {near}?" if near is not None else ""


def _letters(name: str) -> str:
    return name.casefold().replace("-", "_")
