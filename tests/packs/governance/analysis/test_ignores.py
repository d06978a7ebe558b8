"""What a change hides in the same breath: told, counted, and never taken as read where it cannot be compared."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.packs.governance.cli.commands import CLEAN, SHA, git, put, repo, run
from toolgate.packs.governance.cli import zizmor

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.packs.governance.cli.commands import Done

__all__ = ["repo", "run"]  # fixtures

WORKFLOW = ".github/workflows/ci.yml"
OFF = ("--zizmor", "off")
SAID = ("--reason", "r", "--reviewer", "ann", "--ticket", "T-1")
REAL = zizmor._program
LOOSE = CLEAN.replace(SHA, "v4 # toolgate: ignore[MD-002] mirrored")
INJECTED = '      - run: echo "${{ github.event.pull_request.title }}"'
HIDDEN = f"{INJECTED} # zizmor: ignore[template-injection] trust me\n"


@pytest.fixture
def clone(repo: Path) -> Path:
    """With one commit to compare with, once `commit` was called."""
    (repo / ".git").rmdir()
    git(repo, "init", "-q", "-b", "main")
    return repo


@pytest.fixture
def installed(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `repo`, which takes zizmor away."""
    monkeypatch.setattr(zizmor, "_program", REAL)


def commit(place: Path) -> None:
    git(place, "add", "-A")
    git(place, "commit", "-qm", "one")


def told(done: Done) -> list[tuple[str, str, int]]:
    found = done.json["analysis"]["findings"]
    return sorted((one["ruleId"], one["severity"], one["evidence"][0]["line"]) for one in found)


# Comments of ours


def test_a_second_comment_with_the_reason_of_the_first_is_told(run: Callable[..., Done], clone: Path) -> None:
    put(clone, WORKFLOW, LOOSE)
    commit(clone)
    again = "      - uses: a/b@v1 # toolgate: ignore[MD-002] mirrored\n"
    put(clone, WORKFLOW, LOOSE + again)
    assert told(run("analyze", "--json", *OFF)) == [("SUPPRESSION", "low", 13)]
    put(clone, WORKFLOW, LOOSE + again + again.replace("a/b", "a/c"))
    done = run("analyze", "--json", *OFF)
    assert told(done) == [("SUPPRESSION", "low", 13), ("SUPPRESSION", "low", 14)]
    assert len({one["fingerprint"] for one in done.json["analysis"]["findings"]}) == 2


def test_a_comment_that_only_moved_is_not_told(run: Callable[..., Done], clone: Path) -> None:
    put(clone, WORKFLOW, LOOSE)
    commit(clone)
    put(clone, WORKFLOW, f"# CI of ours\n{LOOSE}")
    assert told(run("analyze", "--json", *OFF)) == []


# What silences zizmor


@pytest.mark.usefixtures("installed")
def test_a_comment_for_zizmor_that_the_change_adds_is_told(run: Callable[..., Done], clone: Path) -> None:
    put(clone, WORKFLOW, CLEAN)
    commit(clone)
    put(clone, WORKFLOW, CLEAN + HIDDEN)
    assert told(run("analyze", "--json")) == [("SUPPRESSION", "medium", 13)], "zizmor heeds it, and it is told"
    assert "This change adds an ignore of zizmor/template-injection: trust me." in run("analyze").out
    commit(clone)
    assert told(run("analyze", "--json")) == []
    put(clone, WORKFLOW, CLEAN + HIDDEN + HIDDEN)
    assert told(run("analyze", "--json")) == [("SUPPRESSION", "medium", 14)]


@pytest.mark.parametrize(
    "comment",
    [
        "# zizmor: ignore[template-injection]",
        "# zizmor: ignore[ template-injection ]",
        "# v1 # zizmor: ignore[other,template-injection] because",
        "# zizmor: ignore[]x,template-injection]",
        f"# zizmor: ignore[{'x' * 600},template-injection]",
    ],
)
@pytest.mark.usefixtures("installed")
def test_every_comment_that_zizmor_heeds_is_seen(run: Callable[..., Done], clone: Path, comment: str) -> None:
    put(clone, WORKFLOW, CLEAN)
    commit(clone)
    put(clone, WORKFLOW, f"{CLEAN}{INJECTED} {comment}\n")
    assert told(run("analyze", "--json")) == [("SUPPRESSION", "medium", 13)]


@pytest.mark.parametrize("path", ["zizmor.yml", "zizmor.yaml", ".github/zizmor.yml", ".github/zizmor.yaml"])
@pytest.mark.usefixtures("installed")
def test_settings_of_zizmor_silence_nothing(run: Callable[..., Done], clone: Path, path: str) -> None:
    put(clone, WORKFLOW, f"{CLEAN}{INJECTED}\n")
    put(clone, path, "rules:\n  template-injection:\n    disable: true\n")
    commit(clone)
    assert told(run("analyze", "--json")) == [("zizmor/template-injection", "high", 13)]


# A base that is not there


