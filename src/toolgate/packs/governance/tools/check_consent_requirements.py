"""The tool `check_consent_requirements`: may this organisation's data be used for this? No, unless a record says yes."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from toolgate.errors import StoreUnavailable
from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.governance.repository.answers import invalid_input
from toolgate.packs.governance.stores.consents import POLICY_VERSION, REQUIRED, RESOURCES, ConsentStatus, statuses
from toolgate.packs.governance.stores.opened import consents
from toolgate.packs.governance.tools import schemas

STATES: Final = ("granted", "expired", "revoked", "outdated", "not_requested", "unknown_resource", "unavailable")
ORG_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}$"


async def run(ctx: Context, args: dict[str, Any]) -> Result:
    args = {"orgId": organisation_of(ctx)} | args
    check = {"validate": _validate, "summary": _summary, "required_for_operation": _required}[args["checkType"]]
    return await check(ctx, args)


def organisation_of(ctx: Context) -> str:
    """Whose reviews and consent are meant where nobody is named: the same here as for `toolgate fp mark`."""
    return str(ctx.settings.get("organisation", "local"))


async def look_up(ctx: Context, org_id: str, resources: list[str]) -> list[ConsentStatus]:
    """Fails closed: a store that does not answer has granted nothing."""
    now = int(ctx.clock.wall() * 1000)
    try:
        return await consents(ctx.stores, lambda kept: statuses(kept, org_id, resources, now))
    except StoreUnavailable:
        return [ConsentStatus(resource, "unavailable") for resource in resources]


async def _validate(ctx: Context, args: dict[str, Any]) -> Result:
    if "resources" not in args:
        raise invalid_input("/resources", "missing_resources", "checkType validate needs resources.")
    found = await look_up(ctx, args["orgId"], args["resources"])
    refused = [status for status in found if not status.granted]
    data = _answer(args, found) | {"allValid": not refused}
    return Result(data=data, decision="pass") if not refused else _consent_required(data, refused, decision="warn")


async def _summary(ctx: Context, args: dict[str, Any]) -> Result:
    found = await look_up(ctx, args["orgId"], list(RESOURCES))
    counts = Counter(status.state for status in found)
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
            raise invalid_input(f"/{key}", f"missing_{key}", f"checkType required_for_operation needs {key}.")
    needed = REQUIRED.get((args["tool"], args["operation"]))
    operation: dict[str, Any] = {"tool": args["tool"], "name": args["operation"], "known": needed is not None}
    if needed is None:
        data = _answer(args, []) | {"allValid": False, "operation": operation | {"requires": [], "canProceed": False}}
        message = "CONSENT_REQUIRED: the policy knows no such operation, so nothing allows it"
        return Result(data=data, decision="block", code="CONSENT_REQUIRED", message=message, exit_code=1)
    found = await look_up(ctx, args["orgId"], list(needed))
    refused = [status for status in found if not status.granted]
    data = _answer(args, found) | {
        "allValid": not refused,
        "operation": operation | {"requires": list(needed), "canProceed": not refused},
    }
    return Result(data=data, decision="pass") if not refused else _consent_required(data, refused, decision="block")


def _consent_required(data: dict[str, Any], refused: list[ConsentStatus], *, decision: Any) -> Result:
    told = "; ".join(f"{status.resource}: {status.as_json()['reason']}" for status in refused[:5])
    return Result(
        data=data, decision=decision, code="CONSENT_REQUIRED", message=f"CONSENT_REQUIRED: {told}", exit_code=1
    )


def _answer(args: dict[str, Any], found: list[ConsentStatus]) -> dict[str, Any]:
    data: dict[str, Any] = {
        "checkType": args["checkType"],
        "policyVersion": POLICY_VERSION,
        "resources": [status.as_json() for status in found],
    }
    if args.get("includePolicy", False):
        data["policy"] = [
            {
                "resource": resource.name,
                "risk": resource.risk,
                "retentionDays": resource.retention_days,
                "about": resource.about,
            }
            for resource in RESOURCES.values()
        ]
    return data


def as_text(data: Any) -> str:
    lines = [
        f"{'✓' if resource['valid'] else '✗'} {resource['resource']}: {resource['reason']}"
        for resource in data["resources"]
    ]
    operation = data.get("operation")
    if operation:
        verb = "may proceed" if operation["canProceed"] else "may not proceed"
        lines.append(f"{operation['tool']}.{operation['name']} {verb}")
    return "\n".join(lines or ["nothing granted"]) + "\n"


_RESOURCE_NAME: Final = schemas.text(
    "Name of a resource; one the policy does not know is never granted.", 64, pattern="^[a-z][a-z0-9_]*$"
)

CHECK_CONSENT: Final = Tool(
    name="check_consent_requirements",
    id="governance.check_consent_requirements",
    summary=(
        "Ask what an organisation has consented to: named resources, all, or whether an operation of a tool "
        "may proceed. What is unknown or expired is not granted."
    ),
    input_schema=schemas.closed(
        {
            "orgId": schemas.text("Default: the settings' own.", 255, pattern=ORG_PATTERN),
            "checkType": {"enum": ["validate", "summary", "required_for_operation"], "description": "What to ask."},
            "resources": {
                "type": "array",
                "minItems": 1,
                "maxItems": 50,
                "uniqueItems": True,
                "items": _RESOURCE_NAME,
                "description": "For validate.",
            },
            "tool": schemas.text("For required_for_operation.", 100),
            "operation": schemas.text("For required_for_operation.", 100),
            "includePolicy": {
                "type": "boolean",
                "default": False,
                "description": "Add the policy of each resource.",
            },
        },
        required=["checkType"],
    ),
    output_schema=schemas.closed(
        {
            "checkType": {"enum": ["validate", "summary", "required_for_operation"]},
            "policyVersion": schemas.said(16),
            "allValid": schemas.FLAG,
            "resources": schemas.many(
                schemas.closed(
                    {
                        "resource": schemas.said(64),
                        "valid": schemas.FLAG,
                        "state": {"enum": list(STATES)},
                        "reason": schemas.said(),
                        "grantedAt": schemas.maybe(schemas.said(32)),
                        "expiresAt": schemas.maybe(schemas.said(32)),
                        "version": schemas.maybe(schemas.said(16)),
                    }
                ),
                50,
            ),
            "statistics": schemas.closed(
                {
                    "totalResources": schemas.COUNT,
                    "byState": schemas.closed(dict.fromkeys(STATES, schemas.COUNT)),
                    "coveragePercent": schemas.COUNT,
                }
            ),
            "operation": schemas.closed(
                {
                    "tool": schemas.said(100),
                    "name": schemas.said(100),
                    "known": schemas.FLAG,
                    "requires": schemas.many(schemas.said(64), 16),
                    "canProceed": schemas.FLAG,
                }
            ),
            "policy": schemas.many(
                schemas.closed(
                    {
                        "resource": schemas.said(64),
                        "risk": {"enum": ["low", "medium", "high"]},
                        "retentionDays": schemas.COUNT,
                        "about": schemas.said(),
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
