"""The tool `query_fp_store`: how often are rules wrong? Consent first, then counted numbers, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import StoreUnavailable, ToolError
from toolgate.model.clock import rfc3339
from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.governance import events, shapes
from toolgate.packs.governance.check_consent import ORG_PATTERN, look_up
from toolgate.packs.governance.consent import REQUIRED
from toolgate.packs.governance.events import DAY_MS
from toolgate.packs.governance.statistics import Counts, direction, recommendation, slope
from toolgate.packs.governance.tables import FALSE_POSITIVES

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

QUERIES: Final = ("fp_rate", "recent_patterns", "trend_analysis", "cross_rule_comparison")
SHOWN_FINGERPRINT: Final = 12
"""Hex digits of a finding in patterns: enough to find it in a report, not enough to be one."""


async def run(ctx: Context, args: dict[str, Any]) -> Result:
    kind = args["queryType"]
    needs = "ruleIds" if kind == "cross_rule_comparison" else "ruleId"
    if needs not in args:
        raise shapes.invalid_input(f"/{needs}", f"missing_{needs}", f"queryType {kind} needs {needs}.")
    needed = REQUIRED["query_fp_store", kind]
    refused = [one for one in await look_up(ctx, args["orgId"], list(needed)) if not one.granted]
    if refused:
        # CONSENT_REQUIRED is the floor's to strip from an experimental tool; this code survives and says why (decision 39).
        told = "; ".join(f"{one.resource}: {one.as_json()['reason']}" for one in refused)
        raise ToolError(
            "ACCESS_DENIED", f"no consent for {told}", data={"resources": [one.resource for one in refused]}
        )
    until = int(ctx.clock.wall() * 1000)
    since = until - args.get("daysBack", 30) * DAY_MS
    base = {
        "query": {"type": kind, "since": rfc3339(since / 1000), "until": rfc3339(until / 1000)},
        "consent": list(needed),
    }
    try:
        answer = await ctx.stores.get(FALSE_POSITIVES).run(
            lambda connection: _ASK[kind](connection, args, since, until)
        )
    except StoreUnavailable:
        # Reading statistics fails open (nothing depends on them), and says that it did.
        return Result(data=base | {"confidence": "unavailable"}, decision="warn", message="the store does not answer")
    return Result(data=base | answer, decision="pass")


def _fp_rate(connection: Connection, args: dict[str, Any], since: int, until: int) -> dict[str, Any]:
    counted = events.counts(connection, args["orgId"], args["ruleId"], since, until)
    rate = {"ruleId": args["ruleId"], **counted.as_json(), "recommendation": recommendation(counted)}
    return {"confidence": counted.confidence, "rate": rate}


def _recent_patterns(connection: Connection, args: dict[str, Any], since: int, until: int) -> dict[str, Any]:
    found = events.patterns(connection, args["orgId"], args["ruleId"], since, args.get("limit", 100))
    listed = [
        {
            "pattern": one["fingerprint"][:SHOWN_FINGERPRINT],
            "frequency": one["frequency"],
            "firstSeen": rfc3339(one["first_seen"] / 1000),
            "lastSeen": rfc3339(one["last_seen"] / 1000),
            "durationDays": (one["last_seen"] - one["first_seen"]) / DAY_MS,
        }
        for one in found
    ]
    counted = events.counts(connection, args["orgId"], args["ruleId"], since, until)
    return {"confidence": counted.confidence, "patterns": listed}


def _trend(connection: Connection, args: dict[str, Any], since: int, until: int) -> dict[str, Any]:
    weeks = events.weekly(connection, args["orgId"], args["ruleId"], since, until)
    whole = Counts(
        *(
            sum(getattr(counted, name) for _, counted in weeks)
            for name in ("total", "false_positives", "true_positives")
        )
    )
    rates = [counted.false_positives / counted.reviewed if counted.reviewed else None for _, counted in weeks]
    change = slope(rates) if whole.enough else None
    known = [rate for rate in rates if rate is not None]
    buckets = [
        {
            "start": rfc3339(start / 1000),
            "reviewed": counted.reviewed,
            "falsePositives": counted.false_positives,
            "fpr": rate,
        }
        for (start, counted), rate in zip(weeks, rates, strict=True)
    ]
    percent = 100 * (known[-1] - known[0]) / known[0] if change is not None and known[0] else None
    trend = {
        "ruleId": args["ruleId"],
        "buckets": buckets,
        "slopePerWeek": change,
        "direction": direction(change),
        "percentChange": percent,
    }
    return {"confidence": whole.confidence, "trend": trend}


def _comparison(connection: Connection, args: dict[str, Any], since: int, until: int) -> dict[str, Any]:
    threshold = args.get("threshold", 0.1)
    rows = []
    for rule in sorted(set(args["ruleIds"])):
        own = events.counts(connection, args["orgId"], rule, since, until)
        everybody = events.across_organisations(connection, rule, since)
        benchmark = (
            {"status": "insufficient_k_anonymity", "fpr": None}
            if everybody is None
            else {"status": everybody.confidence, "fpr": everybody.rate}
        )
        above = own.rate is not None and own.rate > threshold
        rows.append({"ruleId": rule, **own.as_json(), "needsCalibration": above, "benchmark": benchmark})
    rows.sort(key=lambda row: (-(row["fpr"] if row["fpr"] is not None else -1), row["ruleId"]))
    rated = [row for row in rows if row["fpr"] is not None]
    summary = {
        "threshold": threshold,
        "needingCalibration": sum(row["needsCalibration"] for row in rows),
        "averageFPR": sum(row["fpr"] for row in rated) / len(rated) if rated else None,
        "highest": rated[0]["ruleId"] if rated else None,
        "lowest": rated[-1]["ruleId"] if rated else None,
    }
    worst = min((row["confidence"] for row in rows), key=_CONFIDENCE.index)
    return {"confidence": worst, "comparison": {"rules": rows, "summary": summary}}


_CONFIDENCE: Final = ("unavailable", "insufficient_data", "low", "medium", "high")
_ASK: Final = {
    "fp_rate": _fp_rate,
    "recent_patterns": _recent_patterns,
    "trend_analysis": _trend,
    "cross_rule_comparison": _comparison,
}

_RULE: Final = r"^(MD|L0)-[0-9]{3}$"
_RATE_OR_NONE: Final = shapes.maybe(shapes.RATE)
_COUNTED: Final[dict[str, Any]] = {
    **dict.fromkeys(("total", "reviewed", "pending", "falsePositives", "truePositives"), shapes.COUNT),
    "fpr": _RATE_OR_NONE,
    "interval": shapes.closed({"level": shapes.RATE, "low": _RATE_OR_NONE, "high": _RATE_OR_NONE}),
    "confidence": {"enum": list(_CONFIDENCE)},
}

QUERY_FP: Final = Tool(
    name="query_fp_store",
    id="governance.query_fp_store",
    summary=(
        "Statistics of reviewed findings for one organisation: false-positive rate with a 95 % interval, recent "
        "patterns, weekly trend, comparison of rules. Needs the organisation's consent. Advice only."
    ),
    input_schema=shapes.closed(
        {
            "queryType": {"enum": list(QUERIES), "description": "What to ask."},
            "orgId": shapes.text("The organisation whose events count.", 255, pattern=ORG_PATTERN),
            "ruleId": shapes.text("For all but cross_rule_comparison.", 16, pattern=_RULE),
            "ruleIds": {
                "type": "array",
                "minItems": 1,
                "maxItems": 50,
                "uniqueItems": True,
                "items": shapes.text("Id of a rule.", 16, pattern=_RULE),
                "description": "For cross_rule_comparison.",
            },
            "daysBack": {
                "type": "integer",
                "minimum": 1,
                "maximum": 365,
                "default": 30,
                "description": "How far back to look.",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": 1000,
                "default": 100,
                "description": "Patterns at most.",
            },
            "threshold": shapes.RATE | {"default": 0.1, "description": "Rate above which a rule needs calibration."},
        },
        required=["queryType", "orgId"],
    ),
    output_schema=shapes.closed(
        {
            "query": shapes.closed(
                {"type": {"enum": list(QUERIES)}, "since": shapes.said(32), "until": shapes.said(32)}
            ),
            "consent": shapes.many(shapes.said(64), 16),
            "confidence": {"enum": list(_CONFIDENCE)},
            "rate": shapes.closed({"ruleId": shapes.said(16), **_COUNTED, "recommendation": shapes.said()}),
            "patterns": shapes.many(
                shapes.closed(
                    {
                        "pattern": shapes.said(SHOWN_FINGERPRINT),
                        "frequency": shapes.COUNT,
                        "firstSeen": shapes.said(32),
                        "lastSeen": shapes.said(32),
                        "durationDays": shapes.NUMBER,
                    }
                ),
                1000,
            ),
            "trend": shapes.closed(
                {
                    "ruleId": shapes.said(16),
                    "buckets": shapes.many(
                        shapes.closed(
                            {
                                "start": shapes.said(32),
                                "reviewed": shapes.COUNT,
                                "falsePositives": shapes.COUNT,
                                "fpr": _RATE_OR_NONE,
                            }
                        ),
                        60,
                    ),
                    "slopePerWeek": shapes.maybe(shapes.NUMBER),
                    "direction": {"enum": ["increasing", "decreasing", "stable", "insufficient_data"]},
                    "percentChange": shapes.maybe(shapes.NUMBER),
                }
            ),
            "comparison": shapes.closed(
                {
                    "rules": shapes.many(
                        shapes.closed(
                            {
                                "ruleId": shapes.said(16),
                                **_COUNTED,
                                "needsCalibration": shapes.FLAG,
                                "benchmark": shapes.closed(
                                    {
                                        "status": {"enum": [*_CONFIDENCE, "insufficient_k_anonymity"]},
                                        "fpr": _RATE_OR_NONE,
                                    }
                                ),
                            }
                        ),
                        50,
                    ),
                    "summary": shapes.closed(
                        {
                            "threshold": shapes.RATE,
                            "needingCalibration": shapes.COUNT,
                            "averageFPR": _RATE_OR_NONE,
                            "highest": shapes.maybe(shapes.said(16)),
                            "lowest": shapes.maybe(shapes.said(16)),
                        }
                    ),
                }
            ),
        },
        required=["query", "consent", "confidence"],
    ),
    effect="read",
    deadline_s=10,
    run=run,
    error_codes=("ACCESS_DENIED",),
    decisions=("warn", "pass"),
)
