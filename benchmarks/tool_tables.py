"""What `benchmarks.tools` found, in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks import plots
from benchmarks.stats import ratios, spread
from benchmarks.tables import markdown, shown

ECHO: Final = "echo, inline"
TEXT: Final = """
## The tools people call

The tables further down measure an echo, because every peer can have one. This one measures what is shipped: each tool over HTTP
beside that echo, in the same run. `first` is the first call after a start. Workers of `ctx.compute` are processes of their own,
and their time is not in the CPU column. A call with an effect waits for two syncs of the audit log.
"""


def section(results: Mapping[str, Any]) -> str:
    return f"{TEXT.strip()}\n\n{table(results)}"


def table(results: Mapping[str, Any]) -> str:
    head = ["tool", "calls/s", "of the echo's", "CPU µs a call", "p99 ms", "first ms", "must", "aim"]
    return "\n\n".join([_conditions(results), markdown(head, list(_rows(results)))])


def _conditions(results: Mapping[str, Any]) -> str:
    about = results["machine"]
    return (
        f"Measured {results['date']} on {about['processor']}, {about['cores']} cores, {about['system']}, Python "
        f"{about['python']}; {results['connections']} connections, {results['rounds']} rounds of {results['seconds']:g} s in"
        f" turns; other processes used {results['others_used']:.0%} of the machine; one sync took {results['sync_ms']:.2f} ms,"
        f" one VRF by itself {results['vrf_us']:.0f} µs of CPU."
    )


def _rows(results: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    echo = results["tools"][ECHO]["rate"]
    for text, found in results["tools"].items():
        yield [
            text,
            plots.short(spread(found["rate"]).median),
            shown(ratios(found["rate"], echo)) + "x",
            plots.short(spread(found["cpu_us"]).median),
            plots.short(spread(found["p99_ms"]).median),
            plots.short(results["first_ms"][text]),
            *(f"≥ {goal:g}x" if goal else "" for goal in results["goals"][text]),
        ]
