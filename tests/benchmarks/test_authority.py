"""The measurement of rules and stops runs, and what it measures is what it says."""

from __future__ import annotations

from benchmarks import authority


def test_every_part_is_measured_and_hostile_arguments_spend_the_budget() -> None:
    found = authority.measure(quick=True)
    assert {name.partition(",")[0] for name in found["rule_us"]} == {"names two arguments", "reads the long one"}
    assert all(each["best"] > 0 for each in found["rule_us"].values())
    assert all("rule_budget" in name for name in found["hostile_ms"])
