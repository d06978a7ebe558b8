"""One call on its way: who asks, for what, over which wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct, field

FaceName = Literal["mcp", "mrt", "rpc", "cli"]
Transport = Literal["http", "stdio"]
Role = Literal["builder", "committer", "admin"]
ROLES: tuple[Role, ...] = ("builder", "committer", "admin")
Tier = Literal["authoritative", "experimental"]
Environment = Literal["local", "cloud"]


class Caller(Struct, frozen=True):
    """An authenticated caller. There is no anonymous one: without a key there is no Caller at all."""

    key_id: str
    role: Role
    label: str = ""


class Wire(Struct, frozen=True):
    """Where a call came in. Recorded, never decided upon."""

    face: FaceName
    transport: Transport
    route: str


def no_progress(done: int, total: int | None, message: str) -> None:
    """For callers that did not ask."""


class Call(Struct, frozen=True):
    """A tool and its arguments, as one face read them from the wire. `tool` is the short name on every face."""

    wire: Wire
    tool: str
    arguments: Any = field(default_factory=dict)
    wants_text: bool = False
    """The face shows the tool's plain-text form (stdout)."""
    progress: Callable[[int, int | None, str], None] = no_progress
