"""The governance envelope: what every tool answer is wrapped in, on every face."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson
from msgspec import Struct

from toolgate.errors import Happening
from toolgate.model import strictjson

if TYPE_CHECKING:
    from toolgate.model.call import Environment, Tier
    from toolgate.model.tool import Decision

L0_ONLY_CODES = frozenset({"INVARIANT_VIOLATION", "CONSENT_REQUIRED"})
"""Codes that bind. An experimental tool that says one is clamped."""


class Clamp(Struct, frozen=True):
    """What the floor took away: which rule, which field, from what to what."""

    rule: str
    field: str
    before: Any
    after: Any

    def as_json(self) -> dict[str, Any]:
        return {"rule": self.rule, "field": self.field, "from": self.before, "to": self.after}


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
    notes: tuple[str, ...] = ()
    """Why the environment is what it is, when a configured store stopped answering (decision 40)."""

    def fields(self, data: Any, audit: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """As it is sent, with `data` in the form that the caller has. Absent fields are absent, not null: the documents'
        own readers test for presence."""
        out: dict[str, Any] = {"success": self.success}
        if self.code is not None:
            out["code"] = self.code
        if self.message is not None:
            out["message"] = self.message
        if self.is_error is not None:
            out["isError"] = self.is_error
        out["tier"] = self.tier
        out["environment"] = self.environment
        if self.decision is not None:
            out["decision"] = self.decision
        if self.degraded is not None:
            out["degradedMode"] = self.degraded
        out["requestId"] = self.request_id
        out["timestamp"] = self.timestamp
        if self.data is not None:
            out["data"] = data
        if self.clamps:
            out["clamps"] = [clamp.as_json() for clamp in self.clamps]
        if self.notes:
            out["notes"] = list(self.notes)
        if audit is not None:
            out["audit"] = audit
        return out


class Answer(Struct, frozen=True):
    """What leaves the road: one happening, and what a face needs to spell it."""

    happening: Happening
    tool: str | None
    request_id: str
    timestamp: str
    details: Mapping[str, Any] | None = None
    """For refusals and tool errors: `{"reason": ...}`, `{"role": ...}`."""
    text: str | None = None
    """The sentence for people that goes with it."""
    envelope: Envelope | None = None
    """Present whenever a tool was reached (steps 4-9)."""
    data_json: bytes = b"null"
    """`envelope.data`, already encoded: encoded once, spliced wherever a face needs it."""
    stdout: str = ""
    """What a command line would print: the tool's text, or its data as indented JSON."""
    exit_code: int = 0
    audit: Mapping[str, Any] | None = None
    retry_after_s: int | None = None

    def envelope_json(self) -> bytes:
        """The whole envelope with its place in the audit log, as every face sends it."""
        assert self.envelope is not None
        return strictjson.dumps(self.envelope.fields(orjson.Fragment(self.data_json), self.audit))
