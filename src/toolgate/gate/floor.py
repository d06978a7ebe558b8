"""The governance floor: tier x environment clamps what a tool said to the authority it really has.

Pure, total and last: nothing between this function and the wire can add authority, and every clamp leaves a trace.
The laws (tests/gate/test_floor.py): idempotent; never raises authority; an experimental tool never blocks and never
speaks an L0 code; nothing blocks in the local environment; `success` is never flipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolgate.model.envelope import L0_ONLY_CODES, Clamp, Envelope

if TYPE_CHECKING:
    from toolgate.model.call import Environment, Tier
    from toolgate.model.tool import Result

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
    decision, code, is_error, degraded = raw.decision, raw.code, raw.is_error, raw.degraded
    clamps: tuple[Clamp, ...] = ()

    # Step 7 refuses unknown spellings; should one come by another way, it is no decision at all.
    if decision is not None and decision not in DECISIONS:
        clamps += (Clamp("closed-decision", "decision", None, None),)
        decision = None

    # Floor 1: an experimental tool cannot express a binding outcome.
    if tier == "experimental":
        if decision == "block":
            clamps += (Clamp("experimental-never-blocks", "decision", "block", "warn"),)
            decision = "warn"
        if code in L0_ONLY_CODES:
            clamps += (Clamp("experimental-no-l0-code", "code", code, None),)
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
        raw.message,
        is_error,
        decision,
        degraded,
        raw.data,
        clamps,
        notes,
    )
