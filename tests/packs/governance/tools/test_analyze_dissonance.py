"""analyze_dissonance: the rules see files, the thresholds decide, the store remembers, the same inputs give the same bytes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.homes import PATIENCE_S
from tests.packs.governance.desk import NOW, TOOLS
from tests.support import let_stores_wait
from toolgate.errors import StoreUnavailable, ToolError
from toolgate.kit.findings import Finding
from toolgate.model import strictjson
from toolgate.packs.governance.analysis.drift import Baseline, BaselineFile, drift_between
from toolgate.packs.governance.analysis.weigh import Analysis, AnalysisRequest, Breaker, StoreMemory, weigh
from toolgate.packs.governance.repository.identity import RepositoryOrigin, origin_of
from toolgate.packs.governance.repository.model import Repository, parse
from toolgate.packs.governance.rules import base, catalogue
from toolgate.packs.governance.stores import reviews

if TYPE_CHECKING:
    from tests.packs.governance.desk import Desk

ANALYZE = "analyze_dissonance"
FIXTURES = Path(__file__).parents[3] / "fixtures" / "workflows"
SHA = "8f4b7f84864484a7bf31766abe9204da3cbe65b3"
CLEAN = f"""name: CI
on: [pull_request, merge_group]
permissions:
  contents: read
