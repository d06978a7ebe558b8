"""A chart as plain numbers for an SVG: bars of two parts, beside a table that says the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from toolgate.console.rendering import clock_time, day

WIDTH: Final = 720
HEIGHT: Final = 120
GAP: Final = 2


class Bar(Struct, frozen=True):
    x: float
    width: float
    good: float
    bad: float
    """Heights."""
    label: str
    since: int
    until: int
    calls: int
    failed: int


class BarChart(Struct, frozen=True):
    bars: Sequence[Bar]
    highest: Bar
    width: int = WIDTH
    height: int = HEIGHT


def bar_chart(series: Sequence[tuple[int, int, int]], since_ms: int, until_ms: int, step_ms: int) -> BarChart:
    """`series`: (start, good, bad) of steps that have calls; the others are drawn empty."""
    found = {start // step_ms: (good, bad) for start, good, bad in series}
    steps = range(since_ms // step_ms, until_ms // step_ms + 1)
    most = max((good + bad for good, bad in found.values()), default=0)
    each = WIDTH / len(steps)
    bars = []
    for place, step in enumerate(steps):
        good, bad = found.get(step, (0, 0))
        scale = (HEIGHT - 4) / most if most else 0.0
        start = step * step_ms
        bars.append(
            Bar(
                x=round(place * each + GAP / 2, 2),
                width=round(each - GAP, 2),
                good=round(good * scale, 2),
                bad=round(max(bad * scale, 2.0 if bad else 0.0), 2),
                label=f"{day(start)} {clock_time(start)[:5]}",
                since=max(start, since_ms),
                until=min(start + step_ms, until_ms + 1),
                calls=good + bad,
                failed=bad,
            )
        )
    return BarChart(bars, max(bars, key=lambda bar: bar.calls))
