"""MD-004 and L0-002: tokens that can write more than the job's work asks for, or nobody knows what."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from toolgate.packs.governance.rules.base import RepositoryPlace, found, need_workflows
from toolgate.packs.governance.workflows.needs import needed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.kit.findings import Finding
    from toolgate.packs.governance.repository.model import Repository
    from toolgate.packs.governance.workflows.resolve import Token
    from toolgate.packs.governance.workflows.workflow import Workflow, WorkflowJob

_DRIFT: Final = re.compile(r"(?:^|[^a-z])drift(?:s|ed|ing)?(?:[^a-z]|$)", re.IGNORECASE)
SPEAKING: Final = frozenset(
    {"issues", "pull-requests", "discussions", "repository-projects", "models", "id-token", "attestations"}
)
"""Scopes with which a job can say something, or prove who it is, and change nothing that is built, released or required."""
UNSTATED: Final = "unstated"
"""At the end of the anchor of a job that states no permissions."""
_OTHER_EVENT: Final = re.compile(r"github\.event_name\s*==\s*['\"](?!schedule['\"])[a-z_]+['\"]")
_NOT_SCHEDULE: Final = re.compile(r"github\.event_name\s*!=\s*['\"]schedule['\"]")
_ON_A_TAG: Final = re.compile(
    r"startsWith\(\s*github\.(?:event\.)?ref\s*,\s*['\"]refs/tags/[^'\"]*['\"]\s*\)|github\.ref_type\s*==\s*['\"]tag['\"]",
    re.IGNORECASE,
)
"""A schedule runs on the default branch, never on a tag."""
_EXCLUDING: Final = (_OTHER_EVENT, _NOT_SCHEDULE, _ON_A_TAG)


def md_004(repository: Repository) -> Iterator[Finding]:
    need_workflows(repository)
    resolver = repository.resolver()
    for workflow in repository.workflows.values():
        for job in workflow.jobs:
            if not _is_unattended(workflow, job):
                continue
            wanted = needed(resolver.steps(job))
            seen: set[tuple[str, int]] = set()
            for token in resolver.tokens(workflow, job):
                for finding in _token(repository, workflow, token, wanted):
                    place = finding.file or "", finding.line or 0
                    if place not in seen:
                        seen.add(place)
                        yield finding


def _token(repository: Repository, workflow: Workflow, token: Token, wanted: frozenset[str]) -> Iterator[Finding]:
    job, path = token.job, token.workflow.path
    for grant in token.permissions.writes():
        if grant.scope in SPEAKING or grant.scope in wanted or repository.may_write(path, job.id, grant.scope):
            continue
        scope = "everything" if grant.scope == "*" else grant.scope
        yield found(
            RepositoryPlace(repository, path, grant.line),
            "MD-004",
            "high",
            f"Job {job.id} of a scheduled or drift workflow can write ({scope}).",
            because=f"{_how(workflow)}, and no step that is known to need {scope} is in the job.",
            fix="Give the watching job read only and let another, after review, write; or name it under `write` in "
            ".toolgate.toml.",
            anchor=f"{job.id} {grant.scope}",
        )
    if not token.permissions.stated and repository.config.default_permissions is None:
        yield found(
            RepositoryPlace(repository, path, job.line),
            "MD-004",
            "medium",
            f"Job {job.id} of a scheduled or drift workflow states no permissions: the default may be write.",
            because=f"{_how(workflow)}, and neither it nor the job has a `permissions` key.",
            fix="Add `permissions: contents: read` to the workflow or the job (`toolgate analyze --fix`).",
            anchor=f"{job.id} {UNSTATED}",
            kind="unknown",
        )


def _is_unattended(workflow: Workflow, job: WorkflowJob) -> bool:
    if workflow.trigger("schedule") is not None:
        return not _never_on_schedule(job)
    file = workflow.path.rpartition("/")[2]
    return any(_DRIFT.search(text) for text in (file, workflow.name or ""))


def _how(workflow: Workflow) -> str:
    return "its workflow runs on a schedule" if workflow.trigger("schedule") else "its workflow is named after drift"


def _never_on_schedule(job: WorkflowJob) -> bool:
    """A plain conjunction of which one part excludes the schedule; anything less plain counts as unattended."""
    if "||" in job.condition:
        return False
    parts = job.condition.removeprefix("${{").removesuffix("}}").split("&&")
    return any(pattern.fullmatch(part.strip()) for part in parts for pattern in _EXCLUDING)


def l0_002(repository: Repository) -> Iterator[Finding]:
    need_workflows(repository)
    resolver, default = repository.resolver(), repository.config.default_permissions
    for workflow in repository.workflows.values():
        yield from _write_all(repository, workflow)
        if default == "read" or resolver.only_called(workflow):
            continue
        for job in workflow.jobs:
            if resolver.states(workflow, job):
                continue
            if default == "write":
                yield from _written_by_default(repository, workflow, job)
            elif not _is_unattended(workflow, job):  # of those MD-004 tells it
                yield _unknown(repository, workflow, job)


def _write_all(repository: Repository, workflow: Workflow) -> Iterator[Finding]:
    owners = [(workflow.permissions, "The workflow", "*")]
    owners += [(job.permissions, f"Job {job.id}", job.id) for job in workflow.jobs]
    for permissions, owner, job in owners:
        for grant in permissions.writes() if permissions else ():
            if grant.scope == "*" and not repository.may_write(workflow.path, job, "*"):
                yield found(
                    RepositoryPlace(repository, workflow.path, grant.line),
                    "L0-002",
                    "critical",
                    f"{owner} has a token that can write everything (write-all).",
                    because=f"line {grant.line} says write-all, and nothing below narrows it.",
                    fix="Name the scopes that are needed, at the job that needs them.",
                    anchor=f"{owner} write-all",
                    kind="write-all",
                )


def _written_by_default(repository: Repository, workflow: Workflow, job: WorkflowJob) -> Iterator[Finding]:
    if repository.may_write(workflow.path, job.id, "*"):
        return
    yield found(
        RepositoryPlace(repository, workflow.path, job.line),
        "L0-002",
        "critical",
        f"Job {job.id} states no permissions, so its token can write everything.",
        because="neither it nor its workflow has a `permissions` key, and the repository's default is write.",
        fix="Add `permissions: contents: read` to the workflow or the job (`toolgate analyze --fix`).",
        anchor=f"{job.id} {UNSTATED}",
        kind="write-all",
    )


def _unknown(repository: Repository, workflow: Workflow, job: WorkflowJob) -> Finding:
    """Low: it warns, whatever else was found, and does not block, because nothing wrong has been seen."""
    return found(
        RepositoryPlace(repository, workflow.path, job.line),
        "L0-002",
        "low",
        f"Job {job.id} states no permissions: what its token can write is not known.",
        because="neither it nor its workflow has a `permissions` key, and the repository's default is not given.",
        fix="Add `permissions: contents: read` to the workflow or the job (`toolgate analyze --fix`), or name the default "
        "(--default-permissions, or default_permissions in .toolgate.toml).",
        anchor=f"{job.id} {UNSTATED}",
        kind="unknown",
    )
