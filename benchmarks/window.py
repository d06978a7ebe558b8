"""What it costs a call that operators can see it: the CPU time of one governed call in process, with each kind of watching
turned on, beside the same with none. `python -m benchmarks.window [--quick] [--json]`

Each variant has a process of its own, because an interpreter that runs two of them specialises its code for neither. They take
turns of a tenth of a second, so that a machine that changes its speed changes it for all. CPU time of the road's thread: what a
scraper or a collector costs beside it is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.deployment import bench_home
from benchmarks.road import InProcess, timed

GOALS: Final[Mapping[str, float]] = {"metrics": 0.02}
"""What each may cost at most, as a share of the call."""
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "off": {},
    "off again": {},
    "metrics": {"metrics__enabled": True},
}
"""Each variant and what it turns on. The second one shows how far equal ones differ."""
PLAIN: Final = "off"
CALLS: Final = 2000
ROUNDS: Final = 60
QUICK_ROUNDS: Final = 12


class Child:
    """One variant in a process of its own, which makes calls when it is told to."""

    def __init__(self, name: str) -> None:
        command = [sys.executable, "-m", "benchmarks.window", "--child", name]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.rounds: list[float] = []

    def turn(self, calls: int) -> float:
        """Microseconds a call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{calls}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate()


def be_child(name: str) -> None:
    """Side effects: reads numbers of calls from standard input until it ends, and prints what each lot took."""
    with tempfile.TemporaryDirectory() as folder:
        home = bench_home(Path(folder) / "home")
        app = home.app(**SETTINGS[name])
        whole = InProcess(app, home.keys["builder"])
        for line in sys.stdin:
            (took,) = timed(whole.call, int(line), 1)
            if app.telemetry is not None:
                app.telemetry.numbers()  # as a scraper would, now and then
            print(took, flush=True)
        asyncio.run(app.close())


def measure(rounds: int, calls: int = CALLS) -> dict[str, dict[str, float]]:
    """Microseconds a call, and the share on top of `off`, by variant."""
    children = {name: Child(name) for name in SETTINGS}
    try:
        for child in children.values():
            child.turn(calls)  # to be warm
        for number in range(rounds):
            order = list(children.values())
            for child in order if number % 2 else reversed(order):
                child.rounds.append(child.turn(calls))
    finally:
        for child in children.values():
            child.end()
    return {name: _row(child.rounds, children[PLAIN].rounds) for name, child in children.items()}


def _row(found: list[float], plain: list[float]) -> dict[str, float]:
    """The share compares lower quartiles: what disturbs the machine makes a turn longer, never shorter."""
    quartile, beside = statistics.quantiles(found)[0], statistics.quantiles(plain)[0]
    return {
        "best": min(found),
        "quartile": quartile,
        "median": statistics.median(found),
        "share": quartile / beside - 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few seconds, for a look")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=sorted(SETTINGS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        be_child(options.child)
        return
    table = measure(QUICK_ROUNDS if options.quick else ROUNDS)
    if options.json:
        print(json.dumps(table, indent=2))
        return
    print(f"{'':12}{'best':>9}{'quartile':>10}{'median':>9}{'share':>9}   µs of CPU a call")
    for name, row in table.items():
        goal = f"   at most {GOALS[name]:.0%}" if name in GOALS else ""
        print(f"{name:12}{row['best']:9.2f}{row['quartile']:10.2f}{row['median']:9.2f}{row['share']:9.1%}{goal}")


if __name__ == "__main__":
    main()
