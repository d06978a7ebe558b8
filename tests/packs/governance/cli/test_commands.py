"""People's commands: the same judgements, formats that programs can read, exit codes that a pipeline can trust."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.packs.governance.cli.commands import Done, install, put, repo, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.powers.sql.postgres import Postgres

__all__ = ["repo", "run"]  # fixtures


# analyze


def test_w31_exit_codes_are_what_they_say(run: Callable[..., Done], repo: Path) -> None:
    install(repo, "comments")
    assert run("analyze").code == 0
    install(repo, "drift-check")
    assert run("analyze").code == 0
    assert run("analyze", "--fail-on", "warn").code == 4
    install(repo, "permissions")
    blocked = run("analyze")
    assert blocked.code == 1
    assert "would block" in blocked.out
    assert "(advisory: local)" in blocked.out
    assert run("analyze", "--require-binding").code == 5


def test_people_get_file_line_rule_and_fix(run: Callable[..., Done], repo: Path) -> None:
    install(repo, "unpinned")
    out = run("analyze").out
    assert ".github/workflows/unpinned.yml:10: medium MD-002: The action actions/checkout@v4 is not pinned" in out
    assert "fix: Pin it to a full commit SHA" in out
    assert "\x1b[" not in out


def test_colour_is_for_people_who_want_it(
    run: Callable[..., Done], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(repo, "unpinned")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("analyze").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("analyze").out


def test_w31_programs_get_nothing_but_their_format_on_standard_output(run: Callable[..., Done], repo: Path) -> None:
    install(repo, "permissions", "unpinned")
    data = run("analyze", "--format", "json").json
    assert data["analysis"]["decision"]["outcome"] == "block"
    sarif = run("analyze", "--format", "sarif")
    document = sarif.json
    assert document["version"] == "2.1.0"
    results = [one for one in document["runs"][0]["results"] if one["kind"] == "fail"]
    assert len(results) == len(data["analysis"]["findings"])
    assert all(one["partialFingerprints"] for one in results)
    assert {rule["id"] for rule in document["runs"][0]["tool"]["driver"]["rules"]} >= {"MD-002", "L0-002"}
    assert "would block" in sarif.err
    github = run("analyze", "--format", "github")
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in github.out.splitlines())


def test_the_answer_can_go_into_a_file(run: Callable[..., Done], repo: Path) -> None:
    install(repo, "comments")
    done = run("analyze", "--format", "sarif", "--output", "out.sarif")
    assert (done.code, done.out) == (0, "")
    assert json.loads((repo / "out.sarif").read_text())["version"] == "2.1.0"


def test_a_repository_with_nothing_to_judge_is_not_a_pass(run: Callable[..., Done], repo: Path) -> None:
    assert run("analyze").code == 2
    assert run("l0").code == 2


def test_reading_leaves_no_store_behind(run: Callable[..., Done], repo: Path) -> None:
    install(repo, "comments")
    run("analyze")
    run("fp", "list")
    run("consent", "list", "acme")
    assert sorted(path.name for path in repo.iterdir()) == [".git", ".github"]


def test_naming_files_reports_those_files_from_where_the_person_stands(
    run: Callable[..., Done], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(repo, "unpinned", "permissions")
    assert run("analyze", "--zizmor", "off").code == 1
    monkeypatch.chdir(repo / ".github" / "workflows")
    done = run("analyze", "unpinned.yml", "--format", "json", "--home", str(repo), "--zizmor", "off")
    data = done.json["analysis"]
    assert {one["evidence"][0]["path"] for one in data["findings"]} == {".github/workflows/unpinned.yml"}
    assert data["elsewhere"] == 1, "write-all in the other one"
    assert done.code == 0, "and it decides nothing here"
    assert len(data["files"]) == 2, "but both were read: rules need the whole"


def test_strict_and_merge_group_are_stricter(run: Callable[..., Done], repo: Path) -> None:
    install(repo, "scheduled")
    assert run("analyze").code == 0
    assert run("analyze", "--strict").code == 1
    assert run("analyze", "--mode", "merge_group").code == 1


def test_a_finding_is_marked_and_gone_and_the_review_is_kept(run: Callable[..., Done], repo: Path) -> None:
    install(repo, "drift-check")
    fingerprint = run("analyze", "--format", "json").json["analysis"]["findings"][0]["fingerprint"]
    assert fingerprint in run("analyze").out
    mark = ["fp", "mark", fingerprint, "--rule", "MD-004", "--reviewer", "ann", "--ticket", "T-1"]
    assert run(*mark, "--reason", " ").code == 2
    assert run(*mark).code == 2
    assert run("fp", "mark", "xyz", *mark[3:], "--reason", "known").code == 2
    done = run(*mark, "--reason", "known")
    assert (done.code, "suppressed until" in done.out) == (0, True)
    after = run("analyze", "--format", "json", "--fail-on", "warn")
    assert (after.code, after.json["analysis"]["findings"]) == (0, [])
    assert after.json["analysis"]["suppressed"][0]["suppression"]["ticket"] == "T-1"
    kept = run("fp", "list", "--json").json
    assert [(one["rule_id"], one["verdict"], one["reviewed_by"]) for one in kept] == [
        ("MD-004", "false_positive", "ann")
    ]
    assert fingerprint in run("fp", "list").out


def test_baseline_and_drift(run: Callable[..., Done], repo: Path) -> None:
    install(repo, "comments")
    assert run("analyze", "--mode", "drift", "--fail-on", "warn").code == 4
    assert run("baseline").out == f"baseline of {repo.resolve().as_uri()}: 1 files\n"
    assert run("analyze", "--mode", "drift", "--fail-on", "warn").code == 0
    install(repo, "matrix")
    assert run("analyze", "--mode", "drift", "--fail-on", "warn").code == 4


# fp export and import


def mark(run: Callable[..., Done], repo: Path, number: int) -> None:
    """A review of a finding that only this number makes."""
    put(
        repo,
        ".github/workflows/loose.yml",
        f"on: push\npermissions: {{}}\njobs:\n  a:\n    steps: [{{uses: a/b@v{number}}}]\n",
    )
    (found,) = run("analyze", "--json", "--zizmor", "off").json["analysis"]["findings"]
    said = ["--reason", "r", "--reviewer", "ann", "--ticket", "T", "--org", "acme"]
    assert run("fp", "mark", found["fingerprint"], *said).code == 0


def test_reviews_travel_between_stores_once(run: Callable[..., Done], repo: Path, tmp_path: Path) -> None:
    for number in range(3):
        mark(run, repo, number)
    assert run("fp", "export", "-o", "reviews.json").code == 0
    assert run("fp", "import", "reviews.json").out == "0 added, 3 were there already; 3 suppressions\n"
    other = tmp_path / "other"
    (other / "workspace").mkdir(parents=True)
    assert (
        run("fp", "import", "reviews.json", "--home", str(other)).out
        == "3 added, 0 were there already; 3 suppressions\n"
    )
    assert run("fp", "list", "--json", "--home", str(other)).json == run("fp", "list", "--json").json


def test_an_anonymous_export_names_nobody_and_keeps_what_belongs_together(run: Callable[..., Done], repo: Path) -> None:
    for number in range(2):
        mark(run, repo, number)
    out = run("fp", "export", "--anonymise")
    assert "acme" not in out.out
    assert "ann" not in out.out.replace("annotat", "")
    assert len({one["org_id"] for one in out.json["events"]}) == 1
    assert out.json["events"][0]["org_id"] != run("fp", "export", "--anonymise").json["events"][0]["org_id"]


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "maybe"},
        {"reviewed_by": None},
        {"ticket": None},
        {"fingerprint": "x"},
        {"surprise": 1},
        {"occurred_at": "2026-02-30T00:00:00Z"},
    ],
)
def test_one_bad_row_and_nothing_is_imported(run: Callable[..., Done], repo: Path, change: dict[str, Any]) -> None:
    mark(run, repo, 1)
    document = run("fp", "export").json
    document["events"].append(document["events"][0] | {"fingerprint": "f" * 32} | change)
    (repo / "bad.json").write_text(json.dumps(document))
    done = run("fp", "import", "bad.json")
    assert done.code == 1
    assert "Traceback" not in done.err
    assert len(run("fp", "list", "--json").json) == 1


# consent


def test_consent_is_granted_listed_and_revoked(run: Callable[..., Done]) -> None:
    assert all(not one["valid"] for one in run("consent", "list", "acme", "--json").json)
    assert run("consent", "grant", "acme", "fp_metrics", "moon", "--by", "ann").code == 2
    assert run("consent", "grant", "acme", "fp_metrics", "fp_patterns", "--by", "ann", "--days", "30").code == 0
    states = {one["resource"]: one["state"] for one in run("consent", "list", "acme", "--json").json}
    assert (states["fp_metrics"], states["audit_logs"]) == ("granted", "not_requested")
    granted = {one["resource"]: one["grantedBy"] for one in run("consent", "list", "acme", "--json").json}
    assert (granted["fp_metrics"], granted["audit_logs"]) == ("ann", None)
    assert "given by ann on 2" in run("consent", "list", "acme").out, "P8: it says who granted"
    assert run("consent", "revoke", "acme", "fp_metrics", "--by", "ann").code == 0
    assert run("consent", "revoke", "acme", "fp_metrics", "--by", "ann").code == 0
    never = run("consent", "revoke", "acme", "audit_logs", "--by", "ann")
    assert never.code == 1
    assert "never granted" in never.err
    assert "✗ fp_metrics: the consent was revoked" in run("consent", "list", "acme").out


# l0


def test_l0_checks_all_workflows_or_what_is_named(run: Callable[..., Done], repo: Path) -> None:
    install(repo, "comments")
    assert run("l0").code == 0
    install(repo, "permissions")
    failed = run("l0")
    assert failed.code == 1
    assert "✗ L0-002 permission-bits" in failed.out
    (repo / "s.json").write_text("{}")
    good = run("l0", "--schema-file", "s.json", "--expected-hash", sha256(b"{}").hexdigest(), "--format", "json")
    assert (good.code, good.json["validation"]["checksRun"]) == (0, 1)
    assert run("l0", "--schema-file", "s.json").code == 2
    assert run("l0", "--require-binding").code == 5


def test_l0_takes_the_tools_arguments_as_json(run: Callable[..., Done], repo: Path) -> None:
    metric = {"name": "m", "value": 1}
    (repo / "in.json").write_text(json.dumps({"driftCheck": {"currentMetric": metric, "baselineMetric": metric}}))
    assert run("l0", "--input", "in.json").code == 0
    (repo / "in.json").write_text('{"surprise": 1}')
    assert run("l0", "--input", "in.json").code == 2
    (repo / "in.json").write_text('{"checks": [], "checks": []}')
    assert run("l0", "--input", "in.json").code == 2


# adr


def test_adr_check_judges_what_the_rules_are_about(run: Callable[..., Done], repo: Path) -> None:
    assert run("adr", "check").code == 2, "there are no records"
    (repo / "docs" / "adr").mkdir(parents=True)
    rule = "---\nstatus: accepted\napplies-to: ['src/**']\nrules:\n  - {id: q, must-not: print, severity: high}\n---\n# X\n"
    (repo / "docs" / "adr" / "0001-x.md").write_text(rule)
    (repo / "src").mkdir()
    (repo / "src" / "a.py").write_text("x = 1\n")
    assert run("adr", "check").code == 0
    (repo / "src" / "a.py").write_text("x = 1\nprint(x)\n")
    done = run("adr", "check")
    assert done.code == 1
    assert "src/a.py:2: high ADR-0001/q" in done.out
    assert run("adr", "check", "docs/adr/0001-x.md").code == 0
    assert run("adr", "check", "none.py", "--fail-on", "warn").code == 2
    assert run("adr", "check", "--format", "json").json["compliance"]["violationSummary"]["high"] == 1
    assert run("adr", "check", "--format", "sarif").json["version"] == "2.1.0"


# stores by URL


def test_commands_use_the_stores_of_the_settings_and_bind_there(
    run: Callable[..., Done], repo: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_database()
    monkeypatch.setenv("TOOLGATE_HOME", str(repo))
    (repo / "toolgate.toml").write_text(f'[stores]\nfalse_positives = "{url}"\nconsent = "{url}"\n')
    install(repo, "permissions")
    blocked = run("analyze", "--require-binding")
    assert (blocked.code, "advisory" in blocked.out) == (1, False)
    assert run("consent", "grant", "acme", "fp_metrics", "--by", "ann").code == 0
    assert not (repo / "state").exists()


def test_a_store_that_is_down_is_exit_9_for_writing_and_advice_for_reading(
    run: Callable[..., Done], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_HOME", str(repo))
    (repo / "toolgate.toml").write_text('[stores]\nfalse_positives = "postgresql://u:hunter2@127.0.0.1:1/x"\n')
    install(repo, "comments")
    done = run("fp", "list")
    assert done.code == 9
    assert "hunter2" not in done.err
    assert run("analyze").code == 0


@pytest.mark.guard
def test_the_real_program_says_the_same(repo: Path) -> None:
    install(repo, "permissions")
    program = str(Path(sys.executable).parent / "toolgate")
    done = subprocess.run([program, "analyze", "--format", "json"], capture_output=True, timeout=30, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["analysis"]["decision"]["outcome"] == "block"
    assert b"Traceback" not in done.stderr
