"""`toolgate analyze`, `l0`, `adr`, `baseline`: a person's own commands, and CI's, on the code the tools run.

Exit: 0 pass, 1 would block, 4 warnings with --fail-on warn, 5 when --require-binding and the answer is only advice.
The exit code follows the thresholds, not the floor: a clamped block must still stop a pipeline (decision 33).
"""

from __future__ import annotations

import asyncio
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolgate.errors import ExitCode, ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolgate.kit.findings import Finding
    from toolgate.model.tool import Decision
    from toolgate.packs.governance.analysis import Analysis
    from toolgate.packs.governance.check_adr import Compliance
    from toolgate.packs.governance.people import Person

MAX_INPUT_BYTES: Final = 1024 * 1024


class Mode(StrEnum):
    """What kind of change is judged."""

    pull_request = "pull_request"
    issue = "issue"
    merge_group = "merge_group"
    drift = "drift"
    calibration = "calibration"


class Format(StrEnum):
    """How the answer is written."""

    text = "text"
    json = "json"
    sarif = "sarif"
    github = "github"
    junit = "junit"
    markdown = "markdown"


class Threshold(StrEnum):
    """From when the exit code is not 0."""

    block = "block"
    warn = "warn"


Home = Annotated[
    Path | None, typer.Option("--home", metavar="DIR", help="Where toolgate.toml is; else TOOLGATE_HOME, else here.")
]
Root = Annotated[Path | None, typer.Option("--root", metavar="DIR", help="The repository; else the one around here.")]
Files = Annotated[list[Path] | None, typer.Argument(metavar="[FILES]...", help="Files to judge.")]
Form = Annotated[Format, typer.Option("--format", help="How to write the answer.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the answer there.")]
FailOn = Annotated[Threshold, typer.Option("--fail-on", help="warn: exit 4 on warnings.")]
Binding = Annotated[bool, typer.Option("--require-binding", help="Exit 5 unless real stores make the answer binding.")]
About = Annotated[
    str | None, typer.Option("--context", help="owner/name or owner/name@commit: whose baseline and suppressions.")
]


def analyze(
    files: Files = None,
    *,
    mode: Annotated[Mode, typer.Option(help="What kind of change is judged.")] = Mode.pull_request,
    strict: Annotated[bool, typer.Option("--strict", help="No high finding, at most 5 medium.")] = False,
    context: About = None,
    form: Form = Format.text,
    output: Output = None,
    fail_on: FailOn = Threshold.block,
    require_binding: Binding = False,
    root: Root = None,
    home: Home = None,
) -> None:
    """Judge a repository's workflows, branch protection and contract."""
    from toolgate.packs.governance.analysis import report
    from toolgate.packs.governance.people import person

    with person(home, _directory(root), keep=mode is Mode.calibration) as who:
        analysis = _analysis(who, files, mode, context, strict=strict)
        environment = who.environment()
    verdict = _verdict(analysis.decision, environment, "; ".join(report(analysis)["analysis"]["decision"]["reasons"]))
    if form is Format.json:
        _write(_json(report(analysis)), output)
    else:
        _write_findings(_with_not_evaluated(analysis, show_fingerprint=form is Format.text), form, output, verdict)
    raise typer.Exit(_exit(analysis.decision, environment, fail_on, binding=require_binding))


def baseline(files: Files = None, context: About = None, root: Root = None, home: Home = None) -> None:
    """Remember the governed files as they are now; `analyze --mode drift` compares with it."""
    from toolgate.packs.governance.people import person

    with person(home, _directory(root), keep=True) as who:
        analysis = _analysis(who, files, Mode.calibration, context, strict=False)
    typer.echo(f"baseline of {analysis.origin.repository}: {len(analysis.repository.files)} files")


