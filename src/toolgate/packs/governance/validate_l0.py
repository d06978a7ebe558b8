"""The tool `validate_l0_invariants`: prepare what was asked for, run the block, then spend the nonce."""

from __future__ import annotations

from typing import Any, Final

from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.governance import shapes
from toolgate.packs.governance.counters import MAX_NONCE_AGE_S
from toolgate.packs.governance.l0 import INVARIANTS, NAMES, Outcome, Prepared, report, run_block
from toolgate.packs.governance.prepare_l0 import PREPARE, selected, spent

MAX_WITNESSES: Final = 1_000
"""Event ids of one call: each is looked up, none is made up."""
_RFC3339: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
)


async def run(ctx: Context, args: dict[str, Any]) -> Result:
    ready = [await PREPARE[name](ctx, args) for name in selected(args)]
    prepared = Prepared(**{slot: value for one in ready for slot, value in one.slots.items()})
    measured = run_block(prepared, ctx.clock.monotonic)
    outcomes = [Outcome(one.check, measured.passed[one.check.name]) for one in ready]
    outcomes = [await spent(ctx, args, one) if one.check.name == "nonce-freshness" else one for one in outcomes]
    data = report(outcomes, measured.block_ns)
    failed = [one.check.name for one in outcomes if not one.passed]
    if not failed:
        return Result(data=data, decision="pass")
    return Result(
        data=data,
        decision="block",
        code="INVARIANT_VIOLATION",
        message=f"INVARIANT_VIOLATION: {', '.join(failed)} did not hold",
        exit_code=1,
    )


def as_text(data: Any) -> str:
    """One line a check, then the verdict."""
    lines = []
    for result in data["validation"]["results"]:
        mark = "✓" if result["passed"] else "✗"
        lines.append(f"{mark} {result['invariantId']} {result['name']}: {result['message']}")
        if result["remediation"]:
            lines.append(f"    fix: {result['remediation']}")
    validation = data["validation"]
    target = "within" if data["withinPerformanceTarget"] else "over"
    lines.append(
        f"{validation['passed']}/{validation['checksRun']} hold; {data['performanceNs']} ns in all, {target} 100 ns a check"
    )
    return "\n".join(lines) + "\n"


_METRIC: Final = shapes.closed(
    {
        "name": shapes.text("Name of the metric.", 200),
        "value": {"type": "number", "minimum": -1e15, "maximum": 1e15, "description": "Its value."},
    }
)
_PLACE: Final = {"file": shapes.said(), "line": shapes.COUNT, "job": shapes.maybe(shapes.said())}
_EVIDENCE: Final = shapes.closed(
    {
        "file": shapes.said(),
        "expected": shapes.said(64),
        "actual": shapes.maybe(shapes.said(64)),
        "bytes": shapes.maybe(shapes.COUNT),
        "filesChecked": shapes.COUNT,
        "violationsTotal": shapes.COUNT,
        "unknownTotal": shapes.COUNT,
        "violations": shapes.many(
            shapes.closed(_PLACE | {"scope": shapes.maybe(shapes.said()), "reason": shapes.said()})
        ),
        "unknown": shapes.many(shapes.closed(_PLACE)),
        "metric": shapes.said(),
        "current": shapes.NUMBER,
        "baseline": shapes.NUMBER,
        "threshold": shapes.NUMBER,
        "difference": shapes.NUMBER,
        "allowed": shapes.NUMBER,
        "ageSeconds": shapes.NUMBER,
        "maxAgeSeconds": shapes.NUMBER,
        "singleUse": {"enum": ["not_spent", "first", "replayed", "store_unavailable"]},
        "previousFPR": shapes.RATE,
        "currentFPR": shapes.RATE,
        "decrease": shapes.NUMBER,
        "witnessEvents": shapes.COUNT,
        "minRequiredEvents": shapes.COUNT,
        "verification": {"enum": ["unverified", "verified", "store_unavailable"]},
    },
    required=[],
    description="What the check looked at; which fields depends on the check.",
)
_RESULT: Final = shapes.closed(
    {
        "invariantId": {"enum": [one.id for one in INVARIANTS]},
        "name": {"enum": list(NAMES)},
        "passed": shapes.FLAG,
        "message": shapes.said(),
        "evidence": _EVIDENCE,
        "latencyNs": shapes.COUNT,
        "severity": shapes.SEVERITY,
        "remediation": shapes.maybe(shapes.said()),
    }
)

