"""This tree beside an older commit: which commits can be measured, how they are built, what the tables say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import against, checkouts, compare, ours, peers, wire
from benchmarks.checkouts import CannotBuild
from tests.benchmarks.test_field import LINUX, NO_PACKAGES

Commit = Callable[[dict[str, str]], str]


def git(*arguments: str, cwd: Path) -> str:
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in place of ours, and an empty cache."""
    root = tmp_path / "repository"
    root.mkdir()
    git("init", "--quiet", cwd=root)
    monkeypatch.setattr(ours, "ROOT", root)
    monkeypatch.setattr(peers, "CACHE", tmp_path / "cache")
    return root


@pytest.fixture
def commit(repository: Path) -> Commit:
    def make(files: dict[str, str]) -> str:
        for name, text in files.items():
            path = repository / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        git("add", "--all", cwd=repository)
        git("commit", "--quiet", "--allow-empty", "--message", "m", cwd=repository)
        return git("rev-parse", "HEAD", cwd=repository)

    return make


def test_a_commit_may_be_named_by_tag_hash_branch_or_distance(repository: Path, commit: Commit) -> None:
    first = commit({"a": "1"})
    git("tag", "--annotate", "v1", "--message", "m", cwd=repository)
    git("branch", "old", cwd=repository)
    second = commit({"a": "2"})
    assert {checkouts.resolve(name) for name in ("v1", "old", first, first[:8], "HEAD~1")} == {first[:10]}
    assert checkouts.resolve("HEAD") == second[:10]


@pytest.mark.parametrize("name", ["nowhere", "HEAD~5", "0" * 40, "", "--all", "-h", "HEAD:a"])
def test_what_is_no_commit_is_said_so_by_its_name(commit: Commit, name: str) -> None:
    commit({"a": "1"})
    with pytest.raises(CannotBuild) as fault:
        checkouts.resolve(name)
    assert str(fault.value).startswith(f"{name} is not a commit of this repository")


def test_a_commit_without_a_lock_or_a_bench_pack_cannot_be_measured(commit: Commit) -> None:
    name = commit({"requirements/run.txt": "", "README.md": "no pack"})[:10]
    with pytest.raises(
        CannotBuild, match=f"{name} cannot be measured: it has no requirements/run.txt or no bench pack"
    ):
        checkouts.older("HEAD")


def test_a_commit_is_measured_as_it_was_committed(repository: Path, commit: Commit) -> None:
    commit({"a": "committed"})
    (repository / "a").write_text("changed since")
    (repository / "b").write_text("not committed")
    with pytest.raises(CannotBuild):
        checkouts.older("HEAD")
    source = peers.CACHE / checkouts.resolve("HEAD") / "source"
    assert {path.name: path.read_text() for path in source.iterdir()} == {"a": "committed"}


def test_an_export_that_was_cut_short_is_made_again(commit: Commit) -> None:
    name = commit({"a": "whole"})[:10]
    left = peers.CACHE / name / "partial"
    left.mkdir(parents=True)
    (left / "a").write_text("ha")
    with pytest.raises(CannotBuild):
        checkouts.older("HEAD")
    assert (peers.CACHE / name / "source" / "a").read_text() == "whole"


