"""The five L0 invariants: what each one asks, as one fused block over prepared values.

Preparation (reading, parsing, hashing, asking a store) is somebody else's; what is left is a handful of comparisons, and
those are what the 100 ns target is about (document 001). The block runs between two clock reads and its time is shared
evenly by the checks that ran: a clock read costs as much as a check, so timing each alone would time the clock.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TARGET_NS: Final = 100
"""Nanoseconds per check (document 001)."""
FREE_DECREASE: Final = 0.01
"""A false-positive rate may fall by this much without witnesses: one percentage point is noise."""
LATENCY_METHOD: Final = (
    "the comparisons of all checks run as one block between two monotonic clock reads; latencyNs is the block divided by the "
    "checks that ran, rounded up; reading, parsing, hashing and stores are not in it"
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


def fused(p: Prepared) -> tuple[bool, bool, bool, bool, bool]:
    """All five, in the order of INVARIANTS. Pure; the only code inside the measured time."""
    expected, actual, violations, same, difference, allowed, age, max_age, decrease, witnesses, needed = p
    return (
        actual == expected,
        violations == 0,
        same and difference <= allowed,
        0.0 <= age < max_age,
        decrease >= 0.0 and (decrease <= FREE_DECREASE or witnesses >= needed),
    )


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
        "Give each job only the scopes it needs; a workflow that writes names them at the job.",
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
NAMES: Final = tuple(one.name for one in INVARIANTS)


class Check(Struct, frozen=True):
    """One check that was asked for: why it can fail, and what was looked at."""

    name: str
    evidence: dict[str, Any]
    why_not: str
    """The sentence for people when it does not hold."""


class Measured(Struct, frozen=True):
    passed: dict[str, bool]
    block_ns: int


def run_block(prepared: Prepared, monotonic: Callable[[], float]) -> Measured:
    """Run the block once between two clock reads."""
    before = monotonic()
    outcomes = fused(prepared)
    after = monotonic()
    return Measured(dict(zip(NAMES, outcomes, strict=True)), round((after - before) * 1e9))


class Outcome(Struct, frozen=True):
    """One check after everything, single use of the nonce included, has been asked."""

    check: Check
    passed: bool
    evidence: dict[str, Any] = field(default_factory=dict)


def report(outcomes: Sequence[Outcome], block_ns: int) -> dict[str, Any]:
    """`data` of the answer, in document 001's shape."""
    share = -(-block_ns // len(outcomes))
    results = [_result(outcome, share) for outcome in outcomes]
    failures = [result for result in results if not result["passed"]]
    return {
        "validation": {
            "allPassed": not failures,
            "checksRun": len(results),
            "passed": len(results) - len(failures),
            "failed": len(failures),
            "results": results,
            "failures": failures,
        },
        "performanceNs": share * len(results),
        "withinPerformanceTarget": share < TARGET_NS,
        "latencyMethod": LATENCY_METHOD,
    }


def _result(outcome: Outcome, share_ns: int) -> dict[str, Any]:
    invariant = INVARIANTS[NAMES.index(outcome.check.name)]
    return {
        "invariantId": invariant.id,
        "name": invariant.name,
        "passed": outcome.passed,
        "message": invariant.holds if outcome.passed else outcome.check.why_not,
        "evidence": outcome.evidence or outcome.check.evidence,
        "latencyNs": share_ns,
        "severity": invariant.severity,
        "remediation": None if outcome.passed else invariant.remediation,
    }


def decimal_difference(a: float, b: float) -> float:
    """a - b as people wrote them: 0.05 - 0.04 is 0.01 and not 0.010000000000000002, which would ask for witnesses."""
    return float(Decimal(repr(a)) - Decimal(repr(b)))
