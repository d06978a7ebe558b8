"""check_adr_compliance: rules come from front matter, lines are named, and nothing unread is compliant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolgate.errors import ToolError
from toolgate.packs.governance.decisions.records import glob_matches, number_of, read_adr

if TYPE_CHECKING:
    from tests.packs.governance.desk import Desk

CHECK = "check_adr_compliance"

RULES = """---
status: accepted
applies-to: ["src/**/*.py"]
rules:
  - id: no-print
    must-not: 'print\\('
    severity: high
    message: No printing.
    remediation: Use the reporter.
  - must: '^# Copyright'
    severity: low
---
# ADR-0003: Quiet code
"""


@pytest.fixture
def repo(desk: Desk) -> Desk:
    desk.write("docs/adr/ADR-0003-quiet.md", RULES)
    desk.write("src/a/good.py", "# Copyright us\nx = 1\n")
    desk.write("src/bad.py", "# Copyright us\nx = 1\nprint(x)\nprint(password='hunter22')\n")
    return desk


def check(desk: Desk, files: list[str], **args: Any) -> dict[str, Any]:
    result = desk.call(CHECK, {"files": files, **args})
    return {"decision": result.decision, **result.data["compliance"]}


@pytest.mark.req("001-T6")
def test_w28_violations_have_file_line_record_rule_and_fix(repo: Desk) -> None:
    answer = check(repo, ["src/a/good.py", "src/bad.py"])
    assert (answer["compliant"], answer["status"], answer["decision"]) == (False, "violations", "block")
    assert [(one["adrId"], one["ruleId"], one["file"], one["line"]) for one in answer["violations"]] == [
        ("ADR-0003", "no-print", "src/bad.py", 3),
        ("ADR-0003", "no-print", "src/bad.py", 4),
    ]
    assert answer["violations"][0]["remediation"] == "Use the reporter."
    assert "hunter22" not in str(answer)
    assert answer["violationSummary"] == {"total": 2, "critical": 0, "high": 2, "medium": 0, "low": 0}


def test_files_that_keep_the_rules_are_compliant(repo: Desk) -> None:
    answer = check(repo, ["src/a/good.py"])
    assert (answer["compliant"], answer["decision"], answer["rulesChecked"], answer["adrList"]) == (
        True,
        "pass",
        2,
        ["ADR-0003"],
    )


def test_must_is_broken_by_a_file_in_which_no_line_matches(repo: Desk) -> None:
    repo.write("src/bare.py", "x = 1\n")
    answer = check(repo, ["src/bare.py"])
    assert [(one["ruleId"], one["line"], one["severity"]) for one in answer["violations"]] == [
        ("ADR-0003-R2", 1, "low")
    ]
    assert answer["decision"] == "warn"


def test_a_file_outside_applies_to_is_not_judged(repo: Desk) -> None:
    repo.write("tools/x.py", "print(1)\n")
    assert check(repo, ["tools/x.py"])["compliant"] is True


@pytest.mark.parametrize("extra", ["none.py", "blob.bin"])
def test_w12_an_unreadable_file_is_skipped_and_never_compliant(repo: Desk, extra: str) -> None:
    repo.write("blob.bin", b"\xff\xfe\x00")
    answer = check(repo, ["src/a/good.py", extra])
    assert [one["path"] for one in answer["skipped"]] == [extra]
    assert (answer["compliant"], answer["status"], answer["decision"], answer["filesChecked"]) == (
        False,
        "not_evaluated",
        "warn",
        1,
    )


def test_w12_an_unknown_record_is_reported_and_never_compliant(repo: Desk) -> None:
    answer = check(repo, ["src/a/good.py"], adrs=["ADR-0003", "ADR-0099"])
    assert (answer["unknownAdrs"], answer["compliant"], answer["decision"]) == (["ADR-0099"], False, "warn")


def test_records_are_chosen_by_number_however_it_is_written(repo: Desk) -> None:
    repo.write("docs/adr/0004-other.md", RULES.replace("no-print", "other"))
    assert check(repo, ["src/bad.py"], adrs=["ADR-3"])["adrList"] == ["ADR-0003"]
    assert check(repo, ["src/bad.py"], adrs=["ADR-0004"])["adrList"] == ["ADR-0004"]


@pytest.mark.parametrize(
    ("status", "enforced", "with_proposed"),
    [
        ("accepted", True, True),
        ("Accepted", True, True),
        ("proposed", False, True),
        ("rejected", False, False),
        ("deprecated", False, False),
        ("superseded by ADR-0009", False, False),
    ],
)
def test_only_accepted_records_bind_and_proposed_ones_on_request(
    repo: Desk, status: str, enforced: bool, with_proposed: bool
) -> None:
    repo.write("docs/adr/ADR-0003-quiet.md", RULES.replace("status: accepted", f"status: {status}"))
    assert bool(check(repo, ["src/bad.py"])["violations"]) is enforced
    assert bool(check(repo, ["src/bad.py"], includeProposed=True)["violations"]) is with_proposed


def test_w10_records_without_rules_are_not_evaluated_rather_than_compliant(repo: Desk) -> None:
    repo.write("docs/adr/ADR-0003-quiet.md", "# ADR-0003: Prose\n\n**Status:** Accepted\n\nCode MUST NOT print.\n")
    answer = check(repo, ["src/bad.py"])
    assert (answer["status"], answer["compliant"], answer["decision"], answer["rulesChecked"]) == (
        "not_evaluated",
        False,
        "warn",
        0,
    )


def test_no_record_at_all_is_an_error(desk: Desk) -> None:
    desk.write("x.py", "")
    desk.write("docs/adr/README.md", "none yet")
    for path in ("docs/adr", "nowhere"):
        with pytest.raises(ToolError) as fault:
            check(desk, ["x.py"], adrPath=path)
        assert (fault.value.code, fault.value.missing) == ("NO_ADRS_FOUND", True)


def test_records_below_the_directory_are_not_its_records(repo: Desk) -> None:
    repo.write("docs/adr/old/ADR-0001-x.md", RULES)
    assert [one["id"] for one in check(repo, ["src/bad.py"])["adrDetails"]] == ["ADR-0003"]


def test_a_path_that_leaves_the_workspace_is_invalid_input(repo: Desk) -> None:
    for args in ({"files": ["../x"]}, {"files": ["src/bad.py"], "adrPath": "/etc"}):
        with pytest.raises(ToolError) as fault:
            repo.call(CHECK, args)
        assert (fault.value.code, fault.value.data["reason"]) == ("INVALID_INPUT", "invalid_path")


@pytest.mark.parametrize(
    "rules",
    [
        "rules: [{must: a, must-not: b}]",
        "rules: [{severity: high}]",
        "rules: [{must: '('}]",
        "rules: [{must: a, severity: fatal}]",
        "rules: [{must: a, surprise: b}]",
        "rules: {must: a}",
        "rules: [hello]",
        "rules: [{id: x, must: a}, {id: x, must: b}]",
        "rules: [{must: " + "a" * 501 + "}]",
        "rules: [",
        "applies-to: [{}]\nrules: [{must: a}]",
    ],
)
def test_rules_that_cannot_be_used_are_reported_with_their_line(repo: Desk, rules: str) -> None:
    head = "" if rules.startswith("applies") else 'applies-to: "**"\n'
    repo.write("docs/adr/ADR-0003-quiet.md", f"---\nstatus: accepted\n{head}{rules}\n---\n# ADR-0003: X\n")
    answer = check(repo, ["src/a/good.py"])
    detail = answer["adrDetails"][0]
    assert "line" in detail["fault"]
    assert (detail["enforced"], answer["compliant"], answer["decision"]) == (False, False, "block")
    assert detail["line"] > 1
    assert detail["fix"]


def test_a_rule_without_applies_to_is_a_fault() -> None:
    adr = read_adr("ADR-0001-x.md", b"---\nstatus: accepted\nrules: [{must: a}]\n---\n# X\n")
    assert adr.fault is not None
    assert "applies-to" in adr.fault


def test_a_pattern_that_never_ends_is_killed(repo: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolgate.packs.governance.decisions import compliance

    monkeypatch.setattr(compliance, "PATTERN_SECONDS", 0.5)
    repo.write("docs/adr/ADR-0003-quiet.md", RULES.replace("print\\(", "(a+)+$"))
    repo.write("src/bad.py", "a" * 60 + "!\n")
    with pytest.raises(TimeoutError):
        check(repo, ["src/bad.py"])
    assert check(repo, ["src/a/good.py"])["filesChecked"] == 1  # the next call gets a new worker


def test_a_record_has_one_id_however_its_file_is_named() -> None:
    for path in ("docs/adr/0007-use-x.md", "docs/adr/ADR-7.md", "adr-0007_use_x.md"):
        adr = read_adr(path, b"# 7. Use X\n\n## Status\n\nAccepted\n")
        assert (adr.id, adr.status, adr.title, adr.fault) == ("ADR-0007", "accepted", "Use X", None)


def test_front_matter_that_cannot_be_read_is_a_fault_at_its_line_of_the_file() -> None:
    adr = read_adr("ADR-0001-x.md", b"---\nstatus: accepted\nstatus: accepted\n---\n# X\n")
    assert (adr.status, adr.rules) == ("unknown", ())
    assert adr.fault == "front matter, line 3: a key stands twice in one mapping: 'status'"


def test_a_record_of_unknown_status_is_never_compliant(repo: Desk) -> None:
    repo.write("docs/adr/ADR-0004-draft.md", "# ADR-0004: Draft\n")
    assert check(repo, ["src/a/good.py"])["compliant"] is False


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/a/b/c.py", True),
        ("src/**/*.py", "src/a.pyc", False),
        ("*.md", "docs/x.md", False),
        ("**", "any/thing", True),
        ("**/*.yml", "x.yml", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a.c", "abc", False),
        ("docs/**", "docs/a/b", True),
        ("**/**/x", "x", True),
        ("***/x", "a/b/x", True),
        ("***/x", "x", True),
        ("a**/x", "ab/c/x", True),
        ("a**/x", "x", False),
        ("a**/x", "ax", False),
    ],
)
def test_globs(glob: str, path: str, matches: bool) -> None:
    assert glob_matches(glob, path) is matches


@given(st.text(alphabet="ab*?/.", max_size=12), st.text(alphabet="ab/.\n", max_size=12))
@example("?*/", "a/")
@example("*", "a\nb")
@example("a*/b", "ax/b")
@example("*/", "/")
@example("a/*/b", "a//b")
def test_a_double_star_matches_whatever_a_single_one_does(glob: str, path: str) -> None:
    if "**" not in glob and glob_matches(glob, path):
        assert glob_matches(glob.replace("*", "**"), path)


@pytest.mark.parametrize(
    ("name", "number"),
    [("0007-x.md", 7), ("ADR-0007-x.md", 7), ("adr-7.md", 7), ("ADR-12", 12), ("README.md", None), ("x.md", None)],
)
def test_numbers_of_records(name: str, number: int | None) -> None:
    assert number_of(name) == number


@pytest.mark.req("001-T1")
def test_our_own_records_of_the_authoritative_tools_are_read_and_their_rules_hold(desk: Desk) -> None:
    root = Path(__file__).parents[4]
    for source in [*root.glob("docs/adr/*.md"), *root.glob("src/toolgate/packs/governance/*.py")]:
        desk.write(source.relative_to(root).as_posix(), source.read_bytes())
    files = [path.relative_to(desk.root).as_posix() for path in desk.root.rglob("*.py")]
    answer = check(desk, files, adrs=["ADR-0007", "ADR-0008", "ADR-0009", "ADR-0010"])
    assert (answer["violations"], answer["compliant"], answer["rulesChecked"]) == ([], True, 4)
    assert {one["status"] for one in answer["adrDetails"]} == {"accepted"}


def test_hostile_records_and_files_never_break_the_answer(repo: Desk) -> None:
    """`Desk.acall` holds every answer to its output schema; here its size and characters too."""
    from toolgate.model import strictjson

    long = "y" * 450
    rule = f"  - {{id: {long}, must-not: 'x', severity: low, message: {long}, remediation: {long}}}\n"
    repo.write(
        "docs/adr/ADR-0003-quiet.md", f"---\nstatus: accepted\napplies-to: '**'\nrules:\n{rule}---\n# {'T' * 9000}\n"
    )
    repo.write("docs/adr/ADR-0004-odd.md", "# \0\x1b[2J odd\n\n**Status:** Accepted\n")
    for number in range(30):
        repo.write(f"f{number}", "x\0\x1b\n" * 200)
    answer = check(repo, [f"f{number}" for number in range(30)])
    assert answer["violationSummary"]["total"] == 3000
    assert len(answer["violations"]) + answer["omitted"]["violations"] == 3000
    text = strictjson.dumps(answer)
    assert len(text) < 1_000_000
    strictjson.loads(text)
