"""What the tokens of workflows may write that nobody allowed (L0-002). Pure; the files are strangers', so for a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from toolgate.packs.governance.repository.model import File, FileFault, Repository, parse_as
from toolgate.packs.governance.workflows.needs import needed
from toolgate.packs.governance.workflows.workflow import Workflow

if TYPE_CHECKING:
    from toolgate.packs.governance.workflows.resolve import Token
    from toolgate.packs.governance.workflows.workflow import WorkflowJob

MAX_LISTED: Final = 100
"""Places listed in the evidence; the totals stand beside them."""


class Places(Struct):
    """The first of many places, and how many there are."""

    shown: list[dict[str, Any]] = field(default_factory=list)
    total: int = 0

    def add(self, place: dict[str, Any]) -> None:
        self.total += 1
        if len(self.shown) < MAX_LISTED:
            self.shown.append(place)

    def extend(self, others: Places) -> None:
        self.total += others.total
        self.shown += others.shown[: MAX_LISTED - len(self.shown)]


class JudgedTokens(Struct):
    violations: Places = field(default_factory=Places)
    unknown: Places = field(default_factory=Places)
    """Jobs without permissions of their own: the repository's default applies."""


def read(files: list[tuple[str, bytes]]) -> list[File]:
    """Files as the caller names them, whatever they are called. For a worker."""
    return [parse_as("workflow", path, data) for path, data in files]


def judge(work: tuple[Repository, list[str]]) -> JudgedTokens:
    """(the repository, the workflows to judge). A file that says nothing readable is a violation too. For a worker."""
    repository, paths = work
    judged, resolver = JudgedTokens(), repository.resolver()
    seen: set[tuple[str, int, str, str]] = set()
    for path in paths:
        parsed = repository.files[path].parsed
        if isinstance(parsed, FileFault):
            judged.violations.add(violation(path, parsed.line, parsed.text))
        elif isinstance(parsed, Workflow):
            inherits = resolver.only_called(parsed)
            for job in parsed.jobs:
                if not inherits and not resolver.states(parsed, job):
                    _unstated(repository, path, job, judged)
                wanted = needed(resolver.steps(job))
                for token in resolver.tokens(parsed, job):
                    _judge(repository, token, wanted, judged, seen)
    return judged


def _unstated(repository: Repository, path: str, job: WorkflowJob, judged: JudgedTokens) -> None:
    default = repository.config.default_permissions
    if default == "write":
        reason = f"job {job.id} states no permissions, and the repository's default is write"
        judged.violations.add(violation(path, job.line, reason, job=job.id, scope="*"))
    elif default is None:
        judged.unknown.add({"file": path, "line": job.line, "job": job.id})


def _judge(
    repository: Repository,
    token: Token,
    wanted: frozenset[str],
    judged: JudgedTokens,
    seen: set[tuple[str, int, str, str]],
) -> None:
    path, job = token.workflow.path, token.job
    for grant in token.permissions.writes():
        key = path, grant.line, job.id, grant.scope
        if key in seen or grant.scope in wanted or repository.may_write(path, job.id, grant.scope):
            continue
        seen.add(key)
        what = "write-all" if grant.scope == "*" else f"{grant.scope}: write"
        judged.violations.add(violation(path, grant.line, f"job {job.id} has {what}", job=job.id, scope=grant.scope))


def violation(path: str, line: int, reason: str, *, job: str | None = None, scope: str | None = None) -> dict[str, Any]:
    return {"file": path, "line": line, "job": job, "scope": scope, "reason": reason}
