"""Which accepted decisions files break, where, and what was not looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.kit.adr import MAX_BYTES, UNKNOWN
from toolgate.model.threads import in_thread
from toolgate.packs.governance.decisions.records import (
    FILE_NAME,
    MAX_VIOLATIONS,
    DecisionRecord,
    Violation,
    apply,
    governed,
    number_of,
    read_all,
)
from toolgate.packs.governance.decisions.shape import BUDGETS, MAX_ADRS, SEVERITIES
from toolgate.packs.governance.repository.answers import bad_path, within
from toolgate.packs.governance.repository.model import GITHUB_DIR
from toolgate.packs.governance.repository.reading import Queue, SkippedFile

if TYPE_CHECKING:
    from toolgate.model.powers import ReadFiles
    from toolgate.model.tool import Context, Decision
    from toolgate.packs.governance.decisions.shape import Severity

MAX_FILE_BYTES: Final = 1024 * 1024
PATTERN_SECONDS: Final = 10.0
"""A pattern that takes longer over these files is broken or hostile; its worker is killed."""
BLOCKING: Final = frozenset({"critical", "high"})


class Compliance(Struct, frozen=True):
    adrs: tuple[DecisionRecord, ...]
    """The ones asked for, or all."""
    enforced: tuple[DecisionRecord, ...]
    unknown: tuple[str, ...]
    checked: int
    skipped: tuple[SkippedFile, ...]
    violations: tuple[Violation, ...]
    """The first MAX_VIOLATIONS, in reading order."""
    counts: Mapping[Severity, int]
    """All of them."""
    statuses: frozenset[str] = frozenset({"accepted"})
    """Of records that are enforced."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def rules(self) -> int:
        return sum(len(adr.rules) for adr in self.enforced)

    @property
    def gate_errors(self) -> list[DecisionRecord]:
        """Records that bind, or would if their status could be read, and whose rules cannot be used."""
        return [adr for adr in self.adrs if adr.fault and adr.status in self.statuses | {UNKNOWN}]

    @property
    def complete(self) -> bool:
        """Everything that was asked for was looked at."""
        return not (self.unknown or self.skipped or any(adr.fault or adr.status == UNKNOWN for adr in self.adrs))

    @property
    def status(self) -> str:
        if self.total:
            return "violations"
        return "compliant" if self.complete and self.rules else "not_evaluated"

    @property
    def decision(self) -> Decision:
        # A rule that binds and cannot be read is broken by whatever it would have forbidden.
        if self.gate_errors or any(count for severity, count in self.counts.items() if severity in BLOCKING):
            return "block"
        return "pass" if self.status == "compliant" else "warn"


async def check(ctx: Context, args: dict[str, Any]) -> Compliance:
    """Raises: ToolError NO_ADRS_FOUND (missing), INVALID_INPUT."""
    adrs, unread = await read_records(ctx, args)
    chosen, unknown = _chosen(adrs, args.get("adrs"))
    statuses = frozenset({"accepted", "proposed"} if args.get("includeProposed", False) else {"accepted"})
    enforced = [adr for adr in chosen if adr.status in statuses and not adr.fault]
    queue = Queue(ctx.files, args["files"], max_bytes=MAX_FILE_BYTES)
    checked = 0
    violations: list[Violation] = []
    counts: Counter[Severity] = Counter()
    due = ctx.clock.monotonic() + PATTERN_SECONDS
    while portion := await in_thread(queue.portion):
        texts = [(path, data) for path, data in portion if _is_text(data)]
        queue.skipped += [SkippedFile(path, "not_text") for path, data in portion if not _is_text(data)]
        work = enforced, texts, MAX_VIOLATIONS - len(violations)
        applied = await ctx.compute(apply, work, timeout_s=max(0.0, due - ctx.clock.monotonic()))
        checked += len(texts)
        violations += applied.violations
        counts.update(applied.counts)
    return Compliance(
        tuple(chosen),
        tuple(enforced),
        tuple(unknown),
        checked,
        tuple(sorted((*unread, *queue.skipped), key=lambda file: file.path)),
        tuple(
            sorted(violations, key=lambda violation: (violation.file, violation.line, violation.adr, violation.rule))
        ),
        counts,
        statuses,
    )


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


async def governed_files(ctx: Context, args: dict[str, Any]) -> list[str]:
    """Every file that some rule of the chosen records is about: what to check when nobody names files."""
    adrs, _ = await read_records(ctx, args)
    chosen, _ = _chosen(adrs, args.get("adrs"))
    return await ctx.compute(governed, (chosen, await in_thread(_all_paths, ctx.files)))


