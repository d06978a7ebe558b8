"""What a builder may name, and what a repository may hold, without holding the server's memory or a worker (F8)."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolgate.kit.paths import plain
from toolgate.kit.yamldoc import YamlFault
from toolgate.packs.governance.decisions import compliance
from toolgate.packs.governance.decisions import records as adr
from toolgate.packs.governance.decisions.records import glob_matches
from toolgate.packs.governance.repository import reading
from toolgate.packs.governance.repository.model import Repository, parse
from toolgate.packs.governance.repository.reading import Queue
from toolgate.packs.governance.rules import base, catalogue
from toolgate.packs.governance.workflows.checknames import MAX_NAMES, Reporters
from toolgate.packs.governance.workflows.needs import needed
from toolgate.packs.governance.workflows.scripts import unpinned
from toolgate.packs.governance.workflows.workflow import WorkflowStep, read_workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.packs.governance.desk import Desk
    from toolgate.kit.findings import Finding

RECORD = """---
status: accepted
applies-to: ["src/**"]
rules: [{id: no-x, must-not: 'x', severity: low}]
---
# ADR-0001: No x
"""
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "check_adr_compliance": ("files", {}),
    "analyze_dissonance": ("files", {}),
    "validate_l0_invariants": ("workflowFiles", {}),
}
"""Every tool that takes a list of files, and the argument that is it."""


@pytest.fixture
def repo(desk: Desk) -> Desk:
    desk.write("docs/adr/ADR-0001-x.md", RECORD)
    desk.write("src/a.py", "x\n")
    return desk


def judged(repo: Desk, tool: str, files: list[str]) -> dict[str, Any]:
    """How many files the tool looked at and which it left out, wherever its answer says so."""
    argument, more = CALLS[tool]
    data = repo.call(tool, {argument: files, **more}).data
    if tool == "validate_l0_invariants":
        evidence = data["validation"]["results"][0]["evidence"]
        left_out = [one["file"] for one in evidence["violations"] if "total_too_large" in one["reason"]]
        return {"files": evidence["filesChecked"], "left out": left_out}
    part = data["compliance"] if tool == "check_adr_compliance" else data["analysis"]
    counted = part.get("filesChecked", part.get("filesAnalyzed"))
    left_out = [one["path"] for one in part["skipped"] if one["reason"] == "total_too_large"]
    return {"files": counted, "left out": left_out}


@pytest.mark.parametrize("tool", CALLS)
def test_f8_spellings_of_one_path_count_once(repo: Desk, tool: str) -> None:
    spelt = ["src/a.py", *("./" * times + "src/a.py" for times in range(1, 300)), ".//src/./a.py"]
    assert judged(repo, tool, spelt)["files"] == judged(repo, tool, ["src/a.py"])["files"] == 1


def test_f8_no_spelling_of_a_path_escapes_a_rule(repo: Desk) -> None:
    """A rule's path pattern is held against the one spelling: `./src/a.py` is below `src` too."""
    answer = repo.call("check_adr_compliance", {"files": [".//src/./a.py"]}).data["compliance"]
    assert [(one["file"], one["line"]) for one in answer["violations"]] == [("src/a.py", 1)]


