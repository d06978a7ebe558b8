"""The five manifest rules over values, and what of them stops a start."""

from __future__ import annotations

from typing import Any

import pytest

from tests.policy.support import accepted, manifest, pack, row, tool
from toolgate.errors import StartRefused
from toolgate.policy import contract
from toolgate.policy.rules import RULES, check_start, judge


def _locked(packs: Any, policy: Any, adrs: Any) -> Any:
    return contract.build(packs, policy, adrs)


def _rules(packs: Any, policy: Any, adrs: Any = None, lock: Any = None) -> list[tuple[str, str]]:
    adrs = adrs or {}
    lock = lock or _locked(packs, policy, adrs)
    return [(breach.rule, breach.subject) for breach in judge(packs, policy, adrs, lock)]


def test_matching_code_policy_and_lock_breach_nothing() -> None:
    packs, policy = [pack(tool())], manifest(row())
    assert _rules(packs, policy) == []
    assert check_start(packs, policy, {}, _locked(packs, policy, {})) == []


@pytest.mark.req("001-P2")
def test_a_tool_without_a_row_stops_the_start() -> None:
    packs, policy = [pack(tool(), tool("orphan"))], manifest(row())
    assert _rules(packs, policy) == [("code-without-policy", "orphan")]
    with pytest.raises(StartRefused, match="orphan has no row"):
        check_start(packs, policy, {}, _locked(packs, policy, {}))


def test_a_pack_cannot_take_the_name_and_authority_of_another_packs_tool() -> None:
    packs = [pack(tool("judge", decisions=("block",)), name="evil")]
    policy = manifest(row("judge", tier="authoritative", adr="ADR-7", pack="core"))
    adrs = accepted("ADR-7")
    assert _rules(packs, policy, adrs) == [("code-without-policy", "judge")]
    with pytest.raises(StartRefused, match="comes from pack evil, and its row is for pack core"):
        check_start(packs, policy, adrs, _locked(packs, policy, adrs))


def test_a_withdrawn_tool_is_no_orphan_and_not_in_the_contract() -> None:
    packs, policy = [pack(tool(), tool("gone"))], manifest(row(), withdrawn=frozenset({"gone"}))
    lock = _locked(packs, policy, {})
    assert check_start(packs, policy, {}, lock) == []
    assert [entry["name"] for entry in lock["tools"]] == ["probe"]


@pytest.mark.req("001-P3")
def test_a_row_without_a_tool_only_warns() -> None:
    packs, policy = [pack(tool())], manifest(row(), row("later"))
    assert _rules(packs, policy) == [("policy-without-code", "later")]
    warnings = check_start(packs, policy, {}, _locked(packs, policy, {}))
    assert len(warnings) == 1
    assert "later" in warnings[0]


def test_a_row_of_a_pack_that_is_only_not_enabled_is_not_pre_declared() -> None:
    here, there = pack(tool()), pack(tool("far"), name="other")
    policy = manifest(row(), row("far"))
    assert _rules([here], policy, lock=_locked([here, there], policy, {})) == []


DRIFT = {
    "input schema": {"input_schema": {"type": "object", "additionalProperties": False}},
    "output schema": {"output_schema": {"type": "object"}},
    "summary": {"summary": "Says more."},
    "effect": {"effect": "network"},
    "deadline": {"deadline_s": 11},
    "error codes": {"error_codes": ("NEW",)},
    "decisions": {"decisions": ("warn",)},
    "argument roles": {"argument_roles": {"x": frozenset({"admin"})}},
    "id": {"id": "test.other"},
}


@pytest.mark.req("001-P4", "001-P8")
@pytest.mark.parametrize("field", DRIFT)
def test_any_change_of_code_is_drift_and_stops_the_start(field: str) -> None:
    policy = manifest(row())
    lock = _locked([pack(tool())], policy, {})
    changed = [pack(tool(**DRIFT[field]))]
    assert _rules(changed, policy, lock=lock) == [("contract-drift", "probe")]
    with pytest.raises(StartRefused, match="contract of probe differs"):
        check_start(changed, policy, {}, lock)


POLICY_DRIFT = {
    "tier": {"tier": "authoritative", "adr": "ADR-1"},
    "hint": {"hint": "More advice"},
    "roles": {"roles": frozenset({"admin"})},
    "adr": {"adr": "ADR-1"},
}


@pytest.mark.req("001-P4", "001-P8")
@pytest.mark.parametrize("field", POLICY_DRIFT)
def test_any_change_of_policy_is_drift(field: str) -> None:
    packs = [pack(tool())]
    lock = _locked(packs, manifest(row()), {})
    found = _rules(packs, manifest(row(**POLICY_DRIFT[field])), accepted("ADR-1"), lock)
    assert ("contract-drift", "probe") in found