VALIDATE_L0: Final = Tool(
    name="validate_l0_invariants",
    id="governance.validate_l0_invariants",
    summary=(
        "Check up to five L0 foundation invariants: schema file hash, workflow token permissions, metric drift, "
        "nonce freshness and single use, false-positive-rate contraction. Runs every check whose input is given. "
        "Target under 100 ns a check, measured."
    ),
    input_schema=shapes.closed(
        {
            "checks": {
                "type": "array",
                "minItems": 1,
                "maxItems": 5,
                "uniqueItems": True,
                "items": {"enum": list(NAMES)},
                "description": "Checks to run, each with its input; omit to run every check whose input is present.",
            },
            "schemaFile": shapes.path("Schema file whose hash is checked.") | {"x-reason": "invalid_path"},
            "expectedSchemaHash": {
                "type": "string",
                "minLength": 64,
                "maxLength": 64,
                "pattern": "^[0-9a-f]{64}$",
                "description": "SHA-256 of the file's bytes: 64 lower-case hex digits.",
            },
            "workflowFiles": shapes.paths("GitHub Actions workflow files."),
            "driftCheck": shapes.closed(
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
                description="Passes when abs(current - baseline) <= threshold * abs(baseline) and the names match.",
            ),
            "nonceValidation": shapes.closed(
                {
                    "nonce": shapes.text("The nonce; spent by this call, never echoed or logged.", 512)
                    | {"x-secret": True},
                    "timestamp": shapes.text("When it was issued: RFC 3339, any offset.", 40, pattern=_RFC3339),
                    "maxAgeSeconds": {
                        "type": "number",
                        "minimum": 1,
                        "maximum": MAX_NONCE_AGE_S,
                        "default": 3600,
                        "description": "Age at which it is stale.",
                    },
                },
                required=["nonce", "timestamp"],
                description="A nonce is good once, and only while 0 <= age < maxAgeSeconds.",
            ),
            "contractionCheck": shapes.closed(
                {
                    "previousFPR": shapes.RATE | {"description": "False-positive rate before."},
                    "currentFPR": shapes.RATE | {"description": "False-positive rate now."},
                    "witnessEventCount": shapes.COUNT | {"description": "Reviewed events that explain a lower rate."},
                    "minRequiredEvents": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": 1_000_000,
                        "default": 10,
                        "description": "Witnesses needed when the rate falls by more than 0.01.",
                    },
                    "witnessEventIds": {
                        "type": "array",
                        "maxItems": MAX_WITNESSES,
                        "items": shapes.text("Id of a reviewed event.", 64),
                        "description": "Looked up in the store; without them the evidence says unverified.",
                    },
                },
                required=["previousFPR", "currentFPR", "witnessEventCount"],
                description="A rate may fall by more than 0.01 only with enough reviewed events; it must not rise.",
            ),
        },
        required=[],
    ),
    output_schema=shapes.closed(
        {
            "validation": shapes.closed(
                {
                    "allPassed": shapes.FLAG,
                    "checksRun": shapes.COUNT,
                    "passed": shapes.COUNT,
                    "failed": shapes.COUNT,
                    "results": shapes.many(_RESULT, 5),
                    "failures": shapes.many(_RESULT, 5),
                }
            ),
            "performanceNs": shapes.COUNT,
            "withinPerformanceTarget": shapes.FLAG,
            "latencyMethod": shapes.said(),
        }
    ),
    effect="write",
    deadline_s=30,
    run=run,
    error_codes=("INVARIANT_VIOLATION",),
    decisions=("block", "pass"),
    text=as_text,
)
