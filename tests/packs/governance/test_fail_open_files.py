"""No spelling of a path, no folder that cannot be listed, no link and no slip in a record's front matter turns a gate green."""

from __future__ import annotations

import os
from errno import EACCES
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.packs.governance.cli.commands import CLEAN, SHA, put, repo, run
from toolgate.kit.findings import Finding
from toolgate.packs.governance.cli import analyze
from toolgate.packs.governance.rules.base import RuleVerdict
from toolgate.packs.governance.rules.catalogue import ZIZMOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.packs.governance.cli.commands import Done
    from tests.packs.governance.desk import Desk

__all__ = ["repo", "run"]  # fixtures

LOOSE = CLEAN.replace(SHA, "v4")
WORKFLOW = ".github/workflows/ci.yml"
RULES = "applies-to: ['src/**']\nrules:\n  - {must-not: 'x', severity: high}\n"


def record(repo: Path, matter: str = f"---\nstatus: accepted\n{RULES}---\n") -> Path:
    put(repo, "src/a.py", "x = 1\n")
    return put(repo, "docs/adr/ADR-0001-x.md", f"{matter}# ADR-0001: X\n")


# Paths with `..`


def test_p3_a_file_named_from_a_sibling_folder_is_judged_by_the_rules_about_it(
    run: Callable[..., Done], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(repo)
    monkeypatch.chdir(repo / "docs")
    done = run("adr", "check", "../src/a.py")
    assert (done.code, "src/a.py:1" in done.out) == (1, True)
    monkeypatch.chdir(repo.parent)
    done = run("adr", "check", "repo/docs/../src/a.py", "--root", "home/../repo")
    assert (done.code, "src/a.py:1" in done.out) == (1, True)


def test_p3_a_workflow_named_from_a_sibling_folder_has_its_own_name(
    run: Callable[..., Done], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(repo, WORKFLOW, LOOSE)
    (repo / "sub").mkdir()
    there = run("analyze", WORKFLOW, "--json").json["analysis"]["findings"]
    monkeypatch.chdir(repo / "sub")
    here = run("analyze", f"../{WORKFLOW}", "--json").json["analysis"]["findings"]
    assert here == there
    assert {place["path"] for finding in here for place in finding["evidence"]} == {WORKFLOW}


def test_p3_what_zizmor_found_in_a_file_named_from_a_sibling_folder_is_told(
    run: Callable[..., Done], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Found:
        def __init__(self, _root: Path) -> None: ...
        def close(self) -> None: ...
        def verdict(self) -> RuleVerdict:
            found = Finding("zizmor/template-injection", "fail", "high", "injected", file=WORKFLOW, line=2)
            return RuleVerdict(ZIZMOR, "evaluated", (found,))

    monkeypatch.setattr(analyze, "Zizmor", Found)
    put(repo, WORKFLOW, CLEAN)
    (repo / "sub").mkdir()
    monkeypatch.chdir(repo / "sub")
    done = run("analyze", f"../{WORKFLOW}")
    assert "zizmor/template-injection" in done.out


def test_p3_a_file_outside_the_repository_is_no_file_of_its_decisions(run: Callable[..., Done], repo: Path) -> None:
    record(repo)
    put(repo, "../other/a.py", "x = 1\n")
    done = run("adr", "check", "../other/a.py")
    assert (done.code, "is outside" in done.said, "compliant" in done.out) == (2, True, False)


def test_p3_dots_behind_a_link_name_no_file_that_was_not_meant(run: Callable[..., Done], repo: Path) -> None:
    """The system goes up from where the link leads; the text of the path does not."""
    record(repo)
    put(repo, "../other/src/a.py", "y = 1\n")
    (repo.parent / "other" / "deep").mkdir()
    (repo / "link").symlink_to(repo.parent / "other" / "deep")
    done = run("adr", "check", "link/../src/a.py")
    assert (done.code, "leads through a link" in done.said) == (2, True)


# Folders that cannot be listed


def closed(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """As for a user who may not read it: root, who runs many tests, may."""
    real = os.scandir

    def scandir(path: Any = ".") -> Any:
        if not isinstance(path, int) and Path(path) == place:
            raise PermissionError(EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)


@pytest.mark.parametrize("command", [["analyze"], ["l0"]])
def test_p3_a_folder_of_workflows_that_cannot_be_listed_is_an_error(
    run: Callable[..., Done], repo: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    put(repo, WORKFLOW, LOOSE)
    put(repo, ".toolgate.toml", "")
    closed(monkeypatch, repo / ".github" / "workflows")
    done = run(*command)
    assert (done.code, ".github/workflows was not judged: io error" in done.said) == (2, True)


def test_p5_a_folder_that_cannot_be_listed_is_an_error_of_adr_check(
    run: Callable[..., Done], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(repo)
    closed(monkeypatch, repo / "src")
    done = run("adr", "check")
    assert (done.code, "src cannot be read" in done.said) == (2, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("mode", [0, 0o400, 0o100])
def test_p3_a_folder_of_workflows_without_permission_is_an_error(
    run: Callable[..., Done], repo: Path, mode: int
) -> None:
    put(repo, WORKFLOW, LOOSE)
    put(repo, ".toolgate.toml", "")
    folder = repo / ".github" / "workflows"
    folder.chmod(mode)
    try:
        done = run("analyze")
    finally:
        folder.chmod(0o700)
    assert (done.code, ".github/workflows" in done.said) == (2, True)


@pytest.mark.parametrize("command", [["analyze"], ["l0"]])
def test_p3_a_folder_of_workflows_without_one_is_not_no_findings(
    run: Callable[..., Done], repo: Path, command: list[str]
) -> None:
    put(repo, ".toolgate.toml", "")
    put(repo, ".github/workflows/ci.yml.off", LOOSE)
    done = run(*command)
    assert (done.code, "workflow" in done.said) == (2, True)
    put(repo, WORKFLOW, CLEAN)
    assert run(*command).code == 0


# Links and folders in place of files


DECIDING = (
    ".github/branch-protection.json",
    ".toolgate.toml",
    ".toolgate/suppressions.toml",
    "action.yml",
    "mcp-contract.json",
)


@pytest.mark.parametrize("path", DECIDING)
@pytest.mark.parametrize("kind", ["link", "dangling", "folder"])
def test_p4_what_is_there_and_no_regular_file_is_not_absent(
    run: Callable[..., Done], desk: Desk, repo: Path, path: str, kind: str
) -> None:
    for root in (repo, desk.root):
        put(root, WORKFLOW, CLEAN)
        (root / path).parent.mkdir(exist_ok=True)
        if kind == "folder":
            (root / path).mkdir()
        else:
            (root / path).symlink_to(put(root, "elsewhere", "") if kind == "link" else root / "nowhere")
    done = run("analyze")
    assert (done.code, f"{path} was not judged: is not a regular file" in done.err) == (2, True)
    told = desk.call("analyze_dissonance", {"files": [WORKFLOW]})
    assert told.decision != "pass"


def test_p4_a_folder_that_leads_elsewhere_holds_no_suppressions(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(repo, "../other/suppressions.toml", "")
    (repo / ".toolgate").symlink_to(repo.parent / "other")
    done = run("analyze")
    assert (done.code, ".toolgate/suppressions.toml was not judged" in done.err) == (2, True)


def test_p4_protection_that_was_given_stands_in_for_a_link(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    given = put(repo, "../given.json", '{"required_status_checks": {"contexts": ["Unit tests"]}}')
    (repo / ".github/branch-protection.json").symlink_to(given)
    assert run("analyze", "--protection", str(given)).code == 0


def test_p3_an_action_behind_a_link_that_a_workflow_uses_is_an_error(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN + "      - uses: ./tools/act\n")
    put(repo, "tools/act/README.md", "")
    (repo / "tools/act/action.yml").symlink_to(put(repo, "elsewhere.yml", "runs: {using: composite, steps: []}\n"))
    done = run("analyze")
    assert (done.code, "tools/act/action.yml was not judged: is not a regular file" in done.err) == (2, True)
    (repo / "tools").rename(repo.parent / "tools")
    (repo / "tools").symlink_to(repo.parent / "tools")
    done = run("analyze")
    assert (done.code, "tools/act was not judged: invalid path" in done.err) == (2, True)


def test_p5_a_record_behind_a_link_is_not_absent(run: Callable[..., Done], desk: Desk, repo: Path) -> None:
    for root in (repo, desk.root):
        record(root, "---\nstatus: accepted\napplies-to: ['src/**']\nrules:\n  - {must-not: 'y'}\n---\n")
        hidden = put(root, "hidden.md", f"---\nstatus: accepted\n{RULES}---\n# ADR-0002: Y\n")
        (root / "docs/adr/ADR-0002-y.md").symlink_to(hidden)
    done = run("adr", "check")
    assert (done.code, "docs/adr/ADR-0002-y.md was not judged: is a link" in done.err) == (2, True)
    lint = run("adr", "lint")
    assert (lint.code, "ADR-0002-y.md: cannot be read: is_a_link" in lint.out) == (2, True)
    told = desk.call("check_adr_compliance", {"files": ["src/a.py"]})
    assert told.data["compliance"]["compliant"] is False


# Front matter


@pytest.mark.parametrize(
    ("matter", "line", "said", "fix"),
    [
        (f"---\nstatus: accepted\n{RULES.replace('rules', 'rulse')}---\n", 4, "'rulse'", "Write 'rules'."),
        (f"---\nstatus: accepted\n{RULES.replace('rules', 'Rules')}---\n", 4, "'Rules'", "Write 'rules'."),
        (f"---\nstatus: accepted\n{RULES.replace('rules', 'rule')}---\n", 4, "'rule'", "Write 'rules'."),
        (f"---\nstatus: accepted\n{RULES.replace('s-to', 's_to')}---\n", 3, "'applies_to'", "Write 'applies-to'."),
        (f"---\nstauts: accepted\n{RULES}---\n", 2, "'stauts'", "Write 'status'."),
        (f"---\nstatus: accepted\n{RULES}", 1, "no line `---` ends it", "Write `---`"),
        (f"---\n\n# of ours\nstatus: accepted\n{RULES}", 1, "no line `---` ends it", "Write `---`"),
        (f"\n\n---\nstatus: accepted\n{RULES}---\n", 3, "not at the top", "first line"),
    ],
)
def test_p5_a_slip_in_front_matter_switches_no_rule_off(
    run: Callable[..., Done], repo: Path, matter: str, line: int, said: str, fix: str
) -> None:
    record(repo, matter)
    done = run("adr", "check", "src/a.py")
    assert done.code == 2
    assert f"docs/adr/ADR-0001-x.md:{line}: " in done.err
    assert said in done.err
    assert fix in done.err
    lint = run("adr", "lint")
    assert (lint.code, said in lint.out, fix in lint.out) == (2, True, True)


@pytest.mark.parametrize(
    "matter",
    [
        "---\nstatus: accepted\ndate: 2026-01-01\ndecision-makers: [a]\nconsulted: [b]\ninformed: [c]\n---\n",  # MADR 4
        "---\nstatus: accepted\ndeciders: a\ntags: [x]\ntitle: X\nadr: 1\nid: 1\nlast-modified: x\n---\n",  # MADR 3
        "---\nlayout: post\nparent: Decisions\nnav_order: 1\nstatus: accepted\ncategory: x\nissue: 1\n---\n",
        "---\nstatus: accepted\nrelates-to: [2]\nrelated-to: 2\nroles: [a]\nstate: x\nstage: x\nsupersedes: 3\n---\n",
        "---\nstatus: accepted\nstatus-date: x\nstatus-history: [x]\nstats: x\nreplaces: 1\nresult: x\nscope: x\n---\n",
        "---\n\n# 1. A line, and no front matter\n\nText.\n\n## Status\n\nAccepted\n\n",
    ],
)
def test_p5_keys_of_other_peoples_templates_are_no_slips(run: Callable[..., Done], repo: Path, matter: str) -> None:
    record(repo, matter)
    assert run("adr", "lint").out == "1 records, 0 rules, 0 faults\n"
