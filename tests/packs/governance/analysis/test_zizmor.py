"""zizmor's findings beside ours: merged where they are the same, one decision; missing or broken, it is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.packs.governance.cli.commands import CLEAN, SHA, put, repo, run
from toolgate.packs.governance.analysis.zizmor import SarifFault, read_sarif
from toolgate.packs.governance.cli import zizmor

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.packs.governance.cli.commands import Done

__all__ = ["repo", "run"]  # fixtures

WORKFLOW = ".github/workflows/ci.yml"
INJECTED = CLEAN + '      - run: echo "${{ github.event.pull_request.title }}"\n'


REAL = zizmor._program


@pytest.fixture(autouse=True)
def installed(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `repo`, which takes it away."""
    monkeypatch.setattr(zizmor, "_program", REAL)


def rules(done: Done) -> list[tuple[str, str]]:
    return sorted((one["ruleId"], one["severity"]) for one in done.json["analysis"]["findings"])


def status(done: Done) -> tuple[str, str]:
    (one,) = [rule for rule in done.json["analysis"]["rules"] if rule["id"] == "zizmor"]
    return one["status"], one["reason"] or ""


def pretend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None) -> None:
    """Another program in zizmor's place, or none."""
    program = None
    if script is not None:
        program = tmp_path / "zizmor"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setattr(zizmor, "_program", lambda: str(program) if program else None)


def test_what_only_zizmor_looks_for_is_a_finding_with_its_credit(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, INJECTED)
    done = run("analyze", "--json")
    assert rules(done) == [("zizmor/template-injection", "high")]
    assert status(done) == ("evaluated", "")
    (found,) = done.json["analysis"]["findings"]
    assert found["evidence"][0]["line"] == 13
    assert "(zizmor)" in found["title"]
    assert "${{ github.event.pull_request.title }}" in found["because"]
    assert run("analyze", "--strict").code == 1, "one decision"


def test_the_same_thing_in_the_same_place_is_one_finding(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN.replace(SHA, "v4"))
    (found,) = run("analyze", "--json").json["analysis"]["findings"]
    assert (found["ruleId"], found["alsoFoundBy"]) == ("MD-002", ["zizmor/unpinned-uses"])
    assert "(also zizmor/unpinned-uses)" in run("analyze").out


def test_its_findings_can_be_reviewed_and_ignored_like_ours(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, INJECTED)
    (found,) = run("analyze", "--json").json["analysis"]["findings"]
    said = ("--reason", "no", "--reviewer", "ann", "--ticket", "T-1")
    assert run("fp", "mark", found["fingerprint"], *said).code == 0
    assert run("analyze", "--json").json["analysis"]["findings"] == []


def test_files_are_named_from_the_repository_also_below_a_larger_checkout(run: Callable[..., Done], repo: Path) -> None:
    put(repo, f"inner/{WORKFLOW}", INJECTED)
    (found,) = run("analyze", "inner", "--json").json["analysis"]["findings"]
    assert found["evidence"][0]["path"] == WORKFLOW


