"""Preparation for the L0 block: everything that reads, parses, hashes or asks, done before (and, for nonces, after) it."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from toolgate.errors import StoreUnavailable, ToolError
from toolgate.later import named
from toolgate.model.threads import in_thread
from toolgate.packs.governance.invariants.block import NAMES, Check, CheckOutcome, decimal_difference, small_drift
from toolgate.packs.governance.repository.answers import bad_path, invalid_input
from toolgate.packs.governance.stores.opened import false_positives

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolgate.model.tool import Context

MAX_SCHEMA_BYTES: Final = 16 * 1024 * 1024
_PERMISSION_BITS: Final = "toolgate.packs.governance.invariants.permission_bits:permission_bits"
"""Loaded by the first call that asks for it: it brings the whole analysis, and a start does not wait for that."""

_INPUTS: Final = {
    "schema-hash": ("schemaFile", "expectedSchemaHash"),
    "permission-bits": ("workflowFiles",),
    "drift-magnitude": ("driftCheck",),
    "nonce-freshness": ("nonceValidation",),
    "contraction-witness": ("contractionCheck",),
}
_NEEDED: Final = {name: frozenset(inputs) for name, inputs in _INPUTS.items()}
_PAIR: Final = _NEEDED["schema-hash"]
"""The only check with two inputs."""


class Ready(Struct, frozen=True):
    """One prepared check: its slots in the block, and what people get to see of it."""

    check: Check
    slots: dict[str, Any]


def selected(args: dict[str, Any]) -> list[str]:
    """The checks to run, in their order. Raises: ToolError INVALID_INPUT: nothing to check is not a pass (ADR-0007)."""
    named = args.get("checks")
    if named is None:
        given = args.keys()
        chosen = [name for name, inputs in _NEEDED.items() if inputs <= given]
        missing = _PAIR - given
        if len(missing) == 1:
            raise _missing("schema-hash", *missing)
        if not chosen:
            raise invalid_input(
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
    return invalid_input(f"/{key}", f"missing_{key}", f"The check {check} needs {key}.")


async def _schema_hash(ctx: Context, args: dict[str, Any]) -> Ready:
    path, expected = args["schemaFile"], args["expectedSchemaHash"]
    data = await _read(ctx, path, MAX_SCHEMA_BYTES)
    actual = None if isinstance(data, str) else await in_thread(lambda: sha256(data).hexdigest())
    evidence = {
        "file": path,
        "expected": expected,
        "actual": actual,
        "bytes": None if isinstance(data, str) else len(data),
    }
    why = f"{path} cannot be read: {data}." if isinstance(data, str) else f"{path} has another SHA-256 than expected."
    return Ready(Check("schema-hash", evidence, why), {"expected_hash": expected, "actual_hash": actual})


async def _permission_bits(ctx: Context, args: dict[str, Any]) -> Ready:
    permission_bits = await in_thread(named, _PERMISSION_BITS)
    ready: Ready = await permission_bits(ctx, args)
    return ready


def _drift(args: dict[str, Any]) -> Ready:
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
    if small_drift(same, difference, limit):
        why = ""
    elif same:
        why = f"{current['name']} moved by {difference:g}, allowed are {limit:g}."
    else:
        why = f"{current['name']} was compared with {baseline['name']}."
    return Ready(
        Check("drift-magnitude", evidence, why), {"names_match": same, "difference": difference, "allowed": limit}
    )


async def _nonce(ctx: Context, args: dict[str, Any]) -> Ready:
    given = args["nonceValidation"]
    try:
        issued = datetime.fromisoformat(given["timestamp"].upper()).timestamp()
    except (ValueError, OverflowError):
        raise invalid_input(
            "/nonceValidation/timestamp", "invalid_timestamp", "timestamp must be a real RFC 3339 time."
        ) from None
    max_age, age = given.get("maxAgeSeconds", 3600), ctx.clock.wall() - issued
    evidence = {"ageSeconds": round(age, 3), "maxAgeSeconds": max_age, "singleUse": "not_spent"}
    why = "The nonce is from the future." if age < 0 else f"The nonce is {age:.0f} s old; at {max_age:g} s it is stale."
    return Ready(Check("nonce-freshness", evidence, why), {"age_s": age, "max_age_s": max_age})


async def spent(ctx: Context, args: dict[str, Any], fresh: CheckOutcome) -> CheckOutcome:
    """Single use: one insert decides, after all else ran. A store that cannot say so does not say yes."""
    if not fresh.passed:
        return fresh
    nonce, now = args["nonceValidation"]["nonce"], int(ctx.clock.wall() * 1000)
    try:
        first = await false_positives(ctx.stores, lambda kept: kept.use_nonce(nonce, now))
        use, why = ("first", "") if first else ("replayed", "The nonce has been used before.")
    except StoreUnavailable:
        use, why = (
            "store_unavailable",
            "The store that remembers nonces does not answer, so single use cannot be shown.",
        )
    return CheckOutcome(replace(fresh.check, why_not=why), use == "first", fresh.check.evidence | {"singleUse": use})


async def _contraction(ctx: Context, args: dict[str, Any]) -> Ready:
    given = args["contractionCheck"]
    return _contracted(given, *await _witnesses(ctx, given))


def _contracted(given: dict[str, Any], witnesses: int, verification: str) -> Ready:
    decrease = decimal_difference(given["previousFPR"], given["currentFPR"])
    needed = given.get("minRequiredEvents", 10)
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
        return _stated_witnesses(given)
    try:
        found = await false_positives(ctx.stores, lambda kept: kept.reviewed_among(ids))
    except StoreUnavailable:
        return 0, "store_unavailable"
    return found, "verified"


def _stated_witnesses(given: dict[str, Any]) -> tuple[int, str]:
    return given["witnessEventCount"], "unverified"


async def _read(ctx: Context, path: str, max_bytes: int) -> bytes | str:
    """The bytes, or why not: an unreadable file fails its check, it does not stop the others."""
    try:
        return await in_thread(ctx.files.read_bytes, path, max_bytes=max_bytes)
    except ToolError as fault:
        if fault.code == "INVALID_PATH":
            raise bad_path(fault) from None
        return fault.code.lower()


async def _drift_among_others(_ctx: Context, args: dict[str, Any]) -> Ready:
    return _drift(args)


def at_once(args: dict[str, Any], names: Sequence[str]) -> list[Ready] | None:
    """What arithmetic alone prepares; None: one of these checks needs a file, a store or a nonce to be spent."""
    ready = []
    for name in names:
        if name == "drift-magnitude":
            ready.append(_drift(args))
        elif name == "contraction-witness" and "witnessEventIds" not in args["contractionCheck"]:
            ready.append(_contracted(args["contractionCheck"], *_stated_witnesses(args["contractionCheck"])))
        else:
            return None
    return ready


PREPARE: Final = {
    "schema-hash": _schema_hash,
    "permission-bits": _permission_bits,
    "drift-magnitude": _drift_among_others,
    "nonce-freshness": _nonce,
    "contraction-witness": _contraction,
}
