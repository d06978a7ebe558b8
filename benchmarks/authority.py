"""What rules and stops cost: a call without them, a rule over arguments of growing size, and a hostile argument.

    python -m benchmarks.authority [--quick] [--json]

In process on one core; compare numbers of one run only. The goals: a call without rules pays nothing measurable, one rule costs
15 microseconds at most for arguments of 1 KB and grows no faster than they do, and no argument takes a rule beyond its budget.
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

from benchmarks.deployment import bench_home
from benchmarks.road import InProcess, timed
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
ECHO_RULE = {"name": "many", "deny": "args.count > 100 && args.text == 'hello'"}
LOOPS = "args.items.exists(x, args.items.exists(y, x == y + 'z' || args.text.contains('needle')))"


def compiled(condition: str) -> CallRules:
    return RuleChecker(SCHEMA, ["builder"]).compile([RuleText("r", "deny", condition)])


def subject(size: int, items: int = 0) -> Subject:
    arguments = {"branch": "dev", "force": True, "text": "x" * size, "items": ["item"] * items}
    caller = {"id": "k", "role": "builder", "label": ""}
    return Subject(arguments, len(strictjson.dumps(arguments)), caller, "t", "", lambda: "local", 0.0)


def call_costs(calls: int, rounds: int) -> dict[str, float]:
    """Microseconds of a whole call in process, the best of rounds that take turns: without a rule by a plain key, by a key with
    bounds, and with a rule."""
    with tempfile.TemporaryDirectory() as folder:
        plain = bench_home(Path(folder) / "plain")
        ruled = bench_home(Path(folder) / "ruled", rows={"bench_echo": {"x-rules": [ECHO_RULE]}})
        bounds = CallerBounds(scopes=("bench_*",), ranges=("192.0.2.0/24",), per_minute=MAX_LIMIT, concurrency=10)
        _, bounded = KeyRing(plain.path / "keys" / "callers.json").create("builder", bounds=bounds)
        apps = (plain.app(), ruled.app())
        callers = {
            "without rules": InProcess(apps[0], plain.keys["builder"]),
            "without rules, a key with bounds": InProcess(apps[0], bounded),
            "with one rule": InProcess(apps[1], ruled.keys["builder"]),
        }
        found: dict[str, list[float]] = {name: [] for name in callers}
        for _ in range(rounds):
            for name, caller in callers.items():
                found[name] += timed(caller.call, calls, 1)
        for caller in callers.values():
            caller.loop.close()
        for app in apps:
            asyncio.run(app.close())
        return {name: min(each) for name, each in found.items()}


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
    return {
        "stop_ns": stop_ns(calls * 10, rounds),
        "call_us": call_costs(calls, rounds),
        "rule_us": rule_costs(calls, rounds),
        "hostile_ms": hostile_ms(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few seconds")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(quick=given.quick)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    print(f"a call while nothing is stopped: {found['stop_ns']:.0f} ns")
    for what, each in found["call_us"].items():
        print(f"a call {what}: {each:.1f} us")
    for what, each in found["rule_us"].items():
        print(f"one rule that {what}: best {each['best']:.1f} us, median {each['median']:.1f} us")
    for what, each in found["hostile_ms"].items():
        print(f"a rule that loops, {what} after {each:.1f} ms")


if __name__ == "__main__":
    main()