jobs:
  test:
    name: Unit tests
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@{SHA}
"""


def install(desk: Desk, *names: str) -> None:
    for name in names:
        desk.write(f".github/workflows/{name}.yml", (FIXTURES / f"{name}.yml").read_bytes())


def protect(desk: Desk, *contexts: str, **more: Any) -> None:
    required = {"strict": True, "contexts": list(contexts), **more}
    desk.write(".github/branch-protection.json", strictjson.dumps_pretty({"required_status_checks": required}))


def analyze(desk: Desk, role: Any = "admin", **args: Any) -> dict[str, Any]:
    result = desk.call(ANALYZE, {"files": ["README.md"], "context": "acme/shop", **args}, role)
    return {"result": result, **result.data["analysis"]}


@pytest.fixture
def repo(desk: Desk) -> Desk:
    desk.write("README.md", "hello\n")
    desk.write(".github/workflows/ci.yml", CLEAN)
    return desk


def found(answer: dict[str, Any]) -> list[tuple[str, str, str, int]]:
    return sorted(
        (one["ruleId"], one["severity"], one["evidence"][0]["path"], one["evidence"][0]["line"])
        for one in answer["findings"]
    )


# Rules see files


@pytest.mark.req("001-T3")
def test_a_sound_repository_passes_and_says_what_was_not_evaluated(repo: Desk) -> None:
    answer = analyze(repo)
    assert (answer["result"].decision, answer["findings"]) == ("pass", [])
    status = {rule["id"]: rule["status"] for rule in answer["rules"]}
    assert status == {
        "L0-002": "evaluated",
        "MD-000": "evaluated",
        "MD-001": "not_evaluated",
        "MD-002": "evaluated",
        "MD-003": "not_evaluated",
        "MD-004": "evaluated",
        "MD-005": "not_evaluated",
        "zizmor": "not_evaluated",
    }


def test_w09_rules_see_what_is_in_the_files(repo: Desk) -> None:
    before = analyze(repo)
    repo.write(".github/workflows/ci.yml", CLEAN.replace(SHA, "v4"))
    after = analyze(repo)
    assert before["findings"] == []
    assert found(after) == [("MD-002", "medium", ".github/workflows/ci.yml", 10)]
    assert after["findings"][0]["evidence"][0]["snippet"] == "- uses: actions/checkout@v4"
    assert after["result"].decision == "warn"


def test_the_repositorys_workflows_are_looked_at_without_being_named(repo: Desk) -> None:
    answer = analyze(repo)
    assert [file["path"] for file in answer["files"]] == [".github/workflows/ci.yml", "README.md"]
    assert [file["type"] for file in answer["files"]] == ["workflow", "source"]


def test_a_named_workflow_outside_the_root_is_judged_too(repo: Desk) -> None:
    repo.write("sub/.github/workflows/x.yml", CLEAN.replace(SHA, "main"))
    answer = analyze(repo, files=["sub/.github/workflows/x.yml"])
    assert found(answer) == [("MD-002", "medium", "sub/.github/workflows/x.yml", 10)]


# MD-001, MD-005


@pytest.mark.parametrize(
    ("context", "rules_found"),
    [
        ("Unit tests", []),
        ("test", ["MD-001"]),  # the job's id, hidden by its name
        ("CI", ["MD-001"]),  # the workflow's name
        ("Unit tests (3.12)", ["MD-001"]),  # a matrix that is not there
    ],
)
def test_required_checks_are_compared_with_the_names_jobs_report(
    repo: Desk, context: str, rules_found: list[str]
) -> None:
    protect(repo, context)
    answer = analyze(repo)
    assert [one["ruleId"] for one in answer["findings"]] == rules_found
    if rules_found:
        finding = answer["findings"][0]
        assert finding["evidence"][0]["path"] == ".github/branch-protection.json"
        assert context in finding["evidence"][0]["snippet"]
        if context in ("test", "CI"):
            assert "'Unit tests'" in finding["remediation"]


def test_required_checks_of_matrices_and_called_workflows_are_found(repo: Desk) -> None:
    install(repo, "matrix", "caller", "reusable", "flow-style")
    protect(
        repo,
        "unit (ubuntu-latest, 3.9)",
        "Lint (ruff)",
        "dynamic (x)",
        "Gate / Sign artifacts",
        "remote / scan",
        "flow check",
    )
    assert analyze(repo)["findings"] == []


def test_a_check_that_another_app_reports_is_not_a_jobs_matter(repo: Desk) -> None:
    checks = [
        {"context": "cla", "app_id": 42},
        {"context": "Unit tests", "app_id": 15368},
        {"context": "lost", "app_id": None},
    ]
    protect(repo, "cla", "Unit tests", "lost", checks=checks)
    assert [one["title"].split("'")[1] for one in analyze(repo)["findings"]] == ["lost"]


def test_a_required_check_behind_a_path_filter_is_found(repo: Desk) -> None:
    install(repo, "path-filtered")
    protect(repo, "docs")
    assert found(analyze(repo)) == [("MD-001", "medium", ".github/workflows/path-filtered.yml", 9)]


def test_a_required_check_that_skips_the_merge_queue_is_found(repo: Desk) -> None:
    repo.write(".toolgate.toml", "merge_queue = true\n")
    repo.write(".github/workflows/ci.yml", CLEAN.replace("[pull_request, merge_group]", "[pull_request]"))
    protect(repo, "Unit tests")
    assert found(analyze(repo)) == [("MD-005", "high", ".github/workflows/ci.yml", 2)]
    repo.write(".github/workflows/ci.yml", CLEAN)
    assert found(analyze(repo)) == []


def test_classic_protection_cannot_tell_of_a_merge_queue_and_a_workflow_that_runs_for_one_does(repo: Desk) -> None:
    """GitHub's answer on classic protection has no field for it: to assume a queue would accuse most repositories."""
    repo.write(".github/workflows/ci.yml", CLEAN.replace("[pull_request, merge_group]", "[pull_request]"))
    protect(repo, "Unit tests")
    answer = analyze(repo)
    rules = {one["id"]: one for one in answer["rules"]}
    assert (found(answer), rules["MD-005"]["status"]) == ([], "not_evaluated")
    repo.write(".github/workflows/queue.yml", CLEAN.replace("Unit tests", "Other tests"))
    assert found(analyze(repo)) == [("MD-005", "high", ".github/workflows/ci.yml", 2)]


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"required_status_checks": 3}', '{"required_status_checks": {"contexts": [{}]}}']
)
def test_branch_protection_that_cannot_be_understood_is_a_finding(repo: Desk, content: str) -> None:
    repo.write(".github/branch-protection.json", content)
    answer = analyze(repo)
    wanted = [] if content == "[]" else ["GATE"]
    assert [one["ruleId"] for one in answer["findings"]] == wanted, "an empty list of rules requires nothing"


