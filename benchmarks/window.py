"""What it costs a call that operators can see it: the CPU time of one governed call in process, with each kind of watching
turned on, beside the same with none; and what a server takes to start and holds, on beside off.

    python -m benchmarks.window [--quick] [--json]

Each variant has a process of its own, because an interpreter that runs two of them specialises its code for neither. They take
turns of a tenth of a second, so that a machine that changes its speed changes it for all. CPU time of the road's thread: what a
scraper or a collector costs beside it is not in it.

Starts are those of real servers, in turns: from the process to its first answer, and its memory then. What is off must cost
nothing there, so `off` is the row that may not grow from one version to the next (`make bench-against` compares two).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from benchmarks import machine, ours
from benchmarks.deployment import bench_home
from benchmarks.road import InProcess, timed
from benchmarks.servers import Running, first_answer
from benchmarks.stats import ratios

GOALS: Final[Mapping[str, float]] = {"metrics": 0.02, "traces": 0.03}
"""What each may cost at most, as a share of the call."""
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "off": {},
    "off again": {},
    "metrics": {"metrics__enabled": True},
    "traces": {"traces__sample": 0.05},
}
"""Each variant and what it turns on. The second one shows how far equal ones differ."""
PLAIN: Final = "off"
SINK: Final = "WINDOW_SINK"
"""The variable with the port of the collector that the variant `traces` sends to."""
STARTED: Final[Mapping[str, str]] = {
    "off": "",
    "off again": "",
    "console": "[console]\nenabled = true\n",
    "metrics": "[metrics]\nenabled = true\n",
    "traces": '[traces]\nendpoint = "http://127.0.0.1:9/v1/traces"\nsample = 0.05\n',
}
"""The same for starts: settings of a server. Nobody listens at that port, and no call is sampled before the first answer."""
STARTS: Final = 9
QUICK_STARTS: Final = 2
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
        given = dict(SETTINGS[name])
        if "traces__sample" in given:
            given["traces__endpoint"] = f"http://127.0.0.1:{os.environ[SINK]}/v1/traces"
        app = home.app(**given)
        whole = InProcess(app, home.keys["builder"])
        for line in sys.stdin:
            (took,) = timed(whole.call, int(line), 1)
            if app.telemetry is not None:
                app.telemetry.numbers()  # as a scraper would, now and then
            print(took, flush=True)
        asyncio.run(app.close())


class TakesAll(BaseHTTPRequestHandler):
    """A collector that takes every span and looks at none."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the standard library's own signature)
        pass


def be_sink() -> None:
    """Side effects: prints its port and serves until it is ended."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), TakesAll)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def measure(rounds: int, calls: int = CALLS) -> dict[str, dict[str, float]]:
    """Microseconds a call, and the share on top of `off`, by variant."""
    sink = subprocess.Popen([sys.executable, "-m", "benchmarks.window", "--sink"], stdout=subprocess.PIPE, text=True)
    assert sink.stdout is not None
    os.environ[SINK] = sink.stdout.readline().strip()
    try:
        return _measured(rounds, calls)
    finally:
        sink.terminate()
        sink.communicate()


def _measured(rounds: int, calls: int) -> dict[str, dict[str, float]]:
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


def starts(rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds to the first answer and MiB then, each with its ratio to `off` of the same round."""
    took: dict[str, list[float]] = {name: [] for name in STARTED}
    held: dict[str, list[float]] = {name: [] for name in STARTED}
    with tempfile.TemporaryDirectory(prefix="tg-window-") as folder:
        made = {
            name: ours.make(Path(folder) / name.replace(" ", "-"), settings=f"{ours.LIMITED}\n{settings}")
            for name, settings in STARTED.items()
        }
        for _ in range(rounds):
            for name, deployment in made.items():
                with Running(deployment.over_http()) as server:
                    took[name].append(1000 * first_answer(server))
                    held[name].append(machine.memory_mib(server.pid))
    return {
        name: {
            "start_ms": statistics.median(took[name]),
            "start_ratio": ratios(took[name], took[PLAIN]).median,
            "memory_mib": statistics.median(held[name]),
            "memory_ratio": ratios(held[name], held[PLAIN]).median,
        }
        for name in STARTED
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few seconds, for a look")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sink", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", choices=sorted(SETTINGS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.sink or options.child:
        be_sink() if options.sink else be_child(options.child)
        return
    table = measure(QUICK_ROUNDS if options.quick else ROUNDS)
    started = starts(QUICK_STARTS if options.quick else STARTS)
    if options.json:
        print(json.dumps({"calls": table, "starts": started}, indent=2))
        return
    _show(table, started)


def _show(table: Mapping[str, Mapping[str, float]], started: Mapping[str, Mapping[str, float]]) -> None:
    print(f"{'':12}{'best':>9}{'quartile':>10}{'median':>9}{'share':>9}   µs of CPU a call")
    for name, row in table.items():
        goal = f"   at most {GOALS[name]:.0%}" if name in GOALS else ""
        print(f"{name:12}{row['best']:9.2f}{row['quartile']:10.2f}{row['median']:9.2f}{row['share']:9.1%}{goal}")
    print(f"\n{'':12}{'start':>9}{'to off':>10}{'memory':>9}{'to off':>9}   ms to the first answer, MiB")
    for name, row in started.items():
        start, memory = (
            f"{row['start_ms']:9.0f}{row['start_ratio']:9.3f}x",
            f"{row['memory_mib']:9.1f}{row['memory_ratio']:8.3f}x",
        )
        print(f"{name:12}{start}{memory}")


if __name__ == "__main__":
    main()
