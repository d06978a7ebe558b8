"""The tool `analyze_dissonance`: what a repository's files say about how it is governed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolgate.later import named
from toolgate.model.threads import in_thread
from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.governance.repository.config import PROFILES
from toolgate.packs.governance.tools import schemas

if TYPE_CHECKING:
    from toolgate.packs.governance.analysis.weigh import Mode

MODES: Final[tuple[Mode, ...]] = ("pull_request", "issue", "merge_group", "drift", "calibration")
BREAKER_CODE: Final = "CIRCUIT_BREAKER_OPEN"

_ANALYZE: Final = "toolgate.packs.governance.analysis.pipeline:analyze"
"""Loaded by the first call: a start does not wait for its thirty modules."""
_REPORT: Final = "toolgate.packs.governance.analysis.report:report"
_DECIDED: Final = "toolgate.packs.governance.analysis.report:decided"


async def run(ctx: Context, args: dict[str, Any]) -> Result:
    analyze = await in_thread(named, _ANALYZE)
    analysis = await analyze(ctx, args)
    data = await in_thread(named(_REPORT), analysis)
    found = {str(severity): count for severity, count in analysis.counts.items()}
    counts = ", ".join(f"{count} {severity}" for severity, count in analysis.counts.items() if count) or "no findings"
    if analysis.breaker.is_open and analysis.threshold_decision == "block":
        message = f"{BREAKER_CODE}: {counts}; too many reports were blocked this hour, so this one only warns"
        return Result(data=data, decision="warn", code=BREAKER_CODE, message=message, degraded=True, counts=found)
    exit_code = 1 if analysis.decision == "block" else 0
    return Result(data=data, decision=analysis.decision, message=counts, exit_code=exit_code, counts=found)


def as_text(data: Any) -> str:
    """Findings with file and line, worst reason last: what a person reads in a log."""
    analysis = data["analysis"]
    lines = []
    for finding in analysis["findings"]:
        lines.append(f"{_place(finding)}: {finding['severity']} {finding['ruleId']}: {finding['title']}")
        lines.append(f"    why: {finding['because']}")
        lines.append(f"    fix: {finding['remediation']}")
    lines += [
        f"{_place(finding)}: suppressed {finding['ruleId']}: {finding['title']}{named(_DECIDED)(finding['suppression'])}"
        for finding in analysis["suppressed"]
    ]
    lines += [f"{file['path']}: skipped: {file['reason']}" for file in analysis["skipped"]]
    lines += [f"{rule['id']}: {rule['status']}: {rule['reason']}" for rule in analysis["rules"] if rule["reason"]]
    decision = analysis["decision"]
    lines.append(f"{decision['outcome']}: {'; '.join(decision['reasons'])}")
    return "\n".join(lines) + "\n"


def _place(finding: Any) -> str:
    return ", ".join(f"{evidence['path']}:{evidence['line']}" for evidence in finding["evidence"]) or "-"


_FINDING: Final[dict[str, Any]] = {
    "id": schemas.said(128),
    "ruleId": schemas.said(100),
    "severity": schemas.SEVERITY,
    "title": schemas.said(),
    "evidence": schemas.many(
        schemas.closed({"path": schemas.said(), "line": schemas.COUNT, "snippet": schemas.said(256)}), 16
    ),
    "fingerprint": schemas.said(64),
    "remediation": schemas.said(),
    "because": schemas.said() | {"description": "Why it is true here, in one sentence."},
    "alsoFoundBy": schemas.many(schemas.said(100), 16),
    "adrReferences": schemas.many(schemas.said(16), 16),
}
_SUPPRESSION: Final = schemas.closed(
    {
        "source": {"enum": ["file", "store", "inline"]},
        "reason": schemas.said(),
        "reviewer": schemas.said(),
        "ticket": schemas.said(),
    }
)
_RATE_OR_NONE: Final = schemas.maybe(schemas.RATE)
_RELIABILITY: Final = schemas.closed(
    {
        "reviewed": schemas.COUNT,
        "falsePositives": schemas.COUNT,
        "fpr": _RATE_OR_NONE,
        "interval": schemas.closed({"level": schemas.RATE, "low": _RATE_OR_NONE, "high": _RATE_OR_NONE}),
        "confidence": schemas.said(32),
    },
    description="Reviewed findings of this rule in this repository; no rate below ten.",
)
_DECISION: Final[dict[str, Any]] = {"enum": ["block", "warn", "pass"]}
_COUNTS: Final = schemas.closed(dict.fromkeys(("critical", "high", "medium", "low", "info"), schemas.COUNT))

ANALYZE: Final = Tool(
    name="analyze_dissonance",
    id="governance.analyze_dissonance",
    summary=(
        "Judge a repository's workflows, branch protection and tool contract by the MD rules; findings have "
        "file and line."
    ),
    input_schema=schemas.closed(
        {
            "files": schemas.paths("Further files to analyze."),
            "context": {
                "type": "string",
                "maxLength": 300,
                "description": "owner/name or owner/name@commit: whose baseline counts.",
            },
            "mode": {
                "enum": list(MODES),
                "default": "issue",
                "description": "merge_group is strict; drift compares with the baseline; calibration writes one.",
            },
            "strict": {
                "type": "boolean",
                "default": False,
                "description": "Stricter thresholds: no high, at most 5 medium.",
            },
            "onlyNamed": {
                "type": "boolean",
                "default": False,
                "description": "Only findings in the named files count.",
            },
            "defaultPermissions": {
                "enum": ["read", "write"],
                "description": "A token's permissions where none are stated.",
            },
        },
        required=["files"],
    ),
    output_schema=schemas.closed(
        {
            "analysis": schemas.closed(
                {
                    "mode": {"enum": list(MODES)},
                    "strict": schemas.FLAG,
                    "profile": {"enum": list(PROFILES)},
                    "elsewhere": schemas.COUNT
                    | {"description": "Findings in other files, where only the named ones were asked for."},
                    "repository": schemas.said(),
                    "commit": schemas.maybe(schemas.said(64)),
                    "filesAnalyzed": schemas.COUNT,
                    "files": schemas.many(
                        schemas.closed({"path": schemas.said(), "type": schemas.said(16), "hash": schemas.said(64)})
                    ),
                    "skipped": schemas.many(schemas.closed({"path": schemas.said(), "reason": schemas.said()})),
                    "rules": schemas.many(
                        schemas.closed(
                            {
                                "id": schemas.said(16),
                                "version": schemas.COUNT,
                                "title": schemas.said(),
                                "status": {"enum": ["evaluated", "not_evaluated", "failed"]},
                                "findings": schemas.COUNT,
                                "reason": schemas.maybe(schemas.said()),
                                "reliability": _RELIABILITY,
                            }
                        ),
                        32,
                    ),
                    "rulesHash": schemas.said(64),
                    "findings": schemas.many(schemas.closed(_FINDING), 100_000),
                    "suppressed": schemas.many(schemas.closed(_FINDING | {"suppression": _SUPPRESSION}), 100_000),
                    "counts": _COUNTS,
                    "decision": schemas.closed(
                        {
                            "outcome": _DECISION,
                            "byThresholds": _DECISION,
                            "limits": schemas.closed(dict.fromkeys(("critical", "high", "medium"), schemas.COUNT)),
                            "reasons": schemas.many(schemas.said(), 16),
                        }
                    ),
                    "breaker": schemas.closed({"open": schemas.FLAG, "limit": schemas.COUNT, "blocked": schemas.COUNT}),
                    "drift": schemas.maybe(
                        schemas.closed(
                            {
                                "status": {"enum": ["evaluated", "not_evaluated"]},
                                "baselineCreatedAt": schemas.maybe(schemas.said(32)),
                                "added": schemas.many(schemas.said()),
                                "modified": schemas.many(schemas.said()),
                                "removed": schemas.many(schemas.said()),
                                "changes": schemas.many(
                                    schemas.closed(
                                        {
                                            "path": schemas.said(),
                                            "how": {"enum": ["added", "modified", "removed"]},
                                            "gained": schemas.many(schemas.said(256), 50),
                                            "lost": schemas.many(schemas.said(256), 50),
                                        }
                                    )
                                ),
                                "newFindings": schemas.many(schemas.said(256)),
                                "goneFindings": schemas.many(schemas.said(256)),
                                "magnitude": schemas.RATE,
                                "limit": schemas.RATE,
                            }
                        )
                    ),
                    "adrReferences": schemas.many(schemas.said(16), 16),
                    "omitted": schemas.closed(
                        dict.fromkeys(("files", "skipped", "findings", "suppressed"), schemas.COUNT)
                    ),
                    "confidence": {"enum": ["full", "unavailable"]},
                }
            )
        }
    ),
    effect="write",
    destructive=False,
    deadline_s=30,
    run=run,
    error_codes=(BREAKER_CODE,),
    decisions=("block", "warn", "pass"),
    text=as_text,
    argument_roles={"mode=calibration": frozenset({"committer", "admin"})},
)
