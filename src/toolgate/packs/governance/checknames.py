"""Under which names a repository's jobs report their checks, because branch protection requires checks by name.

A check is called what the job's `name` says, else its id; matrix values follow in brackets unless the name already uses
an expression; a job that calls a reusable workflow reports `caller / called`.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.kit.yamldoc import YamlFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from toolgate.packs.governance.workflow import Job, Matrix, Workflow

MAX_CALL_DEPTH: Final = 10
"""GitHub's own limit of workflows that call workflows."""
MAX_NAMES: Final = 20_000
"""Check names of one repository: ten levels of calls with ten jobs each would be ten thousand million."""
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
    job: Job

    def reports(self, context: str) -> bool:
        return _fits(self.name, context)


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


def reporters(workflows: Mapping[str, Workflow]) -> list[Reporter]:
    """Every name that a commit can get a check under. Raises: YamlFault: more than MAX_NAMES."""
    endless = (
        Reporter(name, workflow, job)
        for workflow in workflows.values()
        if any(workflow.trigger(event) for event in REPORTING_EVENTS)
        for job in workflow.jobs
        for name in _names(job, workflows, MAX_CALL_DEPTH)
    )
    found = list(islice(endless, MAX_NAMES + 1))
    if len(found) > MAX_NAMES:
        raise YamlFault(1, f"more than {MAX_NAMES} check names")
    return found


def _names(job: Job, workflows: Mapping[str, Workflow], depth: int) -> Iterator[Pieces]:
    own = list(_own_names(job))
    if job.uses is None or not own:
        yield from own
        return
    called = workflows.get(job.uses.removeprefix("./")) if job.uses.startswith("./") else None
    if called is None or depth == 0:
        yield from ((*name, " / ", _ANYTHING) for name in own)
        return
    for inner in called.jobs:
        for inner_name in _names(inner, workflows, depth - 1):
            yield from ((*name, " / ", *inner_name) for name in own)


def _own_names(job: Job) -> Iterable[Pieces]:
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
