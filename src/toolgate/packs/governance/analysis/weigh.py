"""From verdicts to a decision: suppression, thresholds, drift, breaker. Pure, and the same bytes for the same inputs.

No time, no duration and no random id is in a report: what happened when is the audit log's matter.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct, field

from toolgate.kit.findings import Finding, Severity, by_severity, fingerprinted, in_reading_order
from toolgate.packs.governance.analysis.drift import drift_findings
from toolgate.packs.governance.analysis.ignores import judge_ignores
from toolgate.packs.governance.repository.config import LIMITS, Profile
from toolgate.packs.governance.repository.identity import RepositoryOrigin
from toolgate.packs.governance.rules.catalogue import GATE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from toolgate.model.tool import Decision
    from toolgate.packs.governance.analysis.drift import BaselineDrift
    from toolgate.packs.governance.analysis.ignores import BaseFiles, SuppressionGrounds
    from toolgate.packs.governance.repository.model import Repository
    from toolgate.packs.governance.rules.base import RuleVerdict
    from toolgate.packs.governance.stores.reviews import Suppression
    from toolgate.packs.governance.stores.statistics import Counts

Mode = Literal["pull_request", "issue", "merge_group", "drift", "calibration"]


class AnalysisRequest(Struct, frozen=True):
    mode: Mode = "issue"
    profile: Profile = "default"
    origin: RepositoryOrigin = RepositoryOrigin()
    only: frozenset[str] | None = None
    """Findings in other files are counted, and decide nothing."""


class Breaker(Struct, frozen=True):
    """Off unless set. `state_known` is False when the counter did not answer: then nothing is softened."""

    limit: int = 0
    blocked: int = 0
    state_known: bool = True

    @property
    def is_open(self) -> bool:
        return self.limit > 0 and self.state_known and self.blocked >= self.limit


class StoreMemory(Struct, frozen=True):
    """What the store remembers about the repository."""

    suppressions: Sequence[Suppression] = ()
    """Expired ones, too: that one ended is told."""
    reliability: Mapping[str, Counts] = field(default_factory=dict)
    """Reviews of each rule's findings in this repository."""
    answered: bool = True


class Analysis(Struct, frozen=True):
    """Everything a report says."""

    mode: Mode
    profile: Profile
    origin: RepositoryOrigin
    repository: Repository
    verdicts: tuple[RuleVerdict, ...]
    findings: tuple[Finding, ...]
    """In reading order, with fingerprints; suppressed ones included."""
    grounds: Mapping[str, SuppressionGrounds]
    """Why findings are suppressed, by fingerprint."""
    memory: StoreMemory = StoreMemory()
    drift: BaselineDrift | None = None
    breaker: Breaker = Breaker()
    elsewhere: int = 0
    """Findings in files that were not named, where only named ones were asked for."""

    @property
    def strict(self) -> bool:
        return self.profile == "strict"

    @property
    def limits(self) -> Mapping[Severity, int]:
        return LIMITS[self.profile]

    @property
    def counts(self) -> dict[Severity, int]:
        return by_severity(self.findings)

    @property
    def exceeded(self) -> list[Severity]:
        return [severity for severity, limit in self.limits.items() if self.counts[severity] > limit]

    @property
    def not_evaluated(self) -> list[RuleVerdict]:
        return [verdict for verdict in self.verdicts if verdict.status == "not_evaluated"]

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
        """Commit and findings: the same report blocked twice is one blocked report (ADR-0008)."""
        parts = [
            self.origin.commit,
            *sorted(finding.fingerprint for finding in self.findings if finding.status == "fail"),
        ]
        return sha256("\0".join(parts).encode()).hexdigest()


def identified(repository: Repository, verdicts: Iterable[RuleVerdict]) -> list[Finding]:
    """All findings of the rules, and what the gate itself cannot read, each with its fingerprint."""
    found = [finding for verdict in verdicts for finding in verdict.findings]
    return fingerprinted(in_reading_order([*found, *_gate_findings(repository)]))


def weigh(
    asked: AnalysisRequest,
    repository: Repository,
    verdicts: Sequence[RuleVerdict],
    *,
    now: int,
    memory: StoreMemory = StoreMemory(),  # noqa: B008 (frozen, and the same for all)
    drift: BaselineDrift | None = None,
    base: BaseFiles | None = None,
) -> Analysis:
    found = identified(repository, verdicts)
    found += fingerprinted(in_reading_order(drift_findings(drift))) if drift else []
    evaluated = {verdict.rule_id for verdict in verdicts if verdict.status == "evaluated"}
    judged = judge_ignores(found, repository, memory.suppressions, now, base, evaluated)
    findings = fingerprinted_once(judged.findings)
    shown = [
        finding for finding in findings if asked.only is None or finding.file in asked.only or finding.rule == GATE
    ]
    return Analysis(
        mode=asked.mode,
        profile="strict" if asked.mode == "merge_group" else asked.profile,
        origin=asked.origin,
        repository=repository,
        verdicts=tuple(verdicts),
        findings=tuple(in_reading_order(shown)),
        grounds=judged.grounds,
        memory=memory,
        drift=drift,
        elsewhere=sum(finding.status == "fail" for finding in findings)
        - sum(finding.status == "fail" for finding in shown),
    )


def fingerprinted_once(findings: Iterable[Finding]) -> list[Finding]:
    """Those about suppressions come last and have no fingerprint yet."""
    every = list(findings)
    new = fingerprinted(in_reading_order(finding for finding in every if not finding.fingerprint))
    return [*(finding for finding in every if finding.fingerprint), *new]


def _gate_findings(repository: Repository) -> list[Finding]:
    """What decides how the gate judges, and cannot be read: nothing may pass on its account, and nothing hides it."""
    return [
        Finding(
            GATE,
            "fail",
            "critical",
            f"The gate cannot judge: {path} cannot be understood: {fault.text}.",
            file=path,
            line=fault.line,
            why="A gate that cannot read its own rules must not pass anything.",
            fix=_GATE_FIX.get(repository.files[path].type, "Correct it."),
            anchor=fault.text,
            extra={"evaluationError": True, "because": f"line {fault.line} of it has another shape."},
        )
        for path, fault in repository.gate_faults
    ]


_GATE_FIX: Final = {
    "protection": "Fetch it again: gh api repos/OWNER/NAME/branches/main/protection (classic) or "
    "gh api repos/OWNER/NAME/rules/branches/main (rulesets); remove the file where nothing is protected.",
    "settings": "Correct it: docs/guides/governance.md lists its keys.",
    "suppressions": "Correct it: each [[suppression]] has fingerprint, rule, reason, reviewer, ticket and expires.",
}
