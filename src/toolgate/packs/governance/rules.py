"""The dissonance rules MD-001..MD-005, and MD-000 for files that cannot be understood: pure, over a parsed repository.

A rule yields findings; one that lacks its evidence says so (`NotEvaluated`); one that breaks is itself a critical
finding, so a failing rule can never look like a clean repository.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from toolgate.kit.findings import Finding, Severity
from toolgate.packs.governance.checknames import Reporter, reporters
from toolgate.packs.governance.installers import unpinned
from toolgate.packs.governance.redact import redacted
from toolgate.packs.governance.repository import CONTRACTS, MANIFEST, PROTECTION, Fault, Repository

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from toolgate.packs.governance.workflow import Job, Workflow

ADR: Final = "ADR-0008"
"""Where these rules are documented."""

MAX_QUOTED: Final = 80
"""Characters of a name in a message."""
_PINNED: Final = re.compile(r"[^@]+@[0-9a-f]{40}(?:[0-9a-f]{24})?")
_IMAGE: Final = re.compile(r"docker://[^@]+@sha256:[0-9a-f]{64}")
_DRIFT: Final = re.compile(r"(?:^|[^a-z])drift", re.IGNORECASE)


class NotEvaluated(Exception):
    """The rule has nothing to look at. The text says what is missing."""


class Rule(Struct, frozen=True):
    id: str
    version: int
    """Raised when the rule finds other things than before; part of the rules' digest."""
    severity: Severity
    title: str
    why: str
    evaluate: Callable[[Repository], Iterable[Finding]]


class Verdict(Struct, frozen=True):
    """How one rule went."""

    rule: Rule
    status: Literal["evaluated", "not_evaluated", "failed"]
    findings: tuple[Finding, ...] = ()
    reason: str = ""


def evaluate(rule: Rule, repository: Repository) -> Verdict:
    try:
        findings = tuple(rule.evaluate(repository))
    except NotEvaluated as missing:
        return Verdict(rule, "not_evaluated", reason=str(missing))
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
        return Verdict(rule, "failed", (broken,), kind)
    return Verdict(rule, "evaluated", findings)


# MD-000


def _md_000(repository: Repository) -> Iterator[Finding]:
    for path, file in repository.files.items():
        if isinstance(file.parsed, Fault):
            yield _found(
                repository,
                "MD-000",
                path,
                file.parsed.line,
                f"This file cannot be understood: {file.parsed.text}.",
                fix="Correct it: no rule has seen what is in it.",
                anchor=file.parsed.text,
            )


# MD-001 and MD-005


def _md_001(repository: Repository) -> Iterator[Finding]:
    required, every = _required(repository), reporters(repository.workflows)
    for check in required:
        reporting = [one for one in every if one.reports(check.context)]
        if not reporting:
            near = _similar(check.context, every)
            yield _found(
                repository,
                "MD-001",
                PROTECTION,
                check.line,
                f"Required check {_quoted(check.context)} is reported by no job, so pull requests wait for it for ever.",
                fix=f"Require {_quoted(near)} instead, or name a job {_quoted(check.context)}."
                if near
                else f"Name a job {_quoted(check.context)}, or drop it.",
                anchor=check.context,
            )
        elif _always_path_filtered(reporting):
            one = reporting[0]
            yield _found(
                repository,
                "MD-001",
                one.workflow.path,
                one.job.line,
                f"Required check {_quoted(check.context)} is only path-filtered: it stays pending for other changes.",
                severity="medium",
                fix="Drop the path filter and skip inside the job: a skipped job reports success.",
                anchor=f"path filter {check.context}",
            )


def _md_005(repository: Repository) -> Iterator[Finding]:
    required, every = _required(repository), reporters(repository.workflows)
    for check in required:
        reporting = [one for one in every if one.reports(check.context)]
        if reporting and not any(one.workflow.trigger("merge_group") for one in reporting):
            one = reporting[0]
            yield _found(
                repository,
                "MD-005",
                one.workflow.path,
                one.workflow.triggers[0].line if one.workflow.triggers else one.job.line,
                f"Required check {_quoted(check.context)} does not run on merge_group, so a merge queue waits for it for ever.",
                fix="Add `merge_group:` to the workflow's `on`.",
                anchor=check.context,
            )


def _required(repository: Repository) -> Sequence[Any]:
    if repository.protection is None:
        raise NotEvaluated(f"{PROTECTION} is missing or unreadable: which checks are required is not known")
    return repository.protection.checks


