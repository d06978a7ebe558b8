"""What a rule is: it yields findings; one that lacks its evidence says so (`NotEvaluated`); one that breaks is itself a
critical finding, so a failing rule can never look like a clean repository. Pure, over a parsed repository."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from toolgate.kit.findings import Finding, Severity
from toolgate.packs.governance.repository.redact import redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from toolgate.packs.governance.repository.model import Repository

MAX_FINDINGS: Final = 3_000
"""Findings of one rule: after these nobody reads on, and a report holds fewer."""
MAX_QUOTED: Final = 80
"""Characters of a name in a message."""


class NotEvaluated(Exception):
    """The rule has nothing to look at. The text says what is missing."""


class NothingOfTheKind(NotEvaluated):
    """The repository has nothing that the rule is about, so nobody misses its verdict."""


class Rule(Struct, frozen=True):
    id: str
    version: int
    """Raised when the rule finds other things than before; part of the rules' digest."""
    severity: Severity
    title: str
    why: str
    evaluate: Callable[[Repository], Iterable[Finding]]


class RuleVerdict(Struct, frozen=True):
    """How one rule went. Plain values: it crosses a process border."""

    rule_id: str
    status: Literal["evaluated", "not_evaluated", "failed"]
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    is_missed: bool = True
    """Not evaluated, where somebody who insists on evaluation should hear of it."""


def evaluate(rule: Rule, repository: Repository) -> RuleVerdict:
    try:
        findings = tuple(islice(rule.evaluate(repository), MAX_FINDINGS + 1))
    except NotEvaluated as missing:
        is_missed = not isinstance(missing, NothingOfTheKind)
        return RuleVerdict(rule.id, "not_evaluated", reason=str(missing), is_missed=is_missed)
    except Exception as fault:  # noqa: BLE001 (the border: a rule that breaks must block, whatever broke it)
        kind = type(fault).__name__
        broken = Finding(
            rule.id,
            "fail",
            "critical",
            f"Rule {rule.id} could not be evaluated ({kind}).",
            why="A rule that breaks says nothing about the repository, so nothing may pass on its account.",
            fix="Report this with the files that cause it; until then judge by hand what the rule would have.",
            anchor=f"rule failed: {kind}",
            extra={"evaluationError": True},
        )
        return RuleVerdict(rule.id, "failed", (broken,), kind)
    explained = tuple(finding if finding.why else replace(finding, why=rule.why) for finding in findings)
    if len(explained) > MAX_FINDINGS:
        return RuleVerdict(
            rule.id, "evaluated", (*explained[:MAX_FINDINGS], too_many(rule)), f"ended at {MAX_FINDINGS} findings"
        )
    return RuleVerdict(rule.id, "evaluated", explained)


def too_many(rule: Rule) -> Finding:
    return Finding(
        rule.id,
        "fail",
        "critical",
        f"Rule {rule.id} found more than {MAX_FINDINGS} places; the others are not listed.",
        why="What is not listed has been judged by nobody, so nothing may pass on its account.",
        fix="Mend or drop what is listed, then look again.",
        anchor="too many findings",
        extra={"evaluationError": True},  # not to be suppressed, or those that are not listed would be with it
    )


class RepositoryPlace(NamedTuple):
    repository: Repository
    path: str
    line: int


def found(
    place: RepositoryPlace,
    rule: str,
    severity: Severity,
    message: str,
    *,
    because: str,
    fix: str,
    anchor: str,
    kind: str = "",
) -> Finding:
    """A finding with its line quoted. `because`: in one sentence, why it is true here; `kind`: of what sort, where a rule
    finds several."""
    extra = {"snippet": redacted(place.repository.line(place.path, place.line)), "because": because}
    return Finding(
        rule,
        "fail",
        severity,
        message,
        file=place.path,
        line=place.line,
        fix=fix,
        anchor=anchor,
        extra=extra | ({"kind": kind} if kind else {}),
    )


def quoted(text: str) -> str:
    """A name out of a file, bounded: what people read must not be as long as somebody likes."""
    return repr(text if len(text) <= MAX_QUOTED else text[: MAX_QUOTED - 1] + "…")


def need_workflows(repository: Repository) -> None:
    if not repository.workflows:
        raise NotEvaluated("there is no workflow that can be read")
