"""One finding of any checker (a paper's validator, the dissonance rules, an invariant), and what it is known by.

`toolgate.kit.reports.render` turns findings into text, JSON, SARIF, JUnit, GitHub annotations or Markdown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping  # at run time, too: findings are decoded when they come from a worker process
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable

Status = Literal["pass", "fail", "not_evaluated", "suppressed"]
Severity = Literal["critical", "high", "medium", "low", "info"]
SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "high", "medium", "low", "info")
"""Worst first."""

FINGERPRINT_HEX: Final = 32
"""128 bits: two findings of one repository never collide by chance."""


class Finding(Struct, frozen=True):
    rule: str
    """Stable id: `MD-002`, `B12`."""
    status: Status
    severity: Severity
    message: str
    """What is wrong here, in one sentence."""
    file: str | None = None
    """Relative to the workspace or the repository, with forward slashes."""
    line: int | None = None
    """From 1."""
    column: int | None = None
    """From 1."""
    selector: str | None = None
    """Where in the structure: a CSS path, `jobs.build.steps[2]`."""
    why: str = ""
    """Why the rule exists."""
    fix: str = ""
    """What to do about it."""
    fixable: bool = False
    """True when a command of ours can do it."""
    anchor: str = ""
    """What marks the place when lines move: the source line, a step's text. Without it the selector, else the message."""
    fingerprint: str = ""
    """Filled in by `fingerprinted`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What only this checker knows (a job's name, a suppression's reviewer); JSON values."""

    @property
    def because(self) -> str:
        """Why it is true here, in one sentence, where the checker says so."""
        return str(self.extra.get("because", ""))

    def as_json(self) -> dict[str, Any]:
        """Absent values are absent."""
        fields = {
            "rule": self.rule,
            "status": self.status,
            "severity": self.severity,
            "message": self.message,
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "selector": self.selector,
            "why": self.why,
            "fix": self.fix,
            "fixable": self.fixable or None,
            "fingerprint": self.fingerprint,
        }
        return {name: value for name, value in fields.items() if value is not None and value != ""} | dict(self.extra)


def fingerprinted(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, each with a fingerprint that stays when lines are added above it, white space changes, or the
    order of files does; equal findings in one file are told apart by their order."""
    seen: Counter[str] = Counter()
    out = []
    for finding in findings:
        key = _key(finding)
        seen[key] += 1
        digest = sha256(f"{key}\0{seen[key]}".encode(errors="surrogatepass")).hexdigest()
        out.append(replace(finding, fingerprint=digest[:FINGERPRINT_HEX]))
    return out


def by_severity(findings: Iterable[Finding]) -> dict[Severity, int]:
    """How many failed, for each severity, worst first; zeros included."""
    counts = Counter(finding.severity for finding in findings if finding.status == "fail")
    return {severity: counts[severity] for severity in SEVERITIES}


def in_reading_order(findings: Iterable[Finding]) -> list[Finding]:
    """By file, line, column, rule: the order in which a person goes through them."""
    return sorted(
        findings,
        key=lambda finding: (finding.file or "", finding.line or 0, finding.column or 0, finding.rule, finding.message),
    )


def _key(finding: Finding) -> str:
    place = " ".join((finding.anchor or finding.selector or finding.message).split())
    return "\0".join((finding.rule, finding.file or "", place))