# MD-003

MANIFEST = {"version": "1.0.0", "tools": [{"name": "a", "x-tier": "experimental", "x-visibilityHint": "h"}]}
ENTRY = {
    "name": "a",
    "pack": "p",
    "description": "d",
    "inputSchema": {},
    "x-tier": "experimental",
    "x-adr": None,
    "x-visibilityHint": "h",
}


def commit(desk: Desk, *tools: dict[str, Any], manifest: Any = None) -> None:
    desk.write("mcp-contract.json", strictjson.dumps_pretty({"schemaVersion": "1.0.0", "tools": list(tools)}))
    if manifest is not None:
        desk.write("policy/mcp-tools.policy.json", strictjson.dumps_pretty(manifest))


def test_a_contract_that_differs_from_its_manifest_is_critical(repo: Desk) -> None:
    commit(repo, ENTRY, manifest=MANIFEST)
    assert analyze(repo)["findings"] == []
    commit(repo, ENTRY | {"x-tier": "authoritative"}, manifest=MANIFEST)
    answer = analyze(repo)
    assert found(answer) == [("MD-003", "critical", "mcp-contract.json", 4)]
    assert "x-tier" in answer["findings"][0]["title"]
    assert answer["result"].decision == "block"


def test_a_contract_that_differs_from_the_running_server_is_critical(repo: Desk) -> None:
    commit(repo, ENTRY, {"name": "other", "pack": "not enabled here"})
    repo.contract = {"tools": [ENTRY]}
    assert analyze(repo)["findings"] == []
    repo.contract = {"tools": [ENTRY | {"description": "changed after review"}, {"name": "new", "pack": "p"}]}
    titles = [one["title"] for one in analyze(repo)["findings"]]
    assert titles == [
        "Tool 'new' is served and not in the committed contract.",
        "Tool 'a' differs from the running server in description.",
    ]
    repo.contract = {"tools": [{"name": "b", "pack": "p"}]}
    assert len(analyze(repo)["findings"]) == 2


# Failing rules and files


def test_a_rule_that_breaks_is_a_critical_finding_that_cannot_be_suppressed(
    repo: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_repository: Repository) -> Any:
        raise KeyError("secret value")

    rule = replace(catalogue.RULES[3], evaluate=broken)
    verdict = base.evaluate(rule, Repository({}))
    assert (verdict.status, verdict.findings[0].severity) == ("failed", "critical")
    assert "secret value" not in str(verdict)
    first = weighed(list(verdict.findings))
    fingerprint = first.findings[0].fingerprint
    known = reviews.Suppression("acme/shop", fingerprint, rule.id, "r", "a", "T", 0, 2**60)
    again = weighed(list(verdict.findings), [known])
    assert (again.decision, again.findings[0].status) == ("block", "fail")


def test_w12_a_file_that_is_missing_or_unreadable_is_skipped_and_never_a_pass(repo: Desk) -> None:
    repo.write("huge.bin", b"x" * (2 * 1024 * 1024 + 1))
    answer = analyze(repo, files=["README.md", "none.txt", "huge.bin"])
    assert [(one["path"], one["reason"]) for one in answer["skipped"]] == [
        ("huge.bin", "file_too_large"),
        ("none.txt", "file_not_found"),
    ]
    assert answer["filesAnalyzed"] == 2
    assert answer["result"].decision == "warn"


def test_an_empty_list_of_files_is_invalid_input() -> None:
    assert not jsonschema_rs.is_valid(dict(TOOLS[ANALYZE].input_schema), {"files": []})
    assert not jsonschema_rs.is_valid(dict(TOOLS[ANALYZE].input_schema), {})


def test_a_path_that_leaves_the_workspace_is_invalid_input(repo: Desk) -> None:
    with pytest.raises(ToolError) as fault:
        analyze(repo, files=["../x"])
    assert (fault.value.code, fault.value.data["reason"]) == ("INVALID_INPUT", "invalid_path")


