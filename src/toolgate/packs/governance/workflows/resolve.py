"""What a job really runs: its own steps, those of composite actions and reusable workflows of the same repository.

`./path` and `$/path` both name the repository itself; the latter needs no checkout.
"""

from __future__ import annotations

from functools import cached_property
from posixpath import normpath
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.kit.yamldoc import YamlFault
from toolgate.packs.governance.workflows.workflow import Permissions, WorkflowStep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolgate.packs.governance.workflows.workflow import Action, Workflow, WorkflowJob

MAX_DEPTH: Final = 10
"""GitHub's own limit of workflows that call workflows; actions may nest as deep."""
MAX_RESOLVED: Final = 50_000
"""Steps and jobs looked at by one resolver: calls multiply, files do not."""
ACTION_FILES: Final = ("action.yml", "action.yaml")


def local_path(uses: str | None) -> str | None:
    """The path in the repository that `uses` names; None when it names something elsewhere."""
    if uses is None or not uses.startswith(("./", "$/")):
        return None
    return normpath(uses[2:])


class Token(Struct, frozen=True):
    """What a job may do, after callers and called workflows both had their say."""

    permissions: Permissions
    workflow: Workflow
    """Where the permissions are written, or should be."""
    job: WorkflowJob


class JobResolver:
    def __init__(self, workflows: Mapping[str, Workflow], actions: Mapping[str, Action]) -> None:
        self._workflows = workflows
        self._actions = actions
        self._looked = 0

    def called(self, job: WorkflowJob) -> Workflow | None:
        path = local_path(job.uses)
        return self._workflows.get(path) if path else None

    def action(self, step: WorkflowStep) -> Action | None:
        path = local_path(step.uses)
        if path is None:
            return None
        names = [f"{path}/{name}" if path != "." else name for name in ACTION_FILES]
        return next((self._actions[name] for name in names if name in self._actions), None)

    def steps(self, job: WorkflowJob, depth: int = MAX_DEPTH) -> Iterator[WorkflowStep]:
        """Every step that runs with the job's token; a workflow of another repository, which nobody sees into, is one step.

        Raises: YamlFault: more than MAX_RESOLVED.
        """
        for step in job.steps:
            yield from self._within(step, depth)
        called = self.called(job)
        if called is None and job.uses is not None:
            yield WorkflowStep(job.uses_line, job.uses)
        if called is not None and depth:
            for inner in called.jobs:
                yield from self.steps(inner, depth - 1)

    def _within(self, step: WorkflowStep, depth: int) -> Iterator[WorkflowStep]:
        self._count()
        yield step
        action = self.action(step)
        if action is not None and depth:
            for inner in action.steps:
                yield from self._within(inner, depth - 1)

    def tokens(self, workflow: Workflow, job: WorkflowJob, depth: int = MAX_DEPTH) -> Iterator[Token]:
        """The token of the job, or of each job that it calls: a called job has at most what both its own and its caller's
        permissions allow, and its caller's where it states none. Raises: YamlFault: more than MAX_RESOLVED."""
        self._count()
        own = Token(workflow.effective(job), workflow, job)
        called = self.called(job)
        if called is None or depth == 0:
            yield own
            return
        for inner in called.jobs:
            for token in self.tokens(called, inner, depth - 1):
                yield _narrowed(own, token)

    def states(self, workflow: Workflow, job: WorkflowJob, depth: int = MAX_DEPTH) -> bool:
        """Whether it is written what the job's token may do: at the job, in its workflow, or in every job that it calls.

        Raises: YamlFault: more than MAX_RESOLVED.
        """
        if workflow.effective(job).stated:
            return True
        called = self.called(job)
        if called is None or depth == 0:
            return False
        self._count()
        return all(self.states(called, inner, depth - 1) for inner in called.jobs)

    def only_called(self, workflow: Workflow) -> bool:
        """Nothing but calls of this repository's own start it, so its tokens are its callers'."""
        return workflow.path in self._called and {trigger.event for trigger in workflow.triggers} == {"workflow_call"}

    @cached_property
    def _called(self) -> frozenset[str | None]:
        return frozenset(local_path(job.uses) for workflow in self._workflows.values() for job in workflow.jobs)

    def _count(self) -> None:
        self._looked += 1
        if self._looked > MAX_RESOLVED:
            raise YamlFault(1, f"more than {MAX_RESOLVED} steps, actions and calls")


def _narrowed(caller: Token, called: Token) -> Token:
    if not called.permissions.stated:
        return caller
    if not caller.permissions.stated:
        return called
    if any(grant.scope == "*" for grant in caller.permissions.writes()):
        return called
    held = {grant.scope for grant in caller.permissions.writes()}
    everything = any(grant.scope == "*" for grant in called.permissions.writes())
    if everything:
        return caller
    grants = tuple(grant for grant in called.permissions.grants if grant.level != "write" or grant.scope in held)
    return Token(Permissions(called.permissions.line, "none", grants), called.workflow, called.job)
