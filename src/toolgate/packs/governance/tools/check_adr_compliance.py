"""The tool `check_adr_compliance`: which accepted decisions do these files break?"""

from __future__ import annotations

from typing import Any, Final

from toolgate.kit.adr import STATUSES, UNKNOWN
from toolgate.later import named
from toolgate.model.threads import in_thread
from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.governance.decisions.shape import BUDGETS, MAX_ADRS, SEVERITIES
from toolgate.packs.governance.tools import schemas

_CHECK: Final = "toolgate.packs.governance.decisions.compliance:check"
"""Loaded by the first call: a start does not wait for it."""
_AS_DATA: Final = "toolgate.packs.governance.decisions.compliance:as_data"


async def run(ctx: Context, args: dict[str, Any]) -> Result:
    check = await in_thread(named, _CHECK)
    compliance = await check(ctx, args)
    message = f"{compliance.total} violations" if compliance.total else compliance.status.replace("_", " ")
    if compliance.gate_errors:
        broken = ", ".join(f"{adr.id}: {adr.fault}" for adr in compliance.gate_errors[:5])
        message = f"rules cannot be read ({broken}); {message}"
    return Result(
        data=named(_AS_DATA)(compliance),
        decision=compliance.decision,
        message=message,
        exit_code=1 if compliance.decision == "block" or compliance.total else 0,
    )


def as_text(data: Any) -> str:
    compliance = data["compliance"]
    lines = []
    for violation in compliance["violations"]:
        place, rule = f"{violation['file']}:{violation['line']}", f"{violation['adrId']} {violation['ruleId']}"
        lines.append(f"{place}: {violation['severity']} {rule}: {violation['message']}")
        lines.append(f"    fix: {violation['remediation']}")
    lines += [f"{file['path']}: skipped: {file['reason']}" for file in compliance["skipped"]]
    lines += [f"{name}: there is no such decision record" for name in compliance["unknownAdrs"]]
    for detail in compliance["adrDetails"]:
        if detail["fault"]:
            lines.append(f"{detail['id']}:{detail['line']}: not enforced: {detail['fault']}")
            lines.append(f"    fix: {detail['fix']}")
    lines.append(
        f"{compliance['status'].replace('_', ' ')}: {compliance['filesChecked']} files, {compliance['adrsChecked']} decisions,"
        f" {compliance['rulesChecked']} rules, {compliance['violationSummary']['total']} violations"
    )
    return "\n".join(lines) + "\n"


_ID: Final = r"^ADR-[0-9]{1,6}$"
_VIOLATION: Final = schemas.closed(
    {
        "adrId": schemas.said(16),
        "ruleId": schemas.said(1000),
        "file": schemas.said(),
        "line": schemas.COUNT,
        "message": schemas.said(),
        "severity": schemas.SEVERITY,
        "remediation": schemas.said(),
        "snippet": schemas.said(256),
    }
)

CHECK_ADR: Final = Tool(
    name="check_adr_compliance",
    title="Check ADR compliance",
    id="governance.check_adr_compliance",
    summary=(
        "Check files against the rules of accepted decision records; violations have file and line. What could "
        "not be checked never counts as compliant."
    ),
    input_schema=schemas.closed(
        {
            "files": schemas.paths("Files to check."),
            "adrs": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_ADRS,
                "uniqueItems": True,
                "items": schemas.text("Id of a decision record.", 16, pattern=_ID),
                "description": "Only these records, such as ADR-0001.",
            },
            "adrPath": schemas.path("Where the records are; default docs/adr.")
            | {"default": "docs/adr", "x-reason": "invalid_path"},
            "includeProposed": {
                "type": "boolean",
                "default": False,
                "description": "Apply proposed records, too.",
            },
            "context": {
                "type": "string",
                "maxLength": 300,
                "description": "Decides nothing.",
            },
        },
        required=["files"],
    ),
    output_schema=schemas.closed(
        {
            "compliance": schemas.closed(
                {
                    "compliant": schemas.FLAG,
                    "status": {"enum": ["compliant", "violations", "not_evaluated"]},
                    "filesChecked": schemas.COUNT,
                    "adrsChecked": schemas.COUNT,
                    "rulesChecked": schemas.COUNT,
                    "adrList": schemas.many(schemas.said(16), MAX_ADRS),
                    "violations": schemas.many(_VIOLATION, 100_000),
                    "violationSummary": schemas.closed(dict.fromkeys(("total", *SEVERITIES), schemas.COUNT)),
                    "skipped": schemas.many(schemas.closed({"path": schemas.said(), "reason": schemas.said()})),
                    "unknownAdrs": schemas.many(schemas.said(16), MAX_ADRS),
                    "omitted": schemas.closed(dict.fromkeys(BUDGETS, schemas.COUNT)),
                    "adrDetails": schemas.many(
                        schemas.closed(
                            {
                                "id": schemas.said(16),
                                "title": schemas.said(),
                                "status": {"enum": [*STATUSES, UNKNOWN]},
                                "rules": schemas.COUNT,
                                "enforced": schemas.FLAG,
                                "fault": schemas.maybe(schemas.said()),
                                "line": schemas.maybe(schemas.COUNT),
                                "fix": schemas.maybe(schemas.said()),
                            }
                        ),
                        MAX_ADRS,
                    ),
                }
            )
        }
    ),
    effect="read",
    deadline_s=30,
    run=run,
    error_codes=("NO_ADRS_FOUND", "FILE_NOT_FOUND", "FILE_TOO_LARGE", "IO_ERROR"),
    decisions=("block", "warn", "pass"),
    text=as_text,
)