def l0(
    input: Annotated[  # noqa: A002 (the option's name)
        Path | None, typer.Option(metavar="FILE", help="The tool's arguments as JSON; - reads standard input.")
    ] = None,
    workflow: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Workflow whose permissions to check.")
    ] = None,
    schema_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Schema file to hash.")] = None,
    expected_hash: Annotated[
        str | None, typer.Option(metavar="SHA256", help="Its expected digest, 64 hex digits.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.text,
    require_binding: Binding = False,
    root: Root = None,
    home: Home = None,
) -> None:
    """Check the L0 invariants; without options, the permissions of all workflows."""
    from toolgate.packs.governance.people import person
    from toolgate.packs.governance.validate_l0 import VALIDATE_L0, as_text, run

    with person(home, _directory(root), keep=input is not None) as who:
        args: dict[str, Any] = _json_arguments(input, dict(VALIDATE_L0.input_schema)) if input else {}
        if schema_file:
            args |= {"schemaFile": who.named([schema_file])[0]}
        if expected_hash:
            args |= {"expectedSchemaHash": expected_hash}
        if workflow or not args:
            args |= {"workflowFiles": who.named(workflow) or _all_workflows(who)}
        try:
            result = asyncio.run(run(who.context(), args))
        except ToolError as fault:
            raise _usage(fault) from None
        environment = who.environment()
    if form is Format.json:
        _write(_json(result.data), None)
    else:
        _echo_coloured(as_text(result.data) + _verdict(result.decision or "block", environment, ""))
    raise typer.Exit(_exit(result.decision or "block", environment, Threshold.block, binding=require_binding))


adr = typer.Typer(no_args_is_help=True, help="Decision records as rules.")


@adr.callback()
def _adr() -> None:
    """Decision records as rules."""


@adr.command("check")
def adr_check(
    files: Files = None,
    *,
    only: Annotated[list[str] | None, typer.Option("--adr", metavar="ID", help="Only this record; repeatable.")] = None,
    adr_path: Annotated[str, typer.Option(metavar="DIR", help="Where the records are.")] = "docs/adr",
    include_proposed: Annotated[bool, typer.Option("--include-proposed", help="Apply proposed records too.")] = False,
    form: Form = Format.text,
    output: Output = None,
    fail_on: FailOn = Threshold.block,
    root: Root = None,
    home: Home = None,
) -> None:
    """Which accepted decisions do these files break? Without FILES: every file that a rule is about."""
    from toolgate.packs.governance.check_adr import as_data, check, governed_files
    from toolgate.packs.governance.people import person

    with person(home, _directory(root), isolated=True) as who:
        args: dict[str, Any] = {"adrPath": adr_path, "includeProposed": include_proposed}
        args |= {"adrs": only} if only else {}
        try:
            args["files"] = who.named(files) or asyncio.run(governed_files(who.context(), args))
            compliance = asyncio.run(check(who.context(), args))
        except ToolError as fault:
            raise _usage(fault) if fault.code == "INVALID_INPUT" else fault from None
    if form is Format.json:
        _write(_json(as_data(compliance)), output)
    else:
        _write_findings(
            _adr_findings(compliance), form, output, f"{compliance.status.replace('_', ' ')}: {compliance.decision}"
        )
    raise typer.Exit(_exit(compliance.decision, "cloud", fail_on, binding=False))


def _analysis(who: Person, files: list[Path] | None, mode: Mode, context: str | None, *, strict: bool) -> Analysis:
    from toolgate.packs.governance.analyze import analyze as run

    args = {"files": who.named(files), "mode": mode.value, "strict": strict, "context": context}
    analysis = asyncio.run(run(who.context(), args))
    if not analysis.repository.files and not analysis.repository.skipped:
        raise typer.BadParameter(f"there is nothing to judge in {who.root}: no workflow, and no FILES")
    return analysis


def _all_workflows(who: Person) -> list[str]:
    from toolgate.packs.governance.repository import collect

    found = [path for path, _ in collect(who.files, ())[0] if path.endswith((".yml", ".yaml"))]
    if not found:
        raise typer.BadParameter(f"there is no workflow in {who.root}; name what to check (--help)")
    return found


def _with_not_evaluated(analysis: Analysis, *, show_fingerprint: bool) -> list[Finding]:
    """Findings, files and rules that were not judged. A person needs the fingerprint for `fp mark`; programs have it."""
    from msgspec.structs import replace

    from toolgate.kit.findings import Finding

    missing = [
        Finding(one.rule.id, "not_evaluated", "info", one.reason, why=one.rule.why)
        for one in analysis.verdicts
        if one.status == "not_evaluated"
    ]
    skipped = [
        Finding("SKIPPED", "not_evaluated", "info", f"not read: {one.reason}", file=one.path)
        for one in analysis.repository.skipped
    ]
    found = list(analysis.findings)
    if show_fingerprint:
        found = [replace(one, message=f"{one.message} [{one.fingerprint}]") for one in found]
    return [*found, *skipped, *missing]


def _adr_findings(compliance: Compliance) -> list[Finding]:
    from toolgate.kit.findings import Finding, fingerprinted

    found = [
        Finding(
            f"{one.adr}/{one.rule}",
            "fail",
            one.severity,
            one.message,
            file=one.file,
            line=one.line,
            fix=one.remediation,
            anchor=one.snippet,
        )
        for one in compliance.violations
    ]
    missing = [
        Finding("SKIPPED", "not_evaluated", "info", f"not read: {reason}", file=path)
        for path, reason in compliance.skipped
    ]
    missing += [
        Finding(name, "not_evaluated", "info", "there is no such decision record") for name in compliance.unknown
    ]
    missing += [
        Finding(one.id, "not_evaluated", "info", one.fault, file=one.path) for one in compliance.adrs if one.fault
    ]
    return [*fingerprinted(found), *missing]


def _write_findings(findings: Sequence[Finding], form: Format, output: Path | None, verdict: str) -> None:
    from toolgate import __version__
    from toolgate.kit.render import Checker, render

    text = render(form.value, findings, Checker("toolgate", __version__))
    if form is Format.text and output is None:
        _echo_coloured(text)
    else:
        _write(text, output)
    # The verdict is for people; the forms that programs read must hold nothing but themselves.
    typer.echo(verdict, err=form is not Format.text or output is not None, color=_colour(sys.stdout))


_COLOURS: Final = {"critical": "bright_red", "high": "red", "medium": "yellow", "low": "cyan", "not": "bright_black"}
_MARKS: Final = {"✓": "green", "✗": "red"}


def _echo_coloured(text: str) -> None:
    for line in text.splitlines():
        place, mark, rest = line.partition(": ")
        colour = _COLOURS.get(rest.partition(" ")[0])
        shown = f"{typer.style(place, bold=True)}{mark}{typer.style(rest, fg=colour)}" if colour else line
        if line[:1] in _MARKS:
            shown = typer.style(line, fg=_MARKS[line[0]])
        typer.echo(shown, color=_colour(sys.stdout))


def _colour(stream: Any) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def _verdict(decision: Decision, environment: str, reasons: str) -> str:
    told = f"{decision}: {reasons}" if reasons else decision
    return f"would {told} (advisory: local)" if decision == "block" and environment == "local" else told


def _exit(decision: Decision, environment: str, fail_on: Threshold, *, binding: bool) -> int:
    if binding and environment == "local":
        return ExitCode.DENIED
    if decision == "block":
        return ExitCode.FAILED
    return ExitCode.WARNED if decision == "warn" and fail_on is Threshold.warn else ExitCode.OK


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


def _json(value: Any) -> str:
    from toolgate.model import strictjson

    return strictjson.dumps_pretty(value).decode()


def _json_arguments(path: Path, schema: dict[str, Any]) -> dict[str, Any]:
    import jsonschema_rs

    from toolgate.model import strictjson

    try:
        data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1) if str(path) == "-" else path.read_bytes()
        value = strictjson.loads(data)
    except strictjson.JsonFault as fault:
        raise typer.BadParameter(f"--input: {fault}") from None
    if not jsonschema_rs.is_valid(schema, value):
        raise typer.BadParameter("--input does not match the tool's arguments (toolgate tools list --json shows them)")
    return dict(value)


def _directory(root: Path | None) -> Path | None:
    if root is not None and not root.is_dir():
        raise typer.BadParameter(f"--root: {root} is no directory")
    return root.absolute() if root else None


def _usage(fault: ToolError) -> Exception:
    return typer.BadParameter(fault.text) if fault.code == "INVALID_INPUT" else fault
