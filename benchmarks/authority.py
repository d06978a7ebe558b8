"""What rules and stops cost: a call without them, a rule over arguments of growing size, and a hostile argument.

    python -m benchmarks.authority [--quick] [--json]
    python -m benchmarks.authority --keep        and write the results and the page of benchmarks again

In process on one core; compare numbers of one run only. Whole calls take turns in many short rounds, and what a rule adds is the
median of the differences within a round: so another process that takes the machine for a while counts little.

The goals: a call without rules pays nothing measurable, one rule costs 15 microseconds at most for arguments of 1 KB and grows no
faster than they do, and no argument takes a rule beyond its budget.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

from benchmarks import report
from benchmarks.authority_tables import PLAIN, TWIN, section
from benchmarks.deployment import bench_home
from benchmarks.road import InProcess, timed
from benchmarks.trials import Disturbance
from toolgate.gate.authority.stops import STOPS_FILE, Stops
from toolgate.gate.keys import KeyRing
from toolgate.kit.conditions.rules import CallRules, RuleChecker, RuleText, Subject, Unjudged
from toolgate.model import strictjson
from toolgate.model.call import MAX_LIMIT, CallerBounds

SIZES = (1024, 10 * 1024, 100 * 1024, 1024 * 1024)
SCHEMA = {
    "type": "object",
    "required": ["branch", "text", "items"],
    "properties": {
        "branch": {"type": "string"},
        "force": {"type": "boolean"},
        "text": {"type": "string"},
        "items": {"type": "array", "items": {"type": "string"}},
    },
}
NAMES = "args.force == true && args.branch == 'main'"
READS = "args.text.contains('needle')"
ECHO_RULE = {"name": "many", "deny": "args.text.contains('needle') || args.count > 100"}
ARGUMENTS = {"text": "x" * 1000, "count": 3, "flag": True}
"""1 KB, all of which the rule reads."""
LOOPS = "args.items.exists(x, args.items.exists(y, x == y + 'z' || args.text.contains('needle')))"


def compiled(condition: str) -> CallRules:
    return RuleChecker(SCHEMA, ["builder"]).compile([RuleText("r", "deny", condition)])


def subject(size: int, items: int = 0) -> Subject:
    arguments = {"branch": "dev", "force": True, "text": "x" * size, "items": ["item"] * items}
    caller = {"id": "k", "role": "builder", "label": ""}
    return Subject(arguments, len(strictjson.dumps(arguments)), caller, "t", "", lambda: "local", 0.0)


def call_costs(calls: int, rounds: int) -> dict[str, list[float]]:
    """Microseconds of a whole call in process with arguments of 1 KB, of rounds that take turns."""
    with tempfile.TemporaryDirectory() as folder:
        plain, twin = (bench_home(Path(folder) / name) for name in ("plain", "twin"))
        other = bench_home(Path(folder) / "other", rows={"bench_thread": {"x-rules": [ECHO_RULE]}})
        ruled = bench_home(Path(folder) / "ruled", rows={"bench_echo": {"x-rules": [ECHO_RULE]}})
        bounds = CallerBounds(scopes=("bench_*",), ranges=("192.0.2.0/24",), per_minute=MAX_LIMIT, concurrency=10)
        _, bounded = KeyRing(plain.path / "keys" / "callers.json").create("builder", bounds=bounds)
        apps = [home.app() for home in (plain, twin, other, ruled)]
        callers = {
            PLAIN: InProcess(apps[0], plain.keys["builder"], ARGUMENTS),
            TWIN: InProcess(apps[1], twin.keys["builder"], ARGUMENTS),
            "without a rule, in a home where another tool has one": InProcess(
                apps[2], other.keys["builder"], ARGUMENTS
            ),
            "with one rule": InProcess(apps[3], ruled.keys["builder"], ARGUMENTS),
            "without a rule, by a key with bounds": InProcess(apps[0], bounded, ARGUMENTS),
        }
        found: dict[str, list[float]] = {name: [] for name in callers}
        for _ in range(rounds):
            for name, caller in callers.items():
                found[name] += timed(caller.call, calls, 1)
        for caller in callers.values():
            caller.loop.close()
        for app in apps:
            asyncio.run(app.close())
        return found


def rule_costs(calls: int, rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds of one rule, best and median, by what it does and how long the arguments are."""
    found: dict[str, dict[str, float]] = {}
    for what, condition in (("names two arguments", NAMES), ("reads the long one", READS)):
        rules = compiled(condition)
        for size in SIZES:
            about = subject(size)
            each = timed(lambda rules=rules, about=about: rules.deciding(about), max(1, calls * 1024 // size), rounds)  # type: ignore[misc]
            found[f"{what}, {size // 1024} KB"] = {"best": min(each), "median": statistics.median(each)}
    return found


def hostile_ms() -> dict[str, float]:
    """Milliseconds until a rule that loops in a loop gives up, over the worst arguments that it looks at."""
    rules, found = compiled(LOOPS), {}
    for items, size in ((2000, 1000), (5000, 30_000), (100_000, 500_000)):
        about, begun = subject(size, items), perf_counter()
        try:
            rules.deciding(about)
            raise AssertionError("it was judged")
        except Unjudged as unjudged:
            found[f"{items} items beside {size} characters: {unjudged.reason}"] = (perf_counter() - begun) * 1000
    return found


def stop_ns(calls: int, rounds: int) -> float:
    """Nanoseconds that a call pays for the stop button while nothing is stopped: the comparison on the road."""
    with tempfile.TemporaryDirectory() as folder:
        stops = Stops(Path(folder) / STOPS_FILE)
        stops.in_force()
        started = monotonic()

        def asked() -> bool:
            return started >= stops.due

        def nothing() -> bool:
            return True

        return (min(timed(asked, calls, rounds)) - min(timed(nothing, calls, rounds))) * 1000


def measure(*, quick: bool) -> dict[str, Any]:
    calls, rounds = (500, 5) if quick else (5000, 20)
    disturbance = Disturbance([])
    return {
        **report.about_this_run([]),
        "stop_ns": stop_ns(calls * 10, rounds),
        "call_us": call_costs(100, 10 if quick else 300),
        "rule_us": rule_costs(calls, rounds),
        "hostile_ms": hostile_ms(),
        "others_used": disturbance.share(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few seconds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", action="store_true", help="write the results and the page of benchmarks")
    given = parser.parse_args()
    found = measure(quick=given.quick)
    if given.keep:
        report.AUTHORITY.write_text(json.dumps(rounded(found), indent=1) + "\n")
        report.write()
    print(json.dumps(found, indent=2) if given.json else section(found))


def rounded(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: rounded(each) for name, each in found.items()}
    if isinstance(found, list):
        return [rounded(each) for each in found]
    return round(found, 2) if isinstance(found, float) else found


if __name__ == "__main__":
    main()
