"""What changed in the governed files since a baseline: not only which files, but also what was added to them and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, field

from toolgate.kit.findings import Finding
from toolgate.packs.governance.repository.protection import Protection
from toolgate.packs.governance.rules.catalogue import BASELINE
from toolgate.packs.governance.workflows.workflow import Action, Workflow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from toolgate.packs.governance.repository.model import File, Repository

DRIFT_LIMIT: Final = 0.15
"""Share of governed files that may differ from the baseline before drift is a high finding."""
MAX_FACTS: Final = 300
"""Of one file."""
MAX_FACT: Final = 160
"""Characters of one."""
SHOWN: Final = 3
"""Facts in the sentence of a finding; the report has them all."""


class BaselineFile(Struct, frozen=True):
    """One file as a baseline keeps it."""

    sha256: str
    facts: tuple[str, ...] = ()


class Baseline(Struct, frozen=True):
    files: Mapping[str, BaselineFile]
    findings: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint -> rule and place."""


class FileChange(Struct, frozen=True):
    path: str
    how: Literal["added", "modified", "removed"]
    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    def sentence(self) -> str:
        said = [f"now {fact}" for fact in self.gained] + [f"no longer {fact}" for fact in self.lost]
        more = f" (and {len(said) - SHOWN} more)" if len(said) > SHOWN else ""
        return f"{self.path} was {self.how} since the baseline" + (
            f": {'; '.join(said[:SHOWN])}{more}." if said else "."
        )


class BaselineDrift(Struct, frozen=True):
    """`created` is the baseline's time, None when there is none."""

    created: str | None
    changes: tuple[FileChange, ...] = ()
    tracked: int = 0
    appeared: tuple[str, ...] = ()
    """Findings that the baseline did not have."""
    gone: tuple[str, ...] = ()

    def paths(self, how: str) -> list[str]:
        return [change.path for change in self.changes if change.how == how]

    @property
    def magnitude(self) -> float:
        return len(self.changes) / self.tracked if self.tracked else 0.0


def baseline_of(repository: Repository, findings: Iterable[Finding]) -> Baseline:
    """Findings of other programs are not kept: whether one is installed is not a change of the repository."""
    return Baseline(
        {path: BaselineFile(file.sha256, tuple(facts_of(file))) for path, file in repository.files.items()},
        {
            finding.fingerprint: _told(finding)
            for finding in findings
            if finding.status == "fail" and "/" not in finding.rule
        },
    )


def drift_between(before: Baseline, now: Baseline, created: str) -> BaselineDrift:
    changes = []
    for path in sorted(before.files.keys() | now.files.keys()):
        old, new = before.files.get(path), now.files.get(path)
        if old and new and old.sha256 == new.sha256:
            continue
        how: Literal["added", "modified", "removed"] = (
            "removed" if new is None else "added" if old is None else "modified"
        )
        gained, lost = _differences(old.facts if old else (), new.facts if new else ())
        changes.append(FileChange(path, how, *((gained, lost) if how == "modified" else ((), ()))))
    return BaselineDrift(
        created,
        tuple(changes),
        tracked=len(before.files.keys() | now.files.keys()),
        appeared=tuple(
            sorted(now.findings[fingerprint] for fingerprint in now.findings.keys() - before.findings.keys())
        ),
        gone=tuple(
            sorted(before.findings[fingerprint] for fingerprint in before.findings.keys() - now.findings.keys())
        ),
    )


def _differences(old: Sequence[str], new: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(fact for fact in new if fact not in set(old)), tuple(fact for fact in old if fact not in set(new))


def _told(finding: Finding) -> str:
    return f"{finding.rule} {finding.severity} {finding.file or '-'}: {finding.message}"[:MAX_FACT]


def facts_of(file: File) -> list[str]:
    """What a file says that a reviewer would want to know of, in a few words each; without doubles, in their order."""
    facts = dict.fromkeys(fact[:MAX_FACT] for fact in _facts(file.parsed))
    return list(facts)[:MAX_FACTS]


def _facts(parsed: object) -> Iterator[str]:
    if isinstance(parsed, Protection):
        yield from (f"requires the check {check.context!r}" for check in parsed.checks)
        if parsed.merge_queue is not None:
            yield "has a merge queue" if parsed.merge_queue else "has no merge queue"
    elif isinstance(parsed, Action):
        yield from (f"uses {step.uses}" for step in parsed.steps if step.uses)
        yield from (f"runs the image {image.text}" for image in parsed.images)
    elif isinstance(parsed, Workflow):
        yield from (f"runs on {trigger.event}" for trigger in parsed.triggers)
        for job in parsed.jobs:
            permissions = parsed.effective(job)
            if not permissions.stated:
                yield f"states no permissions for job {job.id}"
            for grant in permissions.writes():
                yield f"lets job {job.id} write {'everything' if grant.scope == '*' else grant.scope}"
            yield from (f"uses {uses}" for uses in (job.uses, *(step.uses for step in job.steps)) if uses)
            yield from (f"runs the image {image.text}" for image in job.images)


def drift_findings(drift: BaselineDrift) -> list[Finding]:
    found = [
        Finding(
            BASELINE,
            "fail",
            "low",
            change.sentence(),
            file=change.path,
            line=1,
            why="What is governed should change only by decision.",
            fix="If the change is meant, make a new baseline (toolgate baseline, or mode calibration).",
            anchor=f"{change.how} {change.path}",
            extra={"because": "its bytes have another digest than the baseline remembers."},
        )
        for change in drift.changes
    ]
    if drift.magnitude > DRIFT_LIMIT:
        found.append(
            Finding(
                BASELINE,
                "fail",
                "high",
                f"{len(drift.changes)} of {drift.tracked} governed files differ from the baseline; "
                f"{DRIFT_LIMIT:.0%} are tolerated.",
                why="Many changes at once are a new state, not drift.",
                fix="Review the changes, then make a new baseline (toolgate baseline, or mode calibration).",
                anchor="magnitude",
                extra={"because": f"{drift.magnitude:.0%} is more than {DRIFT_LIMIT:.0%}."},
            )
        )
    return found


def as_stored(baseline: Baseline) -> dict[str, Any]:
    files = {path: {"sha256": kept.sha256, "facts": list(kept.facts)} for path, kept in baseline.files.items()}
    return {"version": 2, "files": files, "findings": dict(baseline.findings)}


def from_stored(stored: Mapping[str, Any]) -> Baseline:
    """Baselines of the first form are paths and digests alone."""
    if stored.get("version") != 2:
        return Baseline({path: BaselineFile(digest) for path, digest in stored.items()})
    files = {path: BaselineFile(kept["sha256"], tuple(kept["facts"])) for path, kept in stored["files"].items()}
    return Baseline(files, stored["findings"])
