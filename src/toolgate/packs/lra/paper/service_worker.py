"""The service worker's list of files, `const ASSETS = [...]`: read and rewritten as text, one string a line."""

from __future__ import annotations

import re
from typing import Final

_BEGIN: Final = re.compile(r"\bASSETS\s*+=\s*+\[")
_STRING: Final = re.compile(r"\"([^\"\\\n]*)\"|'([^'\\\n]*)'")


def assets(code: str) -> list[str] | None:
    """The listed addresses; None when the worker has no such list."""
    found = _list(code)
    return [double or single for double, single in _STRING.findall(code, found[1], found[2])] if found else None


def line_of_assets(code: str) -> int:
    found = _list(code)
    return code.count("\n", 0, found[0]) + 1 if found else 1


def with_assets(code: str, names: list[str]) -> str:
    found = _list(code)
    if not found:
        return code
    begin, _, end = found
    listed = ", ".join(f'"{name}"' for name in names)
    return f"{code[:begin]}ASSETS = [{listed}]{code[end + 1 :]}"


def _list(code: str) -> tuple[int, int, int] | None:
    """Where it begins, where its items begin, and its closing bracket: if the first list has none, no later one has."""
    begin = _BEGIN.search(code)
    end = code.find("]", begin.end()) if begin else -1
    return (begin.start(), begin.end(), end) if begin and end >= 0 else None