@pytest.mark.parametrize("tool", CALLS)
def test_f8_all_files_of_a_call_together_are_bounded(repo: Desk, tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_TOTAL_BYTES", 1_000)
    for name in "abc":
        repo.write(name, "#" * 400)
    assert judged(repo, tool, ["a", "b", "c"])["left out"] == ["c"]


def test_f8_a_record_that_no_longer_fits_is_told_and_nothing_is_compliant(
    repo: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.write("src/a.py", "y\n")
    assert repo.call("check_adr_compliance", {"files": ["src/a.py"]}).data["compliance"]["compliant"] is True
    repo.write("docs/adr/ADR-0002-long.md", RECORD + "z" * 500)
    monkeypatch.setattr(reading, "MAX_TOTAL_BYTES", 400)
    answer = repo.call("check_adr_compliance", {"files": ["src/a.py"]}).data["compliance"]
    assert answer["skipped"] == [{"path": "docs/adr/ADR-0002-long.md", "reason": "total_too_large"}]
    assert (answer["status"], answer["compliant"]) == ("not_evaluated", False)


def test_f8_files_are_held_a_portion_at_a_time(repo: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PORTION_BYTES", 1_000)
    monkeypatch.setattr(reading, "PORTION_FILES", 4)
    sizes = {f"f{number:02d}": 300 if number < 12 else 1 for number in range(30)}
    for name, size in sizes.items():
        repo.write(name, "y" * size)
    queue = Queue(repo.context_files, [*sizes, "none"], max_bytes=300)
    portions = list(iter(queue.portion, []))
    assert [path for portion in portions for path, _ in portion] == sorted(sizes)
    assert all(sum(len(data) for _, data in portion) <= 1_000 + 300 and len(portion) <= 4 for portion in portions)
    assert [(one.path, one.reason) for one in queue.skipped] == [("none", "file_not_found")]


@given(st.lists(st.sampled_from(["a", ".", "", "..", "b.c", " "]), min_size=1, max_size=8).map("/".join).filter(bool))
def test_f8_a_plain_path_is_one_spelling_and_never_hides_where_it_leads(path: str) -> None:
    made = plain(path)
    assert plain(made) == plain(f"{path}/.") == made
    assert made.startswith("/") == path.startswith("/")
    assert made.split("/").count("..") == path.split("/").count("..")


def test_violations_are_all_counted_and_the_first_are_told(repo: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compliance, "MAX_VIOLATIONS", 5)
    monkeypatch.setattr(reading, "PORTION_FILES", 1)
    for name in "bcd":
        repo.write(f"src/{name}.py", "x\n" * 3)
    answer = repo.call("check_adr_compliance", {"files": ["src/b.py", "src/c.py", "src/d.py"]}).data["compliance"]
    told = [(one["file"], one["line"]) for one in answer["violations"]]
    assert told == [("src/b.py", 1), ("src/b.py", 2), ("src/b.py", 3), ("src/c.py", 1), ("src/c.py", 2)]
    assert (answer["violationSummary"]["low"], answer["omitted"]["violations"]) == (9, 4)


def test_path_patterns_of_a_rule_are_few() -> None:
    globs = ", ".join(f"g{number}" for number in range(adr.MAX_GLOBS + 1))
    found = adr.read_adr("ADR-0001-x.md", RECORD.replace('"src/**"', globs).encode())
    assert found.fault is not None
    assert "path patterns" in found.fault


def test_a_path_pattern_of_many_double_stars_is_matched_in_linear_time() -> None:
    assert glob_matches("**/" * 90 + "*.py", "a/" * 300 + "b.py")
    assert not glob_matches("**/" * 90 + "*.py", "a/" * 300 + "b.txt")
    assert not glob_matches("*" * 300 + "x", "a" * 1000)


JOBS = "on: push\njobs:\n"
SCOPES = ", ".join(f"s{chr(97 + n // 26)}{chr(97 + n % 26)}: write" for n in range(500))
AXES = ", ".join(f"x{n}: [1]" for n in range(1_000))


@pytest.mark.parametrize(
    "text",
    [
        JOBS + f"  a: &a {{permissions: {{{SCOPES}}}}}\n" + "".join(f"  j{n}: *a\n" for n in range(20)),
        JOBS + "".join(f"  j{n}: {{}}\n" for n in range(5_001)),
        "on: [" + "push, " * 5_001 + "push]\njobs:\n  a: {}\n",
        JOBS + f"  a: &a {{strategy: {{matrix: {{{AXES}}}}}}}\n" + "".join(f"  j{n}: *a\n" for n in range(9)),
        JOBS + "  a: {name: " + "n" * 501 + "}\n",
    ],
    ids=["shared permissions", "jobs", "triggers", "shared matrix", "name"],
)
def test_a_workflow_holds_no_more_than_people_write(text: str) -> None:
    with pytest.raises(YamlFault, match=r"more than 5000|longer than 500"):
        read_workflow("a.yml", text.encode())


@pytest.mark.parametrize("value", ["1e999", "nan", "inf", "-Infinity", "9" * 400, "1e308", "0x10", "1" * 5_000])
def test_no_number_in_a_matrix_breaks_the_reading_of_a_workflow(value: str) -> None:
    workflow = read_workflow("a.yml", f"{JOBS}  a: {{strategy: {{matrix: {{v: [{value}]}}}}}}\n".encode())
    assert workflow.jobs[0].matrix is not None


def test_all_workflows_of_a_call_together_are_bounded(repo: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolgate.packs.governance.analysis import pipeline

    monkeypatch.setattr(pipeline, "MAX_ITEMS", 5)
    for name in "ab":
        repo.write(f".github/workflows/{name}.yml", JOBS + "  a: {}\n  b: {}\n  c: {}\n")
    assert judged(repo, "analyze_dissonance", ["src/a.py"])["left out"] == [".github/workflows/b.yml"]


def test_calls_that_lead_to_no_name_end_as_well() -> None:
    """Ten workflows that each call the next three times, and the last has a matrix without a combination."""
    texts = {
        f".github/workflows/{n}.yml": JOBS.replace("push", "[push, workflow_call]")
        + "".join(f"  j{m}: {{uses: ./.github/workflows/{n + 1}.yml}}\n" for m in range(3))
        for n in range(10)
    }
    last = "on: workflow_call\njobs:\n  a: {strategy: {matrix: {v: [1], exclude: [{v: 1}]}}}\n"
    texts[".github/workflows/10.yml"] = last
    workflows = {path: read_workflow(path, text.encode()) for path, text in texts.items()}
    with pytest.raises(YamlFault, match=f"more than {MAX_NAMES} jobs"):
        Reporters(workflows)


def test_required_checks_are_few_and_each_is_looked_up() -> None:
    checks = ", ".join(f'"c{number}"' for number in range(501))
    text = f'{{"required_status_checks": {{"contexts": [{checks}]}}}}'
    (file,) = parse([(".github/branch-protection.json", text.encode())])
    assert "more than 500" in str(file.parsed)


def test_a_rule_that_finds_no_end_is_a_critical_finding_that_cannot_be_suppressed() -> None:
    one = catalogue.RULES[3]

    def endless(repository: Repository) -> Iterator[Finding]:
        found = base.too_many(one)
        yield from (replace(found, severity="low", anchor=f"{number}", extra={}) for number in count())

    verdict = base.evaluate(replace(one, evaluate=endless), Repository({}))
    assert len(verdict.findings) == base.MAX_FINDINGS + 1
    assert (verdict.findings[-1].severity, verdict.findings[-1].extra) == ("critical", {"evaluationError": True})
    assert verdict.reason


@pytest.mark.parametrize(
    "line",
    [
        "sh " + "-sh " * 120_000 + "curl",
        "sh " + "-/sh " * 100_000 + "curl",
        "bash <(curl x) " * 30_000,
        "curl " + "| sh-" * 100_000,
        "curl\\\n" * 70_000,
        "go install " + "a@" * 250_000,
        "pip install " + "uv " * 160_000,
        "npm  " * 100_000,
        "curl " + '"' * 500_000,
        "curl https://" + "$" * 500_000 + " | sh",
        "iex " * 120_000,
        "curl <<" * 70_000,
        "curl <<" + " " * 500_000,
        "bash -c 'curl x' " * 30_000,
        "uvx --with " * 50_000,
        "curl " + "x # " * 120_000,
        "wget " + "\\" * 500_000,
        "curl ${{" * 60_000,
    ],
    ids=range(18),
)
def test_a_long_line_of_a_script_is_judged_in_linear_time(line: str) -> None:
    """Quadratic time would be hours for these; the suite's own limit of a minute tells."""
    assert len(list(unpinned(line))) <= 1


@pytest.mark.parametrize(
    "text", ["npm publish " * 40_000, "cosign" + " " * 500_000, "uv publish --provenanc " * 20_000]
)
def test_what_a_long_script_needs_is_judged_in_linear_time(text: str) -> None:
    assert needed([WorkflowStep(line=1, run=text)]) <= {"id-token"}


@pytest.mark.parametrize(
    "line",
    [
        "sh <(curl https://x)",
        'bash -e -x "$(wget -qO- https://x)"',
        "source <(curl https://x)",
        ". <(curl https://x)",
        "true; . <( curl https://x)",
        "/bin/bash <(curl https://x)",
        'eval "$(curl https://x)"',
        "diff <(cat a) b; bash <(curl https://x)",
    ],
)
def test_a_substituted_download_is_seen(line: str) -> None:
    assert [one.to_shell for one in unpinned(line)] == [True]


@pytest.mark.parametrize("line", ["diff <(curl https://x) y", "ls . $(curl https://x)", "x-shy <(curl https://x)"])
def test_a_substitution_that_runs_nothing_is_not(line: str) -> None:
    assert list(unpinned(line)) == []
