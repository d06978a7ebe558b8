"""Who stays in a comparison: a peer may fail, ours may not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import ours, peers, report, trials, wire
from benchmarks.field import Field
from benchmarks.servers import Running, Target, WrongAnswers

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and pins processes to cores")
NO_PACKAGES = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
"""Settings with which pip finds nothing anywhere."""
SILENT = Target("SDK", (sys.executable, "-c", ""), wire.Exchange("modern"))
"""A server that ends before it has told its address."""


def test_a_fault_of_a_peer_ends_its_part_and_is_told() -> None:
    field = Field()
    with field.excusing("SDK, handshake"):
        raise WrongAnswers("SDK, handshake: 1 wrong of 2")
    assert field.left == {"SDK, handshake": "SDK, handshake: 1 wrong of 2"}
    assert field.stays("SDK")
    assert not field.stays("SDK, handshake")


def test_a_peer_that_is_not_there_leaves_in_all_its_modes() -> None:
    field = Field({"SDK": "does not install here"})
    assert not any(field.stays(name) for name in ("SDK", "SDK, handshake", "SDK, stdio"))
    assert field.stays("FastMCP")


@pytest.mark.parametrize("name", ["Toolgate", "Toolgate, handshake", "Toolgate, stdio"])
def test_a_fault_of_ours_ends_the_comparison(name: str) -> None:
    with pytest.raises(WrongAnswers), Field().excusing(name):
        raise WrongAnswers("1 wrong of 2")


@LINUX
def test_a_peer_that_does_not_start_leaves_and_ours_may_not() -> None:
    field = Field()
    with ExitStack() as stack:
        assert field.start(stack, [SILENT]) == []
        assert field.left == {"SDK": "SDK: did not start"}
        with pytest.raises(RuntimeError, match="Toolgate: did not start"):
            field.start(stack, [replace(SILENT, name="Toolgate")])


def test_rows_of_those_who_left_are_not_shown_half_measured() -> None:
    field = Field({"FastMCP, handshake": "too late"})
    assert trials.stayed({"SDK": 1, "FastMCP": 2, "FastMCP, handshake": 3}, field) == {"SDK": 1, "FastMCP": 2}


def test_a_peer_that_does_not_install_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real environment and a real pip that finds nothing."""
    for name, value in NO_PACKAGES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(peers, "CACHE", tmp_path)
    assert peers.install_all((peers.SDK,)) == {"SDK": "does not install here"}
    assert not (tmp_path / "sdk" / "installed").exists()


def test_who_was_left_out_is_a_row_of_the_tables() -> None:
    assert "| SDK | does not install here |" in report.tables({"left_out": {"SDK": "does not install here"}})


@LINUX
@pytest.mark.guard
@pytest.mark.timeout(180)
def test_a_comparison_without_any_peer_still_measures_ours_and_keeps_what_it_prints(tmp_path: Path) -> None:
    """The whole short form in a process of its own, where no peer can be installed."""
    script = f"""
import sys
from dataclasses import replace
from pathlib import Path
from benchmarks import compare, peers, trials
peers.CACHE = Path({str(tmp_path)!r})
trials.QUICK = replace(trials.QUICK, rounds=1, seconds=0.1)
sys.exit(compare.main())
"""
    command = [sys.executable, "-c", script, "--quick", "--out", str(tmp_path / "kept" / "quick.json")]
    done = subprocess.run(
        command, cwd=ours.ROOT, env=os.environ | NO_PACKAGES, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "kept" / "quick.json").read_bytes())
    assert list(found["http"]) == ["Toolgate"]
    assert found["left_out"] == {peer.label: "does not install here" for peer in peers.PEERS}
    assert done.stdout == (tmp_path / "kept" / "quick.md").read_text()


@LINUX
@pytest.mark.guard
def test_with_its_log_on_dev_null_our_server_answers_alike_and_keeps_nothing(tmp_path: Path) -> None:
    deployment = ours.make(tmp_path / "home", keys=1)
    with Running(deployment.unwritten("unwritten")) as server:
        assert server.measure(2, 0.1)["answers"] > 0
    assert list(deployment.lines()) == []
