"""The bench of relayed calls: its tables, and a short run of it against a real gate and the real stub."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import peers, upstream_tables, upstreams
from benchmarks.field import Field
from benchmarks.goals import Goal


def rounds(cpu: float, p50: float) -> dict[str, Any]:
    one = {
        "rate": [1e6 / cpu] * 2,
        "cpu_us": [cpu] * 2,
        "p50_ms": [p50] * 2,
        "p99_ms": [p50] * 2,
        "load_busy": [0.1] * 2,
    }
    return {"1": one, "10": one}


RESULTS: dict[str, Any] = {
    "date": "2026-01-01",
    "machine": {"processor": "p", "cores": 2},
    "versions": {"toolgate": "1"},
    "rounds": 2,
    "seconds": 1.0,
    "sync_ms": [0.4, 0.4],
    "added_ms": [0.6, 0.6],
    "relay": {
        upstream_tables.OWN: rounds(100, 0.2),
        upstream_tables.READ_HTTP: rounds(190, 0.5),
        upstream_tables.READ_PIPE: rounds(150, 0.4),
        upstream_tables.EFFECT_HTTP: rounds(300, 1.5),
        upstream_tables.EFFECT_PIPE: rounds(300, 1.4),
        upstream_tables.STUB_HTTP: rounds(13, 0.1),
        upstream_tables.SDK: rounds(500, 0.6),
    },
    "many": {"cpu_us": {"few": [100.0] * 2, "many": [101.0] * 2}, "mib": {"few": 30.0, "many": 49.0}, "mib_each": 1.0},
    "left_out": {"ContextForge": "does not install here"},
}


def found(results: dict[str, Any]) -> dict[str, Goal]:
    return {goal.what: goal for goal in upstream_tables.goals(results)}


def test_goals_are_judged_round_by_round_and_what_was_not_measured_is_not_met() -> None:
    goals = found(RESULTS)
    verdicts = {what: goal.verdict() for what, goal in goals.items()}
    assert verdicts["CPU of a relayed read against our own inline tool, HTTP"] == "must"
    assert verdicts["CPU of a relayed read against the SDK's own server, HTTP"] == "aim"
    assert verdicts["added p50 of a read, 1 connection"] == "missed"
    effect = goals["added p50 of an effect beyond two syncs, 1 connection"].reached
    assert effect is not None
    assert effect.median == pytest.approx(0.6)
    assert verdicts["CPU a call of ContextForge against a relayed read"] == "not measured"
    slow = {**RESULTS, "relay": {**RESULTS["relay"], upstream_tables.READ_HTTP: rounds(201, 0.5)}}
    assert found(slow)["CPU of a relayed read against our own inline tool, HTTP"].verdict() == "missed"


def test_the_section_says_who_was_left_out_and_what_a_sync_takes() -> None:
    text = upstream_tables.section(RESULTS)
    assert "| ContextForge | does not install here |" in text
    assert "One sync of a record on this disk: 0.40 ms." in text
    assert "30.0 and 49.0 MiB" in text


@pytest.mark.guard
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and pins processes to cores")
@pytest.mark.timeout(300)
def test_every_answer_that_a_relay_gives_is_checked_and_on_record(tmp_path: Path) -> None:
    """Without other gateways. It fails where an answer is wrong or the log lacks one."""
    missing = peers.install_all((peers.ASGI,))
    if missing:
        pytest.skip(f"the stub's packages do not install: {missing}")
    size = replace(upstreams.QUICK, rounds=1, seconds=0.1, connections=(1,), peers=False)
    results = upstreams.relay(tmp_path, size, Field({"SDK": "not here"}))
    assert set(results["relay"]) == {upstream_tables.OWN, *upstream_tables.RELAYED, upstream_tables.STUB_HTTP}
    assert results["audit"] > len(results["relay"])
