"""No mistake turns a gate green: what cannot be judged is an error (exit 2), and unknown is never a tick.

The numbers are those of the trials in which each case passed: P3-P7 and P17 (commands), F16 (L0).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.packs.governance.cli.commands import CLEAN, SHA, git, install, put, repo, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.packs.governance.cli.commands import Done
    from tests.packs.governance.desk import Desk

__all__ = ["repo", "run"]  # fixtures

LOOSE = CLEAN.replace(SHA, "v4")
WORKFLOW = ".github/workflows/ci.yml"


# P3: paths


def test_p3_a_directory_is_the_repository_to_judge_from_anywhere(
    run: Callable[..., Done], repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(repo, "permissions")
    inside = run("analyze", "--json")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for spelt in (str(repo), "../repo", "../repo/."):
        outside = run("analyze", spelt, "--json")
        assert (outside.code, outside.json["analysis"]["counts"]) == (1, inside.json["analysis"]["counts"]), spelt


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["../empty"], "not a repository"),
        (["src"], "not a repository"),
        ([WORKFLOW, ".github"], "is a directory"),
        (["none.yml"], "is not there"),
        ([".github/workflows/*.yaml"], "matches nothing"),
        (["README.md"], "no rule is about"),
        (["../other/README.md"], "no rule is about"),
        (["--root", "none"], "is not a directory"),
        ([".", "--root", "."], "not both"),
    ],
)
def test_p3_what_cannot_be_judged_is_an_error(
    run: Callable[..., Done], repo: Path, arguments: list[str], said: str
) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(repo, "README.md", "hello\n")
    put(repo, "../other/README.md", "hello\n")
    (repo / "src").mkdir()
    (repo.parent / "empty").mkdir()
    done = run("analyze", *arguments)
    assert done.code == 2
    assert said in done.said
    assert "no findings" not in done.out


def test_p3_a_workflow_outside_the_root_is_judged(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(repo, "../other/.github/workflows/x.yml", LOOSE)
    done = run("analyze", "../other/.github/workflows/x.yml", "--fail-on", "warn")
    assert done.code == 4
    assert "MD-002" in done.out


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_p3_a_workflow_that_cannot_be_read_is_an_error(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN).chmod(0)
    assert run("analyze").code == 2


def test_p3_a_workflow_too_large_to_read_is_an_error(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(repo, ".github/workflows/large.yml", CLEAN + "#" * (2 * 1024 * 1024))
    done = run("analyze")
    assert done.code == 2
    assert "large.yml was not judged: file too large" in done.err


def test_p3_a_workflow_behind_a_link_is_an_error(run: Callable[..., Done], repo: Path) -> None:
    put(repo, "hidden.yml", LOOSE)
    put(repo, WORKFLOW, CLEAN)
    (repo / ".github/workflows/link.yml").symlink_to(repo / "hidden.yml")
    for command in ("analyze", "l0"):
        done = run(command)
        assert (done.code, "link.yml was not judged: is a link" in done.err) == (2, True), command


def test_p3_a_workflow_whose_name_begins_with_a_dot_is_judged(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(repo, ".github/workflows/.release.yml", LOOSE)
    assert ".github/workflows/.release.yml:10: medium MD-002" in run("analyze").out


# P4: branch protection


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", "neither branch protection"),
        ('{"message": "Not Found", "status": "404"}', "an error answer of the code host"),
        ('{"message": "Branch not protected", "documentation_url": "x"}', "an error answer of the code host"),
        ("{", ""),
        ("", ""),
        ("3", "neither branch protection"),
        ('"main"', "neither branch protection"),
        ('{"required_status_checks": 3}', "must be an object or null"),
        ('{"required_status_checks": {}}', "neither `contexts` nor `checks`"),
        ('{"required_status_checks": {"contexts": {}}}', "must be a list"),
        ('[{"name": "main"}]', "with `type`"),
        ('{"rules": []}', "must say its `enforcement`"),
        ('{"rules": 1, "enforcement": "active"}', "must be a list"),
        ('[{"type": "required_status_checks"}]', "must list them"),
    ],
)
def test_p4_protection_of_another_shape_is_an_error(
    run: Callable[..., Done], repo: Path, content: str, said: str
) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(repo, ".github/branch-protection.json", content)
    done = run("analyze")
    assert done.code == 2
    assert said in done.err
    assert "gh api repos/OWNER/NAME" in done.err, "the fix says how to fetch it"


def test_p4_protection_of_another_shape_blocks_for_callers_and_cannot_be_suppressed(desk: Desk) -> None:
    desk.write(WORKFLOW, CLEAN)
    desk.write(".github/branch-protection.json", '{"message": "Not Found"}')
    result = desk.call("analyze_dissonance", {"files": [WORKFLOW]})
    assert result.decision == "block"
    (gate,) = [one for one in result.data["analysis"]["findings"] if one["ruleId"] == "GATE"]
    assert gate["severity"] == "critical"


RULES = [
    {"type": "deletion"},
    {
        "type": "required_status_checks",
        "parameters": {
            "strict_required_status_checks_policy": True,
            "required_status_checks": [
                {"context": "Unit tests", "integration_id": 15368},
                {"context": "cla", "integration_id": 42},
                {"context": "lost"},
            ],
        },
    },
]


@pytest.mark.parametrize("path", [".github/branch-protection.json", ".github/branch-rules.json", "elsewhere.json"])
@pytest.mark.parametrize(
    "content",
    [
        RULES,
        {"name": "main", "enforcement": "active", "rules": RULES},
        [{"name": "old", "enforcement": "disabled", "rules": []}, {"enforcement": "active", "rules": RULES}],
    ],
    ids=["rules of a branch", "a ruleset", "several"],
)
def test_p4_rulesets_are_understood(run: Callable[..., Done], repo: Path, content: Any, path: str) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(repo, path, json.dumps(content, indent=1))
    more = ["--protection", path] if path == "elsewhere.json" else []
    found = run("analyze", "--json", *more).json["analysis"]["findings"]
    assert [(one["ruleId"], one["evidence"][0]["path"], "'lost'" in one["title"]) for one in found] == [
        ("MD-001", path, True)
    ]


def test_p4_a_ruleset_that_is_not_in_force_requires_nothing(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    for enforcement in ("disabled", "evaluate"):
        put(repo, ".github/branch-rules.json", json.dumps({"enforcement": enforcement, "rules": RULES}))
        assert run("analyze", "--json").json["analysis"]["findings"] == []


def test_p4_rules_say_whether_there_is_a_merge_queue(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN.replace("[pull_request, merge_group]", "[pull_request]"))
    checks = {"type": "required_status_checks", "parameters": {"required_status_checks": [{"context": "Unit tests"}]}}
    put(repo, ".github/branch-rules.json", json.dumps([checks]))
    assert run("analyze", "--json").json["analysis"]["findings"] == []
    put(repo, ".github/branch-rules.json", json.dumps([checks, {"type": "merge_queue"}]))
    assert [one["ruleId"] for one in run("analyze", "--json").json["analysis"]["findings"]] == ["MD-005"]


def test_p4_a_queue_that_does_not_exist_needs_no_check_and_is_evaluated(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN.replace("[pull_request, merge_group]", "[pull_request]"))
    put(repo, ".github/branch-rules.json", json.dumps([{"type": "deletion"}]))
    rules = {one["id"]: one["status"] for one in run("analyze", "--json").json["analysis"]["rules"]}
    assert rules["MD-005"] == "evaluated"


def test_p4_a_ruleset_of_tags_requires_nothing_of_branches(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    for target, count in (("branch", 1), ("tag", 0), ("push", 0)):
        checks = {"required_status_checks": [{"context": "Nobody"}]}
        rules = [{"type": "required_status_checks", "parameters": checks}]
        put(repo, ".github/branch-rules.json", json.dumps({"enforcement": "active", "target": target, "rules": rules}))
        assert len(run("analyze", "--json").json["analysis"]["findings"]) == count


def test_p4_a_named_protection_file_that_is_not_there_is_an_error(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    assert run("analyze", "--protection", "none.json").code == 2


def test_p4_absence_is_not_evaluated_and_fails_for_those_who_ask(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    plain = run("analyze", "--zizmor", "off")
    assert plain.code == 0
    assert "not evaluated MD-001" in plain.out
    required = run("analyze", "--zizmor", "off", "--require-evaluated")
    assert required.code == 2
    assert "MD-001 was not evaluated" in required.err


# P5, P17: decision records


def record(repo: Path, rule: str, status: str = "accepted") -> None:
    text = f"---\nstatus: {status}\napplies-to: ['src/**']\nrules:\n  - {{{rule}}}\n---\n# ADR-0001: X\n"
    put(repo, "docs/adr/ADR-0001-x.md", text)
    put(repo, "src/a.py", "x = 1\n")


BROKEN = {
    "pattern": ("must-not: '(', severity: high", "not a regular expression", "character 1"),
    "key": ("must-nott: 'x'", "no key 'must-nott'", "Write 'must-not'"),
    "severity": ("must-not: 'x', severity: urgent", "no severity 'urgent'", "critical, high, medium, low"),
    "nothing": ("id: q", "exactly one of `must` and `must-not`", "must-not"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_p5_a_rule_of_an_accepted_record_that_cannot_be_read_is_an_error(
    run: Callable[..., Done], repo: Path, name: str
) -> None:
    rule, said, fix = BROKEN[name]
    record(repo, rule)
    done = run("adr", "check")
    assert done.code == 2
    assert "docs/adr/ADR-0001-x.md:5: " in done.err
    assert said in done.err
    assert fix in done.err
    lint = run("adr", "lint")
    assert (lint.code, said in lint.out) == (2, True), "the same fault has the same code"


def test_p5_a_broken_rule_of_a_record_that_does_not_bind_is_only_for_lint(run: Callable[..., Done], repo: Path) -> None:
    record(repo, BROKEN["key"][0], status="rejected")
    put(repo, "docs/adr/ADR-0002-y.md", "---\nstatus: accepted\n---\n# ADR-0002: Y\n")
    assert run("adr", "check").code == 0
    assert run("adr", "lint").code == 2


def test_p5_a_status_that_is_none_does_not_switch_rules_off(run: Callable[..., Done], repo: Path) -> None:
    record(repo, "must-not: 'x', severity: high", status="acepted")
    done = run("adr", "check")
    assert done.code == 2
    assert "docs/adr/ADR-0001-x.md:2: " in done.err


def test_p5_a_broken_rule_blocks_for_callers(desk: Desk) -> None:
    desk.write("src/a.py", "x\n")
    desk.write("docs/adr/ADR-0001-x.md", "---\nstatus: accepted\nrules: [{must-nott: x}]\n---\n# ADR-0001: X\n")
    result = desk.call("check_adr_compliance", {"files": ["src/a.py"]})
    assert (result.decision, result.data["compliance"]["compliant"]) == ("block", False)
    assert result.data["compliance"]["adrDetails"][0]["line"] == 3


@pytest.mark.parametrize("named", ["nosuch.py", "src", "src/*.txt"])
def test_p5_a_file_that_was_named_and_is_not_there_is_an_error(
    run: Callable[..., Done], repo: Path, named: str
) -> None:
    record(repo, "must-not: 'y'")
    assert run("adr", "check", named).code == 2


def test_p5_a_record_that_was_named_and_is_not_there_is_an_error(run: Callable[..., Done], repo: Path) -> None:
    record(repo, "must-not: 'y'")
    done = run("adr", "check", "--adr", "ADR-0009")
    assert done.code == 2
    assert "ADR-0009: there is no such decision record" in done.err


def test_p17_no_records_are_nothing_to_judge(run: Callable[..., Done], repo: Path) -> None:
    assert run("adr", "check").code == 2
    assert run("adr", "lint").code == 2


def test_p17_the_answer_says_how_many_rules_were_applied(run: Callable[..., Done], repo: Path) -> None:
    record(repo, "must-not: 'y'")
    assert "1 rules of 1 records applied to 1 files" in run("adr", "check").out


# P6, F16: what L0 does not know

UNSTATED = CLEAN.replace("permissions:\n  contents: read\n", "")


def test_p6_f16_permissions_that_are_not_stated_are_no_tick(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, UNSTATED)
    done = run("l0")
    assert done.code == 0
    assert "✓ L0-002" not in done.out
    assert "? L0-002 permission-bits: What the tokens of 1 jobs may write is not known" in done.out
    assert "\nwarn" in done.out
    assert run("l0", "--fail-on", "warn").code == 4
    told = run("l0", "--json").json["validation"]
    assert (told["allPassed"], told["passed"], told["failed"], told["unknown"]) == (False, 0, 0, 1)
    assert told["results"][0]["status"] == "unknown"


def test_f16_a_caller_is_warned_and_not_told_that_it_passed(desk: Desk) -> None:
    desk.write(WORKFLOW, UNSTATED)
    args: dict[str, Any] = {"workflowFiles": [WORKFLOW]}
    result = desk.call("validate_l0_invariants", args)
    assert result.decision == "warn"
    (told,) = result.data["validation"]["results"]
    assert (told["passed"], told["status"], told["evidence"]["unknownTotal"]) == (False, "unknown", 1)
    assert desk.call("validate_l0_invariants", args | {"defaultPermissions": "read"}).decision == "pass"
    assert desk.call("validate_l0_invariants", args | {"defaultPermissions": "write"}).decision == "block"


def test_p6_the_repositorys_default_can_be_given(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, UNSTATED)
    assert "✓ L0-002" in run("l0", "--default-permissions", "read").out
    assert run("l0", "--default-permissions", "write").code == 1
    put(repo, ".toolgate.toml", 'default_permissions = "read"\n')
    assert "✓ L0-002" in run("l0").out


def test_p6_a_workflow_that_is_named_and_not_there_is_an_error(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    done = run("l0", "--workflow", "nosuch.yml")
    assert done.code == 2
    assert "nosuch.yml is not there" in done.said


# P7: suppressions belong to a repository


def fingerprint(done: Done) -> str:
    (one,) = done.json["analysis"]["findings"]
    return str(one["fingerprint"])


def mark(run: Callable[..., Done], of: str, *more: str) -> Done:
    return run("fp", "mark", of, "--reason", "vendored", "--reviewer", "ann", "--ticket", "OPS-7", *more)


@pytest.mark.parametrize("remotes", [True, False], ids=["by their remotes", "by their places"])
def test_p7_a_suppression_does_not_leak_into_another_repository(
    run: Callable[..., Done], repo: Path, monkeypatch: pytest.MonkeyPatch, remotes: bool
) -> None:
    for name in ("ruff", "uv"):
        put(repo, f"../{name}/{WORKFLOW}", LOOSE)
        remote = f'[remote "origin"]\n\turl = https://github.com/astral-sh/{name}.git\n' if remotes else ""
        put(repo, f"../{name}/.git/config", remote)
    monkeypatch.chdir(repo.parent / "ruff")
    found = fingerprint(run("analyze", "--json", "--zizmor", "off"))
    assert mark(run, found).code == 0
    assert run("analyze", "--json", "--zizmor", "off").json["analysis"]["findings"] == []
    monkeypatch.chdir(repo.parent / "uv")
    assert fingerprint(run("analyze", "--json", "--zizmor", "off")) == found, "the same finding, in another repository"


def test_p7_an_unknown_fingerprint_or_rule_is_refused(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, LOOSE)
    found = fingerprint(run("analyze", "--json", "--zizmor", "off"))
    unknown = mark(run, "0" * 32)
    assert unknown.code == 2
    assert "no finding" in unknown.said
    wrong = mark(run, found, "--rule", "MD-999")
    assert wrong.code == 2
    assert "is of MD-002, not of MD-999" in wrong.said
    assert run("fp", "list").out == ""


def test_p7_export_and_import_carry_suppressions(run: Callable[..., Done], repo: Path, tmp_path: Path) -> None:
    put(repo, WORKFLOW, LOOSE)
    put(repo, ".git/config", '[remote "origin"]\nurl = git@github.com:acme/shop.git\n')
    assert mark(run, fingerprint(run("analyze", "--json", "--zizmor", "off"))).code == 0
    assert run("fp", "export", "-o", str(tmp_path / "reviews.json")).code == 0
    (tmp_path / "runner").mkdir()
    (tmp_path / "runner" / "toolgate.toml").touch()
    there = ("--home", str(tmp_path / "runner"))
    assert len(run("analyze", "--json", "--zizmor", "off", *there).json["analysis"]["findings"]) == 1
    assert (
        run("fp", "import", str(tmp_path / "reviews.json"), *there).out
        == "1 added, 0 were there already; 1 suppressions\n"
    )
    assert run("analyze", "--json", "--zizmor", "off", *there).json["analysis"]["findings"] == []


def test_p7_an_import_with_an_unknown_rule_is_refused_whole(
    run: Callable[..., Done], repo: Path, tmp_path: Path
) -> None:
    put(repo, WORKFLOW, LOOSE)
    mark(run, fingerprint(run("analyze", "--json", "--zizmor", "off")))
    path = tmp_path / "reviews.json"
    run("fp", "export", "-o", str(path))
    path.write_text(path.read_text().replace("MD-002", "MD-999"))
    before = run("fp", "list").out
    done = run("fp", "import", str(path))
    assert (done.code, "there is no rule MD-999" in done.err) == (1, True)
    assert run("fp", "list").out == before


def test_p7_a_suppression_that_no_review_stands_behind_is_not_imported(
    run: Callable[..., Done], repo: Path, tmp_path: Path
) -> None:
    put(repo, WORKFLOW, LOOSE)
    mark(run, fingerprint(run("analyze", "--json", "--zizmor", "off")))
    document = run("fp", "export").json
    document["suppressions"].append(document["suppressions"][0] | {"fingerprint": "f" * 32})
    path = tmp_path / "more.json"
    path.write_text(json.dumps(document))
    done = run("fp", "import", str(path))
    assert (done.code, f"no review in it is of the suppressed finding {'f' * 32}" in done.err) == (1, True)


# Settings: one of another name is never taken in silence


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('profil = "strict"\n', "there is no key 'profil'. Did you mean profile?"),
        ('[[write]]\nworkflow = "x"\nscopes = []\njobb = "y"\n', "there is no key 'jobb'. Did you mean job?"),
        ('profile = "lax"\n', "'lax'"),
        ("profile = \n", "not TOML"),
        ('repository = "not a name"\n', "owner/name"),
        ('[[write]]\nworkflow = "x.yml"\n', "missing required field `scopes`"),
    ],
)
def test_settings_of_the_repository_that_cannot_be_read_are_an_error(
    run: Callable[..., Done], repo: Path, content: str, said: str
) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(repo, ".toolgate.toml", content)
    done = run("analyze", "--zizmor", "off")
    assert done.code == 2
    assert ".toolgate.toml:" in done.err
    assert said in done.err


# The repository's own suppressions

ENTRY = """[[suppression]]
fingerprint = "{fingerprint}"
rule = "MD-002"
reason = "vendored"
reviewer = "ann"
ticket = "OPS-7"
expires = {expires}
"""


def in_file(repo: Path, of: str, expires: str = "2999-01-01") -> None:
    put(repo, ".toolgate/suppressions.toml", ENTRY.format(fingerprint=of, expires=expires))


def told(run: Callable[..., Done], *more: str) -> list[tuple[str, str]]:
    found = run("analyze", "--json", "--zizmor", "off", *more).json["analysis"]["findings"]
    return sorted((one["ruleId"], one["severity"]) for one in found)


def test_p7_the_repositorys_file_suppresses_for_everybody(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, LOOSE)
    in_file(repo, fingerprint(run("analyze", "--json", "--zizmor", "off")))
    done = run("analyze", "--json", "--zizmor", "off").json["analysis"]
    assert done["findings"] == []
    assert done["suppressed"][0]["suppression"] == {
        "source": "file",
        "reason": "vendored",
        "reviewer": "ann",
        "ticket": "OPS-7",
    }


def test_p7_an_expired_suppression_is_a_finding_and_hides_nothing(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, LOOSE)
    in_file(repo, fingerprint(run("analyze", "--json", "--zizmor", "off")), expires="2020-01-01")
    assert told(run) == [("MD-002", "medium"), ("SUPPRESSION", "medium")]


def test_p7_a_suppression_of_nothing_is_told_where_nobody_knows_what_is_new(
    run: Callable[..., Done], repo: Path
) -> None:
    put(repo, WORKFLOW, CLEAN)
    in_file(repo, "0" * 32)
    assert told(run) == [("SUPPRESSION", "low")]


def test_p7_a_suppression_that_the_change_adds_for_no_finding_is_refused(run: Callable[..., Done], repo: Path) -> None:
    (repo / ".git").rmdir()
    git(repo, "init", "-q", "-b", "main")
    put(repo, WORKFLOW, LOOSE)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "one")
    mistyped = "0" * 32
    in_file(repo, mistyped)
    refused = run("analyze", "--zizmor", "off")
    assert refused.code == 2
    assert ".toolgate/suppressions.toml:1: This change adds a suppression of MD-002" in refused.err
    assert "fix: Copy the fingerprint from the report" in refused.err
    put(
        repo,
        ".toolgate/suppressions.toml",
        ENTRY.format(fingerprint=mistyped, expires="2999-01-01").replace("MD-002", "zizmor/artipacked"),
    )
    assert run("analyze", "--zizmor", "off").code != 2, "zizmor was not asked, so its finding may be there"


def test_p7_a_suppression_whose_finding_was_mended_since_is_told_and_refuses_nothing(
    run: Callable[..., Done], repo: Path
) -> None:
    (repo / ".git").rmdir()
    git(repo, "init", "-q", "-b", "main")
    put(repo, WORKFLOW, LOOSE)
    in_file(repo, fingerprint(run("analyze", "--json", "--zizmor", "off")))
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "one")
    assert told(run) == []
    put(repo, WORKFLOW, CLEAN)
    assert told(run) == [("SUPPRESSION", "low")]
    assert run("analyze", "--zizmor", "off").code == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("MD-002", "MD-999", "there is no rule 'MD-999'"),
        ('ticket = "OPS-7"\n', "", "needs 'ticket'"),
        ("reason", "raison", "no key 'raison'"),
        ("2999-01-01", '"soon"', "must be a day"),
        ('reviewer = "ann"', 'reviewer = ""', "`reviewer` must be a text"),
        ("[[suppression]]", "[suppression]", "tables [[suppression]]"),
    ],
)
def test_p7_a_file_of_suppressions_that_cannot_be_read_is_an_error(
    run: Callable[..., Done], repo: Path, old: str, new: str, said: str
) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(repo, ".toolgate/suppressions.toml", ENTRY.format(fingerprint="0" * 32, expires="2999-01-01").replace(old, new))
    done = run("analyze", "--zizmor", "off")
    assert done.code == 2
    assert said in done.err


INLINE = LOOSE.replace("@v4", "@v4 # toolgate: ignore[MD-002] {reason}")


def test_p7_a_comment_silences_medium_and_below(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, INLINE.format(reason="mirrored by us"))
    assert told(run) == []
    put(repo, WORKFLOW, LOOSE.replace("      - uses", "      # toolgate: ignore[MD-002] mirrored by us\n      - uses"))
    assert told(run) == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (INLINE.format(reason=""), [("MD-002", "medium"), ("SUPPRESSION", "medium")]),
        (INLINE.format(reason="x").replace("[MD-002]", "[MD-999]"), [("MD-002", "medium"), ("SUPPRESSION", "medium")]),
        (INLINE.format(reason="x").replace("[MD-002]", "[]"), [("MD-002", "medium"), ("SUPPRESSION", "medium")]),
        (INLINE.format(reason="x").replace("@v4", f"@{SHA}"), [("SUPPRESSION", "low")]),
        (
            CLEAN + "      - run: curl https://x | sh # toolgate: ignore[MD-002] trust me\n",
            [("MD-002", "high"), ("SUPPRESSION", "medium")],
        ),
    ],
    ids=["no reason", "unknown rule", "no rule", "nothing to ignore", "high"],
)
def test_p7_a_comment_that_may_not_is_told_and_hides_nothing(
    run: Callable[..., Done], repo: Path, text: str, wanted: list[tuple[str, str]]
) -> None:
    put(repo, WORKFLOW, text)
    assert told(run) == wanted


def test_p7_ignores_that_the_judged_change_adds_are_told(run: Callable[..., Done], repo: Path) -> None:
    (repo / ".git").rmdir()
    git(repo, "init", "-q", "-b", "main")
    put(repo, WORKFLOW, LOOSE)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "one")
    assert told(run) == [("MD-002", "medium")]
    put(repo, WORKFLOW, INLINE.format(reason="mirrored"))
    put(repo, ".toolgate.toml", 'profile = "relaxed"\n')
    assert told(run) == [("SUPPRESSION", "low"), ("SUPPRESSION", "medium")], "not committed yet"
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "two")
    assert told(run) == []
    assert told(run, "--base", "HEAD~1") == [("SUPPRESSION", "low"), ("SUPPRESSION", "medium")]
    put(repo, WORKFLOW, LOOSE)
    in_file(repo, fingerprint(run("analyze", "--json", "--zizmor", "off")))
    assert told(run) == [("SUPPRESSION", "medium")]
    missing = run("analyze", "--base", "nowhere")
    assert (missing.code, "nowhere is not in this clone" in missing.said) == (2, True)


def test_a_suppression_file_that_git_ignores_is_said(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN.replace(SHA, "v4"))
    git(repo, "init", "--quiet")
    mark = run("analyze", "--json", "--zizmor", "off").json["analysis"]["findings"][0]["fingerprint"]
    said = ("--reason", "r", "--reviewer", "ann", "--ticket", "T-1", "--in-repository")
    assert "Git ignores" not in run("fp", "mark", mark, *said).err
    put(repo, ".gitignore", ".toolgate/\n")
    assert "note: Git ignores .toolgate/suppressions.toml" in run("fp", "mark", mark, *said).err


def test_a_record_about_workflows_is_applied_to_them_without_naming_files(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    about = 'status: accepted\napplies-to: [".github/workflows/*.yml"]\n'
    record = f'---\n{about}rules:\n  - must-not: "runs-on"\n    severity: high\n---\n# x\n'
    put(repo, "docs/adr/ADR-0001-x.md", record)
    assert run("adr", "check").code == 1
