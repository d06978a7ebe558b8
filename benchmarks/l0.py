"""What the L0 block costs: single shots as every answer reports them, and amortised over a batch of states.

    python benchmarks/l0.py [--shots 100000] [--json]

A single shot includes two clock reads, which cost about as much as two checks; the batch shows the comparisons alone.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time

from toolgate.packs.governance.l0 import NAMES, TARGET_NS, Prepared, fused, run_block

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


def single_shots(number: int) -> list[float]:
    prepared = states(1, BATCH)
    return [run_block(prepared[i % BATCH], time.monotonic).block_ns / CHECKS for i in range(number)]


def amortised(rounds: int = 200) -> list[float]:
    prepared = states(2, BATCH)
    found = []
    for _ in range(rounds):
        before = time.monotonic_ns()
        for state in prepared:
            fused(state)
        found.append((time.monotonic_ns() - before) / (BATCH * CHECKS))
    return found


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
    shots, batch = single_shots(options.shots), amortised()
    report = {
        "targetNs": TARGET_NS,
        "singleShotNsPerCheck": summary(shots),
        "singleShotsWithinTarget": sum(one < TARGET_NS for one in shots) / len(shots),
        "amortisedNsPerCheck": summary(batch),
        "clockReadNs": clock_reads(),
    }
    if options.json:
        print(json.dumps(report, indent=2))
        return
    for name in ("singleShotNsPerCheck", "amortisedNsPerCheck"):
        row = report[name]
        assert isinstance(row, dict)
        print(f"{name:22s} " + "  ".join(f"{key} {value:9.1f}" for key, value in row.items()))
    print(f"single shots under {TARGET_NS} ns a check: {report['singleShotsWithinTarget']:.1%}")
    print(f"two clock reads with nothing between them: {report['clockReadNs']:.0f} ns")


if __name__ == "__main__":
    main()
