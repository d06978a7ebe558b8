"""How cost grows: with tools, keys, argument size, the length of the audit log, and connections.

    python -m benchmarks.growth [--quick] [--records N] [--only CURVE] [--out FOLDER]

Each curve is flat or linear where it should be. All servers of a curve run at once and are measured in turn. The full form
takes some fifteen minutes, most of it the longest log, and writes benchmarks/results/growth.json and docs/benchmarks.md.
With --out the results and pictures go to a folder instead. --quick is for trying it: a minute, short rounds, short logs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import machine, ours, peers, plots, report
from benchmarks.servers import Running, WrongAnswers, first_answer
from benchmarks.trials import in_turn, tell
from toolgate.policy.manifest import MANIFEST_FILE, default_file

if TYPE_CHECKING:
    from toolgate.app import App

KB = 1000
ARGUMENT_BYTES = (KB, 10 * KB, 100 * KB, 1000 * KB)
TOOLS = (1, 10, 100)
MANIFEST_ROWS = 1000
"""The packaged rows are among them, so fewer tools are served."""
KEYS = (1, 10, 100, 10_000)
CONNECTIONS = (1, 4, 16, 64, 256)
RECORDS = 10_000_000
"""The longest log by default: some 8 GB on disk while it is measured. Every record of it is written by the ledger itself, in
process and without a server; at 10 µs each that takes minutes, and needs no shortcut that would have to be trusted."""
QUICK_RECORDS = 1_000
RECORD_BYTES = 1_000
"""Of disk that a record may need; a log that would not fit is left out."""
SAMPLE = 2_000
"""Records timed at each length of the log."""
VERIFY_ONCE_FROM = 1_000_000
"""Records from which verifying takes so long that one round tells enough."""


@dataclass(frozen=True, slots=True)
class Size:
    rounds: int
    seconds: float


FULL, QUICK = Size(5, 1.0), Size(2, 0.3)
Points = dict[str, list[float]]


def curve(title: str, axis: str, unit: str, points: Points, *, linear: bool = False) -> dict[str, Any]:
    return {"title": title, "axis": axis, "unit": unit, "linear": linear, "points": points}


def _deployments(folder: Path, name: str, counts: Sequence[int], make: Callable[[Path, int], ours.Deployment]) -> Any:
    return {count: make(folder / f"{name}-{count}", count) for count in counts}


def over_deployments(made: dict[int, ours.Deployment], size: Size) -> Points:
    """CPU µs a call at 10 connections, one deployment a point."""
    points: Points = {str(count): [] for count in made}
    answers = dict.fromkeys(made, 0)
    with ExitStack() as stack:
        servers = [(count, stack.enter_context(Running(each.over_http()))) for count, each in made.items()]
        for number in range(size.rounds):
            for count, server in in_turn(servers, number):
                found = server.measure(10, size.seconds)
                points[str(count)].append(found["cpu_us"])
                answers[count] += found["answers"]
    for count, each in made.items():
        each.check(answers[count])
    return points


def tools(folder: Path, size: Size) -> dict[str, Any]:
    packaged = len(json.loads(default_file(MANIFEST_FILE).read_bytes())["tools"])
    counts = (*TOOLS, MANIFEST_ROWS - packaged)
    made = _deployments(folder, "tools", counts, lambda home, count: ours.make(home, tools=count - 1))
    axis = f"tools served; the last manifest has {plots.count(MANIFEST_ROWS)} rows"
    return curve("Cost of a call, by number of tools", axis, "CPU µs a call", over_deployments(made, size))


def keys(folder: Path, size: Size) -> dict[str, Any]:
    made = _deployments(folder, "keys", KEYS, lambda home, count: ours.make(home, keys=count))
    return curve("Cost of a call, by keys in use", "keys", "CPU µs a call", over_deployments(made, size))


def arguments(folder: Path, size: Size) -> dict[str, Any]:
    deployment = ours.make(folder / "arguments")
    points: Points = {str(length): [] for length in ARGUMENT_BYTES}
    answers = 0
    with Running(deployment.over_http()) as server:
        for number in range(size.rounds):
            for length in in_turn(ARGUMENT_BYTES, number):
                exchange = replace(server.target.exchange, text="x" * length)
                found = server.measure(4, size.seconds, exchange=exchange)
                points[str(length)].append(found["cpu_us"])
                answers += found["answers"]
    deployment.check(answers)
    return curve("Cost of a call, by size of its arguments", "bytes", "CPU µs a call", points, linear=True)


def connections(folder: Path, size: Size) -> dict[str, Any]:
    deployment = ours.make(folder / "connections")
    points: Points = {str(count): [] for count in CONNECTIONS}
    answers = 0
    with Running(deployment.over_http()) as server:
        for number in range(size.rounds):
            for count in in_turn(CONNECTIONS, number):
                found = server.measure(count, size.seconds)
                points[str(count)].append(found["cpu_us"])
                answers += found["answers"]
    deployment.check(answers)
    return curve("Cost of a call, by connections", "connections", "CPU µs a call", points)


def ledger(folder: Path, size: Size, most: int) -> dict[str, dict[str, Any]]:
    """A log that grows tenfold each time: what the next record costs, what a start costs, what verifying costs.

    Each log is removed before the next one grows, so the disk holds one at a time.
    """
    record: Points = {}
    beside: Points = {}
    start: Points = {}
    verify: Points = {}
    length = 10
    while length <= most:
        if length * RECORD_BYTES > shutil.disk_usage(folder).free:
            tell(f"no room on disk for a log of {length} records: left out")
            break
        with tempfile.TemporaryDirectory(dir=folder) as place:
            record[str(length)], new = _next_record(Path(place), length, size.rounds)
            beside[str(length)] = [long / short for long, short in zip(record[str(length)], new, strict=True)]
        with tempfile.TemporaryDirectory(dir=folder) as place:
            deployment = ours.make(Path(place) / "home")
            app = _logging(deployment)
            _append(app, length)
            asyncio.run(app.close())
            start[str(length)] = [_start(deployment) for _ in range(size.rounds)]
            rounds = 1 if length >= VERIFY_ONCE_FROM else size.rounds
            verify[str(length)] = [_verify(deployment) for _ in range(rounds)]
            deployment.check(length + size.rounds)
        tell(f"growth: a log of {length} records")
        length *= 10
    return {
        "ledger-record": curve("Cost of the next record, by length of the log", "records", "CPU µs a record", record),
        "ledger-beside": curve(
            "Cost of the next record, against one of a new log at the same moment", "records", "x", beside
        ),
        "ledger-start": curve("Start to first answer, by length of the log", "records", "s", start),
        "ledger-verify": curve(
            "toolgate audit verify, its own start included, by length of the log", "records", "s", verify, linear=True
        ),
    }


def _verify(deployment: ours.Deployment) -> float:
    before = time.perf_counter()
    deployment.verify()
    return time.perf_counter() - before


def _start(deployment: ours.Deployment) -> float:
    with Running(deployment.over_http()) as server:
        return first_answer(server)


def _next_record(place: Path, length: int, rounds: int) -> tuple[list[float], list[float]]:
    """CPU µs of what follows `length` records, and of as many records in a new log, measured in turn.

    A disk that is still busy with a long log slows every write, so a cost alone does not show what the log's length does.
    """
    long, new = (_logging(ours.make(place / name)) for name in ("long", "new"))
    _append(long, length)
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for app, costs in zip((long, new), found, strict=True):
            before = time.thread_time()
            _append(app, SAMPLE)
            costs.append((time.thread_time() - before) / SAMPLE * 1e6)
    for app in (long, new):
        asyncio.run(app.close())
    return found


def _logging(deployment: ours.Deployment) -> App:
    from benchmarks.deployment import bench_home  # noqa: F401 (importing it makes the bench pack known here)
    from toolgate.app import build
    from toolgate.config import load_settings

    return build(load_settings(deployment.home, {}, {}))


def _append(app: App, count: int) -> None:
    from benchmarks.ledger import entry

    append, one = app.road.ledger.append, entry()
    for _ in range(count):
        append(one)


SERVED = (tools, keys, arguments, connections)
CURVES = (*(trial.__name__ for trial in SERVED), "ledger")


def measure(size: Size, records: int, wanted: Sequence[str]) -> dict[str, Any]:
    """Raises: WrongAnswers, AuditFault."""
    curves: dict[str, Any] = {}
    peers.CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="growth-", dir=peers.CACHE) as name:  # on disk: /tmp may be memory
        for trial in SERVED:
            if trial.__name__ in wanted:
                curves[trial.__name__] = trial(Path(name), size)
                tell(f"growth: {trial.__name__}")
        if "ledger" in wanted:
            curves |= ledger(Path(name), size, records)
    return {**report.about_this_run(), "rounds": size.rounds, "seconds": size.seconds, "curves": curves}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="does it work? (writes no documentation)")
    parser.add_argument("--records", type=int, help=f"the longest log ({RECORDS}; quick: {QUICK_RECORDS})")
    parser.add_argument("--only", choices=CURVES, help="one curve (writes no documentation)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where results and pictures go instead")
    options = parser.parse_args()
    machine.require_linux()
    records = options.records or (QUICK_RECORDS if options.quick else RECORDS)
    try:
        results = measure(QUICK if options.quick else FULL, records, (options.only,) if options.only else CURVES)
    except (WrongAnswers, ours.AuditFault) as fault:
        print(f"stopped: {fault}", file=sys.stderr)
        return 1
    partial = options.quick or options.only is not None
    folder = options.out or (peers.CACHE if partial else None)
    encoded = json.dumps(results, indent=1) + "\n"
    if folder is None:
        report.GROWTH.write_text(encoded)
        report.write()
    else:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / report.GROWTH.name).write_text(encoded)
        for name, picture in report.pictures({}, results, {}).items():
            (folder / name).write_text(picture)
    print(report.growth_table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
