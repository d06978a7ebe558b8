"""`lra`: the author's own commands on the author's own files. No key, no workspace, no server (decision 5)."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from toolgate import __version__
from toolgate.errors import ExitCode, ToolError, ToolgateError
from toolgate.packs.lra.cli_shared import workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolgate.packs.lra.artifact import Artifact
    from toolgate.packs.lra.validate import Report
    from toolgate.powers.files import Workspace

FORMATS: Final = ("text", "json", "sarif", "junit", "github", "markdown")
_COLOURS: Final = {"NONE": "e05d44", "BRONZE": "cd7f32", "SILVER": "c0c0c0", "GOLD": "ffd700"}
_LICENCES: Final = (
    "GPL-3.0-or-later, AGPL-3.0-or-later, Apache-2.0, MIT, BSD-3-Clause, MPL-2.0, CC-BY-4.0, CC-BY-SA-4.0, CC0-1.0"
)
"""Repeated from `licences`, which `--help` need not load; a test compares."""
_REVIEW: Final = "toolgate.packs.lra.cli_review"


class _Commands(TyperGroup):
    """The author's commands are here; the reviewer's are imported when one of them, or the list, is asked for."""

    def _review(self) -> dict[str, Any]:
        from importlib import import_module
        from importlib.util import find_spec

        if find_spec(_REVIEW) is None:
            return {}
        found: dict[str, Any] = get_command(import_module(_REVIEW).app).commands  # type: ignore[attr-defined]  # a typer application is a group
        return found

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *self._review()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or self._review().get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """The border where every fault becomes one line and an exit code."""
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]  # check marks on any locale
        try:
            return super().invoke(ctx)
        except ToolgateError as fault:
            _fault(fault.text if isinstance(fault, ToolError) else str(fault))
        except OSError as fault:
            _fault(f"{fault.strerror or type(fault).__name__}{f': {fault.filename}' if fault.filename else ''}")
        raise typer.Exit(ExitCode.FAILED)


app = typer.Typer(
    cls=_Commands, no_args_is_help=True, add_completion=False, help="Living papers: write, judge, build, sign, verify."
)

PathArgument = Annotated[Path, typer.Argument(help="A paper's directory, or its HTML file.")]
Json = Annotated[bool, typer.Option("--json", help="Answer as one line of JSON.")]


@app.command()
def init(  # noqa: PLR0917 (typer reads the options from the signature)
    name: Annotated[str, typer.Argument(help="Name of the new directory: letters, digits, _ and -.")],
    title: Annotated[str, typer.Option(help="Title; without it, made from the name.")] = "",
    author: Annotated[list[str] | None, typer.Option(help="`Jane Doe` or `Doe, Jane`; repeat for more.")] = None,
    orcid: Annotated[list[str] | None, typer.Option(help="ORCID iD of each author, in the same order.")] = None,
    license: Annotated[str, typer.Option(help=f"One of {_LICENCES}.")] = "GPL-3.0-or-later",  # noqa: A002 (the option's name)
    tier: Annotated[str, typer.Option(help="bronze, silver or gold.")] = "silver",
    template: Annotated[str, typer.Option(help="The sample to start from; there is one, lattice.")] = "lattice",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be made, and make nothing.")] = False,
    json: Json = False,
) -> None:
    """Make a new paper that already passes its tier."""
    from toolgate.packs.lra import metadata, scaffold

    if tier not in scaffold.TIERS or template != "lattice":
        raise typer.BadParameter("--tier is bronze, silver or gold; --template is lattice")
    ids = orcid or []
    if len(ids) > len(author or []):
        raise typer.BadParameter("each --orcid belongs to an --author")
    names = author or []
    people = tuple(metadata.author(one, ids[at] if at < len(ids) else "") for at, one in enumerate(names))
    made = scaffold.scaffold(scaffold.Wishes(name, _today(), title, people, license, tier))
    if dry_run and Path(name).exists():
        raise ToolError("DIRECTORY_EXISTS", "Directory already exists")
    if not dry_run:
        with workspace(Path()) as files:
            files.create_tree(name, made.files)
    if json:
        _say_json({"project": name, "tier": tier.upper(), "files": list(made.files), "dry_run": dry_run})
    else:
        text = scaffold.created_text(name, list(made.files))
        _say(text.replace("Created", "Would create", 1) if dry_run else text + f"\nTier: {tier.upper()}\n")
        _say("" if dry_run else scaffold.next_steps(name))


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
) -> None:
    """Judge a paper by the 23 checks of LRA-1.0. Exit 0 whatever the tier, unless --min-tier asks for more."""
    from toolgate.packs.lra import report as reports

    if list_rules:
        _say(reports.list_rules())
    elif explain:
        try:
            _say(reports.explain(explain.upper()))
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
def build(
    source: Annotated[Path, typer.Argument(help="The Markdown file.")] = Path("paper.md"),
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The paper's directory; else named as the file.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a paper directory from Markdown. Files of an earlier build are replaced, others are left alone."""
    from toolgate.packs.lra.build.assemble import build as assemble

    target = output or source.with_suffix("")
    if target.resolve() == source.parent.resolve():
        raise typer.BadParameter("the paper goes into a directory of its own, not beside its source")
    with workspace(source.parent) as files:
        made = assemble(source.name, lambda path, limit: _beside(files, path, limit))
    target.mkdir(parents=True, exist_ok=True)
    with workspace(target) as files:
        for name, data in made.items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            files.write_bytes(name, data)
    if json:
        _say_json({"source": str(source), "output": str(target), "files": list(made)})
    else:
        _say(f"Built: {source} -> {target}/ ({sum(map(len, made.values()))} bytes in {len(made)} files)\n")