def test_a_workflow_that_cannot_be_understood_is_a_finding(repo: Desk) -> None:
    repo.write(".github/workflows/bad.yml", "on: push\njobs:\n\tbuild: {}\n")
    assert found(analyze(repo)) == [("MD-000", "high", ".github/workflows/bad.yml", 3)]


def test_w17_the_foundation_is_looked_at_first_and_blocks(repo: Desk) -> None:
    install(repo, "permissions")
    answer = analyze(repo)
    assert answer["rules"][0]["id"] == "L0-002"
    assert answer["result"].decision == "block"


# Thresholds (every row of the table)


def weighed(
    findings: list[Finding], suppressions: Any = (), *, strict: bool = False, mode: Any = "pull_request"
) -> Analysis:
    verdict = base.RuleVerdict(catalogue.RULES[1].id, "evaluated", tuple(findings))
    asked = AnalysisRequest(mode, "strict" if strict else "default")
    return weigh(asked, Repository({}), [verdict], now=0, memory=StoreMemory(suppressions))


def some(critical: int = 0, high: int = 0, medium: int = 0, low: int = 0) -> list[Finding]:
    counts: Any = {"critical": critical, "high": high, "medium": medium, "low": low}
    return [Finding("MD-001", "fail", severity, f"{severity} {i}") for severity, n in counts.items() for i in range(n)]


@pytest.mark.parametrize(
    ("counts", "normal", "strict"),
    [
        ({}, "pass", "pass"),
        ({"low": 50}, "warn", "warn"),
        ({"medium": 1}, "warn", "warn"),
        ({"medium": 5}, "warn", "warn"),
        ({"medium": 6}, "warn", "block"),
        ({"medium": 10}, "warn", "block"),
        ({"medium": 11}, "block", "block"),
        ({"high": 1}, "warn", "block"),
        ({"high": 3}, "warn", "block"),
        ({"high": 4}, "block", "block"),
        ({"critical": 1}, "block", "block"),
        ({"high": 3, "medium": 10, "low": 9}, "warn", "block"),
    ],
)
def test_w18_w19_every_row_of_the_decision_table(counts: dict[str, int], normal: str, strict: str) -> None:
    findings = some(**counts)
    assert weighed(findings).decision == normal
    assert weighed(findings, strict=True).decision == strict
    assert weighed(findings, mode="merge_group").decision == strict
    softened = replace(weighed(findings), breaker=Breaker(limit=1, blocked=1))
    assert softened.decision == ("warn" if normal == "block" else normal)


@given(st.integers(0, 5), st.integers(0, 8), st.integers(0, 15), st.integers(0, 5))
def test_more_findings_never_soften_a_decision_and_strict_never_does(c: int, h: int, m: int, low: int) -> None:
    rank = ["pass", "warn", "block"].index
    base = rank(weighed(some(c, h, m, low)).decision)
    assert rank(weighed(some(c, h, m, low), strict=True).decision) >= base
    for more in ((c + 1, h, m, low), (c, h + 1, m, low), (c, h, m + 1, low), (c, h, m, low + 1)):
        assert rank(weighed(some(*more)).decision) >= base


def test_w07_the_decision_of_the_engine_is_the_decision_of_the_answer(repo: Desk) -> None:
    for name in ("comments", "scheduled", "permissions"):
        install(repo, name)
        answer = analyze(repo)
        assert answer["decision"]["outcome"] == answer["result"].decision


# Suppression


def suppress(
    desk: Desk, finding: dict[str, Any], *, repository: str = "acme/shop", days: float = 1, rule: str | None = None
) -> None:
    one = reviews.Suppression(
        repository,
        finding["fingerprint"],
        rule or finding["ruleId"],
        "known",
        "ann",
        "T-1",
        int(NOW * 1000),
        int((NOW + days * 86400) * 1000),
    )
    desk.false_positives(lambda kept: kept.suppress(one))


