"""The official conformance suite and the MCP Inspector judge a fresh deployment, with authentication on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.homes import ROOT, environment
from tests.support import need

SCRIPTS = ROOT / "scripts" / "conformance"
RUN_S = 900
"""Seconds, most of them for npm on a machine that has never run this."""

MUST_PASS = {
    "2025-11-25": {
        "server-initialize",
        "ping",
        "tools-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    },
    "2026-07-28": {
        "tools-list",
        "server-sse-multiple-streams",
        "sep-2164-resource-not-found",
        "dns-rebinding-protection",
        "input-required-result-missing-input-response",
        "input-required-result-unsupported-methods",
        "input-required-result-ignore-extra-params",
        "input-required-result-validate-input",
        "http-header-validation",
    },
}
"""What needs neither the suite's fixture tools nor resources, prompts, sampling or elicitation. A baseline cannot hide these."""
COUNTS = {
    "own": {"2025-11-25": [30, 30], "2026-07-28": [37, 37]},
    "direct": {"2025-11-25": [30, 30], "2026-07-28": [37, 37]},
    "governed": {"2025-11-25": [30, 30], "2026-07-28": [37, 37]},
}
"""Scored scenarios that each server passes: at least so many, of so many. Ours has the suite's names as a pack."""
MOST_LISTED = {("own", "2026-07-28"): 1}
METHODS = ("tools/list", "tools/call", "bad arguments", "says no", "prompts/get", "resources/read")
INSPECTOR_RUNS = {
    f"{transport} {era} {method}"
    for transport in ("http", "stdio")
    for era in ("legacy", "modern")
    for method in METHODS
} | {f"config {client} {method}" for client in ("claude-code", "claude-desktop") for method in METHODS}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The summary of one run, and where its reports are."""
    need("node")
    results = tmp_path_factory.mktemp("conformance")
    command = [sys.executable, "-m", "scripts.conformance.run", "--results", str(results)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((results / "summary.json").read_text()), results


@pytest.mark.guard
@pytest.mark.timeout(RUN_S)
@pytest.mark.parametrize("revision", list(MUST_PASS))
def test_the_conformance_suite_passes_but_for_what_we_do_not_offer(
    judged: tuple[dict[str, Any], Path], revision: str
) -> None:
    summary, _ = judged
    passed = {name for name, good in summary["scenarios"][revision].items() if good}
    assert passed >= MUST_PASS[revision]
    assert all(summary["counts"][revision][server] >= counts[revision] for server, counts in COUNTS.items())
    assert summary["faults"] == []


@pytest.mark.guard
@pytest.mark.timeout(RUN_S)
@pytest.mark.parametrize("revision", list(MUST_PASS))
def test_every_message_on_the_wire_is_valid_by_the_protocols_own_schema(
    judged: tuple[dict[str, Any], Path], revision: str
) -> None:
    _, results = judged
    statuses = [
        check["status"]
        for server in ("own", "governed")
        for report in (results / server / revision).rglob("*.json")
        for check in json.loads(report.read_text())
        if check["id"] == "wire-schema-valid"
    ]
    assert len(statuses) > 40
    assert set(statuses) == {"SUCCESS"}


@pytest.mark.guard
@pytest.mark.timeout(RUN_S)
def test_the_inspector_uses_tools_prompts_and_resources_in_both_eras_over_both_transports_and_from_our_client_files(
    judged: tuple[dict[str, Any], Path],
) -> None:
    summary, _ = judged
    assert summary["inspector"] == dict.fromkeys(INSPECTOR_RUNS, True)


@pytest.mark.parametrize(("server", "revision"), list(MOST_LISTED))
def test_a_baseline_lists_nothing_that_must_pass(server: str, revision: str) -> None:
    lines = (SCRIPTS / "baselines" / f"{server}-{revision}.yml").read_text().splitlines()
    listed = {line.removeprefix("  - ") for line in lines if line.startswith("  - ")}
    assert 0 < len(listed) <= MOST_LISTED[server, revision], "a baseline only shrinks"
    assert listed & MUST_PASS[revision] == set()


def test_the_judges_are_pinned_and_named_without_an_address() -> None:
    package = json.loads((SCRIPTS / "package.json").read_text())
    assert package["private"]
    for name, version in package["dependencies"].items():
        assert version[0].isdigit(), f"{name} is not pinned"
    assert "://" not in (SCRIPTS / "package.json").read_text()
