"""From rules to a report: findings, suppression, thresholds, drift, decision. Pure, and the same bytes for the same inputs.

No time, no duration and no random id is in a report: what happened when is the audit log's matter.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from toolgate.kit.findings import SEVERITIES, Finding, Severity, by_severity, fingerprinted, in_reading_order
from toolgate.packs.governance.rules import ADR, RULES, RULES_DIGEST, Verdict, evaluate
from toolgate.packs.governance.shapes import within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolgate.model.tool import Decision
    from toolgate.packs.governance.events import Suppression
    from toolgate.packs.governance.repository import Repository

Mode = Literal["pull_request", "issue", "merge_group", "drift", "calibration"]
MODES: Final[tuple[Mode, ...]] = ("pull_request", "issue", "merge_group", "drift", "calibration")

DEFAULT_LIMITS: Final[Mapping[Severity, int]] = {"critical": 0, "high": 3, "medium": 10}
STRICT_LIMITS: Final[Mapping[Severity, int]] = {"critical": 0, "high": 0, "medium": 5}
"""How many findings of a severity may stand; one more blocks (decision 35)."""
DRIFT_LIMIT: Final = 0.15
"""Share of governed files that may differ from the baseline before drift is a high finding."""
BREAKER_CODE: Final = "CIRCUIT_BREAKER_OPEN"

_CONTEXT: Final = re.compile(r"([A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100})(?:@([0-9a-f]{7,64}))?")
WORKSPACE: Final = "workspace"
"""The repository's name when nobody gives one."""


class Origin(Struct, frozen=True):
    """Which repository, and at which commit, as far as the caller said so."""

    repository: str = WORKSPACE
    commit: str = ""


def origin_of(context: str | None) -> Origin:
    """`owner/name` or `owner/name@commit` and nothing else: prose with a slash in it names no repository."""
    match = _CONTEXT.fullmatch(context or "")
    return Origin(match[1], match[2] or "") if match else Origin()


class Drift(Struct, frozen=True):
    """What changed since the baseline; `created` is its time, None when there is no baseline."""

    created: str | None
    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    tracked: int = 0

    @property
    def changes(self) -> int:
        return len(self.added) + len(self.modified) + len(self.removed)

    @property
    def magnitude(self) -> float:
        return self.changes / self.tracked if self.tracked else 0.0


def drift_between(baseline: Mapping[str, str], now: Mapping[str, str], created: str) -> Drift:
    return Drift(
        created,
        added=tuple(sorted(now.keys() - baseline.keys())),
        modified=tuple(sorted(path for path in now.keys() & baseline.keys() if now[path] != baseline[path])),
        removed=tuple(sorted(baseline.keys() - now.keys())),
        tracked=len(now.keys() | baseline.keys()),
    )


class Breaker(Struct, frozen=True):
    """Off unless set. `state_known` is False when the counter did not answer: then nothing is softened."""

    limit: int = 0
    blocked: int = 0
    state_known: bool = True

    @property
    def is_open(self) -> bool:
        return self.limit > 0 and self.state_known and self.blocked >= self.limit


class Analysis(Struct, frozen=True):
    """Everything a report says."""

    mode: Mode
    strict: bool
    origin: Origin
    repository: Repository
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    """In reading order, with fingerprints; suppressed ones included."""
    suppressions: Mapping[str, Suppression]
    drift: Drift | None = None
    suppression_known: bool = True
    breaker: Breaker = Breaker()

    @property
    def limits(self) -> Mapping[Severity, int]:
        return STRICT_LIMITS if self.strict else DEFAULT_LIMITS

    @property
    def counts(self) -> dict[Severity, int]:
        return by_severity(self.findings)

    @property
    def exceeded(self) -> list[Severity]:
        return [severity for severity, limit in self.limits.items() if self.counts[severity] > limit]

    @property
    def threshold_decision(self) -> Decision:
        """What the findings alone ask for, before breaker and floor."""
        if self.exceeded:
            return "block"
        incomplete = bool(self.repository.skipped) or (self.drift is not None and self.drift.created is None)
        return "warn" if incomplete or any(self.counts.values()) else "pass"

    @property
    def decision(self) -> Decision:
        return "warn" if self.threshold_decision == "block" and self.breaker.is_open else self.threshold_decision

    @property
    def report_digest(self) -> str:
        """Commit and findings: the same report blocked twice is one blocked report (decision 35)."""
        parts = [self.origin.commit, *sorted(one.fingerprint for one in self.findings if one.status == "fail")]
        return sha256("\0".join(parts).encode()).hexdigest()


def judge(repository: Repository) -> list[Verdict]:
    """Every rule over the repository, L0 first. Runs in a worker: scripts in workflows are strangers' text."""
    return [evaluate(rule, repository) for rule in RULES]


def analyse(
    *,
    mode: Mode,
    strict: bool,
    origin: Origin,
    repository: Repository,
    verdicts: Sequence[Verdict],
    suppressions: Mapping[str, Suppression],
    drift: Drift | None,
    suppression_known: bool = True,
) -> Analysis:
    found = [finding for verdict in verdicts for finding in verdict.findings]
    found += _drift_findings(drift) if drift else []
    marked = [_suppressed(finding, suppressions) for finding in fingerprinted(in_reading_order(found))]
    return Analysis(
        mode=mode,
        strict=strict or mode == "merge_group",
        origin=origin,
        repository=repository,
        verdicts=tuple(verdicts),
        findings=tuple(marked),
        suppressions=suppressions,
        drift=drift,
        suppression_known=suppression_known,
    )


