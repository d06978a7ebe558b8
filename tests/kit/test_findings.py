from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolgate.kit import findings as kit
from toolgate.kit.findings import Finding
from toolgate.kit.reports.printable import printable
from toolgate.kit.reports.render import FORMS, Checker, render

CHECKER = Checker("toolgate analyze", "0.1.0", "https://example.org")
PINNED = Finding(
    "MD-002",
    "fail",
    "medium",
    "actions/checkout is not pinned",
    file=".github/workflows/a b.yml",
    line=12,
    column=9,
    selector="jobs.build.steps[0]",
    why="A tag can be moved.",
    fix="Pin the commit.",
    anchor="uses: actions/checkout@v4",
)
PASSED = Finding("MD-003", "pass", "critical", "The contract is the committed one.")
UNKNOWN = Finding("MD-001", "not_evaluated", "high", "No branch protection file.")
SUPPRESSED = Finding("MD-004", "suppressed", "high", "Write token.", file="w.yml", extra={"ticket": "OPS-1"})
ALL = kit.fingerprinted([PINNED, PASSED, UNKNOWN, SUPPRESSED])
HOSTILE = "x\n::error::owned | <script>alert(1)</script> `code` \x1b[31m \u202e \x00 %0A ]]> & \"'"
anything = st.text(max_size=30)


def test_a_fingerprint_survives_moved_lines_and_new_indentation() -> None:
    moved = replace(PINNED, line=900, column=1, anchor="   uses:  actions/checkout@v4 ")
    assert kit.fingerprinted([moved])[0].fingerprint == ALL[0].fingerprint


@pytest.mark.parametrize("change", [{"rule": "MD-009"}, {"file": "other.yml"}, {"anchor": "uses: other@v1"}])
def test_another_rule_file_or_place_has_another_fingerprint(change: dict[str, str]) -> None:
    assert kit.fingerprinted([replace(PINNED, **change)])[0].fingerprint != ALL[0].fingerprint  # type: ignore[arg-type] # str fields


def test_equal_findings_in_one_file_are_told_apart_the_same_way_each_time() -> None:
    once, again = kit.fingerprinted([PINNED, replace(PINNED, line=40)]), kit.fingerprinted([PINNED, PINNED])
    assert len({one.fingerprint for one in once}) == 2
    assert [one.fingerprint for one in once] == [one.fingerprint for one in again]


def test_counts_are_of_failures_only_and_worst_first() -> None:
    assert list(kit.by_severity(ALL).items()) == [("critical", 0), ("high", 0), ("medium", 1), ("low", 0), ("info", 0)]


def test_text_names_place_rule_and_fix_and_leaves_passes_out() -> None:
    text = render("text", ALL, CHECKER)
    assert (
        ".github/workflows/a b.yml:12:9: medium MD-002: actions/checkout is not pinned\n    fix: Pin the commit.\n"
        in text
    )
    assert "-: not evaluated MD-001" in text
    assert "MD-003" not in text
    assert text.endswith("toolgate analyze: 1 medium; 1 not evaluated\n")


def test_json_carries_every_field_that_is_there() -> None:
    document = json.loads(render("json", ALL, CHECKER))
    pinned = next(one for one in document["findings"] if one["rule"] == "MD-002")
    assert pinned["fingerprint"] == ALL[0].fingerprint
    assert pinned["selector"] == "jobs.build.steps[0]"
    assert next(one for one in document["findings"] if one["rule"] == "MD-004")["ticket"] == "OPS-1"
    assert document["counts"]["medium"] == 1


def test_sarif_says_level_kind_place_and_suppression() -> None:
    document = json.loads(render("sarif", ALL, CHECKER))
    run = document["runs"][0]
    by_rule = {one["ruleId"]: one for one in run["results"]}
    assert document["version"] == "2.1.0"
    assert by_rule["MD-002"]["level"] == "warning"
    place = by_rule["MD-002"]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == ".github/workflows/a%20b.yml"
    assert place["region"] == {"startLine": 12, "startColumn": 9}
    assert by_rule["MD-002"]["partialFingerprints"] == {"toolgate/v1": ALL[0].fingerprint}
    assert (by_rule["MD-003"]["kind"], by_rule["MD-003"]["level"]) == ("pass", "none")
    assert (by_rule["MD-001"]["kind"], by_rule["MD-001"]["level"]) == ("open", "none")
    assert by_rule["MD-004"]["suppressions"] == [{"kind": "external", "status": "accepted"}]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_junit_counts_and_names_each_finding() -> None:
    root = ET.fromstring(render("junit", ALL, CHECKER))
    assert {name: root.get(name) for name in ("tests", "failures", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "skipped": "2",
    }
    failed = [case for case in root.iter("testcase") if case.find("failure") is not None]
    assert [case.get("name") for case in failed] == ["MD-002 .github/workflows/a b.yml:12:9"]


def test_an_annotation_points_at_the_line() -> None:
    assert render("github", ALL, CHECKER) == (
        "::warning file=.github/workflows/a b.yml,line=12,col=9,title=toolgate analyze MD-002::"
        "actions/checkout is not pinned Fix: Pin the commit.\n"
        "::notice title=toolgate analyze::Not evaluated: MD-001: No branch protection file.\n"
    )


@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_why_a_finding_is_true_here(form: str) -> None:
    known = replace(PINNED, extra={"because": "v4 is a tag."})
    assert "v4 is a tag." in render(form, [known], CHECKER)


@pytest.mark.parametrize("form", FORMS)
def test_no_form_is_silent_about_what_was_not_judged(form: str) -> None:
    assert "No branch protection file." in render(form, [UNKNOWN], CHECKER)


def test_markdown_is_one_table() -> None:
    lines = render("markdown", ALL, CHECKER).splitlines()
    assert lines[0] == "### toolgate analyze: 1 medium; 1 not evaluated"
    assert len([line for line in lines if line.startswith("| ")]) == 1 + 3


def test_no_findings_is_said_in_every_form() -> None:
    for form in FORMS:
        render(form, [], CHECKER)
    assert render("text", [], CHECKER) == "toolgate analyze: no findings\n"


def test_strangers_text_breaks_out_of_no_form() -> None:
    said = {"because": HOSTILE}
    bad = Finding("R1", "fail", "high", HOSTILE, file=HOSTILE, line=1, selector=HOSTILE, fix=HOSTILE, extra=said)
    assert len(render("github", [bad], CHECKER).splitlines()) == 1
    assert (
        render("github", [bad], CHECKER).count("::error") - render("github", [bad], CHECKER).count("%3A%3Aerror") >= 1
    )
    assert not re.search(r"^::error::owned", render("github", [bad], CHECKER), re.MULTILINE)
    markdown = render("markdown", [bad], CHECKER)
    assert "<script>" not in markdown
    assert len([line for line in markdown.splitlines() if line.startswith("|")]) == 3
    for form in ("text", "github", "markdown"):
        assert not {"\x1b", "\u202e", "\x00"} & set(render(form, [bad], CHECKER))
    ET.fromstring(render("junit", [bad], CHECKER))
    json.loads(render("sarif", [bad], CHECKER))


@given(anything, anything, anything)
def test_any_text_gives_well_formed_json_sarif_and_junit(message: str, file: str, fix: str) -> None:
    found = kit.fingerprinted([Finding("R1", "fail", "low", message, file=file, line=1, fix=fix)])
    json.loads(render("json", found, CHECKER))
    json.loads(render("sarif", found, CHECKER))
    ET.fromstring(render("junit", found, CHECKER))
    assert printable(message).isprintable() or not message
