"""Under which names a repository's jobs report their checks, because branch protection requires checks by name.

A check is called what the job's `name` says, else its id; matrix values follow in brackets unless the name already uses
an expression; a job that calls a reusable workflow reports `caller / called`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.kit.yamldoc import YamlFault
from toolgate.packs.governance.workflows.resolve import MAX_DEPTH, local_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from toolgate.packs.governance.workflows.workflow import Matrix, Workflow, WorkflowJob

MAX_NAMES: Final = 20_000
"""Check names of one repository, and jobs looked at to find them: ten levels of calls with ten jobs each would be ten
thousand million."""
REPORTING_EVENTS: Final = ("pull_request", "pull_request_target", "push", "merge_group")
"""Events whose runs put checks on the commit that branch protection looks at."""

_EXPRESSION: Final = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_MATRIX_VALUE: Final = re.compile(r"\s*matrix\.([A-Za-z_][A-Za-z0-9_-]*)\s*")
_ANYTHING: Final = None

Pieces = tuple[str | None, ...]
"""Text, and None where the value is known only when it runs."""


class Reporter(Struct, frozen=True):
    """A job of a workflow and one name under which it reports."""

    name: Pieces
    workflow: Workflow
    job: WorkflowJob

    def reports(self, context: str) -> bool:
        return _fits(self.name, context)

    @property
    def shown(self) -> str:
        return "".join("*" if piece is None else piece for piece in self.name)


def _fits(pieces: Pieces, text: str) -> bool:
    """Each known piece in order; linear, where a regular expression of many `.*` would not be."""
    literals = "".join("\0" if piece is None else piece for piece in pieces).split("\0")
    if len(literals) == 1:
        return literals[0] == text
    first, *middle, last = literals
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for literal in middle:
        found = text.find(literal, at, end)
        if found < 0:
            return False
        at = found + len(literal)
    return True


class Reporters:
    """Every name that a commit can get a check under, found by the name."""

    def __init__(self, workflows: Mapping[str, Workflow]) -> None:
        """Raises: YamlFault: more than MAX_NAMES."""
        self._exact: dict[str, list[Reporter]] = defaultdict(list)
        self._open: list[Reporter] = []
        """Those with a piece that is known only when it runs."""
        self._near: dict[str, str] = {}
        self.count = 0
        """How many names there are."""
        for reporter in reporters(workflows):
            self.count += 1
            if _ANYTHING in reporter.name:
                self._open.append(reporter)
            else:
                self._exact["".join(piece or "" for piece in reporter.name)].append(reporter)
            shown = reporter.shown
            for near in (reporter.job.id, reporter.job.name or "", reporter.workflow.name or "", shown):
                self._near.setdefault(near.casefold(), shown)

    def of(self, context: str) -> list[Reporter]:
        return [*self._exact.get(context, ()), *(reporter for reporter in self._open if reporter.reports(context))]

    def similar(self, context: str) -> str | None:
        """The name a job does report under, when the required one is its id, its workflow's name or lacks the matrix."""
        return self._near.get(context.casefold())


def reporters(workflows: Mapping[str, Workflow]) -> list[Reporter]:
    """Every name that a commit can get a check under. Raises: YamlFault: more than MAX_NAMES."""
    walk = _Walk(workflows)
    endless = (
        Reporter(name, workflow, job)
        for workflow in workflows.values()
        if any(workflow.trigger(event) for event in REPORTING_EVENTS)
        for job in workflow.jobs
        for name in walk.names(job, MAX_DEPTH)
    )
    found = list(islice(endless, MAX_NAMES + 1))
    if len(found) > MAX_NAMES:
        raise YamlFault(1, f"more than {MAX_NAMES} check names")
    return found


class _Walk:
    """From jobs into the workflows they call. Counts its steps: calls that lead to no name must end as well."""

    def __init__(self, workflows: Mapping[str, Workflow]) -> None:
        self._workflows = workflows
        self._steps = 0

    def names(self, job: WorkflowJob, depth: int) -> Iterator[Pieces]:
        self._steps += 1
        if self._steps > MAX_NAMES:
            raise YamlFault(1, f"more than {MAX_NAMES} jobs call each other")
        own = list(_own_names(job))
        if job.uses is None or not own:
            yield from own
            return
        called = self._workflows.get(local_path(job.uses) or "")
        if called is None or depth == 0:
            yield from ((*name, " / ", _ANYTHING) for name in own)
            return
        for inner in called.jobs:
            for inner_name in self.names(inner, depth - 1):
                yield from ((*name, " / ", *inner_name) for name in own)


def _own_names(job: WorkflowJob) -> Iterable[Pieces]:
    name = job.name or job.id
    dynamic = _EXPRESSION.search(name) is not None
    if job.matrix is None:
        return [_filled(name, {})]
    if job.matrix.combinations is None:
        return [_filled(name, {}) if dynamic else (f"{name} (", _ANYTHING, ")")]
    if dynamic:
        return [_filled(name, dict(values)) for values in job.matrix.combinations]
    return [(_with_suffix(name, job.matrix, i),) for i in range(len(job.matrix.combinations))]


def _with_suffix(name: str, matrix: Matrix, index: int) -> str:
    assert matrix.combinations is not None
    return f"{name} ({', '.join(value for _, value in matrix.combinations[index])})"


def _filled(name: str, values: Mapping[str, str]) -> Pieces:
    pieces: list[str | None] = []
    for index, part in enumerate(_EXPRESSION.split(name)):
        if index % 2 == 0:
            pieces.append(part)
        else:
            matrix_value = _MATRIX_VALUE.fullmatch(part)
            pieces.append(values.get(matrix_value[1]) if matrix_value else _ANYTHING)
    return tuple(piece for piece in pieces if piece != "")
