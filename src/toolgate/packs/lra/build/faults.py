"""What is wrong with a source file, and on which line."""

from __future__ import annotations

from toolgate.errors import ToolError


class BuildFault(ToolError):
    """One line for people: `paper.md:12: there is no reference doe2020`."""

    def __init__(self, file: str, line: int | None, text: str) -> None:
        super().__init__("BUILD_FAILED", f"{file}:{line}: {text}" if line else f"{file}: {text}")