def _always_path_filtered(reporting: list[Reporter]) -> bool:
    """Two workflows with one check name are the usual pair (`paths` and `paths-ignore`) that always reports."""
    if len({one.workflow.path for one in reporting}) > 1:
        return False
    triggers = [one.workflow.trigger(event) for one in reporting for event in ("pull_request", "pull_request_target")]
    present = [trigger for trigger in triggers if trigger]
    return bool(present) and all(trigger.path_filtered for trigger in present)


def _similar(context: str, every: list[Reporter]) -> str | None:
    """The name a job does report under, when the required one is its id, its workflow's name or lacks the matrix."""
    wanted = context.casefold()
    for one in every:
        shown = "".join("*" if piece is None else piece for piece in one.name)
        if wanted in {
            one.job.id.casefold(),
            (one.job.name or "").casefold(),
            (one.workflow.name or "").casefold(),
            shown.casefold(),
        }:
            return shown
    return None


# MD-002


def _md_002(repository: Repository) -> Iterator[Finding]:
    _need_workflows(repository)
    for workflow in repository.workflows.values():
        for job in workflow.jobs:
            if job.uses is not None:
                yield from _unpinned_use(repository, workflow, job.uses, job.uses_line)
            for step in job.steps:
                if step.uses is not None:
                    yield from _unpinned_use(repository, workflow, step.uses, step.uses_line)
                for one in unpinned(step.run or ""):
                    yield _found(
                        repository,
                        "MD-002",
                        workflow.path,
                        step.run_line + one.offset,
                        f"Job {job.id}: {one.what}.",
                        severity="high" if one.to_shell else "medium",
                        fix="Fetch a named version, check its digest, then run it."
                        if one.to_shell
                        else "Name the exact version.",
                        anchor=one.text,
                    )


def _unpinned_use(repository: Repository, workflow: Workflow, uses: str, line: int) -> Iterator[Finding]:
    local = uses.startswith("./")
    if local or _PINNED.fullmatch(uses) or _IMAGE.fullmatch(uses):
        return
    what = "image" if uses.startswith("docker://") else "action"
    yield _found(
        repository,
        "MD-002",
        workflow.path,
        line,
        f"The {what} {redacted(uses)} is not pinned: whoever moves its tag runs code here.",
        fix="Pin the image by @sha256 digest."
        if what == "image"
        else "Pin it to a full commit SHA, with the version as a comment.",
        anchor=uses,
    )


# MD-003


def _md_003(repository: Repository) -> Iterator[Finding]:
    committed = [path for path in CONTRACTS if repository.table(path)]
    manifest = repository.table(MANIFEST)
    if not committed:
        raise NotEvaluated(f"{CONTRACTS[0]} is missing or unreadable")
    if repository.live_contract is None and manifest is None:
        raise NotEvaluated(f"there is no live contract and no {MANIFEST} to compare {committed[0]} with")
    for path in committed:
        if repository.live_contract is not None:
            yield from _against_live(repository, path, repository.live_contract)
        if manifest is not None:
            rows = {name: {key: row.get(key) for key in _POLICY_KEYS} for name, row in manifest.rows.items()}
            # A manifest may declare a tool before there is one, so only what the contract names is compared.
            yield from _differences(repository, path, rows, MANIFEST)


_POLICY_KEYS: Final = ("x-tier", "x-adr", "x-visibilityHint")


def _against_live(repository: Repository, path: str, live: dict[str, Any]) -> Iterator[Finding]:
    """Only packs that are enabled here are compared: a contract of all packs serves many deployments."""
    rows = {row["name"]: row for row in live["tools"]}
    enabled = {row.get("pack") for row in rows.values()}
    yield from _differences(repository, path, rows, "the running server", enabled)
    table = repository.table(path)
    for name in sorted(rows.keys() - (table.rows.keys() if table else ())):
        yield _contract_finding(
            repository, path, name, f"Tool {_quoted(name)} is served and not in the committed contract."
        )


def _differences(
    repository: Repository, path: str, other: dict[str, dict[str, Any]], where: str, packs: set[Any] | None = None
) -> Iterator[Finding]:
    table = repository.table(path)
    assert table is not None
    for name, row in sorted(table.rows.items()):
        if name not in other:
            if packs is None or row.get("pack") in packs:
                yield _contract_finding(
                    repository, path, name, f"Tool {_quoted(name)} is in the committed contract and not in {where}."
                )
            continue
        keys = sorted(key for key, value in other[name].items() if row.get(key) != value)
        if keys:
            yield _contract_finding(
                repository, path, name, f"Tool {_quoted(name)} differs from {where} in {', '.join(keys)}."
            )


