"""What judging a paper costs: a 100 KB page warm, and pages up to 10 MB, which must take time in step with their size.

    python -m benchmarks.lra [--rounds 30] [--json]

CPU time of this process, so that other work on the machine does not count; the median of all rounds, with the range.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from benchmarks.stats import Spread, spread
from toolgate.packs.lra.build.scaffold import ScaffoldOptions, scaffold
from toolgate.packs.lra.checks.validate import validate
from toolgate.packs.lra.paper.artifact import Artifact

KB = 1000
GOAL_100_KB_MS = 15.0
"""Warm, for 23 checks and all advisories: an editor that validates on every save must not be felt."""
GOAL_GROWTH = 1.5
"""Time per byte at 10 MB over time per byte at 1 MB: 1 is linear."""
PARAGRAPH = (
    '<p id="p{0}">A sentence with <a href="#p{0}">a link</a>, <em>emphasis</em> and <math><mi>x</mi></math>; '
    'see <a href="#claim-1">claim 1</a>.</p>\n'
)


def paper(size: int) -> Artifact:
    """A gold scaffold whose page is filled up with paragraphs to about `size` bytes."""
    files = scaffold(ScaffoldOptions("bench", "2026-11-15", "A paper to measure", tier="gold")).files
    html = files["index.html"].decode()
    number = max(0, (size - len(html)) // len(PARAGRAPH.format(10_000)))
    filled = html.replace("</main>", "".join(PARAGRAPH.format(n) for n in range(number)) + "</main>").encode()
    return Artifact("index.html", filled, files, {name: len(data) for name, data in files.items()}, "bench/index.html")


def cpu_ms(work: Callable[[], object], rounds: int) -> Spread:
    work()
    found = []
    for _ in range(rounds):
        before = time.process_time_ns()
        work()
        found.append((time.process_time_ns() - before) / 1e6)
    return spread(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    measured: dict[str, Spread] = {}
    for size in (16 * KB, 100 * KB, 1000 * KB, 10_000 * KB):
        artifact = paper(size)
        assert validate(artifact).tier == "GOLD"
        rounds = asked.rounds if size <= 100 * KB else max(3, asked.rounds // 10)
        measured[f"{size // KB} KB"] = cpu_ms(lambda artifact=artifact: validate(artifact), rounds)  # type: ignore[misc]  # bound in the loop
    growth = measured["10000 KB"].median / (10 * measured["1000 KB"].median)
    held = measured["100 KB"].median <= GOAL_100_KB_MS and growth <= GOAL_GROWTH
    if asked.json:
        rows = {name: asdict(one) for name, one in measured.items()}
        sys.stdout.write(json.dumps({"cpu_ms": rows, "growth": growth, "held": held}) + "\n")
    else:
        for name, one in measured.items():
            sys.stdout.write(
                f"{name:>9}  {one.median:8.2f} ms  ({one.low:.2f} to {one.high:.2f}, {one.rounds} rounds)\n"
            )
        sys.stdout.write(f"10 MB against ten times 1 MB: {growth:.2f} (goal {GOAL_GROWTH}); ")
        sys.stdout.write(f"100 KB within {GOAL_100_KB_MS:g} ms: {'yes' if held else 'no'}\n")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
