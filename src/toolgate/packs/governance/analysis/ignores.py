"""Which findings are suppressed, and what is wrong with the suppressions themselves. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from toolgate.kit.findings import Finding, Severity
from toolgate.kit.yamldoc import YamlFault
from toolgate.model.clock import rfc3339
from toolgate.packs.governance.repository.config import CONFIG
from toolgate.packs.governance.repository.suppressions import (
    SUPPRESSIONS,
    Ignore,
    SuppressionEntry,
    inline_ignores,
    knows,
    read_suppressions,
    zizmor_ignores,
)
from toolgate.packs.governance.rules.catalogue import GATE, SUPPRESSION, ZIZMOR

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from toolgate.packs.governance.repository.model import Repository
    from toolgate.packs.governance.stores.reviews import Suppression

_INLINE_SEVERITIES: Final = frozenset({"medium", "low", "info"})
"""What a comment may silence. More needs a reviewer and a ticket."""
_NEW: Final = "it is not so in the commit before the change."


class SuppressionGrounds(Struct, frozen=True):
    """Why a finding is suppressed."""

    source: str
    """`file`, `store` or `inline`."""
    reason: str
    reviewer: str
    ticket: str


class JudgedFindings(Struct, frozen=True):
    findings: tuple[Finding, ...]
    """All of them, the suppressed ones marked, and those about suppressions added."""
    grounds: Mapping[str, SuppressionGrounds]
    """By fingerprint."""


class BaseFiles(Struct, frozen=True):
    """The files that decide what is ignored, as they were before the judged change; a path that was not there is absent."""

    files: Mapping[str, bytes] = field(default_factory=dict)


def deciding_paths(repository: Repository) -> list[str]:
    """Files whose earlier form tells which ignores are new."""
    # The settings also where they are not: then the change may have deleted them.
    return [SUPPRESSIONS, CONFIG, *sorted({ignore.path for ignore in (*_inline(repository), *_for_zizmor(repository))})]


def judge_ignores(
    findings: Iterable[Finding],
    repository: Repository,
    stored: Iterable[Suppression],
    now: int,
    base: BaseFiles | None = None,
    evaluated: Container[str] = (),
) -> JudgedFindings:
    """`evaluated`: rules that have been asked, so that what they did not find is not there."""
    marked = list(findings)
    old = None if base is None else {entry.fingerprint for entry in _entries_in(base.files.get(SUPPRESSIONS))}
    grounds: dict[str, SuppressionGrounds] = {}
    about: list[Finding] = []
    by_fingerprint = {finding.fingerprint: index for index, finding in enumerate(marked)}

    def suppress(fingerprint: str, why: SuppressionGrounds) -> None:
        index = by_fingerprint[fingerprint]
        marked[index] = replace(marked[index], status="suppressed")
        grounds[fingerprint] = why

    for entry in repository.suppressed:
        index = by_fingerprint.get(entry.fingerprint)
        finding = marked[index] if index is not None else None
        if finding is None or finding.rule != entry.rule:
            asked = (ZIZMOR if entry.rule.startswith(f"{ZIZMOR}/") else entry.rule) in evaluated
            is_new = old is not None and entry.fingerprint not in old
            about.append(_never_known(entry) if asked and is_new else _gone(entry))
        elif entry.ends_at <= now:
            about.append(_expired(finding, entry.expires, entry.ticket, SUPPRESSIONS, entry.line))
        elif _can_be_suppressed(finding):
            suppress(entry.fingerprint, SuppressionGrounds("file", entry.reason, entry.reviewer, entry.ticket))
    for suppression in stored:
        index = by_fingerprint.get(suppression.fingerprint)
        finding = marked[index] if index is not None else None
        if finding is None or finding.rule != suppression.rule_id or finding.status == "suppressed":
            continue
        if suppression.expires_at <= now:
            about.append(
                _expired(
                    finding, rfc3339(suppression.expires_at / 1000)[:10], suppression.ticket, finding.file, finding.line
                )
            )
        elif _can_be_suppressed(finding):
            suppress(
                suppression.fingerprint,
                SuppressionGrounds("store", suppression.reason, suppression.reviewer, suppression.ticket),
            )
    for ignore in _inline(repository):
        about += _apply_inline(ignore, marked, suppress)
    about += _added(repository, base) if base is not None else []
    return JudgedFindings((*marked, *about), grounds)


def _can_be_suppressed(finding: Finding) -> bool:
    """A rule that broke cannot be, or a crash would silence it for good."""
    return not finding.extra.get("evaluationError")


def _inline(repository: Repository) -> Iterator[Ignore]:
    for path, file in repository.files.items():
        if file.type in ("workflow", "action"):
            yield from inline_ignores(path, file.text)


def _for_zizmor(repository: Repository) -> Iterator[Ignore]:
    for path, file in repository.files.items():
        if file.type in ("workflow", "action"):
            yield from zizmor_ignores(path, file.text)


def _apply_inline(
    ignore: Ignore, marked: list[Finding], suppress: Callable[[str, SuppressionGrounds], None]
) -> list[Finding]:
    if not ignore.reason:
        return [_refused(ignore, "it says no reason", "Say why, behind the bracket.")]
    unknown = next((rule for rule in ignore.rules if not knows(rule)), None)
    if unknown is not None or not ignore.rules:
        return [_refused(ignore, f"there is no rule {(unknown or '')[:40]!r}", "Name the rule as the finding does.")]
    here = [
        finding
        for finding in marked
        if finding.file == ignore.path and finding.line == ignore.at and finding.rule in ignore.rules
    ]
    if not here:
        return [_refused(ignore, "no such finding is there", "Remove the comment.", severity="low")]
    problems = []
    for finding in here:
        if finding.severity not in _INLINE_SEVERITIES or not _can_be_suppressed(finding):
            why = f"{finding.rule} is {finding.severity} here, and a comment can silence medium and below"
            problems.append(_refused(ignore, why, f"Put it into {SUPPRESSIONS}, with a reviewer and a ticket."))
        elif finding.status == "fail":
            suppress(finding.fingerprint, SuppressionGrounds("inline", ignore.reason, "", ""))
    return problems


def _refused(ignore: Ignore, because: str, fix: str, *, severity: Severity = "medium") -> Finding:
    return _about(
        ignore.path,
        ignore.line,
        f"This ignore is not honoured: {because}.",
        fix,
        f"inline {ignore.rules} {because}",
        severity,
        because=f"the comment is for {', '.join(ignore.rules)[:80] or 'no rule'} at line {ignore.at}.",
    )


def _gone(entry: SuppressionEntry) -> Finding:
    """It was reviewed with an earlier change, so its finding has been mended since; or it is not known what the change added."""
    message = f"This suppression of {entry.rule} ({entry.fingerprint}) hides nothing."
    because = f"no finding of {entry.rule} in this report has its fingerprint."
    return _about(
        SUPPRESSIONS, entry.line, message, "Remove it.", f"unknown {entry.fingerprint}", "low", because=because
    )


def _never_known(entry: SuppressionEntry) -> Finding:
    """The judged change adds it, and the rule finds nothing of the kind: mistyped, made up, or needless already."""
    return Finding(
        GATE,
        "fail",
        "critical",
        f"This change adds a suppression of {entry.rule} whose fingerprint {entry.fingerprint} is no finding's.",
        file=SUPPRESSIONS,
        line=entry.line,
        why="A suppression that matches nothing hides something else than its reviewer saw.",
        fix="Copy the fingerprint from the report (toolgate fp mark FINGERPRINT --in-repository writes the entry), or remove it.",
        anchor=f"never known {entry.fingerprint}",
        extra={"evaluationError": True, "because": f"line {entry.line} is new, and {entry.rule} found no such thing."},
    )


def _expired(finding: Finding, ended: str, ticket: str, path: str | None, line: int | None) -> Finding:
    what = f"The suppression of {finding.rule} in {finding.file or '-'}"
    message = f"{what} ended on {ended} ({ticket}), so the finding counts again."
    fix = f"Mend the finding, or review it again (toolgate fp mark {finding.fingerprint})."
    because = "what it hid is still there, and its time is over."
    anchor = f"expired {finding.fingerprint}"
    return _about(path or SUPPRESSIONS, line or 1, message, fix, anchor, "medium", because=because)


def _about(
    path: str, line: int, message: str, fix: str, anchor: str, severity: Severity, *, because: str = _NEW
) -> Finding:
    return Finding(
        SUPPRESSION,
        "fail",
        severity,
        message,
        file=path,
        line=line,
        why="What hides findings is judged like what makes them.",
        fix=fix,
        anchor=anchor,
        extra={"because": because},
    )


def _added(repository: Repository, base: BaseFiles) -> Iterator[Finding]:
    """Whoever makes a finding must not be able to hide it unseen in the same change."""
    old = [(path, data.decode(errors="replace")) for path, data in base.files.items()]
    yield from _more(_inline(repository), (ignore for file in old for ignore in inline_ignores(*file)), "low")
    # zizmor heeds its comments whatever they hide, and asks for no reason: they weigh what a suppression does.
    yield from _more(_for_zizmor(repository), (ignore for file in old for ignore in zizmor_ignores(*file)), "medium")
    known = {(entry.fingerprint, entry.expires) for entry in _entries_in(base.files.get(SUPPRESSIONS))}
    for entry in repository.suppressed:
        if (entry.fingerprint, entry.expires) not in known:
            who = f"{entry.reviewer} ({entry.ticket})"
            message = f"This change adds a suppression of {entry.rule} by {who}: {entry.reason[:200]}."
            anchor = f"added {entry.fingerprint}"
            yield _about(SUPPRESSIONS, entry.line, message, "Review it with the change.", anchor, "medium")
    config = repository.files.get(CONFIG)
    if config is None and CONFIG in base.files:
        message = f"This change deletes {CONFIG}, which decided how changes are judged."
        yield _about(CONFIG, 1, message, "Review it with the change.", "settings deleted", "medium")
    elif config is not None and config.text.encode() != base.files.get(CONFIG, b""):
        message = f"This change edits {CONFIG}, which decides how it is judged."
        yield _about(CONFIG, 1, message, "Review it with the change.", "settings changed", "medium")


def _more(now: Iterable[Ignore], before: Iterable[Ignore], severity: Severity) -> Iterator[Finding]:
    """Comments beyond as many of the same wording as the file had: one may move, and a copy of it is one more."""
    left = Counter((ignore.path, ignore.rules, ignore.reason) for ignore in before)
    for ignore in now:
        same = (ignore.path, ignore.rules, ignore.reason)
        if left[same] > 0:
            left[same] -= 1
            continue
        rules = ", ".join(ignore.rules)[:80]
        message = f"This change adds an ignore of {rules}: {ignore.reason[:200] or 'no reason'}."
        anchor = f"added {rules} {ignore.reason}"
        yield _about(ignore.path, ignore.line, message, "Review it with the change.", anchor, severity)


def _entries_in(data: bytes | None) -> tuple[SuppressionEntry, ...]:
    try:
        return read_suppressions(data).entries if data else ()
    except YamlFault:
        return ()
