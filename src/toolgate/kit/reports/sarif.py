"""Findings as SARIF 2.1.0, as code-scanning services read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolgate.kit.findings import Finding

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT: Final = "toolgate/v1"
"""Names our way of computing it: a service compares only fingerprints of the same name."""

_LEVELS: Final = {"critical": "error", "high": "error", "medium": "warning", "low": "note", "info": "note"}
_SCORES: Final = {"critical": "9.5", "high": "8.0", "medium": "5.5", "low": "3.0", "info": "0.0"}
"""What code-scanning services sort by (`security-severity`): the middle of each CVSS band."""
_KINDS: Final = {"pass": "pass", "fail": "fail", "suppressed": "fail", "not_evaluated": "open"}


def to_sarif(findings: Sequence[Finding], *, name: str, version: str, url: str = "") -> dict[str, Any]:
    rules = {finding.rule: finding for finding in reversed(findings)}
    order = {rule: index for index, rule in enumerate(sorted(rules))}
    driver: dict[str, Any] = {"name": name, "version": version, "rules": [_rule(rules[rule]) for rule in order]}
    if url:
        driver["informationUri"] = url
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"ROOT": {"description": {"text": "The directory that was checked."}}},
        "results": [_result(finding, order[finding.rule]) for finding in findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(finding: Finding) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "id": finding.rule,
        "defaultConfiguration": {"level": _LEVELS[finding.severity]},
        "properties": {"security-severity": _SCORES[finding.severity]},
    }
    if finding.why:
        rule["shortDescription"] = {"text": finding.why}
    if finding.fix:
        rule["help"] = {"text": finding.fix}
    return rule


def _result(finding: Finding, rule_index: int) -> dict[str, Any]:
    kind = _KINDS[finding.status]
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "kind": kind,
        # SARIF 2.1.0 section 3.27.10: any kind but "fail" has level "none".
        "level": _LEVELS[finding.severity] if kind == "fail" else "none",
        # Viewers show the text, and none shows a property.
        "message": {"text": f"{finding.message} Why: {finding.because}" if finding.because else finding.message},
    }
    location = _location(finding)
    if location:
        result["locations"] = [location]
    if finding.fingerprint:
        result["partialFingerprints"] = {FINGERPRINT: finding.fingerprint}
    if finding.status == "suppressed":
        result["suppressions"] = [{"kind": "external", "status": "accepted"}]
    properties = {"severity": finding.severity, **finding.extra}
    result["properties"] = properties
    return result


def _location(finding: Finding) -> dict[str, Any]:
    location: dict[str, Any] = {}
    if finding.file is not None:
        place: dict[str, Any] = {"artifactLocation": {"uri": quote(finding.file, safe="/"), "uriBaseId": "ROOT"}}
        if finding.line is not None:
            place["region"] = {"startLine": finding.line}
            if finding.column is not None:
                place["region"]["startColumn"] = finding.column
        location["physicalLocation"] = place
    if finding.selector is not None:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.selector}]
    return location
