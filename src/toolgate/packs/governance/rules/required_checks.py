"""MD-001 and MD-005: checks that branch protection requires, and the jobs that should report them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from toolgate.packs.governance.repository.config import CONFIG
from toolgate.packs.governance.repository.protection import CLASSIC, RULES, Protection, RequiredCheck
from toolgate.packs.governance.rules.base import NotEvaluated, RepositoryPlace, found, quoted
from toolgate.packs.governance.workflows.checknames import Reporter, Reporters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.kit.findings import Finding
    from toolgate.packs.governance.repository.model import Repository


class _Required(Struct, frozen=True):
    path: str
    check: RequiredCheck


def md_001(repository: Repository) -> Iterator[Finding]:
    required, every = _required(repository), Reporters(repository.workflows)
    for requirement in required:
        check = requirement.check
        reporting = every.of(check.context)
        if not reporting:
            near = every.similar(check.context)
            yield found(
                RepositoryPlace(repository, requirement.path, check.line),
                "MD-001",
                "high",
                f"Required check {quoted(check.context)} is reported by no job, so pull requests wait for it for ever.",
                because=f"none of the {every.count} check names of {len(repository.workflows)} workflows is that one.",
                fix=f"Require {quoted(near)} instead, or name a job {quoted(check.context)}."
                if near
                else f"Name a job {quoted(check.context)}, or drop it.",
                anchor=check.context,
            )
        elif _always_path_filtered(reporting):
            reporter = reporting[0]
            yield found(
                RepositoryPlace(repository, reporter.workflow.path, reporter.job.line),
                "MD-001",
                "medium",
                f"Required check {quoted(check.context)} is only path-filtered: it stays pending for other changes.",
                because=f"only job {reporter.job.id} reports it, and its workflow has a path filter on pull requests.",
                fix="Drop the path filter and skip inside the job: a skipped job reports success.",
                anchor=f"path filter {check.context}",
            )


def md_005(repository: Repository) -> Iterator[Finding]:
    required, every = _required(repository), Reporters(repository.workflows)
    if not _has_queue(repository):
        return
    for requirement in required:
        reporting = every.of(requirement.check.context)
        if reporting and not any(reporter.workflow.trigger("merge_group") for reporter in reporting):
            reporter = reporting[0]
            triggers = reporter.workflow.triggers
            yield found(
                RepositoryPlace(
                    repository, reporter.workflow.path, triggers[0].line if triggers else reporter.job.line
                ),
                "MD-005",
                "high",
                f"Required check {quoted(requirement.check.context)} does not run on merge_group, so a merge queue waits for it "
                "for ever.",
                because=f"its workflow runs on {', '.join(sorted({trigger.event for trigger in triggers}))[:200]} only.",
                fix="Add `merge_group:` to the workflow's `on`.",
                anchor=requirement.check.context,
            )


def _has_queue(repository: Repository) -> bool:
    """As the repository says, or its rules do, or a workflow shows that runs for one.

    Raises: NotEvaluated: the code host's answer on classic protection has no field for it, and nothing else tells.
    """
    said = repository.config.merge_queue
    if said is not None:
        return said
    queues = [protection.merge_queue for _, protection in repository.protections]
    if True in queues or any(workflow.trigger("merge_group") for workflow in repository.workflows.values()):
        return True
    if None in queues:
        raise NotEvaluated(f"{CLASSIC} cannot say whether there is a merge queue: set merge_queue in {CONFIG}")
    return False


def _required(repository: Repository) -> list[_Required]:
    protections: list[tuple[str, Protection]] = repository.protections
    if not protections:
        raise NotEvaluated(f"{CLASSIC} and {RULES} are missing: which checks are required is not known")
    seen: dict[str, _Required] = {}
    for path, protection in protections:
        for check in protection.checks:
            seen.setdefault(check.context, _Required(path, check))
    return list(seen.values())


def _always_path_filtered(reporting: list[Reporter]) -> bool:
    """Two workflows with one check name are the usual pair (`paths` and `paths-ignore`) that always reports."""
    if len({reporter.workflow.path for reporter in reporting}) > 1:
        return False
    triggers = [
        reporter.workflow.trigger(event) for reporter in reporting for event in ("pull_request", "pull_request_target")
    ]
    present = [trigger for trigger in triggers if trigger]
    return bool(present) and all(trigger.path_filtered for trigger in present)
