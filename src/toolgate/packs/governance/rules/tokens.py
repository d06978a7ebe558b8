"""MD-004 and L0-002: tokens that can write more than the job's work asks for."""

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
        reason = _unattended(workflow)
        if reason is None:
            continue
        for job in workflow.jobs:
            if reason == "schedule" and _never_on_schedule(job):
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
    if not token.permissions.stated and repository.config.default_permissions != "read":
        yield found(
            RepositoryPlace(repository, path, job.line),
            "MD-004",
            "medium",
            f"Job {job.id} of a scheduled or drift workflow states no permissions: the default may be write.",
            because=f"{_how(workflow)}, and neither it nor the job has a `permissions` key.",
            fix="Add `permissions: contents: read` to the workflow or the job (`toolgate analyze --fix`).",
            anchor=f"{job.id} unstated",
        )


def _unattended(workflow: Workflow) -> str | None:
    if workflow.trigger("schedule") is not None:
        return "schedule"
    file = workflow.path.rpartition("/")[2]
    return "drift" if any(_DRIFT.search(text) for text in (file, workflow.name or "")) else None


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
    for workflow in repository.workflows.values():
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
                    )
