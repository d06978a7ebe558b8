"""The tool `check_consent_requirements`: may this organisation's data be used for this? No, unless a record says yes."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from toolgate.errors import StoreUnavailable
from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.governance import shapes
from toolgate.packs.governance.consent import POLICY_VERSION, REQUIRED, RESOURCES, Status, statuses
from toolgate.packs.governance.tables import CONSENT

STATES: Final = ("granted", "expired", "revoked", "outdated", "not_requested", "unknown_resource", "unavailable")
ORG_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}$"


async def run(ctx: Context, args: dict[str, Any]) -> Result:
    check = {"validate": _validate, "summary": _summary, "required_for_operation": _required}[args["checkType"]]
    return await check(ctx, args)


async def look_up(ctx: Context, org_id: str, resources: list[str]) -> list[Status]:
    """Fails closed: a store that does not answer has granted nothing."""
    now = int(ctx.clock.wall() * 1000)
    try:
        return await ctx.stores.get(CONSENT).run(lambda connection: statuses(connection, org_id, resources, now))
    except StoreUnavailable:
        return [Status(resource, "unavailable") for resource in resources]


async def _validate(ctx: Context, args: dict[str, Any]) -> Result:
    if "resources" not in args:
        raise shapes.invalid_input("/resources", "missing_resources", "checkType validate needs resources.")
    found = await look_up(ctx, args["orgId"], args["resources"])
    refused = [one for one in found if not one.granted]
    data = _answer(args, found) | {"allValid": not refused}
    return Result(data=data, decision="pass") if not refused else _consent_required(data, refused, decision="warn")


async def _summary(ctx: Context, args: dict[str, Any]) -> Result:
    found = await look_up(ctx, args["orgId"], list(RESOURCES))
    counts = Counter(one.state for one in found)
    statistics = {
        "totalResources": len(found),
        "byState": {state: counts[state] for state in STATES},
        "coveragePercent": round(100 * counts["granted"] / len(found)),
    }
    return Result(
        data=_answer(args, found) | {"allValid": counts["granted"] == len(found), "statistics": statistics},
        decision="pass",
    )


async def _required(ctx: Context, args: dict[str, Any]) -> Result:
    for key in ("tool", "operation"):
        if key not in args:
            raise shapes.invalid_input(f"/{key}", f"missing_{key}", f"checkType required_for_operation needs {key}.")
    needed = REQUIRED.get((args["tool"], args["operation"]))
    operation: dict[str, Any] = {"tool": args["tool"], "name": args["operation"], "known": needed is not None}
    if needed is None:
        data = _answer(args, []) | {"allValid": False, "operation": operation | {"requires": [], "canProceed": False}}
        message = "CONSENT_REQUIRED: the policy knows no such operation, so nothing allows it"
        return Result(data=data, decision="block", code="CONSENT_REQUIRED", message=message, exit_code=1)
    found = await look_up(ctx, args["orgId"], list(needed))
    refused = [one for one in found if not one.granted]
    data = _answer(args, found) | {
        "allValid": not refused,
        "operation": operation | {"requires": list(needed), "canProceed": not refused},
    }
    return Result(data=data, decision="pass") if not refused else _consent_required(data, refused, decision="block")


def _consent_required(data: dict[str, Any], refused: list[Status], *, decision: Any) -> Result:
    told = "; ".join(f"{one.resource}: {one.as_json()['reason']}" for one in refused[:5])
    return Result(
        data=data, decision=decision, code="CONSENT_REQUIRED", message=f"CONSENT_REQUIRED: {told}", exit_code=1
    )


def _answer(args: dict[str, Any], found: list[Status]) -> dict[str, Any]:
    data: dict[str, Any] = {
        "checkType": args["checkType"],
        "policyVersion": POLICY_VERSION,
        "resources": [one.as_json() for one in found],
    }
    if args.get("includePolicy", False):
        data["policy"] = [
            {"resource": one.name, "risk": one.risk, "retentionDays": one.retention_days, "about": one.about}
            for one in RESOURCES.values()
        ]
    return data


def as_text(data: Any) -> str:
    lines = [f"{'✓' if one['valid'] else '✗'} {one['resource']}: {one['reason']}" for one in data["resources"]]
    operation = data.get("operation")
    if operation:
        verb = "may proceed" if operation["canProceed"] else "may not proceed"
        lines.append(f"{operation['tool']}.{operation['name']} {verb}")
    return "\n".join(lines or ["nothing granted"]) + "\n"


_RESOURCE_NAME: Final = shapes.text(
    "Name of a resource; one the policy does not know is never granted.", 64, pattern="^[a-z][a-z0-9_]*$"
)

CHECK_CONSENT: Final = Tool(
    name="check_consent_requirements",
    id="governance.check_consent_requirements",
    summary=(
        "Ask what an organisation has consented to: validate named resources, summarise all, or ask whether an "
        "operation of a tool may proceed. Default deny: unknown, expired, revoked or outdated is not granted."
    ),
    input_schema=shapes.closed(
        {
            "orgId": shapes.text("The organisation whose consent counts.", 255, pattern=ORG_PATTERN),
            "checkType": {"enum": ["validate", "summary", "required_for_operation"], "description": "What to ask."},
            "resources": {
                "type": "array",
                "minItems": 1,
                "maxItems": 50,
                "uniqueItems": True,
                "items": _RESOURCE_NAME,
                "description": "For validate.",
            },
            "tool": shapes.text("For required_for_operation.", 100),
            "operation": shapes.text("For required_for_operation.", 100),
            "includePolicy": {
                "type": "boolean",
                "default": False,
                "description": "Add what the policy says about each resource.",
            },
        },
        required=["orgId", "checkType"],
    ),
    output_schema=shapes.closed(
        {
            "checkType": {"enum": ["validate", "summary", "required_for_operation"]},
            "policyVersion": shapes.said(16),
            "allValid": shapes.FLAG,
            "resources": shapes.many(
                shapes.closed(
                    {
                        "resource": shapes.said(64),
                        "valid": shapes.FLAG,
                        "state": {"enum": list(STATES)},
                        "reason": shapes.said(),
                        "grantedAt": shapes.maybe(shapes.said(32)),
                        "expiresAt": shapes.maybe(shapes.said(32)),
                        "version": shapes.maybe(shapes.said(16)),
                    }
                ),
                50,
            ),
            "statistics": shapes.closed(
                {
                    "totalResources": shapes.COUNT,
                    "byState": shapes.closed(dict.fromkeys(STATES, shapes.COUNT)),
                    "coveragePercent": shapes.COUNT,
                }
            ),
            "operation": shapes.closed(
                {
                    "tool": shapes.said(100),
                    "name": shapes.said(100),
                    "known": shapes.FLAG,
                    "requires": shapes.many(shapes.said(64), 16),
                    "canProceed": shapes.FLAG,
                }
            ),
            "policy": shapes.many(
                shapes.closed(
                    {
                        "resource": shapes.said(64),
                        "risk": {"enum": ["low", "medium", "high"]},
                        "retentionDays": shapes.COUNT,
                        "about": shapes.said(),
                    }
                ),
                50,
            ),
        },
        required=["checkType", "policyVersion", "allValid", "resources"],
    ),
    effect="read",
    deadline_s=30,
    run=run,
    error_codes=("CONSENT_REQUIRED",),
    decisions=("block", "warn", "pass"),
    text=as_text,
)