def test_ignores_that_cannot_be_compared_fail_for_those_who_ask(
    run: Callable[..., Done], clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(clone, WORKFLOW, LOOSE)
    put(clone, ".github/branch-rules.json", json.dumps([{"type": "merge_queue"}]))
    put(clone, "mcp-contract.json", '{"tools": []}')
    commit(clone)
    before = run("analyze", "--require-evaluated", *OFF).err
    assert "ignores" not in before
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    assert "not evaluated SUPPRESSION: origin/main is not in this clone" in run("analyze", *OFF).out
    assert run("analyze", *OFF).code == 0
    for form in ([], ["--json"]):
        insisted = run("analyze", "--require-evaluated", *OFF, *form)
        assert insisted.code == 2
        assert "SUPPRESSION was not evaluated: origin/main is not in this clone" in insisted.err


def test_a_base_that_is_not_there_is_told_also_where_nothing_is_left_to_compare(
    run: Callable[..., Done], clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(clone, WORKFLOW, CLEAN)
    commit(clone)
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    assert "not evaluated SUPPRESSION: origin/main is not in this clone" in run("analyze", *OFF).out


# Settings that are gone


def test_settings_that_the_change_deletes_are_told(run: Callable[..., Done], clone: Path) -> None:
    put(clone, WORKFLOW, CLEAN)
    put(clone, ".toolgate.toml", 'profile = "strict"\n')
    commit(clone)
    assert told(run("analyze", "--json", *OFF)) == []
    (clone / ".toolgate.toml").unlink()
    assert told(run("analyze", "--json", *OFF)) == [("SUPPRESSION", "medium", 1)]
    assert ".toolgate.toml:1: medium SUPPRESSION: This change deletes .toolgate.toml" in run("analyze", *OFF).out
    commit(clone)
    assert told(run("analyze", "--json", *OFF)) == []
    assert told(run("analyze", "--json", "--base", "HEAD~1", *OFF)) == [("SUPPRESSION", "medium", 1)]


def test_a_directory_of_a_checkout_is_compared_with_itself(run: Callable[..., Done], clone: Path) -> None:
    put(clone, ".toolgate.toml", 'profile = "strict"\n')
    put(clone, f"inner/{WORKFLOW}", LOOSE)
    commit(clone)
    assert told(run("analyze", "inner", "--json", *OFF)) == [], "the settings are of the repository around it"
    put(clone, "inner/.toolgate.toml", 'profile = "strict"\n')
    commit(clone)
    (clone / "inner/.toolgate.toml").unlink()
    assert told(run("analyze", "inner", "--json", *OFF)) == [("SUPPRESSION", "medium", 1)]


def test_a_base_whose_files_were_not_fetched_is_not_known(run: Callable[..., Done], clone: Path) -> None:
    put(clone, WORKFLOW, CLEAN)
    put(clone, ".toolgate.toml", 'profile = "strict"\n')
    commit(clone)
    (clone / ".toolgate.toml").unlink()
    for blob in _objects_of(clone, b"blob"):
        blob.unlink()
    assert "not evaluated SUPPRESSION: HEAD:.toolgate.toml cannot be read" in run("analyze", *OFF).out
    given = run("analyze", "--base", "HEAD", *OFF)
    assert (given.code, "--base: HEAD:.toolgate.toml cannot be read" in given.said) == (2, True)


def _objects_of(clone: Path, kind: bytes) -> list[Path]:
    every = [path for path in (clone / ".git/objects").glob("??/*") if len(path.parent.name) == 2]
    return [path for path in every if zlib.decompress(path.read_bytes()).startswith(kind)]


# Reviews


def test_a_finding_of_a_report_is_suppressed_under_the_name_that_the_repository_says(
    run: Callable[..., Done], repo: Path, tmp_path: Path
) -> None:
    put(repo, WORKFLOW, CLEAN.replace(SHA, "v4"))
    put(repo, ".toolgate.toml", 'repository = "acme/renamed"\n')
    put(repo, ".git/config", '[remote "origin"]\nurl = https://github.com/acme/shop\n')
    report = tmp_path / "report.json"
    assert run("analyze", "--json", "-o", str(report), *OFF).code == 0
    (found,) = json.loads(report.read_text())["analysis"]["findings"]
    assert run("fp", "mark", found["fingerprint"], "--report", str(report), *SAID).code == 0
    done = run("analyze", "--json", *OFF).json["analysis"]
    assert (done["repository"], done["findings"], len(done["suppressed"])) == ("acme/renamed", [], 1)


def test_a_review_by_report_is_refused_where_the_name_cannot_be_read(
    run: Callable[..., Done], repo: Path, tmp_path: Path
) -> None:
    put(repo, WORKFLOW, CLEAN.replace(SHA, "v4"))
    report = tmp_path / "report.json"
    run("analyze", "--json", "-o", str(report), *OFF)
    (found,) = json.loads(report.read_text())["analysis"]["findings"]
    put(repo, ".toolgate.toml", "repository = \n")
    done = run("fp", "mark", found["fingerprint"], "--report", str(report), *SAID)
    assert (done.code, ".toolgate.toml:1: not TOML" in done.said) == (2, True)


@pytest.mark.usefixtures("installed")
def test_reviews_of_zizmors_findings_count_for_zizmor(run: Callable[..., Done], repo: Path) -> None:
    put(repo, WORKFLOW, f"{CLEAN}{INJECTED}\n      - run: echo ${{{{ github.head_ref }}}}\n")
    one, other = (found["fingerprint"] for found in run("analyze", "--json").json["analysis"]["findings"])
    assert run("fp", "mark", one, *SAID).code == 0
    assert run("fp", "mark", other, "--true-positive", *SAID).code == 0
    (row,) = [rule for rule in run("analyze", "--json").json["analysis"]["rules"] if rule["id"] == "zizmor"]
    assert (row["reliability"]["reviewed"], row["reliability"]["falsePositives"]) == (2, 1)


# Mending


def test_a_workflow_that_is_not_utf_8_is_an_error_and_nothing_is_mended(run: Callable[..., Done], repo: Path) -> None:
    loose = "on: push\njobs:\n  a: {steps: [{run: make}]}\n"
    first = put(repo, ".github/workflows/a.yml", loose)
    (repo / ".github/workflows/b.yml").write_bytes(b"# one\n# caf\xe9\n" + loose.encode())
    done = run("analyze", "--fix", *OFF)
    assert (done.code, ".github/workflows/b.yml:2: not UTF-8" in done.said) == (2, True)
    assert first.read_text() == loose
