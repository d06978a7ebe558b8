"""The tool `query_fp_store`: how often are rules wrong? Consent first, then counted numbers, or none."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import StoreUnavailable, ToolError
from toolgate.model.clock import rfc3339
from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.governance.repository.answers import invalid_input
from toolgate.packs.governance.stores.consents import REQUIRED
from toolgate.packs.governance.stores.known import CountedRate
from toolgate.packs.governance.stores.opened import false_positives
from toolgate.packs.governance.stores.reviews import DAY_MS, weekly
from toolgate.packs.governance.stores.statistics import Counts, direction, recommendation, slope
from toolgate.packs.governance.tables import FALSE_POSITIVES
from toolgate.packs.governance.tools import schemas
from toolgate.packs.governance.tools.check_consent_requirements import ORG_PATTERN, consents_of, look_up

if TYPE_CHECKING:
    from toolgate.model.clock import Clock
    from toolgate.packs.governance.stores.known import GovernanceMemory, OrgConsents
    from toolgate.packs.governance.stores.reviews import FalsePositives

QUERIES: Final = ("fp_rate", "recent_patterns", "trend_analysis", "cross_rule_comparison")
SHOWN_FINGERPRINT: Final = 12
"""Hex digits of a finding in patterns: enough to find it in a report, not enough to be one."""


async def run(ctx: Context, args: dict[str, Any]) -> Result:
    _require_rules(args)
    consented = await consents_of(ctx, args.get("orgId"))
    until = _now_ms(ctx.clock)
    base = _allowed(args, consented, ctx.clock, until)
    try:
        if args["queryType"] == "fp_rate":
            rate = await _counted(ctx, args, consented.org_id)
            base, answer = _allowed(args, consented, ctx.clock, rate.first), _rate_of(args, rate.counts)
        else:
            asked, since = args | {"orgId": consented.org_id}, until - _days_of(args) * DAY_MS
            ask = _ASK[args["queryType"]]
            answer = await false_positives(ctx.stores, lambda kept: ask(kept, asked, since, until))
    except StoreUnavailable:
        # Reading statistics fails open (nothing depends on them), and says that it did.
        return Result(data=base | {"confidence": "unavailable"}, decision="warn", message="the store does not answer")
    return Result(data=base | answer, decision="pass")


async def _counted(ctx: Context, args: dict[str, Any], org_id: str) -> CountedRate:
    memory: GovernanceMemory = ctx.memory
    rule, days = args["ruleId"], _days_of(args)
    mark = ctx.stores.get(FALSE_POSITIVES).mark()

    def count(kept: FalsePositives) -> CountedRate:
        until = _now_ms(ctx.clock)  # now: several callers may have waited for this
        since = until - days * DAY_MS
        last = until if mark is None else kept.same_until(org_id, rule, since, until)
        return CountedRate(kept.counts(org_id, rule, since, until), until, last)

    rate = await memory.reading_rates.read((org_id, rule, days), partial(false_positives, ctx.stores), count)
    memory.rates.put(_place_of(args), rate, mark)
    return rate


def run_at_once(clock: Clock, memory: GovernanceMemory, args: dict[str, Any]) -> Result | None:
    """A rate that was counted before, of the same events, if nothing has changed since."""
    if args["queryType"] != "fp_rate" or "ruleId" not in args:
        return None
    rate = memory.rates.get(_place_of(args))
    consented = memory.consents.get(args.get("orgId")) if rate is not None else None
    if rate is None or consented is None:
        return None
    until = _now_ms(clock)
    base = _allowed(args, consented, clock, until)
    if not rate.first <= until <= rate.last:
        return None
    return Result(data=base | _rate_of(args, rate.counts), decision="pass")


def _require_rules(args: dict[str, Any]) -> None:
    needs = "ruleIds" if args["queryType"] == "cross_rule_comparison" else "ruleId"
    if needs not in args:
        raise invalid_input(f"/{needs}", f"missing_{needs}", f"queryType {args['queryType']} needs {needs}.")


def _allowed(args: dict[str, Any], consented: OrgConsents, clock: Clock, until: int) -> dict[str, Any]:
    """What every answer says about events until then. Raises: ToolError ACCESS_DENIED."""
    kind = args["queryType"]
    needed = REQUIRED["query_fp_store", kind]
    refused = [status for status in look_up(consented, needed, clock) if not status.granted]
    if refused:
        # CONSENT_REQUIRED is the floor's to strip from an experimental tool; this code survives and says why (ADR-0010).
        told = "; ".join(f"{status.resource}: {status.as_json()['reason']}" for status in refused)
        raise ToolError(
            "ACCESS_DENIED", f"no consent for {told}", data={"resources": [status.resource for status in refused]}
        )
    since = until - _days_of(args) * DAY_MS
    query = {"type": kind, "since": rfc3339(since / 1000), "until": rfc3339(until / 1000)}
    return {"query": query, "consent": list(needed)}


def _now_ms(clock: Clock) -> int:
    return int(clock.wall() * 1000)


def _days_of(args: dict[str, Any]) -> int:
    days: int = args.get("daysBack", 30)
    return days


def _place_of(args: dict[str, Any]) -> tuple[str | None, str, int]:
    """Where the counts of these arguments are remembered."""
    return args.get("orgId"), args["ruleId"], _days_of(args)


def _rate_of(args: dict[str, Any], counts: Counts) -> dict[str, Any]:
    rate = {"ruleId": args["ruleId"], **counts.as_json(), "recommendation": recommendation(counts)}
    return {"confidence": counts.confidence, "rate": rate}


def _recent_patterns(kept: FalsePositives, args: dict[str, Any], since: int, until: int) -> dict[str, Any]:
    found = kept.patterns(args["orgId"], args["ruleId"], since, args.get("limit", 100))
    listed = [
        {
            "pattern": pattern.fingerprint[:SHOWN_FINGERPRINT],
            "frequency": pattern.frequency,
            "firstSeen": rfc3339(pattern.first_seen / 1000),
            "lastSeen": rfc3339(pattern.last_seen / 1000),
            "durationDays": (pattern.last_seen - pattern.first_seen) / DAY_MS,
        }
        for pattern in found
    ]
    counted = kept.counts(args["orgId"], args["ruleId"], since, until)
    return {"confidence": counted.confidence, "patterns": listed}


def _trend(kept: FalsePositives, args: dict[str, Any], since: int, until: int) -> dict[str, Any]:
    weeks = weekly(kept, args["orgId"], args["ruleId"], since, until)
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


def _comparison(kept: FalsePositives, args: dict[str, Any], since: int, until: int) -> dict[str, Any]:
    threshold = args.get("threshold", 0.1)
    rows = []
    for rule in sorted(set(args["ruleIds"])):
        own = kept.counts(args["orgId"], rule, since, until)
        everybody = kept.across_organisations(rule, since)
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
    "recent_patterns": _recent_patterns,
    "trend_analysis": _trend,
    "cross_rule_comparison": _comparison,
}

_RULE: Final = r"^(MD|L0)-[0-9]{3}$"
_RATE_OR_NONE: Final = schemas.maybe(schemas.RATE)
_COUNTED: Final[dict[str, Any]] = {
    **dict.fromkeys(("total", "reviewed", "pending", "falsePositives", "truePositives"), schemas.COUNT),
    "fpr": _RATE_OR_NONE,
    "interval": schemas.closed({"level": schemas.RATE, "low": _RATE_OR_NONE, "high": _RATE_OR_NONE}),
    "confidence": {"enum": list(_CONFIDENCE)},
}

QUERY_FP: Final = Tool(
    name="query_fp_store",
    title="Query FP store",
    id="governance.query_fp_store",
    summary="Statistics of an organisation's reviewed findings and false positives (FP). Needs its consent.",
    input_schema=schemas.closed(
        {
            "queryType": {"enum": list(QUERIES), "description": "What to ask."},
            "orgId": schemas.text("Default: the settings' own.", 255, pattern=ORG_PATTERN),
            "ruleId": schemas.text("Such as MD-001; for all but cross_rule_comparison.", 16, pattern=_RULE),
            "ruleIds": {
                "type": "array",
                "minItems": 1,
                "maxItems": 50,
                "uniqueItems": True,
                "items": schemas.text("Id of a rule, such as MD-001.", 16, pattern=_RULE),
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
            "threshold": schemas.RATE | {"default": 0.1, "description": "Rate above which a rule needs calibration."},
        },
        required=["queryType"],
    ),
    output_schema=schemas.closed(
        {
            "query": schemas.closed(
                {"type": {"enum": list(QUERIES)}, "since": schemas.said(32), "until": schemas.said(32)}
            ),
            "consent": schemas.many(schemas.said(64), 16),
            "confidence": {"enum": list(_CONFIDENCE)},
            "rate": schemas.closed({"ruleId": schemas.said(16), **_COUNTED, "recommendation": schemas.said()}),
            "patterns": schemas.many(
                schemas.closed(
                    {
                        "pattern": schemas.said(SHOWN_FINGERPRINT),
                        "frequency": schemas.COUNT,
                        "firstSeen": schemas.said(32),
                        "lastSeen": schemas.said(32),
                        "durationDays": schemas.NUMBER,
                    }
                ),
                1000,
            ),
            "trend": schemas.closed(
                {
                    "ruleId": schemas.said(16),
                    "buckets": schemas.many(
                        schemas.closed(
                            {
                                "start": schemas.said(32),
                                "reviewed": schemas.COUNT,
                                "falsePositives": schemas.COUNT,
                                "fpr": _RATE_OR_NONE,
                            }
                        ),
                        60,
                    ),
                    "slopePerWeek": schemas.maybe(schemas.NUMBER),
                    "direction": {"enum": ["increasing", "decreasing", "stable", "insufficient_data"]},
                    "percentChange": schemas.maybe(schemas.NUMBER),
                }
            ),
            "comparison": schemas.closed(
                {
                    "rules": schemas.many(
                        schemas.closed(
                            {
                                "ruleId": schemas.said(16),
                                **_COUNTED,
                                "needsCalibration": schemas.FLAG,
                                "benchmark": schemas.closed(
                                    {
                                        "status": {"enum": [*_CONFIDENCE, "insufficient_k_anonymity"]},
                                        "fpr": _RATE_OR_NONE,
                                    }
                                ),
                            }
                        ),
                        50,
                    ),
                    "summary": schemas.closed(
                        {
                            "threshold": schemas.RATE,
                            "needingCalibration": schemas.COUNT,
                            "averageFPR": _RATE_OR_NONE,
                            "highest": schemas.maybe(schemas.said(16)),
                            "lowest": schemas.maybe(schemas.said(16)),
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
    at_once=run_at_once,
    error_codes=("ACCESS_DENIED",),
    decisions=("warn", "pass"),
)
