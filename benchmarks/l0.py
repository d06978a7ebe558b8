"""What the L0 checks cost: the steady state that answers are judged by, the first run that they report beside it.

    python benchmarks/l0.py [--shots 100000] [--json]

steady      each check many times in a row, as every answer measures it (steadyNs); the slowest of the five
hot shots   the block between two clock reads, over and over: what a first run would cost if nothing else ran meanwhile
first runs  the same after the processor has been busy with something else, as in a server: what answers report (latencyNs)
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time

from toolgate.packs.governance.invariants.block import NAMES, TARGET_NS, Prepared, run_block, steady_ns

CHECKS = len(NAMES)
BATCH = 1_000


def states(seed: int, number: int) -> list[Prepared]:
    """States with all five checks, about half of each check failing, so that no branch is always the same."""
    draw = random.Random(seed)
    return [
        Prepared(
            expected_hash="a" * 64,
            actual_hash=draw.choice(["a", "b"]) * 64,
            permission_violations=draw.choice([0, 0, 3]),
            names_match=draw.random() < 0.9,
            difference=draw.uniform(0, 20),
            allowed=10.0,
            age_s=draw.uniform(-10, 7200),
            max_age_s=3600.0,
            decrease=draw.uniform(-0.05, 0.1),
            witnesses=draw.randrange(20),
            min_witnesses=10,
        )
        for _ in range(number)
    ]


def hot_shots(number: int) -> list[float]:
    prepared = states(1, BATCH)
    return [run_block(prepared[i % BATCH], time.monotonic).block_ns / CHECKS for i in range(number)]


def first_runs(number: int) -> list[float]:
    """Between two of them a megabyte of text is made and read: whatever the caches held of the block is gone."""
    prepared, found = states(2, number), []
    for state in prepared:
        hash("".join(random.choices("abcdef", k=1000)) * 1000)
        found.append(run_block(state, time.monotonic).block_ns / CHECKS)
    return found


def steady(number: int) -> list[float]:
    """Of each measurement, the slowest of the five checks."""
    return [float(max(steady_ns(state, NAMES, time.monotonic).values())) for state in states(3, number)]


def clock_reads(number: int = 100_000) -> float:
    """Nanoseconds between two reads of the clock with nothing between them."""
    pairs = [(time.monotonic(), time.monotonic()) for _ in range(number)]
    return statistics.median([(after - before) * 1e9 for before, after in pairs])


def summary(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
    shown = {name: ordered[int(len(ordered) * share)] for name, share in at.items()}
    return {"min": ordered[0], **shown, "max": ordered[-1], "mean": statistics.fmean(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shots", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measured = {
        "steadyNsSlowestCheck": steady(options.shots // 100),
        "hotShotNsPerCheck": hot_shots(options.shots),
        "firstRunNsPerCheck": first_runs(options.shots // 100),
    }
    report = {
        "targetNs": TARGET_NS,
        **{name: summary(values) for name, values in measured.items()},
        "withinTarget": {
            name: sum(one < TARGET_NS for one in values) / len(values) for name, values in measured.items()
        },
        "clockReadNs": clock_reads(),
    }
    if options.json:
        print(json.dumps(report, indent=2))
        return
    for name, values in measured.items():
        print(f"{name:22s} " + "  ".join(f"{key} {value:9.1f}" for key, value in summary(values).items()))
        print(f"{'':22s} under {TARGET_NS} ns: {sum(one < TARGET_NS for one in values) / len(values):.1%}")
    print(f"two clock reads with nothing between them: {report['clockReadNs']:.0f} ns")


if __name__ == "__main__":
    main()
