"""Findings of zizmor, out of its SARIF: for what our rules do not look at (injection, triggers, caches, credentials).

Where both found the same thing in the same place there is one finding, ours, and it says who else found it. Pure: the
program itself is run by the command (`cli/zizmor.py`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from msgspec.structs import replace

from toolgate.kit.findings import Finding, Severity
from toolgate.kit.reports.printable import printable
from toolgate.model import strictjson
from toolgate.packs.governance.repository.redact import redacted
from toolgate.packs.governance.rules.base import RuleVerdict
from toolgate.packs.governance.rules.catalogue import BY_ID, ZIZMOR
from toolgate.packs.governance.rules.tokens import UNSTATED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_SARIF_BYTES: Final = 64 * 1024 * 1024
MAX_RESULTS: Final = 3_000
_SAME: Final[Mapping[str, frozenset[str]]] = {
    "zizmor/unpinned-uses": frozenset({"MD-002"}),
    "zizmor/unpinned-images": frozenset({"MD-002"}),
    "zizmor/adhoc-packages": frozenset({"MD-002"}),
    "zizmor/excessive-permissions": frozenset({"L0-002", "MD-004"}),
}
"""Its rules that mean what ours do."""
_UNSTATED_THERE: Final = "default permissions used"
"""In zizmor's message, where its reason is that no `permissions` key is there."""
_Place = tuple[str, str | None, int | None]
"""Rule, file, line."""
_SEVERITY: Final[Mapping[str, Severity]] = {"High": "high", "Medium": "medium", "Low": "low", "Informational": "info"}
_LOWER: Final[Mapping[Severity, Severity]] = {"high": "medium", "medium": "low", "low": "info", "info": "info"}


_UNLOOKED: Final = "so template injection, dangerous triggers, cache poisoning and leaked credentials are not judged"
NOT_ASKED: Final = f"a server starts no program, {_UNLOOKED} (toolgate analyze runs zizmor)"
SWITCHED_OFF: Final = f"zizmor is switched off, {_UNLOOKED}"


def missing(reason: str, *, is_missed: bool = True) -> RuleVerdict:
    return RuleVerdict(ZIZMOR, "not_evaluated", reason=reason, is_missed=is_missed)


class SarifFault(ValueError):
    """Not what zizmor writes. The text says how."""


def read_sarif(data: bytes, prefix: str = "") -> tuple[Finding, ...]:
    """`prefix`: what stands before our paths where zizmor names files from the top of a larger checkout. Raises: SarifFault."""
    try:
        document = strictjson.loads(data, max_bytes=MAX_SARIF_BYTES, max_values=None)
        runs = document["runs"]
        results = [result for run in runs for result in run["results"]]
        names = {run["tool"]["driver"]["name"] for run in runs}
        succeeded = all(
            invocation.get("executionSuccessful") is True for run in runs for invocation in run.get("invocations", ())
        )
        found = tuple(_finding(result, prefix) for result in results[:MAX_RESULTS])
    except (strictjson.JsonFault, KeyError, TypeError, AttributeError, IndexError) as fault:
        raise SarifFault(f"its answer is not SARIF as zizmor writes it ({type(fault).__name__})") from None
    if names != {"zizmor"} or not succeeded:
        raise SarifFault("its answer is not of a run that succeeded")
    if len(results) > MAX_RESULTS:
        raise SarifFault(f"it has more than {MAX_RESULTS} findings")
    return found


def _finding(result: dict[str, Any], prefix: str) -> Finding:
    place = result["locations"][0]["physicalLocation"]
    rule, region, properties = str(result["ruleId"]), place["region"], result["properties"]
    severity = _SEVERITY[properties["zizmor/severity"]]
    if properties["zizmor/confidence"] == "Low":
        severity = _LOWER[severity]
    if not rule.startswith(f"{ZIZMOR}/"):
        rule = f"{ZIZMOR}/{rule}"
    text = str(result["message"]["text"])
    snippet, audit = str(region.get("snippet", {}).get("text", "")).partition("\n")[0], rule.removeprefix(f"{ZIZMOR}/")
    at = f"`{redacted(snippet)}`" if snippet else "this line"
    return Finding(
        rule,
        "fail",
        severity,
        f"{printable(text[:300])} (zizmor)",
        file=unquote(place["artifactLocation"]["uri"]).removeprefix(prefix),
        line=int(region["startLine"]),
        why=BY_ID[ZIZMOR].why,
        fix=f"See https://docs.zizmor.sh/audits/#{audit}.",
        anchor=snippet or text,
        extra={"snippet": redacted(snippet), "because": f"{at} is what its audit {audit} is about."},
    )


def merged(verdicts: Iterable[RuleVerdict], foreign: RuleVerdict, default: str | None = None) -> list[RuleVerdict]:
    """One list: a finding of zizmor's that one of ours already tells is credited there and not told twice.

    `default`: the repository's default permissions, where they are given; then read answers what zizmor asks of jobs that
    state none.
    """
    own = list(verdicts)
    by_file: dict[str | None, list[Finding]] = defaultdict(list)
    for ours in (finding for verdict in own for finding in verdict.findings):
        by_file[ours.file].append(ours)
    credit: dict[_Place, set[str]] = {}
    left, answered = [], 0
    for finding in foreign.findings:
        if "/.github/" in (finding.file or ""):
            continue  # of a repository within this one (fixtures, a vendored copy): nothing there runs
        same = [ours for ours in by_file[finding.file] if _is_same(finding, ours)]
        for ours in same:
            credit.setdefault(_place(ours), set()).add(finding.rule)
        if not same and default == "read" and _UNSTATED_THERE in finding.message:
            answered += 1
        elif not same:
            left.append(finding)
    credited = [
        replace(verdict, findings=tuple(_credited(finding, credit) for finding in verdict.findings)) for verdict in own
    ]
    reason = f"{answered} about default permissions left out: the default is read" if answered else foreign.reason
    return [*credited, replace(foreign, findings=tuple(left), reason=reason)]


def _is_same(finding: Finding, ours: Finding) -> bool:
    """Of a workflow without permissions zizmor tells each job, and once more the whole of it: at line 1."""
    if ours.rule not in _SAME.get(finding.rule, ()):
        return False
    of_the_whole = finding.line == 1 and _UNSTATED_THERE in finding.message and ours.anchor.endswith(UNSTATED)
    return finding.line == ours.line or of_the_whole


def _place(finding: Finding) -> _Place:
    return finding.rule, finding.file, finding.line


def _credited(finding: Finding, credit: Mapping[_Place, set[str]]) -> Finding:
    others = credit.get(_place(finding))
    return replace(finding, extra={**finding.extra, "alsoFoundBy": sorted(others)}) if others else finding
