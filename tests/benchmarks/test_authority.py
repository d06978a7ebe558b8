"""The measurement of rules and stops runs, and what it measures is what it says."""

from __future__ import annotations

from benchmarks import authority, authority_tables


def test_every_part_is_measured_and_hostile_arguments_spend_the_budget() -> None:
    found = authority.measure(quick=True)
    assert {name.partition(",")[0] for name in found["rule_us"]} == {"names two arguments", "reads the long one"}
    assert all(each["best"] > 0 for each in found["rule_us"].values())
    assert all("rule_budget" in name for name in found["hostile_ms"])
    assert {len(rounds) for rounds in found["call_us"].values()} == {10}
    page = authority_tables.section(found)
    assert all(f"| {name} |" in page for name in (*found["call_us"], *found["rule_us"]))


def test_what_a_rule_adds_is_told_within_rounds_and_a_slow_moment_of_the_machine_cancels() -> None:
    plain = [30.0, 31.0, 300.0, 30.0, 32.0]
    assert authority_tables.added([each + 10 for each in plain], plain) == (10.0, 10.0, 10.0)
