"""Consent denies by default; statistics are counted from reviewed events, with an interval, or not at all."""

from __future__ import annotations

from math import isclose
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.packs.governance.desk import NOW, TOOLS
from toolgate.errors import ToolError
from toolgate.packs.governance.stores.consents import POLICY_VERSION, REQUIRED, RESOURCES, Record, status_of
from toolgate.packs.governance.stores.reviews import DAY_MS, ReviewEvent
from toolgate.packs.governance.stores.statistics import Counts, direction, slope, wilson

if TYPE_CHECKING:
    from pathlib import Path

    from tests.packs.governance.desk import Desk

CONSENT, FP = "check_consent_requirements", "query_fp_store"
NOW_MS = int(NOW * 1000)


def grant(
    desk: Desk, *resources: str, org: str = "acme", version: str = POLICY_VERSION, expires: int | None = None
) -> None:
    for resource in resources:
        record = Record(org, resource, version, "ann", NOW_MS, expires, None)
        desk.consents(lambda kept, record=record: kept.grant([record], "ann"))


def ask(desk: Desk, check: str, **args: Any) -> dict[str, Any]:
    result = desk.call(CONSENT, {"orgId": "acme", "checkType": check, **args})
    return {"decision": result.decision, "code": result.code, **result.data}


# Consent


@pytest.mark.req("001-T5")
def test_w14_nobody_has_consent_until_somebody_gives_it(any_desk: Desk) -> None:
    before = ask(any_desk, "required_for_operation", tool=FP, operation="fp_rate")
    assert (before["decision"], before["code"], before["operation"]["canProceed"]) == (
        "block",
        "CONSENT_REQUIRED",
        False,
    )
    assert before["resources"][0]["state"] == "not_requested"
    grant(any_desk, "fp_metrics")
    after = ask(any_desk, "required_for_operation", tool=FP, operation="fp_rate")
    assert (after["decision"], after["code"], after["operation"]["canProceed"]) == ("pass", None, True)
    grant(any_desk, "fp_metrics", org="other")
    any_desk.consents(lambda kept: kept.revoke("acme", "fp_metrics", "ann", NOW_MS))
    revoked = ask(any_desk, "required_for_operation", tool=FP, operation="fp_rate")
    assert (revoked["decision"], revoked["resources"][0]["state"]) == ("block", "revoked")


@pytest.mark.parametrize(("tool", "operation"), [("unknown", "x"), (FP, "unknown"), (FP, "FP_RATE"), ("", "fp_rate")])
def test_w13_an_unknown_tool_or_operation_may_not_proceed(desk: Desk, tool: str, operation: str) -> None:
    grant(desk, *RESOURCES)
    if not tool:
        assert not jsonschema_rs.is_valid(
            dict(TOOLS[CONSENT].input_schema), {"orgId": "a", "checkType": "summary", "tool": tool}
        )
        return
    answer = ask(desk, "required_for_operation", tool=tool, operation=operation)
    assert (answer["decision"], answer["code"]) == ("block", "CONSENT_REQUIRED")
    assert answer["operation"] == {"tool": tool, "name": operation, "known": False, "requires": [], "canProceed": False}


@pytest.mark.parametrize("operation", sorted(REQUIRED))
def test_every_operation_needs_each_of_its_resources(desk: Desk, operation: tuple[str, str]) -> None:
    needed = REQUIRED[operation]
    asked = {"tool": operation[0], "operation": operation[1]}
    for resource in needed:
        grant(desk, *(other for other in RESOURCES if other != resource), org="acme")
        assert ask(desk, "required_for_operation", **asked)["operation"]["canProceed"] is False
        for granted in RESOURCES:
            desk.consents(lambda kept, granted=granted: kept.revoke("acme", granted, "ann", NOW_MS))
    grant(desk, *needed)
    assert ask(desk, "required_for_operation", **asked)["operation"]["canProceed"] is True


def test_validate_names_what_is_missing_and_why(any_desk: Desk) -> None:
    grant(any_desk, "fp_metrics")
    grant(any_desk, "fp_patterns", expires=NOW_MS)
    grant(any_desk, "audit_logs", version="1.1")
    answer = ask(
        any_desk, "validate", resources=["fp_metrics", "fp_patterns", "audit_logs", "drift_baselines", "moon_phase"]
    )
    assert [one["state"] for one in answer["resources"]] == [
        "granted",
        "expired",
        "outdated",
        "not_requested",
        "unknown_resource",
    ]
    assert (answer["allValid"], answer["decision"], answer["code"]) == (False, "warn", "CONSENT_REQUIRED")
    assert ask(any_desk, "validate", resources=["fp_metrics"])["decision"] == "pass"