def test_repositories_within_the_repository_are_not_judged(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(repo, f"fixtures/{WORKFLOW}", INJECTED)
    action = "runs:\n  using: composite\n  steps: [{uses: a/b@v1}]\n"
    put(repo, "fixtures/.github/actions/a/action.yml", f"name: a\ndescription: a\n{action}")
    assert rules(run("analyze", "--json")) == []


FAULTS = {
    "missing": (None, "not installed"),
    "crash": ("echo 'fatal: no audit was performed' >&2; exit 1", "failed (exit 1): fatal: no audit was performed"),
    "killed": ("kill -9 $$", "failed (exit -9)"),
    "silence": ("exit 0", "not SARIF"),
    "nonsense": ("echo '{\"runs\": []'", "not SARIF"),
    "nothing ran": ("echo '{\"runs\": []}'", "not of a run that succeeded"),
    "somebody else": (
        'echo \'{"runs": [{"tool": {"driver": {"name": "other"}}, "results": []}]}\'',
        "not of a run that succeeded",
    ),
    "half a result": (
        'echo \'{"runs": [{"tool": {"driver": {"name": "zizmor"}}, "results": [{"ruleId": "x"}]}]}\'',
        "not SARIF",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_missing_or_broken_it_is_not_evaluated_and_never_silent(
    run: Callable[..., Done], repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    script, said = FAULTS[name]
    pretend(monkeypatch, tmp_path, script)
    put(repo, WORKFLOW, CLEAN)
    done = run("analyze", "--json")
    assert status(done)[0] == "not_evaluated"
    assert said in status(done)[1]
    assert "not evaluated zizmor" in run("analyze").out
    insisted = run("analyze", "--zizmor", "on")
    assert (insisted.code, "zizmor was not evaluated" in insisted.err) == (2, True)
    put(repo, ".toolgate.toml", 'zizmor = "on"\n')
    assert run("analyze").code == 2
    put(repo, ".toolgate.toml", 'zizmor = "off"\n')
    assert run("analyze").code == 0


def test_a_program_that_never_ends_is_given_up(
    run: Callable[..., Done], repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, tmp_path, "exec sleep 600")
    monkeypatch.setattr(zizmor, "TIMEOUT_S", 0.2)
    put(repo, WORKFLOW, CLEAN)
    assert "did not end" in status(run("analyze", "--json"))[1]


def test_a_workflow_that_zizmor_cannot_read_is_not_left_out_in_silence(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(repo, ".github/workflows/broken.yml", "on: [push\n")
    done = run("analyze", "--json")
    assert status(done)[0] == "not_evaluated"
    assert rules(done) == [("MD-000", "high")]


def test_it_gets_no_token_and_none_of_its_own_settings(
    run: Callable[..., Done], repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, tmp_path, f"env > {tmp_path}/seen")
    for name in ("GH_TOKEN", "GITHUB_TOKEN", "ZIZMOR_CONFIG", "TOOLGATE_API_KEY"):
        monkeypatch.setenv(name, "secret")
    put(repo, WORKFLOW, CLEAN)
    run("analyze")
    assert "secret" not in (tmp_path / "seen").read_text()


def result(**changes: Any) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": "a%20b.yml"}, "region": {"startLine": 3, "snippet": {"text": "x"}}}
    properties = {"zizmor/severity": "High", "zizmor/confidence": "High"}
    one = {"ruleId": "zizmor/x", "message": {"text": "m"}, "locations": [{"physicalLocation": place}]}
    return one | {"properties": properties | changes}


@pytest.mark.parametrize(
    ("severity", "confidence", "wanted"),
    [
        ("High", "High", "high"),
        ("High", "Low", "medium"),
        ("Medium", "Low", "low"),
        ("Low", "Medium", "low"),
        ("Informational", "High", "info"),
    ],
)
def test_what_zizmor_is_not_sure_of_weighs_less(severity: str, confidence: str, wanted: str) -> None:
    one = result(**{"zizmor/severity": severity, "zizmor/confidence": confidence})
    document = {"runs": [{"tool": {"driver": {"name": "zizmor"}}, "results": [one]}]}
    (found,) = read_sarif(json.dumps(document).encode())
    assert (found.severity, found.file, found.line) == (wanted, "a b.yml", 3)


def test_more_findings_than_anybody_reads_are_a_fault() -> None:
    document = {"runs": [{"tool": {"driver": {"name": "zizmor"}}, "results": [result()] * 3_001}]}
    with pytest.raises(SarifFault, match="more than 3000"):
        read_sarif(json.dumps(document).encode())


def test_the_one_beside_our_interpreter_is_asked_first() -> None:
    assert zizmor._program() == str(Path(sys.executable).parent / "zizmor")


UNSTATED = CLEAN.replace("permissions:\n  contents: read\n", "") + "  more:\n    runs-on: x\n    steps: [{run: make}]\n"


def test_permissions_that_nobody_states_are_told_once_a_job_and_do_not_block(
    run: Callable[..., Done], repo: Path
) -> None:
    put(repo, WORKFLOW, UNSTATED)
    done = run("analyze", "--json")
    assert rules(done) == [("L0-002", "low"), ("L0-002", "low")]
    credit = ["zizmor/excessive-permissions"]
    assert [one["alsoFoundBy"] for one in done.json["analysis"]["findings"]] == [credit, credit]


def test_with_the_default_given_zizmor_does_not_ask_for_it_either(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, UNSTATED)
    known = run("analyze", "--json", "--default-permissions", "read")
    assert rules(known) == []
    assert status(known) == ("evaluated", "3 about default permissions left out: the default is read")
    assert rules(run("analyze", "--json", "--default-permissions", "write")) == [("L0-002", "critical")] * 2
