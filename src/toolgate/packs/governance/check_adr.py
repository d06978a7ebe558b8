"""The tool `check_adr_compliance`: which accepted decisions do these files break, where, and what was not looked at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.kit.adr import MAX_BYTES, STATUSES, UNKNOWN
from toolgate.model.tool import Context, Result, Tool
from toolgate.packs.governance import shapes
from toolgate.packs.governance.adr import (
    FILE_NAME,
    SEVERITIES,
    Adr,
    Violation,
    apply,
    glob_matches,
    number_of,
    read_all,
    summary,
)

if TYPE_CHECKING:
    from toolgate.model.powers import ReadFiles
    from toolgate.model.tool import Decision

MAX_ADRS: Final = 500
MAX_FILE_BYTES: Final = 1024 * 1024
PATTERN_SECONDS: Final = 10.0
"""A pattern that takes longer over these files is broken or hostile; its worker is killed."""
BLOCKING: Final = frozenset({"critical", "high"})


class Compliance(Struct, frozen=True):
    adrs: tuple[Adr, ...]
    """The ones asked for, or all."""
    enforced: tuple[Adr, ...]
    unknown: tuple[str, ...]
    checked: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    violations: tuple[Violation, ...]

    @property
    def rules(self) -> int:
        return sum(len(adr.rules) for adr in self.enforced)

    @property
    def complete(self) -> bool:
        """Everything that was asked for was looked at."""
        return not (self.unknown or self.skipped or any(adr.fault or adr.status == UNKNOWN for adr in self.adrs))

    @property
    def status(self) -> str:
        if self.violations:
            return "violations"
        return "compliant" if self.complete and self.rules else "not_evaluated"

    @property
    def decision(self) -> Decision:
        if any(one.severity in BLOCKING for one in self.violations):
            return "block"
        return "pass" if self.status == "compliant" else "warn"


async def run(ctx: Context, args: dict[str, Any]) -> Result:
    compliance = await check(ctx, args)
    data, summed = as_data(compliance), summary(list(compliance.violations))
    message = f"{summed['total']} violations" if summed["total"] else compliance.status.replace("_", " ")
    return Result(data=data, decision=compliance.decision, message=message, exit_code=1 if compliance.violations else 0)


async def check(ctx: Context, args: dict[str, Any]) -> Compliance:
    """Raises: ToolError NO_ADRS_FOUND (missing), INVALID_INPUT."""
    directory = args.get("adrPath", "docs/adr")
    adrs = await ctx.compute(read_all, await asyncio.to_thread(_records, ctx.files, directory))
    asked = args.get("adrs")
    chosen, unknown = _chosen(adrs, asked)
    statuses = {"accepted", "proposed"} if args.get("includeProposed", False) else {"accepted"}
    enforced = [adr for adr in chosen if adr.status in statuses and not adr.fault]
    files, skipped = await asyncio.to_thread(_texts, ctx.files, args["files"])
    violations = await ctx.compute(apply, (enforced, files), timeout_s=PATTERN_SECONDS)
    return Compliance(
        tuple(chosen),
        tuple(enforced),
        tuple(unknown),
        tuple(path for path, _ in files),
        tuple(skipped),
        tuple(sorted(violations, key=lambda one: (one.file, one.line, one.adr, one.rule))),
    )


async def governed_files(ctx: Context, args: dict[str, Any]) -> list[str]:
    """Every file that some rule of the chosen records is about: what to check when nobody names files."""
    adrs = await ctx.compute(read_all, await asyncio.to_thread(_records, ctx.files, args.get("adrPath", "docs/adr")))
    chosen, _ = _chosen(adrs, args.get("adrs"))
    globs = {glob for adr in chosen for rule in adr.rules for glob in rule.globs}
    walked = await asyncio.to_thread(lambda: [entry.path for entry in ctx.files.walk()])
    return [path for path in walked if any(glob_matches(glob, path) for glob in globs)]


def _records(files: ReadFiles, directory: str) -> list[tuple[str, bytes]]:
    try:
        entries = list(files.walk(directory, max_files=MAX_ADRS)) if files.is_dir(directory) else []
        depth = directory.strip("/").count("/") + 1 if directory.strip("./") else 0
        named = [
            one.path
            for one in entries
            if one.path.count("/") == depth and FILE_NAME.fullmatch(one.path.rpartition("/")[2])
        ]
        found = [(path, files.read_bytes(path, max_bytes=MAX_BYTES)) for path in named]
    except ToolError as fault:
        raise (shapes.bad_path(fault) if fault.code == "INVALID_PATH" else fault) from None
    if not found:
        raise ToolError(
            "NO_ADRS_FOUND",
            f"There is no decision record (ADR-0001-title.md or 0001-title.md) in {directory}.",
            missing=True,
        )
    return found


def _chosen(adrs: list[Adr], asked: list[str] | None) -> tuple[list[Adr], list[str]]:
    if asked is None:
        return adrs, []
    wanted = {number_of(name): name for name in asked}
    chosen = [adr for adr in adrs if number_of(adr.id) in wanted]
    known = {number_of(adr.id) for adr in chosen}
    return chosen, sorted(name for number, name in wanted.items() if number not in known)


def _texts(files: ReadFiles, paths: list[str]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    texts: list[tuple[str, str]] = []
    skipped: list[tuple[str, str]] = []
    for path in sorted(set(paths)):
        try:
            texts.append((path, files.read_bytes(path, max_bytes=MAX_FILE_BYTES).decode()))
        except UnicodeDecodeError:
            skipped.append((path, "not_text"))
        except ToolError as fault:
            if fault.code == "INVALID_PATH":
                raise shapes.bad_path(fault) from None
            skipped.append((path, fault.code.lower()))
    return texts, skipped


def as_data(one: Compliance) -> dict[str, Any]:
    """Lists end where an answer would become too large; `omitted` tells by how much."""
    enforced = {adr.id for adr in one.enforced}
    every: dict[str, list[dict[str, Any]]] = {
        "violations": [_violation_json(each) for each in one.violations],
        "skipped": [{"path": path, "reason": reason} for path, reason in one.skipped],
        "adrDetails": [
            {
                "id": adr.id,
                "title": adr.title,
                "status": adr.status,
                "rules": len(adr.rules),
                "enforced": adr.id in enforced,
                "fault": adr.fault,
            }
            for adr in one.adrs
        ],
    }
    shown = {name: shapes.within(items, _BUDGETS[name]) for name, items in every.items()}
    return {
        "compliance": {
            "compliant": one.status == "compliant",
            "status": one.status,
            "filesChecked": len(one.checked),
            "adrsChecked": len(one.enforced),
            "rulesChecked": one.rules,
            "adrList": sorted(enforced),
            **shown,
            "violationSummary": summary(list(one.violations)),
            "unknownAdrs": list(one.unknown),
            "omitted": {name: len(every[name]) - len(items) for name, items in shown.items()},
        }
    }


_BUDGETS: Final = {"violations": 500_000, "skipped": 100_000, "adrDetails": 200_000}
"""Bytes of JSON for each list."""


def _violation_json(one: Violation) -> dict[str, Any]:
    return {
        "adrId": one.adr,
        "ruleId": one.rule,
        "file": one.file,
        "line": one.line,
        "message": one.message,
        "severity": one.severity,
        "remediation": one.remediation,
        "snippet": one.snippet,
    }


def as_text(data: Any) -> str:
    compliance = data["compliance"]
    lines = []
    for one in compliance["violations"]:
        lines.append(f"{one['file']}:{one['line']}: {one['severity']} {one['adrId']} {one['ruleId']}: {one['message']}")
        lines.append(f"    fix: {one['remediation']}")
    lines += [f"{one['path']}: skipped: {one['reason']}" for one in compliance["skipped"]]
    lines += [f"{name}: there is no such decision record" for name in compliance["unknownAdrs"]]
    lines += [f"{one['id']}: not enforced: {one['fault']}" for one in compliance["adrDetails"] if one["fault"]]
    lines.append(
        f"{compliance['status'].replace('_', ' ')}: {compliance['filesChecked']} files, {compliance['adrsChecked']} decisions,"
        f" {compliance['rulesChecked']} rules, {compliance['violationSummary']['total']} violations"
    )
    return "\n".join(lines) + "\n"


_ID: Final = r"^ADR-[0-9]{1,6}$"
_VIOLATION: Final = shapes.closed(
    {
        "adrId": shapes.said(16),
        "ruleId": shapes.said(1000),
        "file": shapes.said(),
        "line": shapes.COUNT,
        "message": shapes.said(),
        "severity": shapes.SEVERITY,
        "remediation": shapes.said(),
        "snippet": shapes.said(256),
    }
)

CHECK_ADR: Final = Tool(
    name="check_adr_compliance",
    id="governance.check_adr_compliance",
    summary=(
        "Check files against the machine-readable rules of accepted decision records (Nygard or MADR form): violations with "
        "file, line, record and rule. Unknown records and unreadable files are reported and never count as compliant."
    ),
    input_schema=shapes.closed(
        {
            "files": shapes.paths("Files to check."),
            "adrs": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_ADRS,
                "uniqueItems": True,
                "items": shapes.text("Id of a decision record.", 16, pattern=_ID),
                "description": "Only these records; omit for all.",
            },
            "adrPath": shapes.path("Directory of the decision records; docs/adr unless given.")
            | {"default": "docs/adr", "x-reason": "invalid_path"},
            "includeProposed": {
                "type": "boolean",
                "default": False,
                "description": "Also apply records that are only proposed.",
            },
            "context": {
                "type": "string",
                "maxLength": 300,
                "description": "For people reading the log; decides nothing.",
            },
        },
        required=["files"],
    ),
    output_schema=shapes.closed(
        {
            "compliance": shapes.closed(
                {
                    "compliant": shapes.FLAG,
                    "status": {"enum": ["compliant", "violations", "not_evaluated"]},
                    "filesChecked": shapes.COUNT,
                    "adrsChecked": shapes.COUNT,
                    "rulesChecked": shapes.COUNT,
                    "adrList": shapes.many(shapes.said(16), MAX_ADRS),
                    "violations": shapes.many(_VIOLATION, 100_000),
                    "violationSummary": shapes.closed(dict.fromkeys(("total", *SEVERITIES), shapes.COUNT)),
                    "skipped": shapes.many(shapes.closed({"path": shapes.said(), "reason": shapes.said()})),
                    "unknownAdrs": shapes.many(shapes.said(16), MAX_ADRS),
                    "omitted": shapes.closed(dict.fromkeys(_BUDGETS, shapes.COUNT)),
                    "adrDetails": shapes.many(
                        shapes.closed(
                            {
                                "id": shapes.said(16),
                                "title": shapes.said(),
                                "status": {"enum": [*STATUSES, UNKNOWN]},
                                "rules": shapes.COUNT,
                                "enforced": shapes.FLAG,
                                "fault": shapes.maybe(shapes.said()),
                            }
                        ),
                        MAX_ADRS,
                    ),
                }
            )
        }
    ),
    effect="read",
    deadline_s=30,
    run=run,
    error_codes=("NO_ADRS_FOUND",),
    decisions=("block", "warn", "pass"),
    text=as_text,
)
