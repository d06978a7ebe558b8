"""Small plots as SVG, drawn by hand: bars with their spread, and curves over a logarithmic axis. Pure: numbers to text.

Colours follow the reader's light or dark scheme; every value is also written as text, so a picture needs no guessing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from xml.sax.saxutils import escape

from benchmarks.stats import Spread

WIDTH = 720
STYLE = """
  :root { --ink: #1d2433; --soft: #667085; --line: #d9dee7; --a: #2563eb; --b: #94a3b8; --paper: #ffffff; }
  @media (prefers-color-scheme: dark) {
    :root { --ink: #e6e9ef; --soft: #9aa4b5; --line: #323a49; --a: #6ea8fe; --b: #64748b; --paper: #12161e; }
  }
  text { font: 13px system-ui, sans-serif; fill: var(--ink); }
  .title { font-size: 15px; font-weight: 600; } .soft { fill: var(--soft); font-size: 12px; }
  .ours { fill: var(--a); } .peer { fill: var(--b); } .grid { stroke: var(--line); }
  .whisker { stroke: var(--ink); stroke-width: 1.5; } .paper { fill: var(--paper); }
  .curve { fill: none; stroke: var(--a); stroke-width: 2.5; stroke-linejoin: round; }
  .even { fill: none; stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 5 5; }
  .band { fill: var(--a); opacity: 0.16; } .dot { fill: var(--a); }
"""
LABELS = 190
"""Room for the names at the left of the bars."""
ROW = 30
NUMBERS = 84
"""Room for the value at the right of a bar."""

INSET = 24
"""Between the axis and the first point of a curve: their numbers must not meet."""


def short(value: float) -> str:
    """A number as a person would write it."""
    if value == 0:
        return "0"
    if value >= 1000:
        return count(value)
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def count(value: float) -> str:
    """A whole number, its thousands apart."""
    return f"{value:,.0f}".replace(",", " ")


def bars(title: str, unit: str, rows: Mapping[str, Spread], ours: str = "Toolgate") -> str:
    """A horizontal bar a row, from zero, with a whisker from the lowest to the highest round."""
    largest = max(each.high for each in rows.values()) or 1.0
    room = WIDTH - LABELS - NUMBERS
    height = 64 + ROW * len(rows)
    parts = [_text(16, 26, title, "title"), _text(WIDTH - 16, 26, unit, "soft", anchor="end")]
    for index, (name, each) in enumerate(rows.items()):
        middle = 58 + ROW * index
        length = max(1.0, each.median / largest * room)
        low, high = (LABELS + end / largest * room for end in (each.low, each.high))
        kind = "ours" if name.startswith(ours) else "peer"
        parts += [
            _text(LABELS - 10, middle + 4, name, anchor="end"),
            f'<rect class="{kind}" x="{LABELS}" y="{middle - 9}" width="{length:.1f}" height="18" rx="3"/>',
            f'<path class="whisker" d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8"/>',
            _text(max(high, LABELS + length) + 8, middle + 4, short(each.median)),
        ]
    return _document(height, title, parts)


def curve(title: str, axis: str, unit: str, points: Sequence[tuple[float, Spread]], *, linear: bool = False) -> str:
    """Medians joined by a line over a logarithmic x axis, the spread as a band.

    What should be flat is drawn from zero, so flat looks flat; what should be linear (`linear`) has a logarithmic y axis
    too, where in proportion means along the dashed line.
    """
    left, right, top, bottom = 64, WIDTH - 40, 64, 260
    levels = _decades(points) if linear else _steps(points)
    first, last = (math.log10(points[end][0]) for end in (0, -1))
    width = (last - first) or 1.0

    def height_of(y: float) -> float:
        low, high = (math.log10(levels[end]) if linear else levels[end] for end in (0, -1))
        share = ((math.log10(max(y, levels[0])) if linear else y) - low) / (high - low)
        return bottom - share * (bottom - top)

    def at(x: float, y: float) -> str:
        return f"{left + INSET + (math.log10(x) - first) / width * (right - left - INSET):.1f} {height_of(y):.1f}"

    line = "M" + "L".join(at(x, each.median) for x, each in points)
    band = "M" + "L".join([at(x, each.high) for x, each in points] + [at(x, each.low) for x, each in reversed(points)])
    parts = [_text(16, 26, title, "title"), _text(WIDTH - 16, 26, unit, "soft", anchor="end")]
    for level in levels:
        parts.append(f'<path class="grid" d="M{left} {height_of(level):.1f}H{right}"/>')
        parts.append(
            _text(left - 8, height_of(level) + 4, count(level) if level >= 1000 else f"{level:g}", "soft", anchor="end")
        )
    if linear:
        parts += _in_proportion(points, levels[0], at, left)
    parts += [f'<path class="band" d="{band}Z"/>', f'<path class="curve" d="{line}"/>']
    for x, each in points:
        across, down = at(x, each.median).split()
        parts.append(f'<circle class="dot" cx="{across}" cy="{down}" r="4"/>')
        parts.append(_text(float(across), float(down) - 10, short(each.median), "soft", anchor="middle"))
        parts.append(_text(float(across), bottom + 20, count(x), "soft", anchor="middle"))
    parts.append(_text((left + right) / 2, bottom + 42, axis, "soft", anchor="middle"))
    return _document(bottom + 58, title, parts)


def _in_proportion(
    points: Sequence[tuple[float, Spread]], lowest: float, at: Callable[[float, float], str], left: float
) -> list[str]:
    """A dashed line through the last point: where the curve runs along it, twice as much costs twice as much."""
    x, y = points[-1][0], points[-1][1].median
    from_x = max(points[0][0], x * lowest / y)
    return [
        f'<path class="even" d="M{at(from_x, y * from_x / x)}L{at(x, y)}"/>',
        _text(left + 8, 56, "dashed: in proportion", "soft"),
    ]


def _steps(points: Sequence[tuple[float, Spread]]) -> list[float]:
    """From zero to above the highest value, in steps of 1, 2 or 5 times a power of ten."""
    largest = max(each.high for _, each in points) * 1.1
    rough = largest / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [step * number for number in range(math.ceil(largest / step) + 1)]


def _decades(points: Sequence[tuple[float, Spread]]) -> list[float]:
    low = math.floor(math.log10(min(each.low for _, each in points)))
    high = math.ceil(math.log10(max(each.high for _, each in points)))
    return [10.0**power for power in range(low, max(high, low + 1) + 1)]


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _document(height: float, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title, {chr(34): "&quot;"})}">'
    )
    paper = f'<rect class="paper" width="{WIDTH}" height="{height:.0f}" rx="8"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", paper, *parts, "</svg>", ""])
