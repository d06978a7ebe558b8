"""Wire formats: pure codecs between messages and calls, and between answers and messages. They decide nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    from toolgate.faces.face import Face
    from toolgate.faces.reply import SchemaExplainer

FACES: Final = ("rpc", "mrt", "approvals", "mcp")
"""Each is a module here with `make(parts) -> list[Face]`, one for each address; one that is not there is not served.
Where faces share a stream they are asked in this order whose a message is, so what takes any message comes last."""


class Parts(Struct, frozen=True):
    """What faces are made of that is not theirs."""

    compiled: Callable[[Mapping[str, Any]], SchemaExplainer]
    """A JSON Schema, ready to check messages."""
    envelope: Callable[[], SchemaExplainer]
    """The schema of a request to `/rpc`, likewise."""
    short_name: Callable[[str], str]
    """A tool's canonical id -> its name."""
    text_bytes: int
    """How much of a tool's text an answer may carry."""
    mcp_text: str
    """What the text of an MCP answer is: `reader` or `envelope` (the setting `mcp.text`)."""
    resource_at: Callable[[str], tuple[str, dict[str, str]] | None] = lambda uri: None  # noqa: ARG005
    """An address -> the resource's name on the road, and the variables of its address."""


def make_faces(parts: Parts) -> list[Face]:
    there = [name for name in FACES if find_spec(f"{__name__}.{name}") is not None]
    return [face for name in there for face in import_module(f"{__name__}.{name}").make(parts)]