def test_w20_a_suppression_is_for_one_finding_and_survives_line_shifts(repo: Desk) -> None:
    loose = CLEAN.replace(SHA, "v4") + "      - uses: actions/setup-python@v5\n"
    repo.write(".github/workflows/ci.yml", loose)
    first, second = analyze(repo)["findings"]
    suppress(repo, first)
    repo.write(".github/workflows/ci.yml", "# one\n# two\n\n" + loose)
    answer = analyze(repo)
    assert [one["fingerprint"] for one in answer["findings"]] == [second["fingerprint"]]
    assert answer["suppressed"][0]["suppression"] == {
        "source": "store",
        "reason": "known",
        "reviewer": "ann",
        "ticket": "T-1",
    }
    assert answer["counts"]["medium"] == 1


def test_a_suppression_ends_and_belongs_to_its_repository_and_rule(repo: Desk) -> None:
    repo.write(".github/workflows/ci.yml", CLEAN.replace(SHA, "v4"))
    finding = analyze(repo)["findings"][0]
    suppress(repo, finding, repository="else/where")
    suppress(repo, finding, rule="MD-001")
    assert len(analyze(repo)["findings"]) == 1
    suppress(repo, finding)
    assert analyze(repo)["findings"] == []
    assert analyze(repo, context="owner/name")["findings"] != []
    assert analyze(repo, context=".")["findings"] != [], "without a name nothing the store knows applies"
    repo.clock.now += 86400
    assert [one["ruleId"] for one in analyze(repo)["findings"]] == ["MD-002", "SUPPRESSION"]


def test_without_the_store_nothing_is_suppressed_and_the_answer_says_so(repo: Desk, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    assert analyze(repo)["confidence"] == "unavailable"
    with pytest.raises(StoreUnavailable):
        analyze(repo, mode="calibration")


# Breaker


def blocked(desk: Desk, commit: int, role: Any = "committer") -> dict[str, Any]:
    return analyze(desk, role, context=f"o/r@{commit:07x}")


def test_the_breaker_turns_blocks_into_degraded_warnings_and_says_so(any_desk: Desk) -> None:
    any_desk.write("README.md", "x")
    install(any_desk, "permissions")
    any_desk.settings["blocks_per_hour"] = 3
    for repeat in range(5):
        assert blocked(any_desk, 1)["result"].decision == "block", repeat  # one report, however often
    assert blocked(any_desk, 2, role="builder")["breaker"]["blocked"] == 1
    assert [blocked(any_desk, commit)["result"].decision for commit in (3, 4)] == ["block", "block"]
    answer = blocked(any_desk, 5)
    result = answer["result"]
    assert (result.decision, result.code, result.degraded, answer["breaker"]["open"]) == (
        "warn",
        "CIRCUIT_BREAKER_OPEN",
        True,
        True,
    )
    assert answer["decision"]["byThresholds"] == "block"
    assert any("circuit breaker" in reason for reason in answer["decision"]["reasons"])
    assert analyze(any_desk, context="o/other")["result"].decision == "block"
    any_desk.clock.now += 3600
    assert blocked(any_desk, 5)["result"].decision == "block"


def test_the_breaker_is_off_unless_set(repo: Desk) -> None:
    install(repo, "permissions")
    for commit in range(5):
        assert blocked(repo, commit)["result"].decision == "block"


def test_a_breaker_whose_counter_does_not_answer_softens_nothing(repo: Desk, tmp_path: Path) -> None:
    install(repo, "permissions")
    repo.settings["blocks_per_hour"] = 1
    (tmp_path / "state").write_text("in the way")
    answer = analyze(repo)
    assert (answer["result"].decision, answer["confidence"]) == ("block", "unavailable")


def test_twenty_writers_lose_no_block(any_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    let_stores_wait(monkeypatch)
    any_desk.deadline_s = 4 * PATIENCE_S
    any_desk.write("README.md", "x")
    install(any_desk, "permissions")
    any_desk.settings["blocks_per_hour"] = 1000

    async def all_at_once() -> None:
        await asyncio.gather(
            *(any_desk.acall(ANALYZE, {"files": ["README.md"], "context": f"o/r@{i:07x}"}) for i in range(20))
        )

    asyncio.run(all_at_once())
    assert any_desk.false_positives(lambda kept: kept.blocked_this_hour("o/r", int(NOW * 1000))) == 20


# Baseline


def test_calibration_writes_a_baseline_and_drift_compares_with_it(any_desk: Desk) -> None:
    any_desk.write("README.md", "x")
    any_desk.write(".github/workflows/ci.yml", CLEAN)
    without = analyze(any_desk, mode="drift")
    assert (without["drift"]["status"], without["result"].decision) == ("not_evaluated", "warn")
    assert analyze(any_desk, mode="calibration")["result"].decision == "pass"
    same = analyze(any_desk, mode="drift")
    assert (same["drift"]["magnitude"], same["result"].decision) == (0.0, "pass")
    any_desk.write("README.md", "y")
    any_desk.write(".github/workflows/new.yml", CLEAN)
    (any_desk.root / ".github/workflows/ci.yml").unlink()
    changed = analyze(any_desk, mode="drift")
    drift = changed["drift"]
    assert (drift["modified"], drift["added"], drift["removed"]) == (
        ["README.md"],
        [".github/workflows/new.yml"],
        [".github/workflows/ci.yml"],
    )
    assert (drift["magnitude"], changed["result"].decision) == (1.0, "warn")
    assert analyze(any_desk, mode="drift", strict=True)["result"].decision == "block"
    assert analyze(any_desk, mode="drift", context="other/repo")["drift"]["status"] == "not_evaluated"


def test_w22_one_schema_for_all_modes(repo: Desk) -> None:
    shapes = {
        mode: set(analyze(repo, mode=mode)) for mode in ("pull_request", "issue", "merge_group", "calibration", "drift")
    }
    assert len(set(map(frozenset, shapes.values()))) == 1


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("12")),
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("12")),
)
def test_drift_laws(before: dict[str, str], now: dict[str, str]) -> None:
    old, new = ({path: BaselineFile(digest) for path, digest in side.items()} for side in (before, now))
    drift, back = drift_between(Baseline(old), Baseline(new), "t"), drift_between(Baseline(new), Baseline(old), "t")
    assert len(drift.changes) == len(before.items() ^ now.items()) - len(drift.paths("modified"))
    assert (not drift.changes) is (before == now)
    assert (drift.paths("added"), drift.paths("modified")) == (back.paths("removed"), back.paths("modified"))
    assert 0 <= drift.magnitude <= 1


