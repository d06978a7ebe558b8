"""The five L0 invariants: what each one asks, as one fused block over prepared values.

Preparation (reading, parsing, hashing, asking a store) is somebody else's; what is left is a handful of comparisons, and
those are what the 100 ns target is about (ADR-0007). Two things are measured, because they differ tenfold:
- the first run, which decides: one block between two clock reads, shared evenly by the checks that ran. A processor that did
  something else a moment ago takes its time over it;
- the steady state: each check that ran once more, many times in a row. That is what a check costs, and what the target judges.
  It does not depend on what is compared, so calls within a second share one measurement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from decimal import Decimal
from itertools import repeat, starmap
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TARGET_NS: Final = 100
"""Nanoseconds per check (ADR-0007)."""
FREE_DECREASE: Final = 0.01
"""A false-positive rate may fall by this much without witnesses: one percentage point is noise."""
RUNS: Final = 32
"""Of one check between two clock reads: a clock read costs as much as a check, so a single one would time the clock."""
BATCHES: Final = 5
"""Of which the median is told: a processor that was taken away for a moment spoils one. 12 us a check in all."""
MIN_BATCHES: Final = 3
"""Enough that one moment in which the processor was taken away does not decide."""
MAX_STEADY_S: Final = 0.001
"""Seconds for all checks, after which each is content with `MIN_BATCHES`: nobody waits for a measurement."""
STEADY_FOR_S: Final = 1.0
"""How long a measurement is told again: it costs as much as the rest of an answer, and a machine changes more slowly."""
LATENCY_METHOD: Final = (
    "first run: the comparisons of all checks as one block between two monotonic clock reads; latencyNs is the block divided "
    "by the checks that ran, rounded up; reading, parsing, hashing and stores are not in it"
)
STEADY_METHOD: Final = (
    f"steady state: after the first run, each check {RUNS} times in a row between two monotonic clock reads, {BATCHES} times; "
    f"steadyNs is the median for one run, rounded up, and told for {STEADY_FOR_S:g} s; withinPerformanceTarget: every steadyNs "
    f"is under {TARGET_NS}"
)


class Prepared(NamedTuple):
    """What the block compares. The neutral value of a check that is not asked for passes and costs what the real one does."""

    expected_hash: str = ""
    actual_hash: str | None = ""
    """None: there is no such file, and nothing equals it."""
    permission_violations: int = 0
    names_match: bool = True
    difference: float = 0.0
    allowed: float = 0.0
    age_s: float = 0.0
    max_age_s: float = 1.0
    decrease: float = 0.0
    witnesses: int = 0
    min_witnesses: int = 0


def same_bytes(expected: str, actual: str | None) -> bool:
    return actual == expected


def least_privilege(violations: int) -> bool:
    return violations == 0


def small_drift(same: bool, difference: float, allowed: float) -> bool:  # noqa: FBT001 (by position: a name costs time)
    return same and difference <= allowed


def fresh(age: float, max_age: float) -> bool:
    return 0.0 <= age < max_age


def witnessed(decrease: float, witnesses: int, needed: int) -> bool:
    return decrease >= 0.0 and (decrease <= FREE_DECREASE or witnesses >= needed)


def fused(p: Prepared) -> tuple[bool, bool, bool, bool, bool]:
    """All five, in the order of INVARIANTS. Pure; the only code inside the time of the first run."""
    expected, actual, violations, same, difference, allowed, age, max_age, decrease, witnesses, needed = p
    return (
        same_bytes(expected, actual),
        least_privilege(violations),
        small_drift(same, difference, allowed),
        fresh(age, max_age),
        witnessed(decrease, witnesses, needed),
    )


PARTS: Final[tuple[tuple[Callable[..., bool], slice], ...]] = (
    (same_bytes, slice(0, 2)),
    (least_privilege, slice(2, 3)),
    (small_drift, slice(3, 6)),
    (fresh, slice(6, 8)),
    (witnessed, slice(8, 11)),
)
"""Each check of `fused` alone, and its part of the prepared values."""


class Invariant(Struct, frozen=True):
    id: str
    name: str
    severity: str
    holds: str
    remediation: str


INVARIANTS: Final[tuple[Invariant, ...]] = (
    Invariant(
        "L0-001",
        "schema-hash",
        "critical",
        "The schema file is the expected one, byte for byte.",
        "Restore the schema file, or, if the change was reviewed, expect its new SHA-256.",
    ),
    Invariant(
        "L0-002",
        "permission-bits",
        "critical",
        "No workflow token can write more than is allowed.",
        "Give each job only the scopes it needs, in its `permissions`; say the repository's default where jobs state none.",
    ),
    Invariant(
        "L0-003",
        "drift-magnitude",
        "high",
        "The metric is within its threshold of the baseline.",
        "Find out what moved the metric, or set a new baseline after review.",
    ),
    Invariant(
        "L0-004",
        "nonce-freshness",
        "critical",
        "The nonce is fresh and used for the first time.",
        "Ask for a new nonce and use it at once, once.",
    ),
    Invariant(
        "L0-005",
        "contraction-witness",
        "critical",
        "The false-positive rate did not rise, and fell no further than reviewed events explain.",
        "Name the reviewed events that explain the lower rate, or undo what raised it.",
    ),
)
NAMES: Final = tuple(invariant.name for invariant in INVARIANTS)
_BY_NAME: Final = {invariant.name: invariant for invariant in INVARIANTS}


class Check(Struct, frozen=True):
    """One check that was asked for: why it can fail, and what was looked at."""

    name: str
    evidence: dict[str, Any]
    why_not: str
    """The sentence for people when it does not hold; needed only then."""
    unknown: str = ""
    """The sentence for people when nothing speaks against it, and something it depends on is not known."""


class Measured(Struct, frozen=True):
    passed: tuple[bool, ...]
    """In the order of `NAMES`."""
    block_ns: int


Measurements = dict[str, tuple[float, int]]
"""The latest of one server, by check: the monotonic second, and nanoseconds for one run."""


def recent_ns(
    known: Measurements, prepared: Prepared, names: Sequence[str], monotonic: Callable[[], float]
) -> dict[str, int]:
    """What one run of each named check costs, measured within the last second. Side effects: `known` has the new ones."""
    now = monotonic()
    old = [name for name in names if now - known.get(name, _NEVER)[0] >= STEADY_FOR_S]
    if old:
        known |= {name: (now, ns) for name, ns in steady_ns(prepared, old, monotonic).items()}
    return {name: known[name][1] for name in names}


_NEVER: Final = (float("-inf"), 0)


def steady_ns(prepared: Prepared, names: Sequence[str], monotonic: Callable[[], float]) -> dict[str, int]:
    """What one run of each named check costs when it comes again and again."""
    begun = monotonic()
    return {name: _steady_ns(*PARTS[NAMES.index(name)], prepared, begun, monotonic) for name in names}


def _steady_ns(
    holds: Callable[..., bool], part: slice, prepared: Prepared, begun: float, monotonic: Callable[[], float]
) -> int:
    values, took = tuple(prepared)[part], []
    for _ in range(BATCHES):
        before = monotonic()
        deque(
            starmap(holds, repeat(values, RUNS)), maxlen=0
        )  # a loop in C: one of Python's would cost as much as a check
        after = monotonic()
        took.append(after - before)
        if after - begun > MAX_STEADY_S and len(took) >= MIN_BATCHES:
            break
    took.sort()
    median = (took[(len(took) - 1) // 2] + took[len(took) // 2]) / 2  # `statistics` is 5 ms of every start
    return ceil(round(median / RUNS * 1e9, 3))


def run_block(prepared: Prepared, monotonic: Callable[[], float]) -> Measured:
    """Run the block once between two clock reads."""
    before = monotonic()
    outcomes = fused(prepared)
    after = monotonic()
    return Measured(outcomes, round((after - before) * 1e9))


class CheckOutcome(Struct, frozen=True):
    """One check after everything, single use of the nonce included, has been asked."""

    check: Check
    passed: bool
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> Literal["passed", "failed", "unknown"]:
        return "failed" if not self.passed else "unknown" if self.check.unknown else "passed"


def report(outcomes: Sequence[CheckOutcome], block_ns: int, steady: Mapping[str, int]) -> dict[str, Any]:
    """`data` of the answer, in the shape of the tool's output schema."""
    share = -(-block_ns // len(outcomes))
    ran = [outcome.check.name for outcome in outcomes]
    took = [steady[name] for name in ran]
    results = [_result(outcome, share, ns) for outcome, ns in zip(outcomes, took, strict=True)]
    statuses = [result["status"] for result in results]
    passed, failed = statuses.count("passed"), statuses.count("failed")
    return {
        "validation": {
            "allPassed": passed == len(results),
            "checksRun": len(results),
            "passed": passed,
            "failed": failed,
            "unknown": len(results) - passed - failed,
            "results": results,
            "failures": [result for result in results if result["status"] == "failed"] if failed else [],
            "notRun": [name for name in NAMES if name not in ran],
        },
        "performanceNs": share * len(results),
        "steadyNs": sum(took),
        "withinPerformanceTarget": max(took) < TARGET_NS,
        "latencyMethod": LATENCY_METHOD,
        "steadyMethod": STEADY_METHOD,
    }


def _result(outcome: CheckOutcome, share_ns: int, steady_ns: int) -> dict[str, Any]:
    invariant, status = _BY_NAME[outcome.check.name], outcome.status
    return {
        "invariantId": invariant.id,
        "name": invariant.name,
        "passed": status == "passed",
        "status": status,
        "message": invariant.holds
        if status == "passed"
        else outcome.check.why_not
        if status == "failed"
        else outcome.check.unknown,
        "evidence": outcome.evidence or outcome.check.evidence,
        "latencyNs": share_ns,
        "steadyNs": steady_ns,
        "severity": invariant.severity,
        "remediation": None if status == "passed" else invariant.remediation,
    }


def decimal_difference(a: float, b: float) -> float:
    """a - b as people wrote them: 0.05 - 0.04 is 0.01 and not 0.010000000000000002, which would ask for witnesses."""
    return float(Decimal(repr(a)) - Decimal(repr(b)))