def test_consent_ends_at_the_millisecond_it_expires(desk: Desk) -> None:
    grant(desk, "fp_metrics", expires=NOW_MS + 1000)
    assert ask(desk, "validate", resources=["fp_metrics"])["allValid"] is True
    desk.clock.now += 1
    assert ask(desk, "validate", resources=["fp_metrics"])["allValid"] is False


def test_the_summary_counts_every_resource(desk: Desk) -> None:
    grant(desk, "fp_metrics", "audit_logs")
    answer = ask(desk, "summary", includePolicy=True)
    assert (answer["decision"], answer["statistics"]["totalResources"], answer["statistics"]["coveragePercent"]) == (
        "pass",
        6,
        33,
    )
    assert answer["statistics"]["byState"]["granted"] == 2
    assert {one["resource"] for one in answer["policy"]} == set(RESOURCES)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"checkType": "validate"}, "missing_resources"),
        ({"checkType": "required_for_operation", "operation": "x"}, "missing_tool"),
        ({"checkType": "required_for_operation", "tool": "x"}, "missing_operation"),
    ],
)
def test_what_a_question_lacks_is_invalid_input(desk: Desk, args: dict[str, Any], reason: str) -> None:
    with pytest.raises(ToolError) as fault:
        desk.call(CONSENT, {"orgId": "acme", **args})
    assert (fault.value.code, fault.value.data["reason"]) == ("INVALID_INPUT", reason)


