"""validate_l0_invariants: every check at its borders, nothing passes for lack of evidence."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.packs.governance.desk import NOW, TOOLS
from toolgate.errors import ToolError
from toolgate.model.clock import rfc3339
from toolgate.packs.governance.invariants.block import (
    BATCHES,
    MAX_STEADY_S,
    MIN_BATCHES,
    NAMES,
    PARTS,
    RUNS,
    STEADY_FOR_S,
    Measurements,
    Prepared,
    fused,
    recent_ns,
    run_block,
    steady_ns,
)
from toolgate.packs.governance.stores import reviews

if TYPE_CHECKING:
    from pathlib import Path

    from tests.packs.governance.desk import Desk

L0 = "validate_l0_invariants"


def only(desk: Desk, args: dict[str, Any]) -> dict[str, Any]:
    """The one result of a call with one check."""
    results = desk.call(L0, args).data["validation"]["results"]
    assert len(results) == 1
    return dict(results[0])


def drift(current: float, baseline: float, **more: Any) -> dict[str, Any]:
    return {
        "driftCheck": {
            "currentMetric": {"name": more.pop("name", "score"), "value": current},
            "baselineMetric": {"name": "score", "value": baseline},
            **more,
        }
    }


def nonce(age: float = 10, value: str = "n" * 32, **more: Any) -> dict[str, Any]:
    return {"nonceValidation": {"nonce": value, "timestamp": rfc3339(NOW - age), **more}}


def contraction(previous: float, current: float, events: int = 0, **more: Any) -> dict[str, Any]:
    return {"contractionCheck": {"previousFPR": previous, "currentFPR": current, "witnessEventCount": events, **more}}


# What runs


@pytest.mark.req("001-L0-1")
def test_d15_answer_names_the_checks_that_did_not_run_so_that_all_is_not_guessed(desk: Desk) -> None:
    """Without names all checks run that can: a check without its input cannot, and is not passed by silence either."""
    some = desk.call(L0, drift(1, 1) | contraction(0.1, 0.1)).data["validation"]
    assert (some["checksRun"], some["notRun"]) == (2, ["schema-hash", "permission-bits", "nonce-freshness"])
    named = desk.call(L0, drift(1, 1) | contraction(0.1, 0.1) | {"checks": ["drift-magnitude"]}).data["validation"]
    assert [one["name"] for one in named["results"]] + named["notRun"] == ["drift-magnitude", *NAMES[:2], *NAMES[3:]]


@pytest.mark.req("001-L0-1", "001-L0-2", "001-L0-5")
def test_without_names_every_check_whose_input_is_there_runs(desk: Desk) -> None:
    desk.write("s.json", "{}")
    args = (
        {"schemaFile": "s.json", "expectedSchemaHash": sha256(b"{}").hexdigest()}
        | drift(1, 1)
        | nonce()
        | contraction(0.1, 0.1)
    )
    result = desk.call(L0, args)
    validation = result.data["validation"]
    assert [one["name"] for one in validation["results"]] == [name for name in NAMES if name != "permission-bits"]
    assert (validation["allPassed"], validation["checksRun"], validation["passed"], validation["failed"]) == (
        True,
        4,
        4,
        0,
    )
    assert validation["failures"] == []
    assert (result.decision, result.code) == ("pass", None)


@pytest.mark.req("001-L0-1")
def test_only_the_named_checks_run(desk: Desk) -> None:
    args = {"checks": ["drift-magnitude"]} | drift(1, 1) | contraction(0.1, 0.9)
    assert only(desk, args)["name"] == "drift-magnitude"


@pytest.mark.req("001-L0-6")
@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({}, "missing_checks"),
        ({"checks": ["schema-hash"]}, "missing_schemaFile"),
        ({"checks": ["schema-hash"], "schemaFile": "s"}, "missing_expectedSchemaHash"),
        ({"schemaFile": "s"}, "missing_expectedSchemaHash"),
        ({"expectedSchemaHash": "a" * 64}, "missing_schemaFile"),
        ({"checks": ["permission-bits"]}, "missing_workflowFiles"),
        ({"checks": ["drift-magnitude", "nonce-freshness"]} | drift(1, 1), "missing_nonceValidation"),
        ({"checks": ["contraction-witness"]}, "missing_contractionCheck"),
    ],
)
def test_w10_nothing_to_check_is_an_error_that_names_what_is_missing(
    desk: Desk, args: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ToolError) as fault:
        desk.call(L0, args)
    assert fault.value.code == "INVALID_INPUT"
    assert fault.value.data["errors"][0]["reason"] == reason


@pytest.mark.parametrize(
    "args",
    [
        {"checks": []},
        {"checks": ["drift_magnitude"]},
        {"checks": ["drift-magnitude", "drift-magnitude"]},
        {"expectedSchemaHash": "abcd1234", "schemaFile": "s"},
        {"expectedSchemaHash": "A" * 64, "schemaFile": "s"},
        {"workflowFiles": []},
        drift(1, 1, threshold=-0.1),
        drift(1e300, 1),
        nonce(value=""),
        nonce(maxAgeSeconds=0),
        nonce(maxAgeSeconds=86_401),
        {"nonceValidation": {"nonce": "n", "timestamp": "yesterday"}},
        {"nonceValidation": {"nonce": "n", "timestamp": "2025-11-15T22:00:00"}},
        contraction(1.1, 0),
        contraction(0.5, 0.5, -1),
        contraction(0.5, 0.5, 2**60),
        {"surprise": 1},
    ],
)
@pytest.mark.req("001-L0-6")
def test_w26_input_beyond_the_schema_is_refused_before_the_tool(args: dict[str, Any]) -> None:
    assert not jsonschema_rs.is_valid(dict(TOOLS[L0].input_schema), args)


def test_a_failed_check_is_block_with_its_code_and_appears_in_failures(desk: Desk) -> None:
    result = desk.call(L0, drift(1, 1) | contraction(0.1, 0.2))
    validation = result.data["validation"]
    assert (result.success, result.decision, result.code) == (True, "block", "INVARIANT_VIOLATION")
    assert (validation["allPassed"], validation["passed"], validation["failed"]) == (False, 1, 1)
    assert [one["invariantId"] for one in validation["failures"]] == ["L0-005"]
    assert validation["failures"][0] == validation["results"][1]
    assert validation["failures"][0]["remediation"]
    assert validation["results"][0]["remediation"] is None


# L0-001


@pytest.mark.req("001-L0-8")
def test_the_hash_is_over_the_bytes(desk: Desk) -> None:
    content = b'\xef\xbb\xbf{"a": 1}\r\n'
    desk.write("s.json", content)
    digest = sha256(content).hexdigest()
    good = only(desk, {"schemaFile": "s.json", "expectedSchemaHash": digest})
    assert (good["passed"], good["evidence"]["actual"], good["evidence"]["bytes"]) == (True, digest, len(content))
    desk.write("s.json", content + b" ")
    bad = only(desk, {"schemaFile": "s.json", "expectedSchemaHash": digest})
    assert (bad["passed"], bad["severity"]) == (False, "critical")
    assert bad["evidence"]["actual"] != digest


def test_w12_a_missing_schema_file_fails_its_check_and_lets_the_others_run(desk: Desk) -> None:
    args = {"schemaFile": "none.json", "expectedSchemaHash": "0" * 64} | drift(1, 1)
    results = desk.call(L0, args).data["validation"]["results"]
    assert [one["passed"] for one in results] == [False, True]
    assert "cannot be read" in results[0]["message"]


def test_a_path_that_leaves_the_workspace_is_a_fault_of_the_arguments(desk: Desk) -> None:
    with pytest.raises(ToolError) as fault:
        desk.call(L0, {"schemaFile": "../../etc/passwd", "expectedSchemaHash": "0" * 64})
    assert (fault.value.code, fault.value.data["reason"]) == ("INVALID_INPUT", "invalid_path")


# L0-002


def permissions(desk: Desk, text: str) -> dict[str, Any]:
    desk.write("w.yml", text)
    return only(desk, {"workflowFiles": ["w.yml"]})


WORKFLOW = "on: push\n{top}jobs:\n  build:\n    runs-on: x\n{job}    steps: []\n"


@pytest.mark.req("001-L0-9")
@pytest.mark.parametrize(
    ("top", "job", "passed", "line"),
    [
        ("permissions: read-all\n", "", True, None),
        ("permissions: {}\n", "", True, None),
        ("permissions:\n", "", True, None),
        ("permissions:\n  contents: read\n", "", True, None),
        ("permissions: write-all\n", "", False, 2),
        ("permissions: {contents: write}\n", "", False, 2),
        ("permissions:\n  id-token: write\n", "", False, 3),
        ("permissions: write-all\n", "    permissions: {}\n", True, None),
        ("permissions: {}\n", "    permissions: {packages: write}\n", False, 6),
        ("permissions:\n  contents: read  # never contents: write or write-all\n", "", True, None),
        ('permissions: "write-all"\n', "", False, 2),
    ],
)
def test_effective_permissions_decide_and_comments_do_not(
    desk: Desk, top: str, job: str, passed: bool, line: int | None
) -> None:
    result = permissions(desk, WORKFLOW.format(top=top, job=job))
    assert result["passed"] is passed
    if not passed:
        violation = result["evidence"]["violations"][0]
        assert (violation["file"], violation["line"], violation["job"]) == ("w.yml", line, "build")


def test_permissions_that_are_not_stated_are_unknown_and_reported(desk: Desk) -> None:
    result = permissions(desk, WORKFLOW.format(top="", job=""))
    assert (result["passed"], result["status"]) == (False, "unknown")
    assert result["evidence"]["unknown"] == [{"file": "w.yml", "line": 3, "job": "build"}]


def test_the_allow_list_is_the_settings(desk: Desk) -> None:
    text = WORKFLOW.format(top="permissions: {contents: write}\n", job="")
    assert permissions(desk, text)["passed"] is False
    desk.settings["write_scopes_allowed"] = ["contents"]
    assert permissions(desk, text)["passed"] is True


@pytest.mark.parametrize(
    ("allowed", "passed"),
    [
        ({"workflow": "w.yml", "job": "build", "scopes": ["contents"]}, True),
        ({"workflow": "w.yml", "scopes": ["packages", "contents"]}, True),
        ({"workflow": "w.yml", "job": "other", "scopes": ["contents"]}, False),
        ({"workflow": "other.yml", "scopes": ["contents"]}, False),
        ({"workflow": "w.yml", "scopes": ["packages"]}, False),
    ],
)
def test_the_allow_list_is_for_a_workflow_and_a_job(desk: Desk, allowed: dict[str, Any], passed: bool) -> None:
    text = WORKFLOW.format(top="permissions: {contents: write}\n", job="")
    desk.settings["write_allowed"] = [allowed]
    assert permissions(desk, text)["passed"] is passed
    desk.settings.clear()
    lines = [f'{key} = "{value}"' for key, value in allowed.items() if key != "scopes"]
    desk.write(".toolgate.toml", "\n".join(["[[write]]", *lines, f"scopes = {allowed['scopes']}", ""]))
    assert permissions(desk, text)["passed"] is passed, "the repository's own list"


@pytest.mark.parametrize(
    "text", ["a: [", "jobs: 1", "on: push\njobs: {}", "on: push\non: push\njobs: {a: {steps: []}}", "\x00"]
)
def test_a_workflow_that_cannot_be_understood_is_a_violation(desk: Desk, text: str) -> None:
    assert permissions(desk, text)["passed"] is False


def test_w12_a_workflow_that_is_not_there_is_a_violation(desk: Desk) -> None:
    result = only(desk, {"workflowFiles": ["none.yml"]})
    assert (result["passed"], result["evidence"]["violationsTotal"]) == (False, 1)


# L0-003


@pytest.mark.req("001-L0-10", "001-L0-7")
@pytest.mark.parametrize(
    ("current", "baseline", "more", "passed"),
    [
        (90, 100, {"threshold": 0.2}, True),
        (90, 100, {"threshold": 0.1}, True),
        (89.9, 100, {"threshold": 0.1}, False),
        (150, 100, {}, True),
        (150.1, 100, {}, False),
        (0, 0, {}, True),
        (0.1, 0, {"threshold": 10}, False),
        (90, -100, {}, False),
        (-90, -100, {}, True),
        (100, 100, {"threshold": 0}, True),
        (100, 100, {"name": "other"}, False),
    ],
)
def test_drift_at_its_borders(desk: Desk, current: float, baseline: float, more: dict[str, Any], passed: bool) -> None:
    result = only(desk, drift(current, baseline, **more))
    assert (result["passed"], result["severity"]) == (passed, "high")


# L0-004


@pytest.mark.req("001-L0-11", "001-L0-7")
@pytest.mark.parametrize(
    ("age", "more", "passed"),
    [
        (0, {}, True),
        (3599, {}, True),
        (3600, {}, False),
        (-1, {}, False),
        (59, {"maxAgeSeconds": 60}, True),
        (60, {"maxAgeSeconds": 60}, False),
    ],
)
def test_a_nonce_is_fresh_from_zero_to_its_age(desk: Desk, age: float, more: dict[str, Any], passed: bool) -> None:
    assert only(desk, nonce(age, **more))["passed"] is passed


@pytest.mark.parametrize(
    "stamp",
    ["2025-11-15T23:59:50+02:00", "2025-11-15T21:59:50Z", "2025-11-15t21:59:50.5z", "2025-11-15T13:59:50-08:00"],
)
def test_any_offset_of_rfc_3339_is_understood(desk: Desk, stamp: str) -> None:
    result = only(desk, {"nonceValidation": {"nonce": "x", "timestamp": stamp}})
    assert result["passed"] is True
    assert 9 < result["evidence"]["ageSeconds"] < 11


def test_a_time_that_does_not_exist_is_invalid_input(desk: Desk) -> None:
    with pytest.raises(ToolError, match="RFC 3339"):
        desk.call(L0, {"nonceValidation": {"nonce": "x", "timestamp": "2025-02-30T00:00:00Z"}})


def test_w11_a_nonce_is_good_once_and_never_echoed(any_desk: Desk) -> None:
    secret = "s3cr3t-nonce-value"
    first, second = (any_desk.call(L0, nonce(value=secret)) for _ in range(2))
    assert first.decision == "pass"
    assert second.decision == "block"
    assert second.data["validation"]["results"][0]["evidence"]["singleUse"] == "replayed"
    assert secret not in str(first.data) + str(second.data) + str(second.message)
    digest = sha256(secret.encode()).hexdigest()
    rows = any_desk.rows("false_positives", "digest", "nonces", f"nonce#{digest} nonce")
    assert rows in ([(digest,)], [(None,)]), "a column in SQL, in a table the key by which it was found"


def test_of_twenty_concurrent_uses_of_a_nonce_one_passes(any_desk: Desk) -> None:
    async def all_at_once() -> list[bool]:
        results = await asyncio.gather(*(any_desk.acall(L0, nonce()) for _ in range(20)))
        return [one.data["validation"]["allPassed"] for one in results]

    assert sum(asyncio.run(all_at_once())) == 1


def test_a_stale_nonce_is_not_spent(desk: Desk) -> None:
    assert only(desk, nonce(4000))["evidence"]["singleUse"] == "not_spent"
    assert only(desk, nonce(10))["passed"] is True


def test_a_nonce_is_spent_even_when_another_check_fails(desk: Desk) -> None:
    desk.call(L0, nonce() | contraction(0.1, 0.2))
    assert only(desk, nonce())["passed"] is False


def test_without_the_store_single_use_cannot_be_shown_and_the_check_fails(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    result = only(desk, nonce())
    assert (result["passed"], result["evidence"]["singleUse"]) == (False, "store_unavailable")


# L0-005


@pytest.mark.req("001-L0-12", "001-L0-7")
@pytest.mark.parametrize(
    ("previous", "current", "count", "more", "passed"),
    [
        (0.10, 0.10, 0, {}, True),
        (0.05, 0.04, 0, {}, True),
        (0.50, 0.49, 0, {}, True),
        (0.05, 0.0399, 9, {}, False),
        (0.05, 0.0399, 10, {}, True),
        (0.05, 0.01, 2, {"minRequiredEvents": 2}, True),
        (0.05, 0.01, 1, {"minRequiredEvents": 2}, False),
        (0.10, 0.1000001, 1000, {}, False),
        (1, 0, 2**53 - 1, {}, True),
    ],
)
def test_a_falling_rate_needs_witnesses_and_a_rising_one_fails(
    desk: Desk, previous: float, current: float, count: int, more: dict[str, Any], passed: bool
) -> None:
    result = only(desk, contraction(previous, current, count, **more))
    assert (result["passed"], result["evidence"]["verification"]) == (passed, "unverified")


def test_w26_witnesses_by_id_are_looked_up_and_only_reviewed_ones_count(any_desk: Desk) -> None:
    made = [
        reviews.ReviewEvent(
            "org",
            "MD-001",
            1,
            f"f{i}",
            "r",
            "pending" if i == 0 else "true_positive",
            i,
            *(() if i == 0 else ("ann", i, "T-1")),
        )
        for i in range(4)
    ]
    any_desk.false_positives(lambda kept: [kept.record(one) for one in made])
    ids = [one.event_id for one in made] + ["invented"]
    result = only(any_desk, contraction(0.2, 0.1, 1000, minRequiredEvents=4, witnessEventIds=ids))
    assert (result["passed"], result["evidence"]["witnessEvents"], result["evidence"]["verification"]) == (
        False,
        3,
        "verified",
    )
    assert only(any_desk, contraction(0.2, 0.1, 0, minRequiredEvents=3, witnessEventIds=ids))["passed"] is True


# Latency


@pytest.mark.req("001-L0-3", "001-L0-4")
@pytest.mark.parametrize(
    ("read_s", "first", "steady", "within"),
    [(1.0e-7, 50, 4, True), (1.0e-6, 500, 32, True), (3.168e-6, 1584, 99, True), (3.2e-6, 1600, 100, False)],
)
def test_d7_answer_reports_the_first_run_and_the_steady_state_and_judges_the_steady_one(
    desk: Desk, read_s: float, first: int, steady: int, within: bool
) -> None:
    """The clock moves by `read_s` with each reading: so long takes a block, and so long a batch of 32 runs."""
    desk.clock.step = read_s
    data = desk.call(L0, drift(1, 1) | contraction(0.1, 0.1)).data
    results = data["validation"]["results"]
    assert [(one["latencyNs"], one["steadyNs"]) for one in results] == [(first, steady)] * 2
    assert (data["performanceNs"], data["steadyNs"]) == (2 * first, 2 * steady)
    assert data["withinPerformanceTarget"] is within
    assert "block" in data["latencyMethod"]
    assert "median" in data["steadyMethod"]


def test_d7_steady_state_is_the_median_and_one_stolen_moment_does_not_move_it() -> None:
    reads = iter([0.0, *(moment for batch in range(BATCHES) for moment in (batch * 1e-5, batch * 1e-5 + RUNS * 1e-7))])
    spoilt = [moment + (9e-5 if number == 4 else 0.0) for number, moment in enumerate(reads)]
    times = iter(spoilt)
    assert steady_ns(Prepared(), ["nonce-freshness"], lambda: next(times)) == {"nonce-freshness": 100}


def test_d7_steady_state_is_measured_again_after_a_second_and_for_each_check_by_itself() -> None:
    known: Measurements = {}
    now = [0.0]
    batch = [RUNS * 1e-7]

    def clock() -> float:
        now[0] += batch[0]
        return now[0]

    assert recent_ns(known, Prepared(), ["nonce-freshness"], clock) == {"nonce-freshness": 100}
    batch[0] = RUNS * 2e-7
    assert recent_ns(known, Prepared(), ["nonce-freshness", "schema-hash"], clock) == {
        "nonce-freshness": 100,
        "schema-hash": 200,
    }
    now[0] += STEADY_FOR_S
    assert recent_ns(known, Prepared(), ["nonce-freshness"], clock) == {"nonce-freshness": 200}


def test_d7_steady_state_is_bounded_in_time_whatever_the_machine_does() -> None:
    reads: list[float] = []

    def slow() -> float:
        reads.append(2 * MAX_STEADY_S * (len(reads) + 1))
        return reads[-1]

    found = steady_ns(Prepared(), NAMES, slow)
    assert len(reads) == 1 + 2 * MIN_BATCHES * len(NAMES)
    assert all(found.values())


@given(
    st.builds(
        Prepared,
        expected_hash=st.sampled_from(["a", "b"]),
        actual_hash=st.sampled_from(["a", "b", None]),
        permission_violations=st.integers(0, 2),
        names_match=st.booleans(),
        difference=st.floats(0, 2),
        allowed=st.floats(0, 2),
        age_s=st.floats(-1, 2),
        max_age_s=st.floats(0, 2),
        decrease=st.floats(-0.1, 0.1),
        witnesses=st.integers(0, 3),
        min_witnesses=st.integers(0, 3),
    )
)
def test_d7_what_is_measured_alone_is_what_the_block_decides_by(prepared: Prepared) -> None:
    assert fused(prepared) == tuple(holds(*prepared[part]) for holds, part in PARTS)


def test_the_block_reads_the_clock_twice_and_nothing_else() -> None:
    reads: list[int] = []

    def clock() -> float:
        reads.append(1)
        return 0.0

    run_block(Prepared(), clock)
    assert len(reads) == 2


@pytest.mark.parametrize(
    ("args", "needs"),
    [
        (drift(1, 1), False),
        (drift(9, 1), False),
        (contraction(0.1, 0.1), False),
        (drift(1, 1) | contraction(0.5, 0.1), False),
        (drift(1, 1) | contraction(0.1, 0.1, witnessEventIds=["e1"]), True),
        (drift(1, 1) | nonce(), True),
        (drift(1, 1) | {"workflowFiles": [".github/workflows/ci.yml"]}, True),
        (drift(1, 1) | {"schemaFile": "s.json", "expectedSchemaHash": "0" * 64}, True),
    ],
)
def test_arithmetic_is_answered_at_once_and_what_needs_a_file_a_store_or_a_nonce_is_not(
    desk: Desk, args: dict[str, Any], needs: bool
) -> None:
    at_once = TOOLS[L0].at_once(desk.clock, desk.memory, args)
    assert (at_once is None) is needs
    if at_once is not None:
        run = asyncio.run(TOOLS[L0].run(desk.context(TOOLS[L0]), args))
        assert at_once == run, "the clock stands still: not even times differ"


# Laws of the block


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.floats(0, 10))
def test_drift_law(current: float, baseline: float, threshold: float) -> None:
    prepared = Prepared(difference=abs(current - baseline), allowed=threshold * abs(baseline))
    assert fused(prepared)[2] is (abs(current - baseline) <= threshold * abs(baseline))


@given(st.floats(-1e6, 1e6), st.floats(1, 86400))
def test_nonce_law(age: float, max_age: float) -> None:
    assert fused(Prepared(age_s=age, max_age_s=max_age))[3] is (0 <= age < max_age)


@given(st.floats(-1, 1), st.integers(0, 100), st.integers(1, 100))
def test_contraction_law_more_witnesses_never_hurt(decrease: float, witnesses: int, needed: int) -> None:
    now = fused(Prepared(decrease=decrease, witnesses=witnesses, min_witnesses=needed))[4]
    more = fused(Prepared(decrease=decrease, witnesses=witnesses + 1, min_witnesses=needed))[4]
    assert more >= now
    assert not (decrease < 0 and more)


def test_the_neutral_values_pass_so_that_only_what_was_asked_can_fail() -> None:
    assert all(fused(Prepared()))
