"""The measurements of what watching costs run, and say what they measure."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import tabs, window


@pytest.mark.guard
def test_every_kind_of_watching_is_measured_beside_none() -> None:
    table = window.measure(rounds=2, calls=20)
    assert table.keys() == window.SETTINGS.keys()
    assert table[window.PLAIN]["share"] == 0
    assert all(0 < row["best"] <= row["median"] for row in table.values())
    assert window.GOALS.keys() <= table.keys()


@pytest.mark.guard
def test_starts_are_measured_with_each_kind_of_watching_and_without() -> None:
    table = window.starts(rounds=1)
    assert table.keys() == window.STARTED.keys()
    assert (table[window.PLAIN]["start_ratio"], table[window.PLAIN]["memory_ratio"]) == (1, 1)
    assert all(row["start_ms"] > 0 and row["memory_mib"] > 1 for row in table.values())


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_tables_are_printed(form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls = {name: {"best": 1.0, "quartile": 1.5, "median": 2.0, "share": 0.01} for name in window.SETTINGS}
    row = {"start_ms": 400.0, "start_ratio": 1.0, "memory_mib": 40.0, "memory_ratio": 1.0}
    monkeypatch.setattr(window, "measure", lambda rounds: calls)
    monkeypatch.setattr(window, "starts", lambda rounds: dict.fromkeys(window.STARTED, row))
    monkeypatch.setattr(sys, "argv", ["window", "--quick", *(["--json"] if form == "json" else [])])
    window.main()
    printed = capsys.readouterr().out
    if form == "json":
        assert json.loads(printed) == {"calls": calls, "starts": dict.fromkeys(window.STARTED, row)}
    else:
        named = [line[:12].strip() for line in printed.splitlines()]
        assert [name for name in named if name] == [*window.SETTINGS, *window.STARTED]
        assert "at most 2%" in printed


@pytest.mark.guard
def test_open_tabs_are_measured_on_a_server_at_work_and_a_row_arrives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tabs, "CONNECTIONS", 4)
    monkeypatch.setattr(sys, "argv", ["tabs", "--quick", "--json"])
    tabs.main()
    found = json.loads(capsys.readouterr().out)
    assert found["cpu_us"].keys() == {"nobody looks", f"{tabs.TABS} tabs"}
    assert all(each > 0 for rounds in found["cpu_us"].values() for each in rounds)
    assert len(found["delay_ms"]) == 5
    assert all(each >= 0 for each in found["delay_ms"])
