"""Seed 001 as people use it: what changed since the baseline, how right rules were, who consented to what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.packs.governance.cli.commands import CLEAN, SHA, put, repo, run
from tests.packs.governance.desk import NOW
from toolgate.packs.governance.analysis.drift import from_stored
from toolgate.packs.governance.stores.reviews import ReviewEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.packs.governance.cli.commands import Done
    from tests.packs.governance.desk import Desk

__all__ = ["repo", "run"]  # fixtures

WORKFLOW = ".github/workflows/ci.yml"
OFF = ("--zizmor", "off")
SAID = ("--reason", "r", "--reviewer", "ann", "--ticket", "T-1")


# Baseline and drift


def test_drift_says_what_the_files_now_say_and_no_longer_do(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(repo, ".github/branch-rules.json", json.dumps([{"type": "merge_queue"}]))
    assert run("baseline").code == 0
    assert run("analyze", "--mode", "drift", "--json", *OFF).json["analysis"]["drift"]["changes"] == []
    changed = CLEAN.replace("[pull_request, merge_group]", "[pull_request, push]").replace(SHA, "v4")
    put(repo, WORKFLOW, changed.replace("contents: read", "contents: write"))
    done = run("analyze", "--mode", "drift", "--json", *OFF).json["analysis"]
    (change,) = done["drift"]["changes"]
    assert (change["path"], change["how"]) == (WORKFLOW, "modified")
    assert change["gained"] == ["runs on push", "lets job test write contents", "uses actions/checkout@v4"]
    assert change["lost"] == ["runs on merge_group", f"uses actions/checkout@{SHA}"]
    (new,) = done["drift"]["newFindings"]
    assert new.startswith(f"MD-002 medium {WORKFLOW}: The action actions/checkout@v4")
    told = run("analyze", "--mode", "drift", *OFF).out
    assert f"{WORKFLOW} was modified since the baseline: now runs on push; now lets job test write contents;" in told
    assert run("baseline").code == 0
    put(repo, WORKFLOW, CLEAN)
    put(repo, ".github/branch-rules.json", json.dumps([]))
    again = run("analyze", "--mode", "drift", "--json", *OFF).json["analysis"]["drift"]
    assert (len(again["newFindings"]), len(again["goneFindings"])) == (0, 1)
    assert again["changes"][0]["lost"] == ["has a merge queue"]


def test_a_file_that_came_or_went_is_told_without_its_whole_content(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    run("baseline")
    (repo / WORKFLOW).rename(repo / ".github/workflows/moved.yml")
    changes = run("analyze", "--mode", "drift", "--json", *OFF).json["analysis"]["drift"]["changes"]
    assert [(one["path"].rpartition("/")[2], one["how"], one["gained"]) for one in changes] == [
        ("ci.yml", "removed", []),
        ("moved.yml", "added", []),
    ]


def test_a_baseline_of_the_first_form_still_tells_which_files_changed(any_desk: Desk) -> None:
    any_desk.write(WORKFLOW, CLEAN)
    old = {WORKFLOW: "0" * 64, "gone.yml": "1" * 64}
    any_desk.false_positives(lambda kept: kept.write_baseline("acme/shop", old, int(NOW * 1000)))
    args = {"files": [WORKFLOW], "mode": "drift", "context": "acme/shop"}
    drift = any_desk.call("analyze_dissonance", args).data["analysis"]["drift"]
    assert (drift["modified"], drift["removed"]) == ([WORKFLOW], ["gone.yml"])
    assert from_stored(old).files[WORKFLOW].facts == ()


# Reviews, by the fingerprint that a report shows, to a rate


def fingerprints(run: Callable[..., Done], repo: Path, count: int) -> list[str]:
    put(repo, WORKFLOW, CLEAN + "".join(f"      - uses: a/b{number}@v1\n" for number in range(count)))
    found = run("analyze", "--json", *OFF).json["analysis"]["findings"]
    return [one["fingerprint"] for one in found]


def test_from_the_fingerprint_in_sarif_to_a_rate_its_owner_can_act_on(
    run: Callable[..., Done], repo: Path, tmp_path: Path
) -> None:
    marks = fingerprints(run, repo, 12)
    sarif = tmp_path / "out.sarif"
    run("analyze", "--format", "sarif", "-o", str(sarif), *OFF)
    results = json.loads(sarif.read_text())["runs"][0]["results"]
    failing = [one for one in results if one["kind"] == "fail"]
    seen = [one["partialFingerprints"]["toolgate/v1"] for one in failing]
    assert sorted(seen) == sorted(marks)
    assert all(f"[{mark}]" in one["message"]["text"] for mark, one in zip(seen, failing, strict=True))
    for number, mark in enumerate(seen):
        more = [] if number < 3 else ["--true-positive"]
        assert run("fp", "mark", mark, *SAID, "--report", str(sarif), *more).code == 0
    rate = run("fp", "rate")
    assert rate.out.startswith("MD-002: 12 reviewed, 3 false positives, rate 0.25 (95 %: 0.09 to 0.53). ")
    assert "too noisy to block on" in rate.out
    (row,) = run("fp", "rate", "MD-002", "--json").json["rules"]
    assert (row["reviewed"], row["falsePositives"], row["fpr"]) == (12, 3, 0.25)
    assert "MD-002 here: 12 reviewed, 3 false positives, rate 0.25 (95 %: 0.09 to 0.53)" in run("analyze", *OFF).out


def test_a_rule_says_how_reliable_it_has_been_in_this_repository(desk: Desk) -> None:
    desk.write(WORKFLOW, CLEAN)
    for number in range(20):
        verdict = "false_positive" if number < 5 else "true_positive"
        where = "acme/shop" if number < 11 else "acme/other"
        event = ReviewEvent("o", "MD-002", 1, f"{number:032x}", where, verdict, number, "ann", number, "T", "r")  # type: ignore[arg-type]
        desk.false_positives(lambda kept, event=event: kept.record(event))
    args = {"files": [WORKFLOW], "context": "acme/shop"}
    rules = {one["id"]: one for one in desk.call("analyze_dissonance", args).data["analysis"]["rules"]}
    told = rules["MD-002"]["reliability"]
    assert (told["reviewed"], told["falsePositives"]) == (11, 5)
    assert told["interval"]["low"] < told["fpr"] < told["interval"]["high"]
    assert rules["MD-004"]["reliability"]["fpr"] is None, "nobody has looked"


@pytest.mark.parametrize("content", ["{}", "[", '{"runs": 3}', '{"analysis": {}}'])
def test_a_report_of_another_kind_is_refused(
    run: Callable[..., Done], repo: Path, tmp_path: Path, content: str
) -> None:
    put(repo, WORKFLOW, CLEAN)
    report = tmp_path / "report"
    report.write_text(content)
    assert run("fp", "mark", "0" * 32, *SAID, "--report", str(report)).code == 2
    assert run("fp", "mark", "0" * 32, *SAID, "--report", str(tmp_path / "none")).code == 2


def test_awkward_5_marking_and_asking_mean_the_same_organisation_by_default(desk: Desk) -> None:
    """Awkward point 5 of the documents' trial: 12 reviews, and the guide's query said none."""
    for number in range(12):
        event = ReviewEvent(
            "local", "MD-002", 1, f"{number:032x}", "r", "true_positive", int(NOW * 1000) - 1, "a", 1, "T", "r"
        )
        desk.false_positives(lambda kept, event=event: kept.record(event))
    ask = {"queryType": "fp_rate", "ruleId": "MD-002"}
    desk.settings["organisation"] = "local"
    from toolgate.packs.governance.stores.consents import POLICY_VERSION, Record

    consent = Record("local", "fp_metrics", POLICY_VERSION, "ann", 0, None, None)
    desk.consents(lambda kept: kept.grant([consent], "ann"))
    assert desk.call("query_fp_store", ask).data["rate"]["reviewed"] == 12
    assert desk.call("check_consent_requirements", {"checkType": "summary"}).data["resources"][1]["valid"] is True


def test_awkward_5_the_organisation_of_the_settings_is_everybodys_default(
    run: Callable[..., Done], repo: Path, tmp_path: Path
) -> None:
    (tmp_path / "home" / "toolgate.toml").write_text('[packs.governance]\norganisation = "acme"\n')
    (mark,) = fingerprints(run, repo, 1)
    run("fp", "mark", mark, *SAID)
    assert [one["org_id"] for one in run("fp", "list", "--json").json] == ["acme"]
    assert run("fp", "rate", "--json").json["organisation"] == "acme"
    assert run("consent", "list").out.startswith("acme, policy ")


# Consent


def test_consent_says_who_granted_when_for_what_and_until_when(run: Callable[..., Done], repo: Path) -> None:
    assert run("consent", "grant", "acme", "fp_metrics", "--by", "DPO", "--days", "30").code == 0
    assert run("consent", "grant", "acme", "audit_logs", "--by", "CISO").code == 0
    rows = {one["resource"]: one for one in run("consent", "list", "acme", "--json").json}
    metrics = rows["fp_metrics"]
    assert (metrics["grantedBy"], metrics["risk"], metrics["retentionDays"]) == ("DPO", "low", 365)
    assert metrics["operations"] == ["query_fp_store.fp_rate", "query_fp_store.trend_analysis"]
    assert metrics["grantedAt"] < metrics["expiresAt"]
    assert (rows["audit_logs"]["expiresAt"], rows["fp_patterns"]["grantedBy"]) == (None, None)
    text = run("consent", "list", "acme").out
    assert "✓ fp_metrics: granted and in force; given by DPO on 2" in text
    assert f"under policy 1.2, until {metrics['expiresAt'][:10]}" in text
    assert "for: how often rules were wrong (low risk, kept 365 days)" in text
    assert "used by: query_fp_store.fp_rate, query_fp_store.trend_analysis" in text
    assert "given by CISO" in text
    run("consent", "revoke", "acme", "audit_logs", "--by", "CISO")
    revoked = {one["resource"]: one for one in run("consent", "list", "acme", "--json").json}["audit_logs"]
    assert revoked["revokedAt"]
    assert ", revoked on " in run("consent", "list", "acme").out
