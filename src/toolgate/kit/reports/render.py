"""Findings for people and their tools: text, JSON, Markdown, GitHub annotations; SARIF and JUnit have their own files.

Findings quote strangers' files, so every form escapes what could break out of it: line breaks and `::` in annotations,
pipes and tags in Markdown, control and direction characters everywhere a terminal shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.kit.findings import Finding, by_severity, in_reading_order
from toolgate.kit.reports.printable import printable
from toolgate.kit.reports.sarif import to_sarif
from toolgate.model import strictjson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Checker(Struct, frozen=True):
    """Who found it: appears in every form that has a place for it."""

    name: str
    version: str
    url: str = ""


def render(form: str, findings: Sequence[Finding], checker: Checker) -> str:
    """The findings in one of `FORMS`, ending with a line break. Raises: KeyError: no such form."""
    return FORMS[form](in_reading_order(findings), checker)


def _to_text(findings: Sequence[Finding], checker: Checker) -> str:
    lines = []
    for finding in findings:
        if finding.status == "pass":
            continue
        word = finding.severity if finding.status == "fail" else finding.status.replace("_", " ")
        lines.append(printable(f"{_place(finding)}: {word} {finding.rule}: {finding.message}"))
        if finding.status == "fail" and finding.because:
            lines.append(printable(f"    why: {finding.because}"))
        if finding.fix and finding.status == "fail":
            lines.append(printable(f"    fix: {finding.fix}"))
    return "\n".join([*lines, f"{checker.name}: {_summary(findings)}", ""])


def _to_json(findings: Sequence[Finding], checker: Checker) -> str:
    document: dict[str, Any] = {
        "checker": {"name": checker.name, "version": checker.version},
        "counts": by_severity(findings),
        "findings": [finding.as_json() for finding in findings],
    }
    return strictjson.dumps_pretty(document).decode()


def _to_github(findings: Sequence[Finding], checker: Checker) -> str:
    """Workflow commands: `::error file=F,line=1,col=2,title=T::message`."""
    lines = []
    for finding in findings:
        if finding.status != "fail":
            continue
        properties = {
            "file": finding.file,
            "line": finding.line,
            "col": finding.column,
            "title": f"{checker.name} {finding.rule}",
        }
        named = ",".join(f"{name}={_github_property(value)}" for name, value in properties.items() if value is not None)
        said = (finding.message, finding.because and f"Why: {finding.because}", finding.fix and f"Fix: {finding.fix}")
        message = " ".join(part for part in said if part)
        lines.append(f"::{_GITHUB_LEVELS[finding.severity]} {named}::{_github_data(message)}")
    # One for all: the code host shows ten of a step.
    unjudged = "; ".join(
        f"{finding.rule}: {finding.message}" for finding in findings if finding.status == "not_evaluated"
    )
    if unjudged:
        lines.append(f"::notice title={_github_property(checker.name)}::Not evaluated: {_github_data(unjudged)}")
    return "".join(f"{line}\n" for line in lines)


_GITHUB_LEVELS: Final = {"critical": "error", "high": "error", "medium": "warning", "low": "notice", "info": "notice"}


def _github_data(value: object) -> str:
    return printable(str(value).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _github_property(value: object) -> str:
    return _github_data(value).replace(":", "%3A").replace(",", "%2C")


def _to_markdown(findings: Sequence[Finding], checker: Checker) -> str:
    lines = [f"### {_markdown(checker.name)}: {_summary(findings)}", ""]
    open_ones = [finding for finding in findings if finding.status != "pass"]
    if open_ones:
        lines += ["| severity | rule | place | finding | fix |", "|---|---|---|---|---|"]
    for finding in open_ones:
        word = finding.severity if finding.status == "fail" else finding.status.replace("_", " ")
        why = f" Why: {finding.because}" if finding.because and finding.status == "fail" else ""
        cells = (word, finding.rule, _place(finding), f"{finding.message}{why}", finding.fix)
        lines.append(f"| {' | '.join(_markdown(cell) for cell in cells)} |")
    return "\n".join([*lines, ""])


_MARKDOWN_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {mark: f"\\{mark}" for mark in "\\`*_[]|#@"}
)


def _markdown(text: str) -> str:
    return printable(" ".join(text.split())).translate(_MARKDOWN_ESCAPES)


def _place(finding: Finding) -> str:
    parts = (finding.file or "-", finding.line, finding.column)
    return ":".join(str(part) for part in parts if part is not None)


def _summary(findings: Sequence[Finding]) -> str:
    failed = [f"{count} {severity}" for severity, count in by_severity(findings).items() if count]
    skipped = sum(finding.status == "not_evaluated" for finding in findings)
    return ", ".join(failed or ["no findings"]) + (f"; {skipped} not evaluated" if skipped else "")


def _to_sarif(findings: Sequence[Finding], checker: Checker) -> str:
    document = to_sarif(findings, name=checker.name, version=checker.version, url=checker.url)
    return strictjson.dumps_pretty(document).decode()


def _to_junit(findings: Sequence[Finding], checker: Checker) -> str:
    from toolgate.kit.reports.junit import to_junit  # noqa: PLC0415 (xml.sax brings an HTTP client, 8 ms)

    return to_junit(findings, name=checker.name)


FORMS: Final[Mapping[str, Callable[[Sequence[Finding], Checker], str]]] = {
    "text": _to_text,
    "json": _to_json,
    "sarif": _to_sarif,
    "junit": _to_junit,
    "github": _to_github,
    "markdown": _to_markdown,
}
