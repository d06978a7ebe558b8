"""What is not known is told as that, never as a pass: tokens that nobody states (P6, F16), and what nobody looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.packs.governance.cli.commands import CLEAN, put, repo, run
from toolgate.packs.governance.tools.analyze_dissonance import as_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.packs.governance.cli.commands import Done
    from tests.packs.governance.desk import Desk

__all__ = ["repo", "run"]  # fixtures

WORKFLOW = ".github/workflows/ci.yml"
UNSTATED = CLEAN.replace("permissions:\n  contents: read\n", "")
CALLER = "on: [push]\njobs:\n  call:\n    uses: ./.github/workflows/called.yml\n"
CALLED = UNSTATED.replace("[pull_request, merge_group]", "[workflow_call]")


def told(done: Done) -> list[tuple[str, str, str, int]]:
    findings = done.json["analysis"]["findings"]
    return sorted(
        (one["ruleId"], one["severity"], one["evidence"][0]["path"], one["evidence"][0]["line"]) for one in findings
    )


def test_f16_a_token_that_nobody_states_warns_and_never_passes(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, UNSTATED)
    done = run("analyze", "--json")
    assert told(done) == [("L0-002", "low", WORKFLOW, 4)]
    assert done.json["analysis"]["decision"]["outcome"] == "warn"
    text = run("analyze", "--fail-on", "warn")
    assert text.code == 4
    assert "Job test states no permissions: what its token can write is not known" in text.out
    assert "the repository's default is not given" in text.out


def test_f16_a_caller_of_the_tool_is_warned_too(desk: Desk) -> None:
    desk.write(WORKFLOW, UNSTATED)
    asked: dict[str, Any] = {"files": [WORKFLOW]}
    assert desk.call("analyze_dissonance", asked).decision == "warn"
    assert desk.call("analyze_dissonance", asked | {"defaultPermissions": "read"}).decision == "pass"
    assert desk.call("analyze_dissonance", asked | {"defaultPermissions": "write"}).decision == "block"


def test_f16_however_many_there_are_the_unknown_does_not_block(run: Callable[..., Done], repo: Path) -> None:
    for number in range(12):
        put(repo, f".github/workflows/w{number}.yml", UNSTATED)
    assert run("analyze", "--strict").code == 0


def test_f16_with_the_default_given_it_is_known(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, UNSTATED)
    assert told(run("analyze", "--json", "--default-permissions", "read")) == []
    assert told(run("analyze", "--json", "--default-permissions", "write")) == [("L0-002", "critical", WORKFLOW, 4)]
    put(repo, ".toolgate.toml", 'default_permissions = "read"\n')
    assert [one for one in told(run("analyze", "--json")) if one[0] == "L0-002"] == []


def test_an_unattended_job_that_states_nothing_is_told_once(run: Callable[..., Done], repo: Path) -> None:
    nightly = UNSTATED.replace("[pull_request, merge_group]", "{schedule: [{cron: '1 2 * * *'}]}")
    put(repo, WORKFLOW, nightly)
    assert told(run("analyze", "--json")) == [("MD-004", "medium", WORKFLOW, 4)]
    assert told(run("analyze", "--json", "--default-permissions", "write")) == [("L0-002", "critical", WORKFLOW, 4)]
    by_hand = nightly.replace("    name: Unit", "    if: github.event_name == 'push'\n    name: Unit")
    put(repo, WORKFLOW, by_hand)
    assert told(run("analyze", "--json")) == [("L0-002", "low", WORKFLOW, 4)], "this job the schedule never starts"


def test_a_called_workflow_has_its_callers_token(run: Callable[..., Done], repo: Path) -> None:
    put(repo, ".github/workflows/called.yml", CALLED)
    put(repo, WORKFLOW, CALLER)
    assert told(run("analyze", "--json")) == [("L0-002", "low", WORKFLOW, 3)]
    put(repo, WORKFLOW, CALLER.replace("    uses", "    permissions: {}\n    uses"))
    assert told(run("analyze", "--json")) == []
    put(repo, WORKFLOW, CALLER)
    put(repo, ".github/workflows/called.yml", CALLED.replace("jobs:", "permissions: {}\njobs:"))
    assert told(run("analyze", "--json")) == [], "all that it calls is stated there"


def test_l0_counts_a_job_once_however_many_jobs_it_calls(run: Callable[..., Done], repo: Path) -> None:
    put(repo, ".github/workflows/called.yml", CALLED + "  more:\n    runs-on: x\n    steps: []\n")
    put(repo, WORKFLOW, CALLER)
    assert run("l0", "--json").json["validation"]["results"][0]["evidence"]["unknownTotal"] == 1


def row(analysis: Any) -> tuple[str, str]:
    (one,) = [rule for rule in analysis["rules"] if rule["id"] == "zizmor"]
    return one["status"], one["reason"]


def test_behind_a_server_the_answer_says_that_zizmor_was_not_asked(desk: Desk) -> None:
    desk.write(WORKFLOW, CLEAN)
    data = desk.call("analyze_dissonance", {"files": [WORKFLOW]}).data
    status, reason = row(data["analysis"])
    assert status == "not_evaluated"
    assert "a server starts no program" in reason
    assert "template injection" in reason


@pytest.mark.parametrize("by", ["flag", "settings"])
def test_switched_off_it_is_not_evaluated_and_nobody_misses_it(run: Callable[..., Done], repo: Path, by: str) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(
        repo, ".toolgate.toml", 'merge_queue = false\nzizmor = "off"\n' if by == "settings" else "merge_queue = false\n"
    )
    off = ["--zizmor", "off"] if by == "flag" else []
    assert row(run("analyze", "--json", *off).json["analysis"])[0] == "not_evaluated"
    assert "not evaluated zizmor: zizmor is switched off" in run("analyze", *off).out
    insisted = run("analyze", "--require-evaluated", *off)
    assert "zizmor was not evaluated" not in insisted.err


def protected(repo: Path) -> None:
    put(repo, WORKFLOW, CLEAN)
    put(repo, ".toolgate.toml", "merge_queue = false\n")
    put(repo, ".github/branch-protection.json", '{"required_status_checks": {"contexts": ["Unit tests"]}}\n')


def test_who_insists_on_evaluation_is_not_held_to_a_contract_that_nobody_has(
    run: Callable[..., Done], repo: Path
) -> None:
    protected(repo)
    done = run("analyze", "--zizmor", "off", "--require-evaluated", "--json")
    assert [rule["id"] for rule in done.json["analysis"]["rules"] if rule["status"] == "not_evaluated"] == [
        "MD-003",
        "zizmor",
    ]
    assert "MD-003" not in done.err


@pytest.mark.parametrize("path", ["policy/mcp-tools.policy.json", "mcp-contract.json"])
def test_half_a_contract_is_missed(run: Callable[..., Done], repo: Path, path: str) -> None:
    protected(repo)
    put(repo, path, '{"tools": []}\n')
    done = run("analyze", "--zizmor", "off", "--require-evaluated")
    assert (done.code, "MD-003 was not evaluated" in done.err) == (2, True)


def test_what_is_suppressed_is_listed_with_who_decided_it_and_why(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, UNSTATED.replace("  test:", "  test: # toolgate: ignore[L0-002] the mirror has no secrets"))
    assert "suppressed L0-002: Job test states no permissions" in run("analyze", "--zizmor", "off").out
    assert "(suppressed by a comment: the mirror has no secrets)" in run("analyze", "--zizmor", "off").out


@pytest.mark.parametrize("command", [("analyze",), ("baseline",), ("fp", "mark", "0" * 32)])
def test_a_context_that_names_no_repository_is_an_error(
    run: Callable[..., Done], repo: Path, command: tuple[str, ...]
) -> None:
    put(repo, WORKFLOW, CLEAN)
    said = ("--reason", "r", "--reviewer", "ann", "--ticket", "T-1") if command[0] == "fp" else ()
    done = run(*command, *said, "--context", "our shop")
    assert (done.code, "--context: our shop is not owner/name" in done.said) == (2, True)


def test_a_caller_reads_what_is_suppressed_and_by_whom(desk: Desk) -> None:
    desk.write(WORKFLOW, UNSTATED.replace("  test:", "  test: # toolgate: ignore[L0-002] the mirror has no secrets"))
    text = as_text(desk.call("analyze_dissonance", {"files": [WORKFLOW]}).data)
    assert f"{WORKFLOW}:4: suppressed L0-002: Job test states no permissions" in text
    assert "(suppressed by a comment: the mirror has no secrets)" in text
