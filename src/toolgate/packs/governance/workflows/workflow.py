"""A GitHub Actions workflow as the rules see it: triggers, permissions, jobs and steps, each with its line.

Read once from YAML nodes to a fixed depth; nothing here evaluates an expression.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from toolgate.kit import yamldoc
from toolgate.kit.yamldoc import Mapping, Scalar, Sequence, YamlFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolgate.kit.yamldoc import Node

MAX_ITEMS: Final = 5_000
"""Jobs, steps and permissions of one workflow after aliases: a thousand jobs that share one list of a thousand steps are
an attack."""

MAX_NAME: Final = 500
"""Characters of a job's name or of a value in its matrix: every combination of values makes a name of its own."""

Level = Literal["none", "read", "write", "unknown"]
_JOB_ID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_SCOPE: Final = re.compile(r"[a-z-]{1,40}")
_LEVELS: Final[dict[str, Level]] = {"none": "none", "read": "read", "write": "write"}
_ALL: Final[dict[str, Level]] = {"read-all": "read", "write-all": "write"}


class ScopeGrant(Struct, frozen=True):
    """One line that gives a token something: `contents: write`, or `write-all` with scope `*`."""

    scope: str
    level: Level
    line: int


class Permissions(Struct, frozen=True):
    """What a token may do. `unknown`: no key at all, so the repository's default applies and may be write."""

    line: int
    default: Level
    """For scopes that `grants` does not name: a map that is present sets them to none."""
    grants: tuple[ScopeGrant, ...] = ()

    @property
    def stated(self) -> bool:
        return self.default != "unknown"

    def writes(self) -> tuple[ScopeGrant, ...]:
        return tuple(grant for grant in self.grants if grant.level == "write")


class Trigger(Struct, frozen=True):
    event: str
    line: int
    path_filtered: bool = False
    """`paths` or `paths-ignore`: the workflow does not run, and reports nothing, for other changes."""


class WorkflowStep(Struct, frozen=True):
    line: int
    uses: str | None = None
    uses_line: int = 0
    run: str | None = None
    run_line: int = 0
    """Line of the script's first line."""


class Image(Struct, frozen=True):
    """A container image that a job runs in or beside."""

    text: str
    line: int


class Matrix(Struct, frozen=True):
    """`combinations` is None when the values come from an expression and are not known before it runs."""

    combinations: tuple[tuple[tuple[str, str], ...], ...] | None


class WorkflowJob(Struct, frozen=True):
    id: str
    line: int
    name: str | None = None
    permissions: Permissions | None = None
    uses: str | None = None
    uses_line: int = 0
    matrix: Matrix | None = None
    steps: tuple[WorkflowStep, ...] = ()
    images: tuple[Image, ...] = ()
    condition: str = ""
    """Its `if`."""


class Action(Struct, frozen=True, tag=True):
    """An action of the repository's own: the steps of a composite one, or the image of a container one."""

    path: str
    steps: tuple[WorkflowStep, ...] = ()
    images: tuple[Image, ...] = ()
    items: int = 0


class Workflow(Struct, frozen=True, tag=True):
    path: str
    name: str | None
    triggers: tuple[Trigger, ...]
    permissions: Permissions | None
    jobs: tuple[WorkflowJob, ...]
    items: int = 0
    """How much there is in it: jobs, steps and permissions."""

    def trigger(self, event: str) -> Trigger | None:
        return next((trigger for trigger in self.triggers if trigger.event == event), None)

    def effective(self, job: WorkflowJob) -> Permissions:
        """The job's own permissions replace the workflow's, they do not add to them."""
        return job.permissions or self.permissions or Permissions(line=job.line, default="unknown")


def read_workflow(path: str, data: bytes) -> Workflow:
    """Raises: YamlFault: not YAML, or not the shape of a workflow; with the line."""
    root = _a_map(yamldoc.read(data), "a workflow", 1)
    jobs_node = _a_map(root.get("jobs"), "`jobs`", root.line)
    if not jobs_node.entries:
        raise YamlFault(jobs_node.line, "`jobs` is empty")
    name = root.get("name")
    budget = _Budget()
    return Workflow(
        path=path,
        name=name.text if isinstance(name, Scalar) else None,
        triggers=_triggers(root, budget),
        permissions=_permissions(root, budget),
        jobs=tuple(_job(key, node, budget) for key, node in jobs_node.pairs()),
        items=budget.taken,
    )


