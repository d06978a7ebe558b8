"""The governance floor: its truth table, its laws, and a small model beside it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace

from tests.cases import cases
from toolgate.gate.floor import envelope_json, normalize_response
from toolgate.model.envelope import L0_ONLY_CODES, Envelope
from toolgate.model.tool import Result

AUTHORITY = {None: 0, "pass": 0, "warn": 1, "block": 2}

results = st.builds(
    Result,
    data=st.sampled_from([None, {}, {"some": "payload"}, {"decision": "block"}]),
    decision=st.sampled_from([None, "block", "warn", "pass"]),
    code=st.sampled_from([None, "INVARIANT_VIOLATION", "CONSENT_REQUIRED", "INVALID_INPUT", "EXECUTION_FAILED"]),
    message=st.none() | st.text(max_size=20),
    success=st.booleans(),
    is_error=st.none() | st.booleans(),
    degraded=st.none() | st.booleans(),
)
tiers = st.sampled_from(["authoritative", "experimental"])
environments = st.sampled_from(["local", "cloud"])


def floor(raw: Result, tier: Any, environment: Any) -> Envelope:
    return normalize_response(raw, tier=tier, environment=environment, request_id="r", timestamp="t")


def again(envelope: Envelope) -> Result:
    """An envelope fed back as if a tool had said it."""
    return Result(
        data=envelope.data,
        decision=envelope.decision,
        code=envelope.code,
        message=envelope.message,
        success=envelope.success,
        is_error=envelope.is_error,
        degraded=envelope.degraded,
    )


@pytest.mark.req("001-F1", "001-F2")
@pytest.mark.parametrize(
    ("tier", "environment", "said", "left"),
    [
        ("experimental", "cloud", ("block", "INVARIANT_VIOLATION", None), ("warn", None, False, None)),
        ("experimental", "cloud", ("pass", "CONSENT_REQUIRED", None), ("pass", None, False, None)),
        ("experimental", "cloud", ("warn", None, None), ("warn", None, None, None)),
        ("experimental", "cloud", (None, "CONSENT_REQUIRED", True), (None, None, True, None)),
        ("experimental", "local", ("pass", "INVALID_INPUT", True), ("pass", "INVALID_INPUT", True, None)),
        ("experimental", "local", ("warn", "EXECUTION_FAILED", True), ("warn", "EXECUTION_FAILED", True, None)),
        (
            "authoritative",
            "local",
            ("block", "INVARIANT_VIOLATION", None),
            ("warn", "INVARIANT_VIOLATION", False, True),
        ),
        ("authoritative", "local", ("pass", None, None), ("pass", None, False, True)),
        ("authoritative", "local", (None, "EXECUTION_FAILED", True), (None, "EXECUTION_FAILED", True, True)),
        (
            "authoritative",
            "cloud",
            ("block", "INVARIANT_VIOLATION", None),
            ("block", "INVARIANT_VIOLATION", None, None),
        ),
    ],
)
def test_the_truth_table_of_tier_and_environment(tier: str, environment: str, said: Any, left: Any) -> None:
    decision, code, is_error = said
    envelope = floor(Result(decision=decision, code=code, is_error=is_error), tier, environment)
    assert (envelope.decision, envelope.code, envelope.is_error, envelope.degraded) == left


@pytest.mark.req("001-F1", "001-F5")
def test_a_buggy_experimental_tool_keeps_its_data_and_loses_its_claim() -> None:
    raw = Result(decision="block", code="INVARIANT_VIOLATION", message="pretended", data={"some": "payload"})
    envelope = floor(raw, "experimental", "cloud")
    assert (envelope.success, envelope.is_error, envelope.code, envelope.decision) == (True, False, None, "warn")
    assert envelope.data == {"some": "payload"}
    assert to_builtins(list(envelope.clamps)) == [
        {"rule": "experimental-never-blocks", "field": "decision", "from": "block", "to": "warn"},
        {"rule": "experimental-no-l0-code", "field": "code", "from": "INVARIANT_VIOLATION", "to": None},
    ]


@pytest.mark.req("001-F3")
@given(results, tiers, environments)
def test_success_is_never_flipped_and_data_never_touched(raw: Result, tier: str, environment: str) -> None:
    envelope = floor(raw, tier, environment)
    assert envelope.success is raw.success
    assert envelope.data == raw.data


@given(results, tiers, environments)
def test_the_floor_is_idempotent(raw: Result, tier: str, environment: str) -> None:
    once = floor(raw, tier, environment)
    twice = floor(again(once), tier, environment)
    assert replace(twice, clamps=()) == replace(once, clamps=())
    assert twice.clamps == ()


@pytest.mark.req("001-F1", "001-F2")
@given(results, tiers, environments)
def test_the_floor_never_raises_authority(raw: Result, tier: str, environment: str) -> None:
    envelope = floor(raw, tier, environment)
    assert AUTHORITY[envelope.decision] <= AUTHORITY[raw.decision]
    assert envelope.code in (raw.code, None)
    assert not (raw.degraded and not envelope.degraded)
    if tier == "experimental":
        assert envelope.decision != "block"
        assert envelope.code not in L0_ONLY_CODES
    if environment == "local":
        assert envelope.decision != "block"


@given(results, tiers, environments)
def test_every_change_of_meaning_leaves_a_clamp(raw: Result, tier: str, environment: str) -> None:
    envelope = floor(raw, tier, environment)
    changed = set()
    if envelope.decision != raw.decision:
        changed.add("decision")
    if envelope.code != raw.code:
        changed.add("code")
    assert {clamp.field for clamp in envelope.clamps} == changed


@pytest.mark.parametrize("spelling", ["BLOCK", "Block", " block", "deny", ""])
def test_a_decision_in_another_spelling_is_no_decision(spelling: Any) -> None:
    envelope = floor(Result(decision=spelling), "authoritative", "cloud")
    assert envelope.decision is None
    assert [clamp.rule for clamp in envelope.clamps] == ["closed-decision"]


@pytest.mark.parametrize(
    "spelling", ["consent_required", " CONSENT_REQUIRED", "CONSENT_REQUIRED\u200b", "CONSENT-REQUIRED", ""]
)
@pytest.mark.parametrize("tier", ["authoritative", "experimental"])
def test_f15_a_code_in_another_spelling_is_no_code(spelling: str, tier: str) -> None:
    envelope = floor(Result(code=spelling), tier, "cloud")
    assert envelope.code is None
    assert [clamp.rule for clamp in envelope.clamps] == ["closed-code"]


def model(raw: Result, tier: str, environment: str) -> tuple[Any, ...]:
    """The floor in one expression a field: what the documents say, written a second time and differently."""
    binding = tier == "authoritative" and environment == "cloud"
    decision = "warn" if raw.decision == "block" and not binding else raw.decision
    code = None if tier == "experimental" and raw.code in L0_ONLY_CODES else raw.code
    clamped = (decision, code) != (raw.decision, raw.code)
    quiet = (tier == "experimental" and clamped) or (tier == "authoritative" and environment == "local")
    is_error = False if raw.is_error is None and quiet else raw.is_error
    degraded = True if tier == "authoritative" and environment == "local" else raw.degraded
    return decision, code, is_error, degraded


@cases(200, 1000)
@given(results, tiers, environments)
def test_the_floor_agrees_with_its_model(raw: Result, tier: str, environment: str) -> None:
    envelope = floor(raw, tier, environment)
    assert (envelope.decision, envelope.code, envelope.is_error, envelope.degraded) == model(raw, tier, environment)


OPTIONAL: dict[str, tuple[str, Any]] = {
    "code": ("code", "INVALID_INPUT"),
    "message": ("message", "why"),
    "is_error": ("isError", False),
    "decision": ("decision", "warn"),
    "degraded": ("degradedMode", True),
    "data": ("data", {"sent": 1}),
    "details": ("details", {"sent": 2}),
    "notes": ("notes", ["why"]),
}


@pytest.mark.parametrize("field", OPTIONAL)
def test_what_an_envelope_has_is_sent_and_what_it_has_not_is_absent(field: str) -> None:
    bare = Envelope(True, "experimental", "local", "r", "t")
    always = {"success": True, "tier": "experimental", "environment": "local", "requestId": "r", "timestamp": "t"}
    assert json.loads(envelope_json(bare, b'{"sent":1}', b'{"sent":2}')) == always
    name, value = OPTIONAL[field]
    full = replace(bare, **{field: value})
    assert json.loads(envelope_json(full, b'{"sent":1}', b'{"sent":2}')) == always | {name: value}
