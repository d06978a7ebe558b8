"""What the commands that judge share: options, forms of an answer, exit codes.

Exit: 0 pass, 1 would block, 2 the gate could not judge, 4 warnings with --fail-on warn, 5 when --require-binding and the
answer is only advice. The exit code follows the thresholds, not the floor: a clamped block must still stop a pipeline.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolgate import __version__
from toolgate.cli.output import line, say, write
from toolgate.errors import ExitCode, ToolError
from toolgate.kit.reports.printable import printable
from toolgate.kit.reports.render import Checker, render
from toolgate.model import strictjson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolgate.kit.findings import Finding
    from toolgate.model.tool import Decision


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


class Default(StrEnum):
    """What a workflow token may do where no permissions are stated."""

    read = "read"
    write = "write"


Home = Annotated[
    Path | None, typer.Option("--home", metavar="DIR", help="Where toolgate.toml is; else TOOLGATE_HOME, else here.")
]
Root = Annotated[Path | None, typer.Option("--root", metavar="DIR", help="The repository; else the one around here.")]
Form = Annotated[Format, typer.Option("--format", help="How to write the answer.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the answer there.")]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
FailOn = Annotated[Threshold, typer.Option("--fail-on", help="warn: exit 4 on warnings.")]
Binding = Annotated[bool, typer.Option("--require-binding", help="Exit 5 unless real stores make the answer binding.")]
Permissions = Annotated[
    Default | None,
    typer.Option("--default-permissions", help="The repository's default for tokens that state none; else unknown."),
]
About = Annotated[
    str | None, typer.Option("--context", help="owner/name or owner/name@commit: whose baseline and suppressions.")
]


def write_findings(findings: Sequence[Finding], form: Format, output: Path | None, verdict: str) -> None:
    text = render(form.value, findings, Checker("toolgate", __version__))
    if form is Format.text and output is None:
        show_coloured(text)
    else:
        write_answer(text, output)
    # The verdict is for people; the forms that programs read must hold nothing but themselves.
    write(verdict + "\n", stderr=form is not Format.text or output is not None)


_COLOURS: Final = {"critical": "bright_red", "high": "red", "medium": "yellow", "low": "cyan", "not": "bright_black"}
_MARKS: Final = {"✓": "green", "✗": "red", "?": "yellow"}


def show_coloured(text: str) -> None:
    for each in text.splitlines():
        place, mark, rest = each.partition(": ")
        colour = _COLOURS.get(rest.partition(" ")[0])
        if each[:1] in _MARKS:
            say(each, style=_MARKS[each[0]])
        elif colour:
            line((place, "bold"), (mark, ""), (rest, colour))
        else:
            say(each)


def verdict_of(decision: Decision, environment: str, reasons: str) -> str:
    told = f"{decision}: {reasons}" if reasons else decision
    return f"would {told} (advisory: local)" if decision == "block" and environment == "local" else told


def exit_of(decision: Decision, environment: str, fail_on: Threshold, *, binding: bool) -> int:
    if binding and environment == "local":
        return ExitCode.DENIED
    if decision == "block":
        return ExitCode.FAILED
    return ExitCode.WARNED if decision == "warn" and fail_on is Threshold.warn else ExitCode.OK


def gate_exit(errors: Sequence[str], otherwise: int) -> int:
    """What kept the gate from judging, on standard error; then exit 2, whatever was found."""
    for error in errors:
        write(f"error: {error}\n", stderr=True)
    return ExitCode.USAGE if errors else otherwise


def write_answer(text: str, output: Path | None) -> None:
    if output is None:
        write(text)
    else:
        output.write_text(text, encoding="utf-8")


def as_json(value: Any) -> str:
    return strictjson.dumps_pretty(value).decode()


def directory(root: Path | None) -> Path | None:
    if root is not None and not root.is_dir():
        raise typer.BadParameter(f"--root: {root} is not a directory")
    return root.absolute() if root else None


def existing(paths: Sequence[Path]) -> list[Path]:
    """Every path that was named is a file that is there, or the command is wrong."""
    for path in paths:
        shown = printable(str(path))
        if path.is_dir():
            raise typer.BadParameter(f"{shown} is a directory; name files, or the repository with --root")
        if not path.is_file():
            hint = "; the pattern matches nothing" if any(mark in shown for mark in "*?[") else ""
            raise typer.BadParameter(f"{shown} is not there, or is not a file{hint}")
    return list(paths)


def usage(fault: ToolError) -> Exception:
    return typer.BadParameter(fault.text) if fault.code in ("INVALID_INPUT", "NO_ADRS_FOUND") else fault
