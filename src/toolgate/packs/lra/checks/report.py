"""The report for people: tier and checks, with or without what is wrong, where, and how to mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolgate.kit.reports.printable import printable
from toolgate.packs.lra.checks import rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from toolgate.packs.lra.checks.validate import PaperReport


def to_text(report: PaperReport, *, details: bool) -> str:
    from toolgate.packs.lra.checks.validate import finding_json  # noqa: PLC0415 (the HTML parser, 40 ms; `text_of` needs none)

    findings = [finding_json(finding) for finding in report.findings]
    return text_of(report.page, report.tier, report.passed, findings, details=details)


def text_of(page: str, tier: str, passed: int, findings: Sequence[Mapping[str, Any]], *, details: bool) -> str:
    """`details` adds, below each cross, the place, the fault and the fix, and the advisories before the tier."""
    failed = {finding["rule"] for finding in findings if finding["status"] == "fail"}
    lines = [printable(f"LRA Validate — {page}"), ""]
    for name in rules.TIERS:
        of_tier = rules.of_tier(name)
        lines.append(f"{name.capitalize()} ({len(of_tier)} checks)")
        for rule in of_tier:
            lines.append(f"  {'✗' if rule.id in failed else '✓'} {rule.label}")
            if details:
                lines += [line for finding in findings if finding["rule"] == rule.id for line in _detail(finding)]
        lines.append("")
    advice = [finding for finding in findings if finding["rule"] in rules.ADVISORIES]
    if details and advice:
        lines.append(f"Advisories ({len(advice)}; they do not change the tier)")
        for finding in advice:
            lines.append(f"  ! {finding['rule']} {rules.ADVISORIES[finding['rule']].label}")
            lines += _detail(finding)
        lines.append("")
    lines += [f"Tier: {tier} ({passed}/{len(rules.CHECKS)} pass)", ""]
    return "\n".join(lines)


def _detail(finding: Mapping[str, Any]) -> list[str]:
    if finding["status"] == "pass":
        return []
    place = ":".join(str(finding[key]) for key in ("file", "line", "column") if finding[key] is not None)
    fixable = "  (lra validate --fix can do it)" if finding["fixable"] else ""
    return [
        printable(f"      {finding['rule']} {place + ': ' if place else ''}{finding['message']}"),
        printable(f"      fix: {finding['fix']}{fixable}"),
    ]


def explain(ident: str) -> str:
    """Everything about one rule. Raises: KeyError: there is no such rule."""
    rule = rules.RULES[ident]
    return (
        f"{rule.id}  {rule.label}\n"
        f"  tier   {rule.tier}\n"
        f"  spec   LRA-1.0 {rule.spec}\n"
        f"  why    {rule.why}\n"
        f"  fix    {rule.fix}\n"
        f"  --fix  {'yes' if rule.fixable else 'no'}\n"
    )


def list_rules() -> str:
    return "".join(f"{rule.id:<5} {rule.tier:<9} {rule.label}\n" for rule in rules.RULES.values())
