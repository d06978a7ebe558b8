"""The tool `validate_l0_invariants`: prepare what was asked for, run the block, then spend the nonce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.governance.invariants.block import (
    INVARIANTS,
    NAMES,
    TARGET_NS,
    CheckOutcome,
    Measurements,
    Prepared,
    recent_ns,
    report,
    run_block,
)
from toolgate.packs.governance.invariants.prepare import PREPARE, Ready, at_once, selected, spent
from toolgate.packs.governance.stores.reviews import MAX_NONCE_AGE_S
from toolgate.packs.governance.tools import schemas

if TYPE_CHECKING:
    from toolgate.model.clock import Clock
    from toolgate.packs.governance.stores.known import GovernanceMemory

MAX_WITNESSES: Final = 1_000
"""Event ids of one call: each is looked up, none is made up."""
_RFC3339: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
)


def run_at_once(clock: Clock, memory: GovernanceMemory, args: dict[str, Any]) -> Result | None:
    ready = at_once(args, selected(args))
    if ready is None:
        return None
    outcomes, block_ns, steady = _judged(ready, clock, memory.steady)
    return _answer(outcomes, block_ns, steady)


async def run(ctx: Context, args: dict[str, Any]) -> Result:
    ready = [await PREPARE[name](ctx, args) for name in selected(args)]
    memory: GovernanceMemory = ctx.memory
    outcomes, block_ns, steady = _judged(ready, ctx.clock, memory.steady)
    outcomes = [
        await spent(ctx, args, outcome) if outcome.check.name == "nonce-freshness" else outcome for outcome in outcomes
    ]
    return _answer(outcomes, block_ns, steady)


def _judged(
    ready: Sequence[Ready], clock: Clock, known: Measurements
) -> tuple[list[CheckOutcome], int, dict[str, int]]:
    """How each check came out, and what the first run and the steady state took."""
    slots: dict[str, Any] = {}
    for item in ready:
        slots |= item.slots
    prepared, names = Prepared(**slots), [item.check.name for item in ready]
    measured = run_block(prepared, clock.monotonic)
    steady = recent_ns(known, prepared, names, clock.monotonic)
    outcomes = [CheckOutcome(item.check, measured.passed[NAMES.index(item.check.name)]) for item in ready]
    return outcomes, measured.block_ns, steady


def _answer(outcomes: Sequence[CheckOutcome], block_ns: int, steady: Mapping[str, int]) -> Result:
    data = report(outcomes, block_ns, steady)
    validation = data["validation"]
    if validation["allPassed"]:
        return Result(data=data, decision="pass")
    failed = [result["name"] for result in validation["failures"]]
    if not failed:
        unknown = [result["name"] for result in validation["results"] if result["status"] == "unknown"]
        # What is not known is not a pass: the floor leaves a warning as it is, so it reaches everybody.
        return Result(data=data, decision="warn", message=f"{', '.join(unknown)}: not everything is known")
    return Result(
        data=data,
        decision="block",
        code="INVARIANT_VIOLATION",
        message=f"INVARIANT_VIOLATION: {', '.join(failed)} did not hold",
        exit_code=1,
    )


_MARKS: Final = {"passed": "✓", "failed": "✗", "unknown": "?"}


def as_text(data: Any) -> str:
    """One line a check, then the verdict."""
    lines = []
    for result in data["validation"]["results"]:
        mark = _MARKS[result["status"]]
        lines.append(f"{mark} {result['invariantId']} {result['name']}: {result['message']}")
        if result["remediation"]:
            lines.append(f"    fix: {result['remediation']}")
    validation = data["validation"]
    unknown = f", {validation['unknown']} not known" if validation["unknown"] else ""
    target = "within" if data["withinPerformanceTarget"] else "over"
    slowest = max(result["steadyNs"] for result in validation["results"])
    lines.append(
        f"{validation['passed']}/{validation['checksRun']} hold{unknown}; first run {data['performanceNs']} ns in all, "
        f"steady state at most {slowest} ns a check, {target} the target of {TARGET_NS} ns"
    )
    return "\n".join(lines) + "\n"


_METRIC: Final = schemas.closed(
    {
        "name": schemas.text("Name of the metric.", 200),
        "value": {"type": "number", "minimum": -(10**15), "maximum": 10**15, "description": "Its value."},
    }
)
_PLACE: Final = {"file": schemas.said(), "line": schemas.COUNT, "job": schemas.maybe(schemas.said())}
_EVIDENCE: Final = schemas.closed(
    {
        "file": schemas.said(),
        "expected": schemas.said(64),
        "actual": schemas.maybe(schemas.said(64)),
        "bytes": schemas.maybe(schemas.COUNT),
        "filesChecked": schemas.COUNT,
        "violationsTotal": schemas.COUNT,
        "unknownTotal": schemas.COUNT,
        "violations": schemas.many(
            schemas.closed(_PLACE | {"scope": schemas.maybe(schemas.said()), "reason": schemas.said()})
        ),
        "unknown": schemas.many(schemas.closed(_PLACE)),
        "metric": schemas.said(),
        "current": schemas.NUMBER,
        "baseline": schemas.NUMBER,
        "threshold": schemas.NUMBER,
        "difference": schemas.NUMBER,
        "allowed": schemas.SIZE,
        "ageSeconds": schemas.NUMBER,
        "maxAgeSeconds": schemas.NUMBER,
        "singleUse": {"enum": ["not_spent", "first", "replayed", "store_unavailable"]},
        "previousFPR": schemas.RATE,
        "currentFPR": schemas.RATE,
        "decrease": schemas.NUMBER,
        "witnessEvents": schemas.COUNT,
        "minRequiredEvents": schemas.COUNT,
        "verification": {"enum": ["unverified", "verified", "store_unavailable"]},
    },
    required=[],
    description="What the check looked at; which fields depends on the check.",
)
_RESULT: Final = schemas.closed(
    {
        "invariantId": {"enum": [invariant.id for invariant in INVARIANTS]},
        "name": {"enum": list(NAMES)},
        "passed": schemas.FLAG,
        "status": {"enum": ["passed", "failed", "unknown"]},
        "message": schemas.said(),
        "evidence": _EVIDENCE,
        "latencyNs": schemas.COUNT | {"description": "Of the first run, the check's share."},
        "steadyNs": schemas.COUNT | {"description": "Of one run in the steady state."},
        "severity": schemas.SEVERITY,
        "remediation": schemas.maybe(schemas.said()),
    }
)

VALIDATE_L0: Final = Tool(
    name="validate_l0_invariants",
    title="Validate L0 invariants",
    id="governance.validate_l0_invariants",
    summary=(
        "Check up to five L0 invariants: schema hash, workflow permissions, metric drift, nonce freshness and single "
        "use, contraction of the false-positive rate."
    ),
    input_schema=schemas.closed(
        {
            "checks": {
                "type": "array",
                "minItems": 1,
                "maxItems": 5,
                "uniqueItems": True,
                "items": {"enum": list(NAMES)},
                "description": "Default: every check whose input is present.",
            },
            "schemaFile": schemas.path("Schema file to hash.") | {"x-reason": "invalid_path"},
            "expectedSchemaHash": {
                "type": "string",
                "minLength": 64,
                "maxLength": 64,
                "pattern": "^[0-9a-f]{64}$",
                "description": "Its SHA-256, 64 lowercase hex digits.",
            },
            "workflowFiles": schemas.paths("GitHub Actions workflow files."),
            "defaultPermissions": {
                "enum": ["read", "write"],
                "description": "A token's permissions where none are stated.",
            },
            "driftCheck": schemas.closed(
                {
                    "currentMetric": _METRIC,
                    "baselineMetric": _METRIC,
                    "threshold": {
                        "type": "number",
                        "minimum": 0,
                        "maximum": 10,
                        "default": 0.5,
                        "description": "Largest relative change.",
                    },
                },
                required=["currentMetric", "baselineMetric"],
                description="Passes if names match and abs(current - baseline) <= threshold * abs(baseline).",
            ),
            "nonceValidation": schemas.closed(
                {
                    "nonce": schemas.text("Spent by this call; never echoed or logged.", 512) | {"x-secret": True},
                    "timestamp": schemas.text("When issued, in RFC 3339.", 40, pattern=_RFC3339),
                    "maxAgeSeconds": {
                        "type": "number",
                        "minimum": 1,
                        "maximum": MAX_NONCE_AGE_S,
                        "default": 3600,
                        "description": "Age that is too old.",
                    },
                },
                required=["nonce", "timestamp"],
                description="A nonce is good once, and only while 0 <= age < maxAgeSeconds.",
            ),
            "contractionCheck": schemas.closed(
                {
                    "previousFPR": schemas.RATE | {"description": "The rate before."},
                    "currentFPR": schemas.RATE | {"description": "The rate now."},
                    "witnessEventCount": schemas.COUNT | {"description": "Events that explain a lower rate."},
                    "minRequiredEvents": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": 1_000_000,
                        "default": 10,
                        "description": "Events needed for that.",
                    },
                    "witnessEventIds": {
                        "type": "array",
                        "maxItems": MAX_WITNESSES,
                        "items": schemas.text("Id of a reviewed event.", 64),
                        "description": "Looked up in the store.",
                    },
                },
                required=["previousFPR", "currentFPR", "witnessEventCount"],
                description="A false-positive rate must not rise; a fall above 0.01 needs enough reviewed events.",
            ),
        },
        required=[],
    ),
    output_schema=schemas.closed(
        {
            "validation": schemas.closed(
                {
                    "allPassed": schemas.FLAG,
                    "checksRun": schemas.COUNT,
                    "passed": schemas.COUNT,
                    "failed": schemas.COUNT,
                    "unknown": schemas.COUNT
                    | {"description": "Checks that nothing speaks against, and that depend on something not known."},
                    "results": schemas.many(_RESULT, 5),
                    "failures": schemas.many(_RESULT, 5),
                    "notRun": schemas.many({"enum": list(NAMES)}, 5)
                    | {"description": "Checks that had no input, or were not named in checks."},
                }
            ),
            "performanceNs": schemas.COUNT | {"description": "The first run, all checks together."},
            "steadyNs": schemas.COUNT | {"description": "The steady state, all checks together."},
            "withinPerformanceTarget": schemas.FLAG | {"description": "Every check's steadyNs is under 100."},
            "latencyMethod": schemas.said(),
            "steadyMethod": schemas.said(),
        }
    ),
    effect="write",
    destructive=False,
    deadline_s=30,
    run=run,
    at_once=run_at_once,
    error_codes=("INVARIANT_VIOLATION",),
    decisions=("block", "warn", "pass"),
    text=as_text,
)