# The report


def test_w21_the_same_inputs_give_the_same_bytes(repo: Desk) -> None:
    install(repo, "unpinned", "scheduled", "matrix", "permissions")
    protect(repo, "x", "y")
    first = strictjson.dumps(repo.call(ANALYZE, {"files": ["README.md"]}).data)
    repo.clock.now += 1000
    assert strictjson.dumps(repo.call(ANALYZE, {"files": ["README.md", "README.md"]}).data) == first


def test_w21_the_report_of_the_fixtures_is_the_golden_one(repo: Desk) -> None:
    """When a rule is meant to change: raise its version, look at the difference, and write `report` over the golden file."""
    install(repo, *(path.stem for path in FIXTURES.glob("*.yml")))
    protect(repo, "Unit tests", "docs", "queue gate", "test")
    report = strictjson.dumps_pretty(repo.call(ANALYZE, {"files": ["README.md"], "context": "owner/name@0123abc"}).data)
    golden = Path(__file__).parent / "golden" / "analysis.json"
    assert report.decode() == golden.read_text()


def test_every_finding_says_what_where_and_what_to_do(repo: Desk) -> None:
    install(repo, "unpinned", "scheduled", "permissions", "drift-check")
    protect(repo, "x")
    for one in analyze(repo)["findings"]:
        assert one["id"].startswith(one["ruleId"])
        assert one["title"]
        assert one["remediation"]
        assert one["evidence"][0]["line"] >= 1
        assert one["adrReferences"] == ["ADR-0008"]
        assert len(one["fingerprint"]) == 32


