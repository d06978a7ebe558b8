"""The trials themselves, against our real server: they must notice a log that does not hold every answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import machine, mixed, ours, trials
from benchmarks.servers import Running, WrongAnswers, first_answer

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and pins processes to cores")


@LINUX
def test_the_kernel_tells_time_and_memory_of_a_process() -> None:
    before = machine.cpu_seconds(os.getpid())
    sum(number * number for number in range(2_000_000))
    assert machine.cpu_seconds(os.getpid()) > before
    assert 5 < machine.memory_mib(os.getpid()) < 4000


def test_each_round_begins_with_another_row() -> None:
    rows = ["a", "b", "c"]
    assert [trials.in_turn(rows, number)[0] for number in range(4)] == ["a", "b", "c", "a"]
    assert all(sorted(trials.in_turn(rows, number)) == rows for number in range(4))


@LINUX
@pytest.mark.guard
def test_an_answer_without_a_line_and_a_changed_line_are_noticed(tmp_path: Path) -> None:
    deployment = ours.make(tmp_path / "home", keys=3)
    with Running(deployment.over_http()) as server:
        assert first_answer(server) > 0
        answers = 1 + server.measure(2, 0.1)["answers"]
    deployment.check(answers)
    with pytest.raises(ours.AuditFault, match=r"lines in the audit log"):
        deployment.check(answers + 1)
    folder = deployment.home / "runs" / "mcp_server" / "envelope_validation"
    file = next(path for path in folder.glob("*.jsonl") if not path.is_symlink())
    file.write_bytes(file.read_bytes().replace(b'"status":"ok"', b'"status":"no"', 1))
    with pytest.raises(ours.AuditFault, match="audit verify"):
        deployment.check(answers)


@LINUX
@pytest.mark.guard
def test_a_server_that_refuses_is_not_measured(tmp_path: Path) -> None:
    deployment = ours.make(tmp_path / "home", keys=1)
    stranger = replace(deployment.over_http(), keys=(f"tg_{'0' * 12}_{'0' * 64}",))
    with Running(stranger) as server, pytest.raises(WrongAnswers, match="status 401"):
        server.measure(1, 0.1)


@LINUX
@pytest.mark.guard
def test_no_answer_is_without_its_line_when_the_server_is_killed(tmp_path: Path) -> None:
    found = trials.kills(tmp_path, replace(trials.QUICK, kills=2))["kills"]
    assert found["answers"] > 500
    assert found["without_line"] == 0
    assert found["torn"] <= 2, "a kill can cut the write that it meets, whose answers nobody was given; no other line"


@LINUX
@pytest.mark.guard
def test_memory_is_told_under_good_and_hostile_callers_and_the_server_stays_whole(tmp_path: Path) -> None:
    """A short one: every kind of caller comes by, and the server says nothing on standard error."""
    command = [sys.executable, "-m", "benchmarks.mixed", "--seconds", "3", "--connections", "16"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "mixed.json")], cwd=ours.ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "mixed.json").read_bytes())
    assert set(mixed.KINDS) <= set(found["told"])
    assert "no answer" not in found["told"]
    assert [sample["when"] for sample in found["memory"]][:: mixed.SAMPLES + 1] == ["at rest", "all have left"]
