"""What `benchmarks.authority` found, in Markdown. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks import plots
from benchmarks.tables import markdown

PLAIN: Final = "without a rule"
TWIN: Final = "without a rule, in a second home like the first"
"""What differs between these two is what the measurement cannot tell."""
TEXT: Final = """
## What rules, stops and bounded keys cost

A whole call in process, with arguments of 1 KB, from the bytes of the request to the bytes of the answer; the rule reads all of
them. What a row adds is told twice: the best round less the best of the first row, which is what it takes undisturbed; and the
median of the differences within a round, with the middle half of the rounds, which grows with what else the machine does. The
second row differs from the first in nothing: what it shows is what this measurement cannot tell. The goals: nothing measurable
without a rule, and 15 µs for one rule. One rule alone, in a loop, finds its caches warm and takes a part of what it takes within
a call.
"""


def section(results: Mapping[str, Any]) -> str:
    head = ["a call", "µs, best", "µs, median", "adds µs, best", "adds µs, within a round"]
    calls = markdown(head, list(_calls(results["call_us"])))
    rules = markdown(["one rule, alone", "µs, best", "µs, median"], list(_rules(results["rule_us"])))
    return "\n\n".join([TEXT.strip(), _conditions(results), calls, rules, _bounds(results)])


def _conditions(results: Mapping[str, Any]) -> str:
    about, rounds = results["machine"], len(results["call_us"][PLAIN])
    return (
        f"Measured {results['date']} on {about['processor']}, {about['cores']} cores, {about['system']}, Python "
        f"{about['python']}; {rounds} rounds in turns; other processes used {results['others_used']:.0%} of the machine."
    )


def added(rounds: Sequence[float], plain: Sequence[float]) -> tuple[float, float, float]:
    """The quartiles of the differences, each within a round."""
    low, middle, high = statistics.quantiles([one - other for one, other in zip(rounds, plain, strict=True)], n=4)
    return low, middle, high


def _calls(found: Mapping[str, Sequence[float]]) -> Iterator[Sequence[str]]:
    for name, rounds in found.items():
        low, middle, high = added(rounds, found[PLAIN])
        told = [f"{min(rounds) - min(found[PLAIN]):.1f}", f"{middle:.1f} [{low:.1f} to {high:.1f}]"]
        yield [name, f"{min(rounds):.1f}", f"{statistics.median(rounds):.1f}", *(("", "") if name == PLAIN else told)]


def _rules(found: Mapping[str, Mapping[str, float]]) -> Iterator[Sequence[str]]:
    for name, each in found.items():
        yield [name, plots.short(each["best"]), plots.short(each["median"])]


def _bounds(results: Mapping[str, Any]) -> str:
    hostile = "; ".join(f"{name} after {each:.1f} ms" for name, each in results["hostile_ms"].items())
    return (
        f"While nothing is stopped, a call pays {results['stop_ns']:.0f} ns for the stop button. A rule that loops in a loop "
        f"over hostile arguments ends: {hostile}."
    )
