"""`lra validate`, `check`, `badge` and `hash`: what a paper reaches."""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from posixpath import join, normpath
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec.structs import replace

from toolgate import __version__
from toolgate.errors import ExitCode, ToolError
from toolgate.kit.reports.render import Checker, render
from toolgate.model import strictjson
from toolgate.packs.lra.checks import report as reports
from toolgate.packs.lra.checks.badge import svg
from toolgate.packs.lra.checks.report import to_text
from toolgate.packs.lra.checks.rules import RULES
from toolgate.packs.lra.cli.border import note, report_fault, say
from toolgate.packs.lra.cli.gathering import gather_paper
from toolgate.packs.lra.cli.shared import JsonLine, say_json_line, today
from toolgate.powers.files import open_directory

if TYPE_CHECKING:
    from toolgate.packs.lra.checks.validate import PaperReport

app = typer.Typer(add_completion=False)

FORMATS: Final = ("text", "json", "sarif", "junit", "github", "markdown")
_COLOURS: Final = {"NONE": "e05d44", "BRONZE": "cd7f32", "SILVER": "c0c0c0", "GOLD": "ffd700"}
PathArgument = Annotated[Path, typer.Argument(help="A paper's directory, or its HTML file.")]


@app.command()
def validate(  # noqa: PLR0917 (as above)
    path: PathArgument = Path(),
    format: Annotated[str, typer.Option("--format", "-f", help=" | ".join(FORMATS))] = "text",  # noqa: A002 (the option's name)
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a file.")] = None,
    min_tier: Annotated[str, typer.Option(help="Exit 1 below this tier: bronze, silver or gold.")] = "none",
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings and advisories count.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Judge again whenever a file changes.")] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Mend what needs no decision, and show the difference.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --fix: show the difference, change nothing.")
    ] = False,
    explain: Annotated[str, typer.Option(metavar="RULE", help="Say everything about one rule, such as B12.")] = "",
    list_rules: Annotated[bool, typer.Option("--list-rules", help="List all rules.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Judge a paper by the 23 checks of LRA-1.0. Exit 0 whatever the tier, unless --min-tier asks for more."""
    format = "json" if json else format  # noqa: A001 (the option's name)
    if list_rules:
        say(reports.list_rules())
    elif explain:
        try:
            say(reports.explain(explain.upper()))
        except KeyError:
            raise typer.BadParameter(f"there is no rule {explain}; see --list-rules") from None
    elif format not in FORMATS or min_tier.upper() not in _COLOURS:
        raise typer.BadParameter(f"--format is one of {', '.join(FORMATS)}; --min-tier is bronze, silver or gold")
    elif watch:
        _watch(path, strict=strict)
    else:
        if fix:
            _fix(path, dry_run=dry_run)
        judged = _judge(path, strict=strict)
        _write(_render(judged, format, _prefix(path)), output)
        if list(_COLOURS).index(judged.tier) < list(_COLOURS).index(min_tier.upper()):
            raise typer.Exit(ExitCode.FAILED)


app.command("check", help="The same as validate.")(validate)


@app.command()
def badge(
    path: PathArgument = Path(),
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the image to this file.")] = None,
    json: JsonLine = False,
) -> None:
    """Draw a badge for the tier the paper reaches, as an SVG file to keep beside it: nothing is loaded from elsewhere."""
    tier = _judge(path, strict=False).tier
    image = svg(tier, _COLOURS[tier])
    if output is not None:
        output.write_text(image, encoding="utf-8")
    if json:
        url = f"https://img.shields.io/badge/LRA--1.0-{tier.lower()}-{_COLOURS[tier]}"
        say_json_line({"tier": tier, "url": url, "svg": image})
    elif output is not None:
        note(f"wrote {output}")
    else:
        say(image)


@app.command()
def hash(path: PathArgument = Path(), json: JsonLine = False) -> None:  # noqa: A001 (the command's name)
    """Print the SHA-256 of the page's bytes, as registries list it."""
    digest = f"sha256:{sha256(gather_paper(path).html).hexdigest()}"
    say_json_line({"path": str(path), "hash": digest}) if json else say(digest + "\n")


def _judge(path: Path, *, strict: bool) -> PaperReport:
    from toolgate.packs.lra.checks.validate import validate as judge

    return judge(gather_paper(path), strict=strict)


def _prefix(path: Path) -> str:
    """From where the command runs to the paper's directory: what repositories and editors call its files by."""
    directory = (path if path.is_dir() else path.parent).resolve()
    here = Path.cwd().resolve()
    return directory.relative_to(here).as_posix() if directory.is_relative_to(here) else directory.as_posix()


def _render(report: PaperReport, form: str, prefix: str = ".") -> str:
    if form == "text":
        return to_text(report, details=True)
    if form == "json":
        return strictjson.dumps_pretty(report.as_json()).decode()
    placed = [
        replace(finding, file=normpath(join(prefix, finding.file))) if finding.file else finding
        for finding in report.findings
    ]
    if form == "junit":
        from toolgate.kit.reports.junit import to_junit  # XML, for this form alone

        return to_junit(placed, name="lra", titles={rule.id: rule.label for rule in RULES.values()})
    made = render(form, placed, Checker("lra", __version__))
    return f"**Tier: {report.tier} ({report.passed}/{report.total} pass)**\n\n{made}" if form == "markdown" else made


def _fix(path: Path, *, dry_run: bool) -> None:
    from toolgate.packs.lra.checks import fixes

    artifact = gather_paper(path)
    new = fixes.repairs(artifact, today()[:4])
    note(fixes.diff(artifact, new).rstrip("\n") or "Nothing here can be mended without a decision of yours.")
    if new and not dry_run:
        with open_directory(path if path.is_dir() else path.parent) as files:
            for name, data in new.items():
                files.write_bytes(name, data)


def _watch(path: Path, *, strict: bool) -> None:
    from watchfiles import watch

    directory = path if path.is_dir() else path.parent
    shown = False
    # The first report waits for the watcher, or a change between the two would be lost.
    for changes in watch(directory, raise_interrupt=False, yield_on_timeout=True, rust_timeout=200):
        if changes or not shown:
            _show(path, strict=strict)
            shown = True


def _show(path: Path, *, strict: bool) -> None:
    """One report while watching: a fault now may be mended by the next change."""
    try:
        say(_render(_judge(path, strict=strict), "text") + "\n")
    except ToolError as fault:
        report_fault(fault.text)
    sys.stdout.flush()


def _write(text: str, output: Path | None) -> None:
    if output is None:
        say(text)
    else:
        output.write_text(text, encoding="utf-8")
