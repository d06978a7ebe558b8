"""Preparation for the L0 block: everything that reads, parses, hashes or asks, done before (and, for nonces, after) it."""

from __future__ import annotations

import asyncio
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from toolgate.errors import StoreUnavailable, ToolError
from toolgate.packs.governance import shapes
from toolgate.packs.governance.counters import use_nonce
from toolgate.packs.governance.events import reviewed_among
from toolgate.packs.governance.l0 import NAMES, Check, Outcome, decimal_difference
from toolgate.packs.governance.repository import MAX_FILE_BYTES, Fault, parse
from toolgate.packs.governance.tables import FALSE_POSITIVES
from toolgate.packs.governance.workflow import Workflow

if TYPE_CHECKING:
    from toolgate.model.tool import Context
    from toolgate.packs.governance.repository import File

MAX_SCHEMA_BYTES: Final = 16 * 1024 * 1024
MAX_LISTED: Final = 100
"""Places listed in the evidence; the totals stand beside them."""

_INPUTS: Final = {
    "schema-hash": ("schemaFile", "expectedSchemaHash"),
    "permission-bits": ("workflowFiles",),
    "drift-magnitude": ("driftCheck",),
    "nonce-freshness": ("nonceValidation",),
    "contraction-witness": ("contractionCheck",),
}


class Ready(Struct, frozen=True):
    """One prepared check: its slots in the block, and what people get to see of it."""

    check: Check
    slots: dict[str, Any]


def selected(args: dict[str, Any]) -> list[str]:
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


async def _schema_hash(ctx: Context, args: dict[str, Any]) -> Ready:
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
    return Ready(Check("schema-hash", evidence, why), {"expected_hash": expected, "actual_hash": actual})


async def _permission_bits(ctx: Context, args: dict[str, Any]) -> Ready:
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
    return Ready(Check("permission-bits", evidence, why), {"permission_violations": len(violations)})


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


async def _drift(_ctx: Context, args: dict[str, Any]) -> Ready:
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
    return Ready(
        Check("drift-magnitude", evidence, why), {"names_match": same, "difference": difference, "allowed": limit}
    )


async def _nonce(ctx: Context, args: dict[str, Any]) -> Ready:
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
    return Ready(Check("nonce-freshness", evidence, why), {"age_s": age, "max_age_s": max_age})


async def spent(ctx: Context, args: dict[str, Any], fresh: Outcome) -> Outcome:
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


async def _contraction(ctx: Context, args: dict[str, Any]) -> Ready:
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
    return Ready(
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


PREPARE: Final = {
    "schema-hash": _schema_hash,
    "permission-bits": _permission_bits,
    "drift-magnitude": _drift,
    "nonce-freshness": _nonce,
    "contraction-witness": _contraction,
}