def _all_paths(files: ReadFiles) -> list[str]:
    """With `.github`, which records are often about and a walk leaves out, as it does all that begins with a dot."""
    hidden = files.walk(GITHUB_DIR, everything=True) if files.is_dir(GITHUB_DIR) else ()
    return [entry.path for entry in (*files.walk(), *hidden) if not entry.is_link]


async def read_records(ctx: Context, args: dict[str, Any]) -> tuple[list[DecisionRecord], list[SkippedFile]]:
    """Every decision record of the directory, and those that could not be read.

    Raises: ToolError NO_ADRS_FOUND (missing), INVALID_INPUT.
    """
    directory = args.get("adrPath", "docs/adr")
    named, links = await in_thread(_record_paths, ctx.files, directory)
    queue = Queue(ctx.files, (), max_bytes=MAX_BYTES, also=named)
    queue.skipped += [SkippedFile(path, "is_a_link") for path in links]
    adrs: list[DecisionRecord] = []
    while portion := await in_thread(queue.portion):
        adrs += await ctx.compute(read_all, portion)
    return adrs, queue.skipped


def _record_paths(files: ReadFiles, directory: str) -> tuple[list[str], list[str]]:
    """The records, and those that are links: what they lead to would not be enforced."""
    try:
        entries = list(files.walk(directory, max_files=MAX_ADRS, links=True)) if files.is_dir(directory) else []
    except ToolError as fault:
        raise (bad_path(fault) if fault.code == "INVALID_PATH" else fault) from None
    depth = directory.strip("/").count("/") + 1 if directory.strip("./") else 0
    named = [
        entry
        for entry in entries
        if entry.path.count("/") == depth and FILE_NAME.fullmatch(entry.path.rpartition("/")[2])
    ]
    if not named:
        raise ToolError(
            "NO_ADRS_FOUND",
            f"There is no decision record (ADR-0001-title.md or 0001-title.md) in {directory}.",
            missing=True,
        )
    return [entry.path for entry in named if not entry.is_link], [entry.path for entry in named if entry.is_link]


def _chosen(adrs: list[DecisionRecord], asked: list[str] | None) -> tuple[list[DecisionRecord], list[str]]:
    if asked is None:
        return adrs, []
    wanted = {number_of(name): name for name in asked}
    chosen = [adr for adr in adrs if number_of(adr.id) in wanted]
    known = {number_of(adr.id) for adr in chosen}
    return chosen, sorted(name for number, name in wanted.items() if number not in known)


def as_data(compliance: Compliance) -> dict[str, Any]:
    """Lists end where an answer would become too large; `omitted` tells by how much."""
    enforced = {adr.id for adr in compliance.enforced}
    every: dict[str, list[dict[str, Any]]] = {
        "violations": [_violation_json(each) for each in compliance.violations],
        "skipped": [{"path": each.path, "reason": each.reason} for each in compliance.skipped],
        "adrDetails": [
            {
                "id": adr.id,
                "title": adr.title,
                "status": adr.status,
                "rules": len(adr.rules),
                "enforced": adr.id in enforced,
                "fault": adr.fault,
                "line": adr.fault_line,
                "fix": adr.fix,
            }
            for adr in compliance.adrs
        ],
    }
    shown = {name: within(items, BUDGETS[name]) for name, items in every.items()}
    return {
        "compliance": {
            "compliant": compliance.status == "compliant",
            "status": compliance.status,
            "filesChecked": compliance.checked,
            "adrsChecked": len(compliance.enforced),
            "rulesChecked": compliance.rules,
            "adrList": sorted(enforced),
            **shown,
            "violationSummary": {"total": compliance.total}
            | {severity: compliance.counts[severity] for severity in SEVERITIES},
            "unknownAdrs": list(compliance.unknown),
            "omitted": {name: len(every[name]) - len(items) for name, items in shown.items()}
            | {"violations": compliance.total - len(shown["violations"])},
        }
    }


def _violation_json(violation: Violation) -> dict[str, Any]:
    return {
        "adrId": violation.adr,
        "ruleId": violation.rule,
        "file": violation.file,
        "line": violation.line,
        "message": violation.message,
        "severity": violation.severity,
        "remediation": violation.remediation,
        "snippet": violation.snippet,
    }