def _suppressed(finding: Finding, suppressions: Mapping[str, Suppression]) -> Finding:
    """By fingerprint and rule; a rule that broke cannot be suppressed, or a crash would silence it for good."""
    one = suppressions.get(finding.fingerprint)
    if one is None or one.rule_id != finding.rule or finding.extra.get("evaluationError"):
        return finding
    return replace(finding, status="suppressed")


def _drift_findings(drift: Drift) -> list[Finding]:
    named = [("added", drift.added), ("modified", drift.modified), ("removed", drift.removed)]
    found = [
        Finding(
            "BASELINE",
            "fail",
            "low",
            f"{path} was {how} since the baseline.",
            file=path,
            line=1,
            why="What is governed should change only by decision.",
            fix="If the change is meant, make a new baseline (mode calibration).",
            anchor=f"{how} {path}",
        )
        for how, paths in named
        for path in paths
    ]
    if drift.magnitude > DRIFT_LIMIT:
        found.append(
            Finding(
                "BASELINE",
                "fail",
                "high",
                f"{drift.changes} of {drift.tracked} governed files differ from the baseline; {DRIFT_LIMIT:.0%} are tolerated.",
                why="Many changes at once are a new state, not drift.",
                fix="Review the changes, then make a new baseline (mode calibration).",
                anchor="magnitude",
            )
        )
    return found


def report(analysis: Analysis) -> dict[str, Any]:
    """`data` of the answer. Lists end where an answer would become too large; `omitted` and `counts` tell the whole."""
    ranked = sorted(analysis.findings, key=lambda one: SEVERITIES.index(one.severity))
    failing = [_finding_json(one) for one in ranked if one.status == "fail"]
    hidden = [_finding_json(one) | _why_suppressed(analysis, one) for one in ranked if one.status == "suppressed"]
    files = [{"path": file.path, "type": file.type, "hash": file.sha256} for file in analysis.repository.files.values()]
    skipped = [{"path": one.path, "reason": one.reason} for one in analysis.repository.skipped]
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
            "repository": analysis.origin.repository,
            "commit": analysis.origin.commit or None,
            "filesAnalyzed": len(files),
            **shown,
            "rules": [_rule_json(verdict) for verdict in analysis.verdicts],
            "rulesHash": RULES_DIGEST,
            "counts": analysis.counts,
            "decision": {
                "outcome": analysis.decision,
                "byThresholds": analysis.threshold_decision,
                "limits": dict(analysis.limits),
                "reasons": _reasons(analysis),
            },
            "breaker": {
                "open": analysis.breaker.is_open,
                "limit": analysis.breaker.limit,
                "blocked": analysis.breaker.blocked,
            },
            "drift": _drift_json(analysis.drift),
            "adrReferences": [ADR] if failing else [],
            "omitted": {name: len(every[name]) - len(items) for name, items in shown.items()},
            "confidence": "full" if analysis.suppression_known and analysis.breaker.state_known else "unavailable",
        }
    }


def _rule_json(verdict: Verdict) -> dict[str, Any]:
    rule = verdict.rule
    return {
        "id": rule.id,
        "version": rule.version,
        "title": rule.title,
        "status": verdict.status,
        "findings": len(verdict.findings),
        "reason": verdict.reason or None,
    }


def _finding_json(one: Finding) -> dict[str, Any]:
    evidence = [{"path": one.file, "line": one.line or 1, "snippet": one.extra.get("snippet", "")}] if one.file else []
    return {
        "id": f"{one.rule}-{one.fingerprint[:12]}",
        "ruleId": one.rule,
        "severity": one.severity,
        "title": one.message,
        "evidence": evidence,
        "fingerprint": one.fingerprint,
        "remediation": one.fix,
        "adrReferences": [ADR],
    }


def _why_suppressed(analysis: Analysis, one: Finding) -> dict[str, Any]:
    known = analysis.suppressions[one.fingerprint]
    return {"suppression": {"reason": known.reason, "reviewer": known.reviewer, "ticket": known.ticket}}


def _reasons(analysis: Analysis) -> list[str]:
    counts, limits = analysis.counts, analysis.limits
    reasons = [f"{counts[severity]} {severity} findings, {limits[severity]} allowed" for severity in analysis.exceeded]
    if analysis.breaker.is_open:
        reasons.append(
            f"circuit breaker open: {analysis.breaker.blocked} reports blocked this hour, so this one only warns"
        )
    if not analysis.exceeded and any(counts.values()):
        reasons.append("findings within the thresholds")
    if analysis.repository.skipped:
        reasons.append(f"{len(analysis.repository.skipped)} files could not be read")
    if analysis.drift is not None and analysis.drift.created is None:
        reasons.append("there is no baseline to compare with: make one with mode calibration")
    return reasons or ["no findings"]


def _drift_json(drift: Drift | None) -> dict[str, Any] | None:
    if drift is None:
        return None
    return {
        "status": "not_evaluated" if drift.created is None else "evaluated",
        "baselineCreatedAt": drift.created,
        "added": within(drift.added, 20_000),
        "modified": within(drift.modified, 20_000),
        "removed": within(drift.removed, 20_000),
        "magnitude": drift.magnitude,
        "limit": DRIFT_LIMIT,
    }