def read_action(path: str, data: bytes) -> Action:
    """Raises: YamlFault: not YAML, or not the shape of an action; with the line."""
    root = _a_map(yamldoc.read(data), "an action", 1)
    runs = _a_map(root.get("runs"), "`runs`", root.line)
    steps, image = runs.get("steps"), runs.get("image")
    budget = _Budget()
    return Action(
        path=path,
        steps=_steps(steps, budget) if isinstance(steps, Sequence) else (),
        images=(Image(image.text, image.line),) if isinstance(image, Scalar) else (),
        items=budget.taken,
    )


class _Budget:
    def __init__(self) -> None:
        self.taken = 0

    def take(self, items: int, line: int) -> None:
        self.taken += items
        if self.taken > MAX_ITEMS:
            raise YamlFault(line, f"more than {MAX_ITEMS} jobs, steps and permissions")


def _a_map(node: Node | None, what: str, line: int) -> Mapping:
    if not isinstance(node, Mapping):
        raise YamlFault(node.line if node else line, f"{what} must be a map")
    return node


def _triggers(root: Mapping, budget: _Budget) -> tuple[Trigger, ...]:
    node = root.get("on")
    if isinstance(node, Scalar):
        return (Trigger(node.text, node.line),)
    if isinstance(node, Sequence):
        budget.take(len(node.items), node.line)
        return tuple(Trigger(item.text, item.line) for item in node.items if isinstance(item, Scalar))
    if isinstance(node, Mapping):
        budget.take(len(node.entries), node.line)
        return tuple(Trigger(key.text, key.line, _path_filtered(value)) for key, value in node.pairs())
    raise YamlFault(root.line, "`on` is missing: a workflow without triggers never runs")


def _path_filtered(node: Node) -> bool:
    return isinstance(node, Mapping) and ("paths" in node.entries or "paths-ignore" in node.entries)


def _permissions(owner: Mapping, budget: _Budget) -> Permissions | None:
    if "permissions" not in owner.entries:
        return None
    line, node = owner.key_line("permissions"), owner.get("permissions")
    if isinstance(node, Scalar) and node.text in _ALL:
        level = _ALL[node.text]
        return Permissions(line, level, (ScopeGrant("*", level, node.line),))
    if yamldoc.is_null(node):
        return Permissions(line, "none")
    grants = []
    scopes = _a_map(node, "`permissions`", line)
    budget.take(len(scopes.entries), line)
    for scope, value in scopes.pairs():
        level_or_none = _LEVELS.get(value.text) if isinstance(value, Scalar) else None
        if level_or_none is None or not _SCOPE.fullmatch(scope.text):
            raise YamlFault(scope.line, "`permissions` must give named scopes read, write or none")
        grants.append(ScopeGrant(scope.text, level_or_none, scope.line))
    return Permissions(line, "none", tuple(grants))


def _job(key: Scalar, node: Node, budget: _Budget) -> WorkflowJob:
    if not _JOB_ID.fullmatch(key.text):
        raise YamlFault(key.line, "a job id must be a letter or _, then letters, digits, - and _, at most 100")
    body = _a_map(node, f"job {key.text}", key.line)
    budget.take(1, key.line)
    uses, name, steps, condition = (body.get(key) for key in ("uses", "name", "steps", "if"))
    return WorkflowJob(
        id=key.text,
        line=key.line,
        name=_name(name) if isinstance(name, Scalar) else None,
        permissions=_permissions(body, budget),
        uses=uses.text if isinstance(uses, Scalar) else None,
        uses_line=uses.line if uses else 0,
        matrix=_matrix(body, budget),
        steps=_steps(steps, budget) if isinstance(steps, Sequence) else (),
        images=tuple(_images(body, budget)),
        condition=condition.text if isinstance(condition, Scalar) else "",
    )


def _images(body: Mapping, budget: _Budget) -> Iterator[Image]:
    """`container: NAME`, `container: {image: NAME}`, and the image of each service."""
    services = body.get("services")
    owners = [body.get("container"), *(value for _, value in services.pairs())] if isinstance(services, Mapping) else []
    owners = owners or [body.get("container")]
    budget.take(len(owners) - 1, body.line)
    for owner in owners:
        image = owner.get("image") if isinstance(owner, Mapping) else owner
        if isinstance(image, Scalar) and not yamldoc.is_null(image):
            yield Image(image.text, image.line)


