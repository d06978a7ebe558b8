"""The judgement: every rule over one paper, the tier that follows, and the report (ADR-0011)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from toolgate.kit.findings import Finding, Severity, fingerprinted
from toolgate.packs.lra.checks import advisories, fixes, required, rules
from toolgate.packs.lra.paper import paper

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from toolgate.packs.lra.checks.rules import TierName
    from toolgate.packs.lra.paper.artifact import Artifact

MAX_HITS: Final = 10
"""Places shown for one rule: the eleventh dangling link teaches nothing new, and the largest report stays under 1 MiB."""
MAX_MESSAGE: Final = 400

_SEVERITIES: Final[dict[str, Severity]] = {"bronze": "high", "silver": "medium", "gold": "medium", "advisory": "low"}


class PaperReport(Struct, frozen=True):
    page: str
    """The page as the caller named it."""
    tier: TierName
    passed: int
    total: int
    findings: Sequence[Finding]
    """At least one for each of the 23 rules, in their order, then one for each advisory that was hit."""

    @property
    def advisories(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.rule in rules.ADVISORIES]

    def failed(self, rule: str) -> bool:
        return any(finding.rule == rule and status_of(finding) == "fail" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "tier": self.tier,
            "passed": self.passed,
            "total": self.total,
            "findings": [finding_json(finding) for finding in self.findings],
        }


def validate(artifact: Artifact, *, strict: bool = False) -> PaperReport:
    """Judge a paper. With `strict` a warning fails its check, and any advisory takes the tier away.

    Raises: ToolError IO_ERROR: the page is not UTF-8 text.
    """
    return judge(paper.read(artifact), strict=strict)


def judge(subject: paper.Paper, *, strict: bool = False) -> PaperReport:
    """As `validate`, of a paper that has been read."""
    found: list[Finding] = []
    failed: set[str] = set()
    for ident, check in required.FUNCTIONS.items():
        rule = rules.CHECKS[ident]
        hits = list(islice(check(subject), MAX_HITS))
        if any(strict or not hit.warns for hit in hits):
            failed.add(ident)
        found.extend(_findings(rule, hits) or [_passed(rule)])
    advice = [
        finding
        for ident, look in advisories.FUNCTIONS.items()
        for finding in _findings(rules.ADVISORIES[ident], islice(look(subject), MAX_HITS))
    ]
    return PaperReport(
        page=subject.artifact.shown or subject.artifact.page,
        tier=_tier(failed) if not (strict and advice) else "NONE",
        passed=len(rules.CHECKS) - len(failed),
        total=len(rules.CHECKS),
        findings=fingerprinted(_only_mendable(subject, [*found, *advice])),
    )


def _only_mendable(subject: paper.Paper, found: list[Finding]) -> list[Finding]:
    """`fixable` says that --fix does it here, not that it does it for some paper."""
    if not any(hit.fixable for hit in found):
        return found
    mendable = fixes.mendable(subject)
    return [replace(hit, fixable=hit.fixable and hit.rule in mendable) for hit in found]


def _tier(failed: set[str]) -> TierName:
    """A tier needs all of its own checks and all of those below it."""
    reached: TierName = "NONE"
    for tier, name in zip(rules.TIERS, rules.TIER_NAMES[1:], strict=True):
        if any(rule.id in failed for rule in rules.of_tier(tier)):
            break
        reached = name
    return reached


def _findings(rule: rules.PaperRule, hits: Iterable[paper.RuleHit]) -> list[Finding]:
    return [
        Finding(
            rule=rule.id,
            status="fail",
            severity="low" if hit.warns else _SEVERITIES[rule.tier],
            message=hit.message[:MAX_MESSAGE],
            file=hit.file,
            line=hit.line,
            column=hit.column,
            selector=hit.selector,
            why=rule.why,
            fix=rule.fix,
            fixable=rule.fixable,
        )
        for hit in hits
    ]


def _passed(rule: rules.PaperRule) -> Finding:
    return Finding(rule.id, "pass", "info", rule.label, why=rule.why)


def status_of(finding: Finding) -> Literal["pass", "fail", "warn"]:
    """`warn` for advisories and for what only running the page would tell; neither changes the tier."""
    if finding.status == "pass":
        return "pass"
    return "warn" if finding.severity == "low" else "fail"


def finding_json(finding: Finding) -> dict[str, Any]:
    """Every key of a finding, always."""
    return {
        "rule": finding.rule,
        "status": status_of(finding),
        "file": finding.file,
        "line": finding.line,
        "column": finding.column,
        "selector": finding.selector,
        "message": finding.message,
        "why": finding.why,
        "fix": finding.fix,
        "fixable": finding.fixable,
        "fingerprint": finding.fingerprint,
    }