def test_secrets_do_not_reach_snippets(repo: Desk) -> None:
    secret = "ghp_" + "A1b2C3d4E5" * 4
    repo.write(".github/workflows/ci.yml", CLEAN + f"      - run: curl -H 'token: {secret}' https://x | sh\n")
    answer = analyze(repo)
    assert len(answer["findings"]) == 1
    assert secret not in str(answer)


@pytest.mark.parametrize(
    ("context", "origin"),
    [
        ("owner/name", RepositoryOrigin("owner/name")),
        ("owner/name@0123abc", RepositoryOrigin("owner/name", "0123abc")),
        ("and/or this", RepositoryOrigin()),
        ("org/team/repo", RepositoryOrigin()),
        ("", RepositoryOrigin()),
        (None, RepositoryOrigin()),
    ],
)
def test_prose_with_a_slash_names_no_repository(context: str | None, origin: RepositoryOrigin) -> None:
    assert origin_of(context) == origin


def test_an_answer_stays_below_its_limit_and_counts_what_it_leaves_out(repo: Desk) -> None:
    step = "".join(f"      - uses: some-organisation/some-action-{i}@v{i}\n" for i in range(2000))
    repo.write(".github/workflows/ci.yml", CLEAN + step)
    answer = analyze(repo)
    assert answer["counts"]["medium"] == 2000
    assert len(answer["findings"]) + answer["omitted"]["findings"] == 2000
    assert len(strictjson.dumps(answer["result"].data)) < 1_000_000


def test_a_thousand_workflows_are_analysed_in_one_call_with_progress(repo: Desk) -> None:
    for i in range(1000):
        repo.write(f".github/workflows/w{i:04d}.yml", CLEAN.replace("Unit tests", f"Unit {i}"))
    answer = analyze(repo)
    assert (answer["filesAnalyzed"], answer["result"].decision) == (1002, "pass")
    assert repo.progress[-1][:2] == (1002, 1002)
    assert [done for done, _, _ in repo.progress] == sorted({done for done, _, _ in repo.progress})


def test_parsed_values_cross_a_process_border() -> None:
    import pickle

    files = parse([(f".github/workflows/{path.name}", path.read_bytes()) for path in FIXTURES.glob("*.yml")])
    assert pickle.loads(pickle.dumps(files)) == files


LONG = "x" * 5_000
ODD = "\u202e\u0007\U0001f600" * 300


@pytest.mark.parametrize(
    "text",
    [
        CLEAN.replace("Unit tests", LONG),
        CLEAN.replace("test:", f"{LONG}:"),
        CLEAN.replace("actions/checkout", LONG).replace(SHA, "v1"),
        CLEAN.replace("contents", LONG),
        CLEAN.replace("CI", ODD.replace("\u0007", "")),
        CLEAN + f"      - run: 'curl {ODD} | sh'\n",
        CLEAN + f"      - run: curl {LONG} | sh\n",
        "on: push\njobs: {a\0: 1}\n",
        "\0" * 100,
        "[" + "\x1b[2J" * 50,
    ],
)
def test_hostile_strings_never_break_the_answer(repo: Desk, text: str) -> None:
    """`Desk.acall` holds every answer to its output schema; here the values are also held to strict JSON."""
    repo.write(".github/workflows/ci.yml", text)
    protect(repo, LONG, ODD.replace("\u0007", ""))
    data = repo.call(ANALYZE, {"files": ["README.md"]}).data
    strictjson.loads(strictjson.dumps(data))
    assert "\x1b" not in str(data)


def test_a_linked_github_directory_is_skipped_and_told(repo: Desk, tmp_path: Path) -> None:
    (repo.root / ".github").rename(tmp_path / "elsewhere")
    (repo.root / ".github").symlink_to(tmp_path / "elsewhere")
    answer = analyze(repo)
    inside = {"/branch-protection.json", "/branch-rules.json", ""}
    assert {one["path"] for one in answer["skipped"]} == {f".github{name}" for name in inside}
    assert answer["result"].decision == "warn"
