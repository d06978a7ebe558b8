"""The tool `check_consent_requirements`: may this organisation's data be used for this? No, unless a record says yes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import StoreUnavailable
from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.governance.repository.answers import invalid_input
from toolgate.packs.governance.stores.consents import POLICY_VERSION, REQUIRED, RESOURCES, ConsentStatus, status_of
from toolgate.packs.governance.stores.known import OrgConsents
from toolgate.packs.governance.stores.opened import consents
from toolgate.packs.governance.tables import CONSENT
from toolgate.packs.governance.tools import schemas

if TYPE_CHECKING:
    from toolgate.model.clock import Clock
    from toolgate.packs.governance.stores.known import GovernanceMemory

STATES: Final = ("granted", "expired", "revoked", "outdated", "not_requested", "unknown_resource", "unavailable")
ORG_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}$"


async def run(ctx: Context, args: dict[str, Any]) -> Result:
    return _judged(args, await consents_of(ctx, args.get("orgId")), ctx.clock)


def run_at_once(clock: Clock, memory: GovernanceMemory, args: dict[str, Any]) -> Result | None:
    known = memory.consents.get(args.get("orgId"))
    return None if known is None else _judged(args, known, clock)


async def consents_of(ctx: Context, named: str | None) -> OrgConsents:
    """Of the organisation that was named, or of the settings' own. Fails closed: a silent store has granted nothing."""
    memory: GovernanceMemory = ctx.memory
    known = memory.consents.get(named)
    if known is not None:
        return known
    # Whose reviews and consent are meant where nobody is named: the same here as for `toolgate fp mark`.
    org_id = str(ctx.settings.get("organisation", "local")) if named is None else named
    mark = ctx.stores.get(CONSENT).mark()
    try:
        ask = partial(consents, ctx.stores)
        found = await memory.reading_consents.read(org_id, ask, lambda kept: kept.records(org_id))
    except StoreUnavailable:
        return OrgConsents(org_id, None)
    known = OrgConsents(org_id, {record.resource: record for record in found})
    memory.consents.put(named, known, mark)
    return known


def look_up(known: OrgConsents, resources: Sequence[str], clock: Clock) -> list[ConsentStatus]:
    """How each stands now, in the order asked for."""
    records = known.records
    if records is None:
        return [ConsentStatus(resource, "unavailable") for resource in resources]
    now = int(clock.wall() * 1000)
    return [status_of(resource, records.get(resource), now) for resource in resources]


def _judged(args: dict[str, Any], known: OrgConsents, clock: Clock) -> Result:
    match args["checkType"]:
        case "validate":
            return _validate(args, known, clock)
        case "summary":
            return _summary(args, known, clock)
        case _:
            return _required(args, known, clock)


def _validate(args: dict[str, Any], known: OrgConsents, clock: Clock) -> Result:
    if "resources" not in args:
        raise invalid_input("/resources", "missing_resources", "checkType validate needs resources.")
    found = look_up(known, args["resources"], clock)
    refused = [status for status in found if not status.granted]
    data = _answer(args, found) | {"allValid": not refused}
    return Result(data=data, decision="pass") if not refused else _consent_required(data, refused, decision="warn")


def _summary(args: dict[str, Any], known: OrgConsents, clock: Clock) -> Result:
    found = look_up(known, list(RESOURCES), clock)
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


def _required(args: dict[str, Any], known: OrgConsents, clock: Clock) -> Result:
    for key in ("tool", "operation"):
        if key not in args:
            raise invalid_input(f"/{key}", f"missing_{key}", f"checkType required_for_operation needs {key}.")
    needed = REQUIRED.get((args["tool"], args["operation"]))
    operation: dict[str, Any] = {"tool": args["tool"], "name": args["operation"], "known": needed is not None}
    if needed is None:
        data = _answer(args, []) | {"allValid": False, "operation": operation | {"requires": [], "canProceed": False}}
        message = "CONSENT_REQUIRED: the policy knows no such operation, so nothing allows it"
        return Result(data=data, decision="block", code="CONSENT_REQUIRED", message=message, exit_code=1)
    found = look_up(known, needed, clock)
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
    at_once=run_at_once,
    error_codes=("CONSENT_REQUIRED",),
    decisions=("block", "warn", "pass"),
    text=as_text,
)
