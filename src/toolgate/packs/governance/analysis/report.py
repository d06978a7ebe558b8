"""An analysis as the data of an answer. Lists end where an answer would become too large; `omitted` and `counts` tell all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from toolgate.kit.findings import SEVERITIES, Finding
from toolgate.packs.governance.analysis.drift import DRIFT_LIMIT
from toolgate.packs.governance.repository.answers import within
from toolgate.packs.governance.rules.catalogue import ADR, BY_ID, RULES_DIGEST, ZIZMOR
from toolgate.packs.governance.stores.statistics import Counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolgate.packs.governance.analysis.drift import BaselineDrift
    from toolgate.packs.governance.analysis.weigh import Analysis
    from toolgate.packs.governance.rules.base import RuleVerdict


def report(analysis: Analysis) -> dict[str, Any]:
    ranked = sorted(analysis.findings, key=lambda finding: SEVERITIES.index(finding.severity))
    failing = [_finding_json(finding) for finding in ranked if finding.status == "fail"]
    hidden = [
        _finding_json(finding) | _why_suppressed(analysis, finding)
        for finding in ranked
        if finding.status == "suppressed"
    ]
    files = [{"path": file.path, "type": file.type, "hash": file.sha256} for file in analysis.repository.files.values()]
    skipped = [{"path": file.path, "reason": file.reason} for file in analysis.repository.skipped]
    shown = {
        "files": within(files, 200_000),
        "skipped": within(skipped, 50_000),
        "findings": within(failing, 400_000),
        "suppressed": within(hidden, 100_000),
    }
    every = {"files": files, "skipped": skipped, "findings": failing, "suppressed": hidden}
    return {
        "analysis": {
            "mode": analysis.mode,
            "strict": analysis.strict,
            "profile": analysis.profile,
            "repository": analysis.origin.repository,
            "commit": analysis.origin.commit or None,
            "filesAnalyzed": len(files),
            **shown,
            "elsewhere": analysis.elsewhere,
            "rules": [_rule_json(analysis, verdict) for verdict in analysis.verdicts],
            "rulesHash": RULES_DIGEST,
            "counts": analysis.counts,
            "decision": {
                "outcome": analysis.decision,
                "byThresholds": analysis.threshold_decision,
                "limits": dict(analysis.limits),
                "reasons": reasons(analysis),
            },
            "breaker": {
                "open": analysis.breaker.is_open,
                "limit": analysis.breaker.limit,
                "blocked": analysis.breaker.blocked,
            },
            "drift": _drift_json(analysis.drift),
            "adrReferences": [ADR] if failing else [],
            "omitted": {name: len(every[name]) - len(items) for name, items in shown.items()},
            "confidence": "full" if analysis.memory.answered and analysis.breaker.state_known else "unavailable",
        }
    }


def reasons(analysis: Analysis) -> list[str]:
    counts, limits = analysis.counts, analysis.limits
    told = [
        f"{_counted(counts[severity], f'{severity} finding')}, {limits[severity]} allowed"
        for severity in analysis.exceeded
    ]
    if analysis.breaker.is_open:
        told.append(
            f"circuit breaker open: {_counted(analysis.breaker.blocked, 'report')} blocked this hour, so this one only warns"
        )
    if not analysis.exceeded and any(counts.values()):
        told.append("findings within the thresholds")
    if analysis.repository.skipped:
        told.append(f"{_counted(len(analysis.repository.skipped), 'file')} could not be read")
    if analysis.drift is not None and analysis.drift.created is None:
        told.append("there is no baseline to compare with: make one with toolgate baseline, or mode calibration")
    return told or ["no findings"]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def reliability(analysis: Analysis, rule: str) -> Counts:
    """Reviewed findings of the rule in this repository."""
    known = analysis.memory.reliability
    if rule != ZIZMOR:
        return known.get(rule, Counts(0, 0, 0))
    # Reviews are of its audits (zizmor/template-injection); the rule is all of them.
    each = [counts for name, counts in known.items() if name.startswith(f"{ZIZMOR}/")]
    return Counts(
        sum(counts.total for counts in each),
        sum(counts.false_positives for counts in each),
        sum(counts.true_positives for counts in each),
    )


def _rule_json(analysis: Analysis, verdict: RuleVerdict) -> dict[str, Any]:
    rule, counted = BY_ID[verdict.rule_id], reliability(analysis, verdict.rule_id).as_json()
    return {
        "id": rule.id,
        "version": rule.version,
        "title": rule.title,
        "status": verdict.status,
        "findings": len(verdict.findings),
        "reason": verdict.reason or None,
        "reliability": {key: counted[key] for key in ("reviewed", "falsePositives", "fpr", "interval", "confidence")},
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    evidence = (
        [{"path": finding.file, "line": finding.line or 1, "snippet": finding.extra.get("snippet", "")}]
        if finding.file
        else []
    )
    return {
        "id": f"{finding.rule}-{finding.fingerprint[:12]}",
        "ruleId": finding.rule,
        "severity": finding.severity,
        "title": finding.message,
        "because": finding.extra.get("because", finding.why),
        "evidence": evidence,
        "fingerprint": finding.fingerprint,
        "remediation": finding.fix,
        "alsoFoundBy": list(finding.extra.get("alsoFoundBy", ())),
        "adrReferences": [ADR],
    }


def _why_suppressed(analysis: Analysis, finding: Finding) -> dict[str, Any]:
    return {"suppression": asdict(analysis.grounds[finding.fingerprint])}


def decided(grounds: Mapping[str, str]) -> str:
    """Who suppressed it and why, for the end of a line."""
    who = ", ".join(part for part in (grounds["reviewer"], grounds["ticket"]) if part)
    return f" (suppressed by {who or 'a comment'}: {grounds['reason']})"


def _drift_json(drift: BaselineDrift | None) -> dict[str, Any] | None:
    if drift is None:
        return None
    return {
        "status": "not_evaluated" if drift.created is None else "evaluated",
        "baselineCreatedAt": drift.created,
        "added": within(drift.paths("added"), 20_000),
        "modified": within(drift.paths("modified"), 20_000),
        "removed": within(drift.paths("removed"), 20_000),
        "changes": within(
            [
                {
                    "path": change.path,
                    "how": change.how,
                    "gained": list(change.gained[:50]),
                    "lost": list(change.lost[:50]),
                }
                for change in drift.changes
            ],
            50_000,
        ),
        "newFindings": within(drift.appeared, 20_000),
        "goneFindings": within(drift.gone, 20_000),
        "magnitude": drift.magnitude,
        "limit": DRIFT_LIMIT,
    }