def test_a_lock_that_does_not_install_is_said_so_and_not_taken_for_installed(
    commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real environment and a real pip that finds nothing."""
    for name, value in NO_PACKAGES.items():
        monkeypatch.setenv(name, value)
    commit({"requirements/run.txt": f"nothing==1 --hash=sha256:{'0' * 64}\n", "benchmarks/site/bench.py": ""})
    with pytest.raises(CannotBuild, match=r"the lock [0-9a-f]{10} does not install here"):
        checkouts.older("HEAD")
    assert not list(peers.CACHE.glob("locked-*/installed"))


def test_equal_locks_share_one_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "CACHE", tmp_path / "cache")
    installed: list[str] = []
    monkeypatch.setattr(peers, "make_environment", lambda folder: folder.mkdir(parents=True))
    monkeypatch.setattr(peers, "pip_install", lambda _python, *arguments: installed.append(arguments[-1]))
    locks = [tmp_path / name for name in ("one.txt", "same.txt", "other.txt")]
    for lock, text in zip(locks, ("a==1", "a==1", "a==2"), strict=True):
        lock.write_text(text)
    one, same, other = (checkouts._environment(lock) for lock in locks)
    assert one == same != other
    assert installed == [str(locks[0]), str(locks[2])]


@LINUX
def test_the_command_ends_with_2_for_what_is_no_commit(capsys: pytest.CaptureFixture[str], commit: Commit) -> None:
    commit({})
    assert compare._against("nowhere", None, quick=True) == 2
    assert capsys.readouterr().err.startswith("stopped: nowhere is not a commit")


def rounds(rate: float) -> dict[str, list[float]]:
    return {"rate": [rate, rate], "cpu_us": [1e6 / rate] * 2, "tail": [2.0, 4.0]}


def test_the_tables_divide_this_tree_by_the_older_round_by_round() -> None:
    started = {"seconds": [0.2, 0.4], "mib": [30.0, 30.0], "mib_loaded": [40.0, 40.0]}
    results: dict[str, Any] = {
        "date": "2026-11-17",
        "machine": dict.fromkeys(("processor", "cores", "system", "python"), "x")
        | {"server_and_load_on_different_cores": "true"},
        "rounds": 2,
        "seconds": 1.0,
        "others_used": 0.01,
        "against": "abc",
        "tools": {"bench_echo": {"Toolgate": {"10": rounds(200.0)}, "abc": {"10": rounds(100.0)}}},
        "start": {"Toolgate": started, "abc": started | {"seconds": [0.4, 0.4]}},
    }
    text = against.tables(results)
    assert "| bench_echo | 10 | 200 | 2.00x | 0.50x | 1.00x |" in text
    assert "| s to first right answer | 0.30 [0.20–0.40] | 0.75 [0.50–1.00]x |" in text
    assert "| MiB at rest | 30.0 | 1.00x |" in text
    assert "server and load on different cores" in text


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        ({"structuredContent": {"data": {"any": 1}}}, None),
        ({"structuredContent": {"data": None}}, "no data"),
        ({"structuredContent": {"code": "NO"}, "isError": True}, "an error instead of a result: NO"),
    ],
)
def test_another_tool_must_answer_with_data_and_no_error(result: Any, fault: str | None) -> None:
    exchange = wire.Exchange("modern", tool="library_fetch", arguments={"path": "note.md"})
    assert exchange.fault(0, 200, {"id": wire.FIRST_ID, "result": result}) == fault
    assert b'"name":"library_fetch","arguments":{"path":"note.md"}' in exchange.body()
    assert b"Mcp-Name: library_fetch\r\n" in exchange.headers(1, "k")


@LINUX
def test_a_trial_on_the_load_s_core_still_has_another_core_for_the_server() -> None:
    script = """
from benchmarks import machine
before = machine.cores()
machine.pin(0, before[1])
assert machine.cores() == before, machine.cores()
"""
    subprocess.run([sys.executable, "-c", script], cwd=ours.ROOT, check=True)


@LINUX
@pytest.mark.guard
@pytest.mark.timeout(180)
def test_a_tree_is_measured_beside_its_own_last_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is real but the environment, which is this one: to install another would take a minute."""
    if checkouts._git("rev-parse", "HEAD").returncode != 0:
        pytest.skip("the sources are not in a repository")
    monkeypatch.setattr(peers, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(checkouts, "_environment", lambda _lock: Path(sys.prefix))
    found = against.measure(replace(against.QUICK, rounds=1, seconds=0.05, connections=(2,)), "HEAD")
    older = checkouts.resolve("HEAD")
    assert found["against"] == older
    assert set(found["tools"]) == set(against.TOOLS)
    assert all(set(each) == {"Toolgate", older} for each in (*found["tools"].values(), found["start"]))
    assert against.tables(found).count("\n| ") == len(against.TOOLS) + 3 + 4
