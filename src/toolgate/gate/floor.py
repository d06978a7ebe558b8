"""The governance floor: tier x environment clamps what a tool said to the authority it really has.

Pure, total and last: nothing between this function and the wire can add authority, and every clamp leaves a trace.
The laws (tests/gate/test_floor.py): idempotent; never raises authority; an experimental tool never blocks and never
speaks an L0 code; nothing blocks in the local environment; `success` is never flipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Raw, Struct
from msgspec.json import Encoder

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
    decision, code, message, is_error, degraded = raw.decision, raw.code, raw.message, raw.is_error, raw.degraded
    clamps: tuple[Clamp, ...] = ()
    if decision is not None or code is not None:
        decision, code, clamps = _known_spellings(decision, code)

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


def _known_spellings(
    decision: Decision | None, code: str | None
) -> tuple[Decision | None, str | None, tuple[Clamp, ...]]:
    """Step 7 refuses unknown spellings; should one come by another way, it counts as neither a decision nor a code."""
    clamps: tuple[Clamp, ...] = ()
    if decision is not None and decision not in DECISIONS:
        clamps += (Clamp("closed-decision", "decision", None, None),)
        decision = None
    if code is not None and not CODE_FORM.fullmatch(code):
        clamps += (Clamp("closed-code", "code", None, None),)
        code = None
    return decision, code, clamps


class _Sent(Struct, omit_defaults=True, rename="camel"):
    """The envelope's members as they are sent, in their order. Absent ones are absent, not null: the documents' own readers
    test for presence."""

    success: bool
    code: str | None = None
    message: str | None = None
    is_error: bool | None = None
    tier: str = ""
    environment: str = ""
    decision: str | None = None
    degraded_mode: bool | None = None
    request_id: str = ""
    timestamp: str = ""
    data: Raw | None = None
    details: Raw | None = None
    clamps: tuple[Clamp, ...] = ()
    notes: tuple[str, ...] = ()


_encode: Final = Encoder().encode


def envelope_json(envelope: Envelope, data_json: bytes, details_json: bytes = b"null") -> bytes:
    """As it is sent, but for its place in the audit log."""
    return _encode(
        _Sent(
            envelope.success,
            envelope.code,
            envelope.message,
            envelope.is_error,
            envelope.tier,
            envelope.environment,
            envelope.decision,
            envelope.degraded,
            envelope.request_id,
            envelope.timestamp,
            None if envelope.data is None else Raw(data_json),
            None if envelope.details is None else Raw(details_json),
            envelope.clamps,
            envelope.notes,
        )
    )
