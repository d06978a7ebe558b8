"""The tool `validate_l0_invariants`: prepare what was asked for, run the block, then spend the nonce."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import StoreUnavailable, ToolError
from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.governance import shapes
from toolgate.packs.governance.counters import MAX_NONCE_AGE_S, use_nonce
from toolgate.packs.governance.events import reviewed_among
from toolgate.packs.governance.l0 import (
    INVARIANTS,
    NAMES,
    Check,
    Outcome,
    Prepared,
    decimal_difference,
    report,
    run_block,
)
from toolgate.packs.governance.repository import MAX_FILE_BYTES, Fault, parse
from toolgate.packs.governance.tables import FALSE_POSITIVES
from toolgate.packs.governance.workflow import Workflow

if TYPE_CHECKING:
    from toolgate.packs.governance.repository import File

MAX_SCHEMA_BYTES: Final = 16 * 1024 * 1024
MAX_LISTED: Final = 100
"""Places listed in the evidence; the totals stand beside them."""
MAX_WITNESSES: Final = 1_000
"""Event ids of one call: each is looked up, none is made up."""

_INPUTS: Final = {
    "schema-hash": ("schemaFile", "expectedSchemaHash"),
    "permission-bits": ("workflowFiles",),
    "drift-magnitude": ("driftCheck",),
    "nonce-freshness": ("nonceValidation",),
    "contraction-witness": ("contractionCheck",),
}
_RFC3339: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
)


@dataclass(frozen=True, slots=True)
class _Ready:
    """One prepared check: its slots in the block, and what people get to see of it."""

    check: Check
    slots: dict[str, Any]


async def run(ctx: Context, args: dict[str, Any]) -> Result:
    ready = [await _PREPARE[name](ctx, args) for name in _selected(args)]
    prepared = Prepared(**{slot: value for one in ready for slot, value in one.slots.items()})
    measured = run_block(prepared, ctx.clock.monotonic)
    outcomes = [Outcome(one.check, measured.passed[one.check.name]) for one in ready]
    outcomes = [await _spent(ctx, args, one) if one.check.name == "nonce-freshness" else one for one in outcomes]
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


def _selected(args: dict[str, Any]) -> list[str]:
    """The checks to run, in their order. Raises: ToolError INVALID_INPUT: nothing to check is not a pass (decision 26)."""
    named = args.get("checks")
    if named is None:
        chosen = [name for name, inputs in _INPUTS.items() if all(key in args for key in inputs)]
        half = [key for name, inputs in _INPUTS.items() if name not in chosen for key in inputs if key in args]
        if half:
            partner = next(key for inputs in _INPUTS.values() if half[0] in inputs for key in inputs if key not in args)
            raise _missing("schema-hash", partner)
        if not chosen:
            raise shapes.invalid_input(
                "", "missing_checks", f"There is nothing to check: give at least one of {', '.join(_first_inputs())}."
            )
        return chosen
    for name in named:
        for key in _INPUTS[name]:
            if key not in args:
                raise _missing(name, key)
    return [name for name in NAMES if name in named]


def _first_inputs() -> list[str]:
    return [inputs[0] for inputs in _INPUTS.values()]


def _missing(check: str, key: str) -> ToolError:
    return shapes.invalid_input(f"/{key}", f"missing_{key}", f"The check {check} needs {key}.")


async def _schema_hash(ctx: Context, args: dict[str, Any]) -> _Ready:
    path, expected = args["schemaFile"], args["expectedSchemaHash"]
    data = await _read(ctx, path, MAX_SCHEMA_BYTES)
    actual = None if isinstance(data, str) else await asyncio.to_thread(lambda: sha256(data).hexdigest())
    evidence = {
        "file": path,
        "expected": expected,
        "actual": actual,
        "bytes": None if isinstance(data, str) else len(data),
    }
    why = f"{path} cannot be read: {data}." if isinstance(data, str) else f"{path} has another SHA-256 than expected."
    return _Ready(Check("schema-hash", evidence, why), {"expected_hash": expected, "actual_hash": actual})


async def _permission_bits(ctx: Context, args: dict[str, Any]) -> _Ready:
    paths, allowed = sorted(set(args["workflowFiles"])), frozenset(ctx.settings.get("write_scopes_allowed", ()))
    contents = {path: await _read(ctx, path, MAX_FILE_BYTES) for path in paths}
    readable = [
        (f".github/workflows/{i}.yml", data) for i, data in enumerate(contents.values()) if isinstance(data, bytes)
    ]
    parsed = iter(await ctx.compute(parse, readable)) if readable else iter(())
    violations: list[dict[str, Any]] = []
    unknown: list[dict[str, Any]] = []
    for path, data in contents.items():
        if isinstance(data, str):
            violations.append(
                {"file": path, "line": 1, "job": None, "scope": None, "reason": f"cannot be read: {data}"}
            )
        else:
            _judge(path, next(parsed), allowed, violations, unknown)
    evidence = {
        "filesChecked": len(paths),
        "violations": violations[:MAX_LISTED],
        "unknown": unknown[:MAX_LISTED],
        "violationsTotal": len(violations),
        "unknownTotal": len(unknown),
    }
    first = violations[0] if violations else None
    why = f"{first['file']}:{first['line']}: {first['reason']} ({len(violations)} in all)." if first else ""
    return _Ready(Check("permission-bits", evidence, why), {"permission_violations": len(violations)})


def _judge(
    path: str, file: File, allowed: frozenset[str], violations: list[dict[str, Any]], unknown: list[dict[str, Any]]
) -> None:
    """Effective permissions of each job against the allow-list; a file that says nothing readable is a violation too."""
    if isinstance(file.parsed, Fault):
        violations.append(
            {"file": path, "line": file.parsed.line, "job": None, "scope": None, "reason": file.parsed.text}
        )
    if not isinstance(file.parsed, Workflow):
        return
    for job in file.parsed.jobs:
        permissions = file.parsed.effective(job)
        if not permissions.stated:
            unknown.append({"file": path, "line": job.line, "job": job.id})
        for grant in permissions.writes():
            if grant.scope not in allowed:
                what = "write-all" if grant.scope == "*" else f"{grant.scope}: write"
                violations.append(
                    {
                        "file": path,
                        "line": grant.line,
                        "job": job.id,
                        "scope": grant.scope,
                        "reason": f"job {job.id} has {what}",
                    }
                )


async def _drift(_ctx: Context, args: dict[str, Any]) -> _Ready:
    given = args["driftCheck"]
    current, baseline, threshold = given["currentMetric"], given["baselineMetric"], given.get("threshold", 0.5)
    difference = abs(current["value"] - baseline["value"])
    limit = threshold * abs(baseline["value"])
    same = current["name"] == baseline["name"]
    evidence = {
        "metric": current["name"],
        "current": current["value"],
        "baseline": baseline["value"],
        "threshold": threshold,
        "difference": difference,
        "allowed": limit,
    }
    why = (
        f"{current['name']} moved by {difference:g}, allowed are {limit:g}."
        if same
        else f"{current['name']} was compared with {baseline['name']}."
    )
    return _Ready(
        Check("drift-magnitude", evidence, why), {"names_match": same, "difference": difference, "allowed": limit}
    )


async def _nonce(ctx: Context, args: dict[str, Any]) -> _Ready:
    given = args["nonceValidation"]
    try:
        issued = datetime.fromisoformat(given["timestamp"].upper()).timestamp()
    except (ValueError, OverflowError):
        raise shapes.invalid_input(
            "/nonceValidation/timestamp", "invalid_timestamp", "timestamp must be a real RFC 3339 time."
        ) from None
    max_age, age = given.get("maxAgeSeconds", 3600), ctx.clock.wall() - issued
    evidence = {"ageSeconds": round(age, 3), "maxAgeSeconds": max_age, "singleUse": "not_spent"}
    why = "The nonce is from the future." if age < 0 else f"The nonce is {age:.0f} s old; at {max_age:g} s it is stale."
    return _Ready(Check("nonce-freshness", evidence, why), {"age_s": age, "max_age_s": max_age})


async def _spent(ctx: Context, args: dict[str, Any], fresh: Outcome) -> Outcome:
    """Single use: one insert decides, after all else ran. A store that cannot say so does not say yes."""
    if not fresh.passed:
        return fresh
    nonce, now = args["nonceValidation"]["nonce"], int(ctx.clock.wall() * 1000)
    try:
        first = await ctx.stores.get(FALSE_POSITIVES).run(lambda connection: use_nonce(connection, nonce, now))
        use, why = ("first", "") if first else ("replayed", "The nonce has been used before.")
    except StoreUnavailable:
        use, why = (
            "store_unavailable",
            "The store that remembers nonces does not answer, so single use cannot be shown.",
        )
    return Outcome(replace(fresh.check, why_not=why), use == "first", fresh.check.evidence | {"singleUse": use})


async def _contraction(ctx: Context, args: dict[str, Any]) -> _Ready:
    given = args["contractionCheck"]
    decrease = decimal_difference(given["previousFPR"], given["currentFPR"])
    needed = given.get("minRequiredEvents", 10)
    witnesses, verification = await _witnesses(ctx, given)
    evidence = {
        "previousFPR": given["previousFPR"],
        "currentFPR": given["currentFPR"],
        "decrease": decrease,
        "witnessEvents": witnesses,
        "minRequiredEvents": needed,
        "verification": verification,
    }
    why = (
        "The false-positive rate rose."
        if decrease < 0
        else f"The rate fell by {decrease:g} with {witnesses} witnesses; {needed} are needed."
    )
    return _Ready(
        Check("contraction-witness", evidence, why),
        {"decrease": decrease, "witnesses": witnesses, "min_witnesses": needed},
    )


async def _witnesses(ctx: Context, given: dict[str, Any]) -> tuple[int, str]:
    """Ids are looked up and only reviewed events count; a bare number is taken, and called unverified."""
    ids = given.get("witnessEventIds")
    if ids is None:
        return given["witnessEventCount"], "unverified"
    try:
        found = await ctx.stores.get(FALSE_POSITIVES).run(lambda connection: reviewed_among(connection, ids))
    except StoreUnavailable:
        return 0, "store_unavailable"
    return found, "verified"


async def _read(ctx: Context, path: str, max_bytes: int) -> bytes | str:
    """The bytes, or why not: an unreadable file fails its check, it does not stop the others."""
    try:
        return await asyncio.to_thread(ctx.files.read_bytes, path, max_bytes=max_bytes)
    except ToolError as fault:
        if fault.code == "INVALID_PATH":
            raise shapes.bad_path(fault) from None
        return fault.code.lower()


_PREPARE: Final = {
    "schema-hash": _schema_hash,
    "permission-bits": _permission_bits,
    "drift-magnitude": _drift,
    "nonce-freshness": _nonce,
    "contraction-witness": _contraction,
}


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
