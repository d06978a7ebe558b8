"""`toolgate adr check` and `adr lint`: decision records as rules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toolgate.cli.output import answer_json, say
from toolgate.errors import ExitCode, ToolError
from toolgate.kit.findings import Finding, fingerprinted
from toolgate.kit.reports.printable import printable
from toolgate.packs.governance.cli.common import (
    as_json,
    directory,
    existing,
    exit_of,
    gate_exit,
    unjudged,
    usage,
    write_answer,
    write_findings,
)
from toolgate.packs.governance.cli.local import person
from toolgate.packs.governance.cli.options import Format, Threshold
from toolgate.packs.governance.decisions.compliance import as_data, check, governed_files, read_records

if TYPE_CHECKING:
    from toolgate.kit.findings import Finding
    from toolgate.packs.governance.cli.local import RepositoryCommand
    from toolgate.packs.governance.decisions.compliance import Compliance
    from toolgate.packs.governance.decisions.records import DecisionRecord


def adr_check(
    *,
    files: list[Path] | None,
    only: list[str] | None,
    adr_path: str,
    include_proposed: bool,
    form: Format,
    output: Path | None,
    fail_on: Threshold,
    root: Path | None,
    home: Path | None,
    json: bool,
) -> None:
    named = existing(files or ())
    with person(home, directory(root), isolated=True) as who:
        args: dict[str, Any] = {"adrPath": adr_path, "includeProposed": include_proposed}
        args |= {"adrs": only} if only else {}
        try:
            args["files"] = _inside(who, named) or asyncio.run(governed_files(who.context(), args))
            compliance = asyncio.run(check(who.context(), args))
        except ToolError as fault:
            raise usage(fault) from None
    if json or form is Format.json:
        write_answer(as_json(as_data(compliance)), output)
    else:
        write_findings(_findings(compliance), form, output, _verdict(compliance))
    errors = [_told(error) for error in compliance.gate_errors]
    errors += [f"{name}: there is no such decision record" for name in compliance.unknown]
    errors += unjudged(compliance.skipped)
    raise typer.Exit(gate_exit(errors, exit_of(compliance.decision, "cloud", fail_on, binding=False)))


def _inside(who: RepositoryCommand, named: list[Path]) -> list[str]:
    """Raises: typer.BadParameter: the repository's rules are about its own files; elsewhere none would match."""
    files = who.named(named)
    outside = next((file for file in files if file.startswith("/")), None)
    if outside is not None:
        raise typer.BadParameter(f"{printable(outside)} is outside {who.root}; name the repository with --root")
    return files


def adr_lint(*, adr_path: str, root: Path | None, home: Path | None, json: bool) -> None:
    with person(home, directory(root), isolated=True) as who:
        try:
            records, unread = asyncio.run(read_records(who.context(), {"adrPath": adr_path}))
        except ToolError as fault:
            raise usage(fault) from None
    faulty = [record for record in records if record.fault]
    if json:
        rows = [
            {"path": record.path, "line": record.fault_line, "fault": record.fault, "fix": record.fix}
            for record in faulty
        ]
        rows += [
            {"path": record.path, "line": None, "fault": f"cannot be read: {record.reason}", "fix": None}
            for record in unread
        ]
        answer_json({"records": len(records), "rules": sum(len(record.rules) for record in records), "faults": rows})
    else:
        for record in faulty:
            say(_told(record))
        for left in unread:
            say(f"{left.path}: cannot be read: {left.reason}")
        say(
            f"{len(records)} records, {sum(len(record.rules) for record in records)} rules, {len(faulty) + len(unread)} faults"
        )
    # As of `adr check`: whoever cannot read a rule has judged nothing by it.
    raise typer.Exit(ExitCode.USAGE if faulty or unread else ExitCode.OK)


def _told(record: DecisionRecord) -> str:
    return f"{record.path}:{record.fault_line or 1}: {record.fault}\n  fix: {record.fix}"


def _verdict(compliance: Compliance) -> str:
    return (
        f"{compliance.status.replace('_', ' ')}: {compliance.decision}; {compliance.rules} rules of "
        f"{len(compliance.enforced)} records applied to {compliance.checked} files"
    )


def _findings(compliance: Compliance) -> list[Finding]:
    found = [
        Finding(
            f"{violation.adr}/{violation.rule}",
            "fail",
            violation.severity,
            violation.message,
            file=violation.file,
            line=violation.line,
            fix=violation.remediation,
            anchor=violation.snippet,
        )
        for violation in compliance.violations
    ]
    missing = [
        Finding("SKIPPED", "not_evaluated", "info", f"not read: {file.reason}", file=file.path)
        for file in compliance.skipped
    ]
    missing += [
        Finding(name, "not_evaluated", "info", "there is no such decision record") for name in compliance.unknown
    ]
    missing += [
        Finding(adr.id, "not_evaluated", "info", f"{adr.fault}", file=adr.path, line=adr.fault_line)
        for adr in compliance.adrs
        if adr.fault
    ]
    return [*fingerprinted(found), *missing]
