"""The governance envelope: what every tool answer is wrapped in, on every face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolgate.errors import Ending

if TYPE_CHECKING:
    from toolgate.model.call import Environment, Tier
    from toolgate.model.tool import Decision

L0_ONLY_CODES = frozenset({"INVARIANT_VIOLATION", "CONSENT_REQUIRED"})
"""Codes that bind. An experimental tool that says one is clamped."""


class Clamp(Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """What the floor took away: which rule, which field, from what to what."""

    rule: str
    field: str
    before: Any
    after: Any


class Envelope(Struct, frozen=True):
    success: bool
    tier: Tier
    environment: Environment
    request_id: str
    timestamp: str
    code: str | None = None
    message: str | None = None
    is_error: bool | None = None
    decision: Decision | None = None
    degraded: bool | None = None
    data: Any = None
    clamps: tuple[Clamp, ...] = ()
    details: Any = None
    """What goes with a failure; it has no schema."""
    notes: tuple[str, ...] = ()
    """Why the environment is what it is, when a configured store stopped answering."""


class Answer(Struct, frozen=True):
    """What leaves the road: how the call ended, and what a face needs to spell it."""

    ending: Ending
    tool: str | None
    request_id: str
    timestamp: str
    details: Mapping[str, Any] | None = None
    """For refusals and tool errors: `{"reason": ...}`, `{"role": ...}`."""
    text: str | None = None
    """The sentence for people that goes with it."""
    envelope: Envelope | None = None
    """Present whenever a tool was reached (steps 4-9)."""
    envelope_json: bytes = b"null"
    """The envelope with its place in the audit log, as every face sends it: encoded once, spliced wherever it is needed."""
    stdout: str = ""
    """What a command line would print: the tool's text, or its data as indented JSON."""
    exit_code: int = 0
    audit: Mapping[str, Any] | None = None
    retry_after_s: int | None = None
    adopted: bool = False
    """The tool is an upstream's: its own schema says what `structuredContent` may be, and that is no envelope."""
    content: Sequence[Mapping[str, Any]] = ()
    """Images and the like that go beside the text."""
    asks: Mapping[str, Any] | None = None
    """`{"inputRequests": ..., "requestState": ...}`: the call goes on when the client has answered."""
    relayed: bytes | None = None
    """An upstream's own result, exactly as it came. The MCP face sends it on; `data` of the envelope is the same."""