def _name(node: Scalar) -> str:
    if len(node.text) > MAX_NAME:
        raise YamlFault(node.line, f"a job's name is longer than {MAX_NAME} characters")
    return node.text


def _steps(node: Sequence, budget: _Budget) -> tuple[WorkflowStep, ...]:
    budget.take(len(node.items), node.line)
    return tuple(_step(_a_map(item, "a step", node.line)) for item in node.items)


def _step(body: Mapping) -> WorkflowStep:
    uses, run = body.get("uses"), body.get("run")
    return WorkflowStep(
        line=body.line,
        uses=uses.text if isinstance(uses, Scalar) else None,
        uses_line=uses.line if uses else 0,
        run=run.text if isinstance(run, Scalar) else None,
        run_line=run.line + run.block if isinstance(run, Scalar) else 0,
    )


MAX_COMBINATIONS: Final = 256
"""GitHub's own limit of jobs per matrix."""


def _matrix(body: Mapping, budget: _Budget) -> Matrix | None:
    strategy = body.get("strategy")
    node = strategy.get("matrix") if isinstance(strategy, Mapping) else None
    if node is None:
        return None
    if not isinstance(node, Mapping):
        return Matrix(None)  # `${{ fromJSON(...) }}`
    budget.take(_values_in(node), node.line)
    axes: dict[str, list[str]] = {}
    for key, value in node.pairs():
        if key.text in ("include", "exclude"):
            continue
        values = _scalars(value)
        if values is None:
            return Matrix(None)
        axes[key.text] = values
    include, exclude = _tables(node.get("include")), _tables(node.get("exclude"))
    if include is None or exclude is None:
        return Matrix(None)
    return _expanded(axes, include, exclude)


def _values_in(matrix: Mapping) -> int:
    """How many values the matrix names, so that what is made of them is bounded as well."""
    lists = [value.items for _, value in matrix.pairs() if isinstance(value, Sequence)]
    return sum(len(item.entries) if isinstance(item, Mapping) else 1 for items in lists for item in items)


def _expanded(axes: dict[str, list[str]], include: list[dict[str, str]], exclude: list[dict[str, str]]) -> Matrix:
    combinations: list[dict[str, str]] = [{}] if axes else []
    for axis, values in axes.items():
        if len(combinations) * len(values) > MAX_COMBINATIONS:
            return Matrix(None)
        combinations = [combination | {axis: value} for combination in combinations for value in values]
    combinations = [
        combination for combination in combinations if not any(combination | out == combination for out in exclude)
    ]
    original = [dict(combination) for combination in combinations]
    for extra in include:
        # An entry joins every combination whose original values it does not change; else it is a combination of its own.
        fits = [
            i
            for i, combination in enumerate(original)
            if all(combination.get(k, v) == v for k, v in extra.items() if k in axes)
        ]
        for i in fits:
            combinations[i] |= extra
        if not fits:
            combinations.append(extra)
    return Matrix(tuple(tuple(combination.items()) for combination in combinations[:MAX_COMBINATIONS]))


def _scalars(node: Node) -> list[str] | None:
    if not isinstance(node, Sequence):
        return None
    texts = [_as_shown(item) for item in node.items if isinstance(item, Scalar)]
    known = len(texts) == len(node.items) and not any("${{" in text or len(text) > MAX_NAME for text in texts)
    return texts if known else None


def _tables(node: Node | None) -> list[dict[str, str]] | None:
    if node is None:
        return []
    if not isinstance(node, Sequence):
        return None
    tables = []
    for item in node.items:
        if not isinstance(item, Mapping):
            return None
        table = {key.text: _as_shown(value) for key, value in item.pairs() if isinstance(value, Scalar)}
        if len(table) != len(item.entries) or any("${{" in text or len(text) > MAX_NAME for text in table.values()):
            return None
        tables.append(table)
    return tables


def _as_shown(scalar: Scalar) -> str:
    """A plain `3.10` is the number 3.1 to GitHub, and so it stands in the check's name."""
    if not scalar.plain:
        return scalar.text
    for number in _NUMBERS:
        try:
            value = number(scalar.text)
        except ValueError:
            continue
        if isinstance(value, float) and not isfinite(value):
            break  # `nan`, `inf`, `1e999`: no number to anybody
        return str(int(value)) if value == int(value) else repr(value)
    return scalar.text


_NUMBERS: Final[tuple[Callable[[str], float], ...]] = (int, float)
