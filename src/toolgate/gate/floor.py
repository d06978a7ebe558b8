"""The governance floor: tier x environment clamps what a tool said to the authority it really has.

Pure, total and last: nothing between this function and the wire can add authority, and every clamp leaves a trace.
The laws (tests/gate/test_floor.py): idempotent; never raises authority; an experimental tool never blocks and never
speaks an L0 code; nothing blocks in the local environment; `success` is never flipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from msgspec import to_builtins

from toolgate.model import strictjson
from toolgate.model.envelope import L0_ONLY_CODES, Clamp, Envelope
from toolgate.model.tool import CODE_FORM

if TYPE_CHECKING:
    from toolgate.model.call import Environment, Tier
    from toolgate.model.tool import Decision, Result

DECISIONS = frozenset({"block", "warn", "pass"})


def normalize_response(
    raw: Result,
    *,
    tier: Tier,
    environment: Environment,
    request_id: str,
    timestamp: str,
    notes: tuple[str, ...] = (),
) -> Envelope:
    decision, code, clamps = _known_spellings(raw)
    message, is_error, degraded = raw.message, raw.is_error, raw.degraded

    # Floor 1: an experimental tool cannot express a binding outcome.
    if tier == "experimental":
        if decision == "block":
            clamps += (Clamp("experimental-never-blocks", "decision", "block", "warn"),)
            decision = "warn"
        if code in L0_ONLY_CODES:
            clamps += (Clamp("experimental-no-l0-code", "code", code, None),)
            message = message and message.removeprefix(f"{code}: ")
            code = None
        if clamps and is_error is None:
            is_error = False

    # Floor 2: an authoritative tool without real stores is advisory, and says so.
    elif environment == "local":
        degraded = True
        if decision == "block":
            clamps += (Clamp("local-never-blocks", "decision", "block", "warn"),)
            decision = "warn"
        if is_error is None:
            is_error = False

    return Envelope(
        raw.success,
        tier,
        environment,
        request_id,
        timestamp,
        code,
        message,
        is_error,
        decision,
        degraded,
        raw.data,
        clamps,
        raw.details,
        notes,
    )


def _known_spellings(raw: Result) -> tuple[Decision | None, str | None, tuple[Clamp, ...]]:
    """Step 7 refuses unknown spellings; should one come by another way, it counts as neither a decision nor a code."""
    decision, code = raw.decision, raw.code
    clamps: tuple[Clamp, ...] = ()
    if decision is not None and decision not in DECISIONS:
        clamps += (Clamp("closed-decision", "decision", None, None),)
        decision = None
    if code is not None and not CODE_FORM.fullmatch(code):
        clamps += (Clamp("closed-code", "code", None, None),)
        code = None
    return decision, code, clamps


def envelope_json(envelope: Envelope, data_json: bytes, details_json: bytes = b"null") -> bytes:
    """As it is sent, but for its place in the audit log. Absent fields are absent, not null: the documents' own readers test
    for presence."""
    out: dict[str, Any] = {"success": envelope.success}
    if envelope.code is not None:
        out["code"] = envelope.code
    if envelope.message is not None:
        out["message"] = envelope.message
    if envelope.is_error is not None:
        out["isError"] = envelope.is_error
    out["tier"] = envelope.tier
    out["environment"] = envelope.environment
    if envelope.decision is not None:
        out["decision"] = envelope.decision
    if envelope.degraded is not None:
        out["degradedMode"] = envelope.degraded
    out["requestId"] = envelope.request_id
    out["timestamp"] = envelope.timestamp
    if envelope.data is not None:
        out["data"] = orjson.Fragment(data_json)
    if envelope.details is not None:
        out["details"] = orjson.Fragment(details_json)
    if envelope.clamps:
        out["clamps"] = to_builtins(envelope.clamps)
    if envelope.notes:
        out["notes"] = list(envelope.notes)
    return strictjson.dumps(out)