def _contract_finding(repository: Repository, path: str, name: str, text: str) -> Finding:
    table = repository.table(path)
    return _found(
        repository,
        "MD-003",
        path,
        table.lines.get(name, 1) if table else 1,
        text,
        fix="If the change is meant, run `toolgate contract build`, review the difference and commit it.",
        anchor=text,
    )


# MD-004


def _md_004(repository: Repository) -> Iterator[Finding]:
    _need_workflows(repository)
    for workflow in repository.workflows.values():
        if not _runs_unattended(workflow):
            continue
        for job in workflow.jobs:
            yield from _write_token(repository, workflow, job)


def _write_token(repository: Repository, workflow: Workflow, job: Job) -> Iterator[Finding]:
    permissions = workflow.effective(job)
    for grant in permissions.writes():
        yield _found(
            repository,
            "MD-004",
            workflow.path,
            grant.line,
            f"Job {job.id} of a scheduled or drift workflow can write ({'everything' if grant.scope == '*' else grant.scope}).",
            fix="Give the watching job read only, and let another job, after review, do the writing.",
            anchor=f"{job.id} {grant.scope}",
        )
    if not permissions.stated:
        yield _found(
            repository,
            "MD-004",
            workflow.path,
            job.line,
            f"Job {job.id} of a scheduled or drift workflow states no permissions: the default may be write.",
            severity="medium",
            fix="Add `permissions: contents: read` to the workflow or the job.",
            anchor=f"{job.id} unstated",
        )


def _runs_unattended(workflow: Workflow) -> bool:
    file = workflow.path.rpartition("/")[2]
    return workflow.trigger("schedule") is not None or any(_DRIFT.search(text) for text in (file, workflow.name or ""))


# L0-002 inside the pipeline: the foundation is looked at first.


def _l0_002(repository: Repository) -> Iterator[Finding]:
    _need_workflows(repository)
    for workflow in repository.workflows.values():
        for permissions, owner in _stated_permissions(workflow):
            for grant in permissions.writes():
                if grant.scope == "*":
                    yield _found(
                        repository,
                        "L0-002",
                        workflow.path,
                        grant.line,
                        f"{owner} has a token that can write everything (write-all).",
                        fix="Name the scopes that are needed, at the job that needs them.",
                        anchor=f"{owner} write-all",
                    )


def _stated_permissions(workflow: Workflow) -> Iterator[tuple[Any, str]]:
    if workflow.permissions:
        yield workflow.permissions, "The workflow"
    for job in workflow.jobs:
        if job.permissions:
            yield job.permissions, f"Job {job.id}"


def _quoted(text: str) -> str:
    """A name out of a file, bounded: what people read must not be as long as somebody likes."""
    return repr(text if len(text) <= MAX_QUOTED else text[: MAX_QUOTED - 1] + "…")


def _need_workflows(repository: Repository) -> None:
    if not repository.workflows:
        raise NotEvaluated("there is no workflow that can be read")


def _found(
    repository: Repository,
    rule: str,
    path: str,
    line: int,
    message: str,
    *,
    fix: str,
    anchor: str,
    severity: Severity | None = None,
) -> Finding:
    known = _BY_ID[rule]
    return Finding(
        rule,
        "fail",
        severity or known.severity,
        message,
        file=path,
        line=line,
        why=known.why,
        fix=fix,
        anchor=anchor,
        extra={"snippet": redacted(repository.line(path, line))},
    )


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "L0-002",
        1,
        "critical",
        "Token that can write everything",
        "A token that can do everything makes every step a way in.",
        _l0_002,
    ),
    Rule("MD-000", 1, "high", "File cannot be understood", "A file that no rule can read may say anything.", _md_000),
    Rule(
        "MD-001",
        1,
        "high",
        "Required check that no job reports",
        "A required check that never comes stops every merge, or gets switched off.",
        _md_001,
    ),
    Rule(
        "MD-002",
        1,
        "medium",
        "Action or installer not pinned",
        "Code that is fetched by a movable name can be changed by others after review.",
        _md_002,
    ),
    Rule(
        "MD-003", 1, "critical", "Contract differs from what runs", "What was reviewed is not what is served.", _md_003
    ),
    Rule(
        "MD-004",
        1,
        "high",
        "Unattended workflow that can write",
        "A job nobody watches should not be able to change what it watches.",
        _md_004,
    ),
    Rule(
        "MD-005",
        1,
        "high",
        "Required check that skips the merge queue",
        "A merge queue waits for every required check on its own branch.",
        _md_005,
    ),
)
_BY_ID: Final = {rule.id: rule for rule in RULES}

RULES_DIGEST: Final = sha256(",".join(f"{rule.id}@{rule.version}" for rule in RULES).encode()).hexdigest()
"""Which rules made a report: two reports are comparable when this is equal."""