def test_a_store_that_does_not_answer_has_granted_nothing(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    answer = ask(desk, "required_for_operation", tool=FP, operation="fp_rate")
    assert (answer["decision"], answer["resources"][0]["state"]) == ("block", "unavailable")
    with pytest.raises(ToolError) as fault:
        rate(desk)
    assert fault.value.code == "ACCESS_DENIED"


def test_revoking_twice_is_harmless_and_what_was_never_granted_is_told(any_desk: Desk) -> None:
    grant(any_desk, "fp_metrics")
    for _ in range(2):
        assert any_desk.consents(lambda kept: kept.revoke("acme", "fp_metrics", "ann", NOW_MS)) is True
    assert any_desk.consents(lambda kept: kept.revoke("acme", "audit_logs", "ann", NOW_MS)) is False
    grant(any_desk, "fp_metrics")
    history = any_desk.rows("consent", "event, actor", "consent_events", "consent# event#")
    assert sorted(row[0] for row in history) == ["granted", "renewed", "revoked"]
    assert all("ann" not in row[1] for row in history)


times = st.integers(0, 10**13)


@given(st.one_of(st.none(), times), st.one_of(st.none(), times), st.sampled_from([POLICY_VERSION, "1.1", ""]), times)
def test_granted_means_everything_is_in_order(expires: int | None, revoked: int | None, version: str, now: int) -> None:
    record = Record("o", "fp_metrics", version, "ann", 0, expires, revoked)
    wanted = revoked is None and (expires is None or now < expires) and version == POLICY_VERSION
    assert status_of("fp_metrics", record, now).granted is wanted
    assert status_of("nonsense", record, now).granted is False


# Statistics


def add(
    desk: Desk, false: int, true: int, *, pending: int = 0, rule: str = "MD-001", org: str = "acme", age_days: float = 1
) -> None:
    verdicts = ["false_positive"] * false + ["true_positive"] * true + ["pending"] * pending
    at = NOW_MS - int(age_days * DAY_MS)
    made = [
        ReviewEvent(
            org, rule, 1, f"{i % 7:032x}", "o/r", verdict, at - i, *(("ann", at, "T-1") if verdict != "pending" else ())
        )  # type: ignore[arg-type]
        for i, verdict in enumerate(verdicts)
    ]
    desk.false_positives(lambda kept: kept.record_all(made))


def query(desk: Desk, kind: str, **args: Any) -> dict[str, Any]:
    grant(desk, *RESOURCES)
    result = desk.call(FP, {"queryType": kind, "orgId": "acme", **args})
    return {"decision": result.decision, **result.data}


def rate(desk: Desk, **args: Any) -> dict[str, Any]:
    result = desk.call(FP, {"queryType": "fp_rate", "orgId": "acme", "ruleId": "MD-001", **args})
    return dict(result.data)


@pytest.mark.req("001-T4")
def test_w15_without_consent_the_answer_says_access_denied_and_why(desk: Desk) -> None:
    with pytest.raises(ToolError) as fault:
        rate(desk)
    assert fault.value.code == "ACCESS_DENIED"
    assert "fp_metrics" in fault.value.text
    assert "block" not in TOOLS[FP].decisions


def test_w16_w34_the_rate_is_counted_over_reviewed_events_only(any_desk: Desk) -> None:
    add(any_desk, 3, 9, pending=8)
    answer = query(any_desk, "fp_rate", ruleId="MD-001")
    counted = answer["rate"]
    assert (counted["total"], counted["reviewed"], counted["pending"], counted["falsePositives"]) == (20, 12, 8, 3)
    assert counted["fpr"] == 0.25
    assert isclose(counted["interval"]["low"], 0.0889, abs_tol=1e-4)
    assert isclose(counted["interval"]["high"], 0.5323, abs_tol=1e-4)
    assert (answer["confidence"], answer["decision"]) == ("low", "pass")


@pytest.mark.parametrize(
    ("false", "true", "confidence"),
    [(0, 0, "insufficient_data"), (1, 8, "insufficient_data"), (1, 9, "low"), (3, 27, "medium"), (10, 90, "high")],
)
def test_too_few_reviews_say_nothing(desk: Desk, false: int, true: int, confidence: str) -> None:
    add(desk, false, true)
    answer = query(desk, "fp_rate", ruleId="MD-001")
    assert answer["confidence"] == confidence
    assert (answer["rate"]["fpr"] is None) is (confidence == "insufficient_data")
    assert (answer["rate"]["interval"]["low"] is None) is (confidence == "insufficient_data")


def test_events_of_other_organisations_rules_and_times_do_not_count(desk: Desk) -> None:
    add(desk, 5, 5)
    add(desk, 50, 0, org="other")
    add(desk, 50, 0, rule="MD-002")
    add(desk, 50, 0, age_days=31)
    assert query(desk, "fp_rate", ruleId="MD-001")["rate"]["reviewed"] == 10
    assert query(desk, "fp_rate", ruleId="MD-001", daysBack=60)["rate"]["reviewed"] == 60


def test_w23_w29_what_is_written_is_read_back_whole(any_desk: Desk) -> None:
    one = ReviewEvent("acme", "MD-001", 2, "f" * 32, "o/r", "false_positive", NOW_MS, "ann", NOW_MS, "T-1", "because")
    assert any_desk.false_positives(lambda kept: kept.record(one)) is True
    assert any_desk.false_positives(lambda kept: kept.record(one)) is False
    assert any_desk.false_positives(lambda kept: kept.events()) == [one]


def test_a_review_without_reviewer_or_ticket_cannot_be_stored(any_desk: Desk) -> None:
    hearsay = ReviewEvent("acme", "MD-001", 1, "f" * 32, "o/r", "false_positive", NOW_MS)
    with pytest.raises(ValueError, match="a review needs a reviewer"):
        any_desk.false_positives(lambda kept: kept.record(hearsay))
    assert any_desk.false_positives(lambda kept: kept.events()) == []


def test_patterns_are_counted_and_ordered(any_desk: Desk) -> None:
    add(any_desk, 10, 5)
    found = query(any_desk, "recent_patterns", ruleId="MD-001", limit=3)["patterns"]
    assert [one["frequency"] for one in found] == [2, 2, 2]
    assert all(len(one["pattern"]) == 12 for one in found)
    assert len(query(any_desk, "recent_patterns", ruleId="MD-001")["patterns"]) == 7


def test_a_trend_rises_falls_or_is_unknown(any_desk: Desk) -> None:
    assert query(any_desk, "trend_analysis", ruleId="MD-001")["trend"]["direction"] == "insufficient_data"
    for week, false in enumerate([1, 3, 6, 9]):
        add(any_desk, false, 10 - false, age_days=25 - 7 * week)
        add(any_desk, 10 - false, false, age_days=25 - 7 * week, rule="MD-002")
        add(any_desk, 5, 5, age_days=25 - 7 * week, rule="MD-003")
    trends = {
        rule: query(any_desk, "trend_analysis", ruleId=rule, daysBack=28)["trend"]
        for rule in ("MD-001", "MD-002", "MD-003")
    }
    assert [one["direction"] for one in trends.values()] == ["increasing", "decreasing", "stable"]
    assert [bucket["fpr"] for bucket in trends["MD-001"]["buckets"]] == [0.1, 0.3, 0.6, 0.9]
    assert isclose(trends["MD-001"]["percentChange"], 800)


def test_rules_are_compared_and_the_threshold_may_be_zero(any_desk: Desk) -> None:
    add(any_desk, 1, 19)
    add(any_desk, 10, 10, rule="MD-002")
    add(any_desk, 1, 1, rule="MD-003")
    rules = ["MD-001", "MD-002", "MD-003"]
    answer = query(any_desk, "cross_rule_comparison", ruleIds=rules)["comparison"]
    assert [(row["ruleId"], row["fpr"], row["needsCalibration"]) for row in answer["rules"]] == [
        ("MD-002", 0.5, True),
        ("MD-001", 0.05, False),
        ("MD-003", None, False),
    ]
    summary = answer["summary"]
    assert (summary["needingCalibration"], summary["averageFPR"], summary["highest"], summary["lowest"]) == (
        1,
        0.275,
        "MD-002",
        "MD-001",
    )
    assert (
        query(any_desk, "cross_rule_comparison", ruleIds=rules, threshold=0)["comparison"]["summary"][
            "needingCalibration"
        ]
        == 2
    )


def test_w24_numbers_across_organisations_need_ten_of_them(any_desk: Desk) -> None:
    for org in range(8):
        add(any_desk, 5, 5, org=f"org{org}")
    add(any_desk, 0, 10)

    def benchmark() -> dict[str, Any]:
        answer = query(any_desk, "cross_rule_comparison", ruleIds=["MD-001"])
        return dict(answer["comparison"]["rules"][0]["benchmark"])

    assert benchmark() == {"status": "insufficient_k_anonymity", "fpr": None}
    add(any_desk, 0, 0, pending=50, org="only-pending")  # reviewed by nobody, so it hides nobody
    assert benchmark()["fpr"] is None
    add(any_desk, 10, 0, org="tenth")
    assert benchmark() == {"status": "high", "fpr": 0.5}


def test_a_store_of_events_that_does_not_answer_is_unavailable_and_not_empty(any_desk: Desk) -> None:
    grant(any_desk, *RESOURCES)
    fp_store = any_desk.stores.get("false_positives")
    any_desk.stores.get("false_positives").close()

    from toolgate.errors import StoreUnavailable

    async def silent(_work: Any) -> Any:
        raise StoreUnavailable("store false_positives does not answer")

    fp_store.read = fp_store.read_table = silent  # type: ignore[method-assign]
    result = any_desk.call(FP, {"queryType": "fp_rate", "orgId": "acme", "ruleId": "MD-001"})
    assert (result.success, result.data["confidence"], result.decision, "rate" in result.data) == (
        True,
        "unavailable",
        "warn",
        False,
    )


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"queryType": "fp_rate"}, "missing_ruleId"),
        ({"queryType": "cross_rule_comparison", "ruleId": "MD-001"}, "missing_ruleIds"),
    ],
)
def test_what_a_query_lacks_is_invalid_input(desk: Desk, args: dict[str, Any], reason: str) -> None:
    with pytest.raises(ToolError) as fault:
        desk.call(FP, {"orgId": "acme", **args})
    assert (fault.value.code, fault.value.data["reason"]) == ("INVALID_INPUT", reason)