def _beside(files: Workspace, path: str, limit: int) -> bytes | None:
    try:
        return files.read_bytes(path, max_bytes=limit)
    except ToolError as fault:
        if fault.missing:
            return None
        raise


@app.command()
def badge(path: PathArgument = Path(), json: Json = False) -> None:
    """Print the address of a badge image for the tier the paper reaches."""
    tier = _judge(path, strict=False).tier
    url = f"https://img.shields.io/badge/LRA--1.0-{tier.lower()}-{_COLOURS[tier]}"
    _say_json({"tier": tier, "url": url}) if json else _say(url + "\n")


@app.command()
def hash(path: PathArgument = Path(), json: Json = False) -> None:  # noqa: A001 (the command's name)
    """Print the SHA-256 of the page's bytes, as registries list it."""
    from hashlib import sha256

    digest = f"sha256:{sha256(_gather(path).html).hexdigest()}"
    _say_json({"path": str(path), "hash": digest}) if json else _say(digest + "\n")


def _gather(path: Path) -> Artifact:
    """Read the paper the user named, wherever it is. Raises: ToolError."""
    from msgspec.structs import replace

    from toolgate.packs.lra.artifact import gather

    directory = path if path.is_dir() else path.parent
    shown = str(path / "index.html") if path.is_dir() else str(path)
    if not directory.is_dir() or not (path / "index.html" if path.is_dir() else path).exists():
        raise ToolError("FILE_NOT_FOUND", f"Cannot read {shown}: file not found", missing=True)
    with workspace(directory) as files:
        return replace(gather(files, "." if path.is_dir() else path.name), shown=shown)


def _judge(path: Path, *, strict: bool) -> Report:
    from toolgate.packs.lra.validate import validate as judge

    return judge(_gather(path), strict=strict)


def _prefix(path: Path) -> str:
    """From where the command runs to the paper's directory: what repositories and editors call its files by."""
    directory = (path if path.is_dir() else path.parent).resolve()
    here = Path.cwd().resolve()
    return directory.relative_to(here).as_posix() if directory.is_relative_to(here) else directory.as_posix()


def _render(report: Report, form: str, prefix: str = ".") -> str:
    from posixpath import join, normpath

    from msgspec.structs import replace

    from toolgate.kit.render import Checker, render
    from toolgate.model import strictjson
    from toolgate.packs.lra.report import to_text

    if form == "text":
        return to_text(report, details=True)
    if form == "json":
        return strictjson.dumps_pretty(report.as_json()).decode()
    placed = [replace(one, file=normpath(join(prefix, one.file))) if one.file else one for one in report.findings]
    return render(form, placed, Checker("lra", __version__))


def _fix(path: Path, *, dry_run: bool) -> None:
    from toolgate.packs.lra import fixes

    artifact = _gather(path)
    new = fixes.repairs(artifact, _today()[:4])
    sys.stderr.write(fixes.diff(artifact, new) or "Nothing here can be mended without a decision of yours.\n")
    if new and not dry_run:
        with workspace(path if path.is_dir() else path.parent) as files:
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
        _say(_render(_judge(path, strict=strict), "text") + "\n")
    except ToolError as fault:
        _fault(fault.text)
    sys.stdout.flush()


def _today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def _write(text: str, output: Path | None) -> None:
    if output is None:
        _say(text)
    else:
        output.write_text(text, encoding="utf-8")


def _say(text: str) -> None:
    sys.stdout.write(text)


def _say_json(value: Any) -> None:
    from toolgate.model import strictjson

    _say(strictjson.dumps(value).decode() + "\n")


def _fault(text: str) -> None:
    sys.stderr.write(f"error: {text}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is the answer."""
    try:
        get_command(app).main(args=list(arguments) if arguments is not None else None, prog_name="lra")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.FAILED if end.code else ExitCode.OK
    return ExitCode.OK


def run() -> None:
    """The console script."""
    sys.exit(main())
