"""Findings as JUnit XML: one test case per finding, as build servers show them."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolgate.kit.findings import Finding

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""XML 1.0 section 2.2: characters that no document may hold, not even escaped."""


def to_junit(findings: Sequence[Finding], *, name: str, titles: Mapping[str, str] = MappingProxyType({})) -> str:
    """In the order given. `titles`: what a rule is called beside its id."""
    failures = sum(finding.status == "fail" for finding in findings)
    skipped = sum(finding.status in ("not_evaluated", "suppressed") for finding in findings)
    counts = f'tests="{len(findings)}" failures="{failures}" errors="0" skipped="{skipped}"'
    cases = "".join(_case(finding, titles.get(finding.rule, "")) for finding in findings)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites {counts}>\n'
        f'<testsuite name={_attribute(name)} {counts} time="0">\n{cases}</testsuite>\n</testsuites>\n'
    )


def _case(finding: Finding, label: str) -> str:
    place = ":".join(str(part) for part in (finding.file, finding.line, finding.column) if part is not None)
    title = " ".join(part for part in (finding.rule, label, place) if part)
    head = f'<testcase classname={_attribute(finding.rule)} name={_attribute(title)} time="0"'
    if finding.status == "pass":
        return f"{head}/>\n"
    if finding.status == "fail":
        said = (finding.message, finding.because, finding.why, finding.fix and f"Fix: {finding.fix}")
        text = "\n".join(part for part in said if part)
        named = f"message={_attribute(finding.message)} type={_attribute(finding.severity)}"
        body = f"<failure {named}>{_text(text)}</failure>"
    else:
        body = f"<skipped message={_attribute(f'{finding.status}: {finding.message}')}/>"
    return f"{head}>{body}</testcase>\n"


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("�", text))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("�", text))