# Laws


@given(st.integers(0, 500), st.integers(0, 500))
def test_wilson_holds_the_rate_inside_zero_and_one(hits: int, misses: int) -> None:
    n = hits + misses
    low, high = wilson(hits, n)
    assert 0 <= low <= high <= 1
    if n:
        assert low <= hits / n <= high
        mirrored = wilson(misses, n)
        assert isclose(low, 1 - mirrored[1], abs_tol=1e-12)
        wider = wilson(hits * 2, n * 2)
        assert wider[1] - wider[0] <= high - low + 1e-12


def test_wilson_agrees_with_published_values() -> None:
    """Newcombe (1998), Statistics in Medicine 17, table I, method 3."""
    for hits, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        found = wilson(hits, n)
        assert isclose(found[0], low, abs_tol=5e-5)
        assert isclose(found[1], high, abs_tol=5e-5)


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=20))
def test_slope_reverses_with_time(values: list[float | None]) -> None:
    forward, backward = slope(values), slope(values[::-1])
    if forward is None or backward is None:
        assert forward is backward is None
        assert direction(forward) == "insufficient_data"
    else:
        assert isclose(forward, -backward, abs_tol=1e-9)


@given(st.integers(0, 200), st.integers(0, 200))
def test_a_rate_is_given_exactly_when_there_is_enough(false: int, true: int) -> None:
    counted = Counts(false + true, false, true)
    assert (counted.rate is not None) is (false + true >= 10)
