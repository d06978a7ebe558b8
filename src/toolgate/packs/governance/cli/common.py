"""What the commands that judge share: options, forms of an answer, exit codes.

Exit: 0 pass, 1 would block, 2 the gate could not judge, 4 warnings with --fail-on warn, 5 when --require-binding and the
answer is only advice. The exit code follows the thresholds, not the floor: a clamped block must still stop a pipeline.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from toolgate import __version__
from toolgate.cli.output import line, say, write
from toolgate.errors import ExitCode, ToolError
from toolgate.kit.reports.printable import printable
from toolgate.kit.reports.render import Checker, render
from toolgate.model import strictjson
from toolgate.packs.governance.cli.options import Format, Threshold
from toolgate.packs.governance.repository.identity import origin_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from toolgate.kit.findings import Finding
    from toolgate.model.tool import Decision
    from toolgate.packs.governance.repository.reading import SkippedFile


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


def unjudged(files: Iterable[SkippedFile]) -> list[str]:
    return [f"{file.path} was not judged: {file.reason.replace('_', ' ')}" for file in files]


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
    return spelt_out(root) if root else None


def spelt_out(path: Path) -> Path:
    """From the top, without `..`: patterns, suppressions and reports know a file by one name. Links stay as they are.

    Raises: typer.BadParameter: `..` behind a link, where the path's text and the system mean two different places.
    """
    whole = Path(os.path.normpath(path.absolute()))
    if ".." in path.parts and not (whole.exists() and whole.samefile(path)):
        raise typer.BadParameter(f"{printable(str(path))} leads through a link; name the file without ..")
    return whole


def below(root: Path, path: Path) -> str:
    """A path as typed, from where the person stands, as the repository calls it; whole where it is outside."""
    whole = spelt_out(path)
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) else str(whole)


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


def require_name(context: str | None) -> None:
    """Raises: typer.BadParameter: what was said to name a repository does not; its own name would be taken instead."""
    if context is not None and not origin_of(context).is_named:
        raise typer.BadParameter(f"--context: {printable(context)} is not owner/name or owner/name@commit")


def usage(fault: ToolError) -> Exception:
    return typer.BadParameter(fault.text) if fault.code in ("INVALID_INPUT", "NO_ADRS_FOUND", "IO_ERROR") else fault
