"""The service worker's list of files, `const ASSETS = [...]`: read and rewritten as text, one string a line."""

from __future__ import annotations

import re
from typing import Final

_LIST: Final = re.compile(r"\bASSETS\s*=\s*\[([^\]]*)\]")
_STRING: Final = re.compile(r"\"([^\"\\\n]*)\"|'([^'\\\n]*)'")


def assets(code: str) -> list[str] | None:
    """The listed addresses; None when the worker has no such list."""
    match = _LIST.search(code)
    return [double or single for double, single in _STRING.findall(match[1])] if match else None


def line_of_assets(code: str) -> int:
    match = _LIST.search(code)
    return code.count("\n", 0, match.start()) + 1 if match else 1


def with_assets(code: str, names: list[str]) -> str:
    match = _LIST.search(code)
    if not match:
        return code
    listed = ", ".join(f'"{name}"' for name in names)
    return f"{code[: match.start()]}ASSETS = [{listed}]{code[match.end() :]}"