def test_an_added_and_a_removed_tool_are_drift() -> None:
    policy = manifest(row(), row("second"))
    one, two = [pack(tool())], [pack(tool(), tool("second"))]
    assert _rules(two, policy, lock=_locked(one, policy, {})) == [("contract-drift", "second")]
    assert _rules(one, policy, lock=_locked(two, policy, {})) == [("contract-drift", "second")]


def test_an_edited_or_unaccepted_record_is_drift() -> None:
    packs, policy = [pack(tool())], manifest(row(tier="authoritative", adr="ADR-1"))
    lock = _locked(packs, policy, accepted("ADR-1"))
    edited = {"ADR-1": accepted("ADR-1")["ADR-1"].__class__("ADR-1", "accepted", "1" * 64)}
    assert _rules(packs, policy, edited, lock) == [("contract-drift", "ADR-1")]


def test_packs_that_are_not_enabled_are_not_compared() -> None:
    here, there = pack(tool()), pack(tool("far"), name="other")
    policy = manifest(row(), row("far"))
    lock = _locked([here, there], policy, {})
    changed = pack(tool("far", summary="Else."), name="other")
    assert check_start([here], policy, {}, lock) == []
    with pytest.raises(StartRefused):
        check_start([here, changed], policy, {}, lock)


@pytest.mark.req("001-P5")
@pytest.mark.parametrize(
    ("adr", "adrs", "fault"),
    [
        (None, {}, "names no ADR"),
        ("ADR-1", {}, "does not exist"),
        ("ADR-1", accepted("ADR-2"), "does not exist"),
        ("ADR-1", accepted("ADR-1", "proposed"), "status is proposed"),
        ("ADR-1", accepted("ADR-1", "superseded"), "status is superseded"),
        ("ADR-1", accepted("ADR-1", "unknown"), "status is unknown"),
    ],
)
def test_an_authoritative_tool_needs_an_accepted_record(adr: str | None, adrs: Any, fault: str) -> None:
    packs, policy = [pack(tool())], manifest(row(tier="authoritative", adr=adr))
    with pytest.raises(StartRefused, match=fault):
        check_start(packs, policy, adrs, _locked(packs, policy, adrs))


def test_an_authoritative_tool_with_an_accepted_record_may_declare_everything() -> None:
    bold = tool(error_codes=("INVARIANT_VIOLATION", "CONSENT_REQUIRED"), decisions=("block", "warn", "pass"))
    packs, policy = [pack(bold)], manifest(row(tier="authoritative", adr="ADR-1", hint="May block"))
    assert check_start(packs, policy, accepted("ADR-1"), _locked(packs, policy, accepted("ADR-1"))) == []


CLAIMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "L0 code": ({"error_codes": ("INVARIANT_VIOLATION",)}, {}),
    "consent code": ({"error_codes": ("OTHER", "CONSENT_REQUIRED")}, {}),
    "decision": ({"decisions": ("pass", "block")}, {}),
    "hint": ({}, {"hint": "may block merges"}),
    "hint, other letters": ({}, {"hint": "Blocking"}),
    "hint, code": ({}, {"hint": "Raises invariant_violation"}),
    "hint, wide letters": ({}, {"hint": "ｂｌｏｃｋ"}),
    "hint, invisible letters": ({}, {"hint": "bl\u200bock"}),
}


@pytest.mark.req("001-P6")
@pytest.mark.parametrize("name", CLAIMS)
def test_an_experimental_tool_that_claims_to_bind_stops_the_start(name: str) -> None:
    code, policy_row = CLAIMS[name]
    packs, policy = [pack(tool(**code))], manifest(row(**policy_row))
    assert _rules(packs, policy) == [("tier2-claims-l0", "probe")]
    with pytest.raises(StartRefused, match="probe is experimental"):
        check_start(packs, policy, {}, _locked(packs, policy, {}))


def test_a_demoted_tool_may_keep_its_declarations_and_is_told_of() -> None:
    packs = [pack(tool(error_codes=("INVARIANT_VIOLATION",), decisions=("block",)))]
    policy = manifest(row(), demoted=frozenset({"probe"}))
    warnings = check_start(packs, policy, {}, _locked(packs, policy, {}))
    assert len(warnings) == 1
    assert "probe" in warnings[0]


def test_every_fault_is_told_at_once_with_its_fix() -> None:
    packs = [pack(tool(decisions=("block",)), tool("orphan"))]
    policy = manifest(row())
    with pytest.raises(StartRefused) as refusal:
        check_start(packs, policy, {}, _locked(packs, policy, {}))
    fault, fix = str(refusal.value).split("\n")
    assert "orphan" in fault
    assert "probe" in fault
    assert "Add a row" in fix
    assert "take the claim out" in fix


def test_the_severities_are_those_that_are_documented() -> None:
    assert RULES == {
        "code-without-policy": "fatal",
        "policy-without-code": "warning",
        "contract-drift": "drift",
        "tier1-without-adr": "fatal",
        "tier2-claims-l0": "fatal",
    }
