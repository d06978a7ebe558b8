"""What the build asks of Pandoc. The program itself is started by the commands (`cli/pandoc.py`), never by a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, field


class Converted(Struct, frozen=True):
    data: bytes
    messages: list[dict[str, Any]]
    """Pandoc's own log, as JSON: `type`, `pretty`, and `line` where it knows one."""
    media: dict[str, bytes] = field(default_factory=dict)
    """Pictures that were inside the source."""
    error: str = ""
    """What Pandoc said when it gave up; then there is no data."""


class Pending(Protocol):
    def result(self) -> Converted:
        """Wait for it. Raises: ToolError UNAVAILABLE: it took too long, or too much memory."""
        ...


class Converter(Protocol):
    def start(
        self, arguments: Sequence[str], data: bytes, files: Mapping[str, bytes] | None = None, *, media: bool = False
    ) -> Pending:
        """Convert `data`; `files` are those that the arguments name. Several may run at once."""
        ...
