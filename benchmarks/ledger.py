"""What the log costs: CPU a record, share of a call, bytes verified a second, and memory that stays flat.

    python benchmarks/ledger.py [--records 1000000]

A shared machine is noisy: compare ratios, and look at the quiet rounds. Exits 1 when an aim is missed.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from msgspec.structs import replace

from toolgate.ledger import LocalLedger, Rules, open_ledger
from toolgate.ledger.files import runs_in
from toolgate.ledger.reading.verify import verify
from toolgate.model.call import Caller, Wire
from toolgate.model.clock import RandomIds, SystemClock, rfc3339
from toolgate.model.record import LedgerEntry

AIM_RECORD_US = 8.0
AIM_VERIFY_RATIO = 5.0
CALL_US = 130.0
"""Server CPU of one governed call over HTTP, as measured for the design (facts of performance)."""
ROUNDS = 200
BURST = 1024
"""Short rounds, of four checkpoints each: on a shared machine some of them find the core to themselves."""


def entry() -> LedgerEntry:
    return LedgerEntry(
        event="outcome",
        wire=Wire("mcp", "http", "/mcp"),
        ids=RandomIds().for_call(None, None),
        timestamp=rfc3339(time.time()),
        tool_id="mcp.tool:lra.validate",
        status="ok",
        caller=Caller("0123456789ab", "builder"),
        tier="experimental",
        environment="local",
        decision="pass",
        arguments_digest="ab" * 32,
        input_bytes=40,
        output_bytes=300,
        duration_ms=0.123,
    )


def opened(place: Path, rules: Rules) -> LocalLedger:
    return open_ledger(place / "log", clock=SystemClock(), key_file=place / "audit.key", rules=rules)


def cost_of_a_record(place: Path, count: int) -> list[float]:
    """CPU microseconds of the calling thread, checkpoints included."""
    ledger = opened(place, Rules())
    entries = [replace(entry(), ids=RandomIds().for_call(None, None)) for _ in range(256)]
    rounds = []
    for _ in range(ROUNDS):
        before = time.thread_time()
        for number in range(count):
            ledger.append(entries[number & 255])
        rounds.append((time.thread_time() - before) / count * 1e6)
    ledger.close()
    return rounds


def fill(place: Path, count: int) -> LocalLedger:
    ledger = opened(place, Rules(checkpoint_seconds=3600.0))
    one = entry()
    for _ in range(count):
        ledger.append(one)
    ledger.close()
    return ledger


def hash_only(place: Path) -> tuple[float, int]:
    """CPU seconds to hash the same lines once each, and their bytes: what verification is measured against."""
    spent, size = 0.0, 0
    for segments in runs_in(place / "log").values():
        for segment in segments:
            data = segment.path.read_bytes()
            lines = data.split(b"\n")
            before = time.thread_time()
            for line in lines:
                hashlib.sha256(line).digest()
            spent += time.thread_time() - before
            size += len(data)
    return spent, size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000, help="how many to verify (1000000 for the full figure)")
    count = parser.parse_args().records
    with tempfile.TemporaryDirectory() as name:
        rounds = cost_of_a_record(Path(name), BURST)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        ledger = fill(place, count)
        before_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        before = time.thread_time()
        report = verify(place / "log", [ledger.verifier])
        spent = time.thread_time() - before
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_memory
        hashing, size = hash_only(place)
    records = report.runs[0].records
    quiet, middle = statistics.quantiles(rounds, n=10)[0], statistics.median(rounds)
    ratio = spent / hashing
    print(
        f"record   {quiet:.1f} µs in quiet rounds (tenth percentile), {middle:.1f} µs median (aim {AIM_RECORD_US:.0f})"
    )
    print("         CPU of the calling thread, hashing and checkpoints included")
    print(f"share    {middle / CALL_US:.0%} of a governed call of {CALL_US:.0f} µs")
    print(
        f"verify   {records} records, {size / 1e6:.0f} MB: {records / spent:,.0f} records/s, {size / 1e6 / spent:.0f} MB/s of CPU"
    )
    print(f"ratio    {ratio:.1f} times hashing the same lines (aim {AIM_VERIFY_RATIO:.0f})")
    print(f"memory   +{grown / 1024:.1f} MiB while verifying")
    return 0 if report.good and ratio <= AIM_VERIFY_RATIO and quiet <= AIM_RECORD_US else 1


if __name__ == "__main__":
    sys.exit(main())
