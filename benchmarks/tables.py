"""Tables in Markdown, as every report of the benchmarks shows them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import plots
from benchmarks.goals import Goal
from benchmarks.stats import Spread, spread


def markdown(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(each: Spread) -> str:
    if each.rounds == 1 or each.low == each.high:
        return plots.short(each.median)
    return f"{plots.short(each.median)} [{plots.short(each.low)}–{plots.short(each.high)}]"


def goal_table(found: Sequence[Goal]) -> str:
    def row(goal: Goal) -> Sequence[str]:
        sign = "≥" if goal.better == "more" else "≤"
        unit = goal.unit if goal.unit == "x" else f" {goal.unit}"
        reached = "" if goal.reached is None else shown(goal.reached) + unit
        return [goal.what, f"{sign} {goal.must:g}{unit}", f"{sign} {goal.aim:g}{unit}", reached, goal.verdict()]

    return markdown(["goal", "must", "aim", "reached", "verdict"], [row(goal) for goal in found])


def rates(table: Mapping[str, Any], over: str) -> str:
    def rows() -> Iterator[Sequence[str]]:
        for name, columns in table.items():
            for count, found in columns.items():
                p50, p99 = (plots.short(spread(found[key]).median) for key in ("p50_ms", "p99_ms"))
                yield [name, count, shown(spread(found["rate"])), shown(spread(found["cpu_us"])), p50, p99]

    return markdown(["server", over, "calls/s", "CPU µs a call", "p50 ms", "p99 ms"], rows())
