"""What the repository itself promises: its records, its owners, its workflow, its generated tables."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.policy.support import ROOT
from toolgate.cli.main import main
from toolgate.policy import adr, contract, docs
from toolgate.policy.manifest import load_manifest

if TYPE_CHECKING:
    from pathlib import Path

ADRS = ROOT / "docs" / "adr"


@pytest.mark.req("001-P10")
def test_the_governing_records_are_there_and_accepted() -> None:
    records = adr.load_directory(ADRS)
    for number in ("ADR-0001", "ADR-0002", "ADR-0003", "ADR-0004"):
        assert records[number].accepted, number
    assert "MCP" in records["ADR-0001"].title
    assert all(record.status != "unknown" and record.title for record in records.values())


@pytest.mark.req("001-P10")
def test_the_tool_policy_table_and_the_index_are_made_from_contract_and_records() -> None:
    lock = contract.read_lock(None)
    made = docs.parts(lock, adr.load_directory(ADRS).values())
    assert [path.name for path, _ in docs.stale(ADRS, made)] == [], "run `toolgate policy docs`"
    table = (ADRS / "ADR-0002-tool-tier-policy.md").read_text()
    for tool in lock["tools"]:
        line = next(line for line in table.splitlines() if line.startswith(f"| `{tool['name']}` |"))
        assert ("block" in line) is (tool["x-tier"] == "authoritative")
    assert "| [ADR-0001](ADR-0001-mcp-as-governance-surface.md) |" in (ADRS / "README.md").read_text()


def test_every_live_authoritative_tool_rests_on_a_record_of_its_own() -> None:
    records = adr.load_directory(ADRS)
    binding = [tool for tool in contract.read_lock(None)["tools"] if tool["x-tier"] == "authoritative"]
    named = [tool["x-adr"] for tool in binding]
    assert len(named) == len(set(named))
    for tool in binding:
        record = records[tool["x-adr"]]
        assert record.accepted
        assert tool["name"] in (ADRS / record.file).read_text()


@pytest.mark.req("001-P11")
def test_owners_guard_everything_that_gives_authority() -> None:
    lines = [line.split() for line in (ROOT / ".github" / "CODEOWNERS").read_text().splitlines()]
    owned = {line[0]: line[1:] for line in lines if line and not line[0].startswith("#")}
    for path in (
        "policy",
        "src/toolgate/policy/default/mcp-tools.policy.json",
        "src/toolgate/policy/rules.py",
        "docs/adr/ADR-0001-mcp-as-governance-surface.md",
        "src/toolgate/gate/floor.py",
        ".github/workflows/mcp-contract.yml",
    ):
        assert (ROOT / path).exists()
        assert any(owners and fnmatch("/" + path, pattern.rstrip("/") + "*") for pattern, owners in owned.items()), path


@pytest.fixture(scope="module")
def workflow() -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "mcp-contract.yml").read_text())
    return content


@pytest.mark.req("001-P9")
def test_the_contract_check_has_read_only_permissions_and_pinned_actions(workflow: dict[Any, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    job = workflow["jobs"]["contract-check"]
    assert "name" not in job, "the check is reported under the job's id: branch protection asks for contract-check"
    assert job["permissions"] == {"contents": "read"}
    for step in job["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", step["uses"])
    text = (ROOT / ".github" / "workflows" / "mcp-contract.yml").read_text()
    assert all(re.search(r"# v[0-9]+\.[0-9]+\.[0-9]+$", line) for line in text.splitlines() if "uses:" in line)


@pytest.mark.req("001-P9")
def test_the_workflow_runs_where_a_required_check_must_and_what_ci_runs(workflow: dict[Any, Any]) -> None:
    events = workflow[True]  # YAML 1.1 reads `on` as true
    assert {"pull_request", "merge_group", "push"} <= events.keys()
    assert not (events["pull_request"] or {}).get("paths"), "a filtered required check never reports"
    commands = "\n".join(step.get("run", "") for step in workflow["jobs"]["contract-check"]["steps"])
    for command in ("make check", "toolgate policy lint", "toolgate contract check", "make notice"):
        assert command in commands
    assert "toolgate contract check" in (ROOT / "Makefile").read_text()


@pytest.mark.req("001-P9", "001-P11")
def test_the_main_branch_requires_the_checks_and_the_owners() -> None:
    protection = json.loads((ROOT / ".github" / "branch-protection.json").read_text())
    workflows = [yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    reported = {job for one in workflows if "merge_group" in one[True] for job in one["jobs"]}
    assert protection["required_status_checks"]["contexts"] == ["contract-check", "tests"]
    assert {"contract-check", "tests"} <= reported, "a required check that nobody reports blocks every pull request"
    assert protection["required_pull_request_reviews"]["require_code_owner_reviews"] is True


def test_our_own_rules_find_nothing_in_the_workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["analyze", "--home", str(tmp_path), "--fail-on", "warn", ".github/workflows/mcp-contract.yml"]) == 0


def test_no_expression_of_a_strangers_making_reaches_a_shell(workflow: dict[Any, Any]) -> None:
    for step in workflow["jobs"]["contract-check"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_hints_are_short_sentences_without_a_full_stop() -> None:
    for each in load_manifest(None).rows.values():
        assert each.hint[0].isupper()
        assert not each.hint.endswith(".")
