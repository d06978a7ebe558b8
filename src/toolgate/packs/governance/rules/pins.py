"""MD-002: code that a workflow fetches by a name that others can move: actions, images, installers, downloads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from toolgate.packs.governance.repository.redact import redacted
from toolgate.packs.governance.rules.base import RepositoryPlace, found, need_workflows
from toolgate.packs.governance.workflows.resolve import local_path
from toolgate.packs.governance.workflows.scripts import Machine, unpinned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolgate.kit.findings import Finding
    from toolgate.packs.governance.repository.model import Repository
    from toolgate.packs.governance.workflows.resolve import JobResolver
    from toolgate.packs.governance.workflows.scripts import Unpinned
    from toolgate.packs.governance.workflows.workflow import Image, WorkflowStep

_PINNED: Final = re.compile(r"[^@]+@[0-9a-f]{40}(?:[0-9a-f]{24})?")
_DIGEST: Final = re.compile(r"[^@]+@sha256:[0-9a-f]{64}")
_DOCKER: Final = "docker://"
_BRANCHES: Final = frozenset({"main", "master", "develop", "trunk", "HEAD"})


def md_002(repository: Repository) -> Iterator[Finding]:
    need_workflows(repository)
    resolver = repository.resolver()
    for workflow in repository.workflows.values():
        for job in workflow.jobs:
            if job.uses is not None:
                yield from _use(repository, workflow.path, job.uses, job.uses_line)
            yield from _images(repository, workflow.path, job.images)
            yield from _steps(repository, workflow.path, f"Job {job.id}", job.steps, resolver)
    for action in repository.actions.values():
        yield from _images(repository, action.path, action.images)
        yield from _steps(repository, action.path, "This action", action.steps, resolver)


def _steps(
    repository: Repository, path: str, owner: str, steps: Iterable[WorkflowStep], resolver: JobResolver
) -> Iterator[Finding]:
    machine = Machine()
    for step in steps:
        if step.uses is not None:
            yield from _use(repository, path, step.uses, step.uses_line)
            _run_action(resolver, step, machine)
        for fetch in unpinned(step.run or "", machine):
            yield _script(repository, path, owner, step, fetch)


def _run_action(resolver: JobResolver, step: WorkflowStep, machine: Machine) -> None:
    """What a composite action of the repository's own leaves on the machine: locked packages, files."""
    action = resolver.action(step)
    for inner in action.steps if action else ():
        for _ in unpinned(inner.run or "", machine):
            pass


def _script(repository: Repository, path: str, owner: str, step: WorkflowStep, unpinned: Unpinned) -> Finding:
    return found(
        RepositoryPlace(repository, path, step.run_line + unpinned.offset),
        "MD-002",
        "high" if unpinned.to_shell and not unpinned.versioned else "medium",
        f"{owner}: {unpinned.what}.",
        because=f"{unpinned.because}.",
        fix="Fetch a named version, check its digest, then run it." if unpinned.to_shell else "Name the exact version.",
        anchor=unpinned.text,
        kind="download" if unpinned.to_shell else "installer",
    )


def _use(repository: Repository, path: str, uses: str, line: int) -> Iterator[Finding]:
    if uses.startswith(_DOCKER):
        yield from _image(repository, path, uses.removeprefix(_DOCKER), line, anchor=uses, shown=uses)
        return
    if local_path(uses) is not None or _PINNED.fullmatch(uses) or "${{" in uses:
        return
    name, at, ref = uses.partition("@")
    if not at:
        because = "it names no version at all"
    elif ref in _BRANCHES:
        because = f"`{ref}` is a branch of {redacted(name)}: every push to it changes what runs here"
    else:
        because = (
            f"`{redacted(ref)}` is a tag or branch of {redacted(name)} that can be moved; a commit of 40 digits cannot"
        )
    yield found(
        RepositoryPlace(repository, path, line),
        "MD-002",
        "medium",
        f"The action {redacted(uses)} is not pinned: whoever moves its tag runs code here.",
        because=f"{because}.",
        fix="Pin it to a full commit SHA, with the version as a comment.",
        anchor=uses,
        kind="action",
    )


def _images(repository: Repository, path: str, images: Iterable[Image]) -> Iterator[Finding]:
    for image in images:
        bare = image.text.removeprefix(_DOCKER)
        if bare.startswith(("Dockerfile", "./")) or bare.endswith("Dockerfile"):
            continue  # built from the repository itself
        yield from _image(repository, path, bare, image.line, anchor=f"image {bare}", shown=bare)


def _image(repository: Repository, path: str, image: str, line: int, *, anchor: str, shown: str) -> Iterator[Finding]:
    if _DIGEST.fullmatch(image) or "${{" in image or not image:
        return
    tag = image.rpartition("/")[2].partition(":")[2]
    floating = tag in ("", "latest")
    because = (
        "it names no version, so the newest is taken"
        if floating
        else f"the tag `{redacted(tag)}` can be moved; a digest cannot"
    )
    yield found(
        RepositoryPlace(repository, path, line),
        "MD-002",
        "medium" if floating else "low",
        f"The image {redacted(shown)} is not pinned: whoever moves its tag runs code here.",
        because=f"{because}.",
        fix="Pin the image by @sha256 digest.",
        anchor=anchor,
        kind="image",
    )
