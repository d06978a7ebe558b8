"""What is wrong with a source, file by file and line by line: collected, so that one run names everything.

This module, `source.py` and `convert.py` are imported before Pandoc is started, so they do without libraries.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from toolgate.errors import ToolError

MAX_SHOWN: Final = 200
"""Faults that are printed: who has more has one cause for many of them."""


class SourcePlace(NamedTuple):
    file: str
    line: int = 0
    """From 1; 0 when the form of the source has no lines (a Word document), or none can be told."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class SourceFault(NamedTuple):
    place: SourcePlace
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class SourceFaults:
    """What was found so far. Nothing is raised until everything has been looked at."""

    def __init__(self) -> None:
        self.found: list[SourceFault] = []

    def add(self, place: SourcePlace, text: str) -> None:
        fault = SourceFault(place, text)
        if fault not in self.found:
            self.found.append(fault)

    def stop_if_any(self) -> None:
        """Raises: BuildFault."""
        if self.found:
            raise BuildFault(self.found)


class BuildFault(ToolError):
    """The source has faults. One line each: `paper.md:12: there is no reference doe2020`."""

    def __init__(self, faults: list[SourceFault]) -> None:
        self.faults = sorted(faults)
        lines = [str(fault) for fault in self.faults[:MAX_SHOWN]]
        if len(faults) > MAX_SHOWN:
            lines.append(f"and {len(faults) - MAX_SHOWN} more")
        rows = [
            {"file": fault.place.file, "line": fault.place.line, "text": fault.text}
            for fault in self.faults[:MAX_SHOWN]
        ]
        super().__init__("BUILD_FAILED", "\n".join(lines), data={"faults": rows})
