"""`toolgate analyze`, `baseline`, `l0` and `adr`: their flags and their help. The modules beside this one do what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolgate.later import done_by
from toolgate.packs.governance.cli.options import (
    About,
    Binding,
    FailOn,
    Form,
    Format,
    Home,
    Json,
    Mode,
    Output,
    Permissions,
    Root,
    Switch,
    Threshold,
)

adr = typer.Typer(no_args_is_help=True, help="Decision records as rules.")

Files = Annotated[list[Path] | None, typer.Argument(metavar="[FILES]...", help="Files to judge.")]
Where = Annotated[str, typer.Option("--adr-path", metavar="DIR", help="Where the records are.")]
Paths = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[DIR | FILES]...", help="A repository; or files of one, to hear about those only."),
]
Protection = Annotated[
    Path | None,
    typer.Option("--protection", metavar="FILE", help="Branch protection or rules as the code host answers them."),
]


@done_by("toolgate.packs.governance.cli.analyze:analyze")
def analyze(
    paths: Paths = None,
    *,
    mode: Annotated[Mode, typer.Option(help="What kind of change is judged.")] = Mode.pull_request,
    strict: Annotated[bool, typer.Option("--strict", help="No high finding, at most 5 medium.")] = False,
    context: About = None,
    protection: Protection = None,
    default_permissions: Permissions = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="COMMIT", help="Before the change: which ignores are new?")
    ] = None,
    zizmor: Annotated[
        Switch | None, typer.Option("--zizmor", help="on: its absence is an error; else .toolgate.toml.")
    ] = None,
    require_evaluated: Annotated[
        bool, typer.Option("--require-evaluated", help="Exit 2 when a rule lacks what it needs.")
    ] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Add missing permissions, and pins from --pins, first.")] = False,
    pins: Annotated[
        Path | None, typer.Option("--pins", metavar="FILE", help="Tags and their commits, for --fix.")
    ] = None,
    form: Form = Format.text,
    output: Output = None,
    fail_on: FailOn = Threshold.block,
    require_binding: Binding = False,
    root: Root = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Judge a repository's workflows, branch protection and contract."""


@done_by("toolgate.packs.governance.cli.analyze:baseline")
def baseline(
    paths: Paths = None,
    context: About = None,
    root: Root = None,
    home: Home = None,
    json: Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")] = False,
) -> None:
    """Remember the governed files as they are now; `analyze --mode drift` reports what changed since."""


@done_by("toolgate.packs.governance.cli.l0:l0")
def l0(  # noqa: PLR0917 (typer reads the options from the signature)
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
    default_permissions: Permissions = None,
    form: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.text,
    fail_on: FailOn = Threshold.block,
    require_binding: Binding = False,
    root: Root = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Check the L0 invariants; without options, the permissions of all workflows."""


@adr.callback()
def _adr() -> None:
    """Decision records as rules."""


@adr.command("check")
@done_by("toolgate.packs.governance.cli.adr:adr_check")
def adr_check(
    files: Files = None,
    *,
    only: Annotated[list[str] | None, typer.Option("--adr", metavar="ID", help="Only this record; repeatable.")] = None,
    adr_path: Where = "docs/adr",
    include_proposed: Annotated[bool, typer.Option("--include-proposed", help="Apply proposed records too.")] = False,
    form: Form = Format.text,
    output: Output = None,
    fail_on: FailOn = Threshold.block,
    root: Root = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Which accepted decisions do these files break? Without FILES: every file that a rule is about."""


@adr.command("lint")
@done_by("toolgate.packs.governance.cli.adr:adr_lint")
def adr_lint(
    *,
    adr_path: Where = "docs/adr",
    root: Root = None,
    home: Home = None,
    json: Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")] = False,
) -> None:
    """Can the rules of every decision record be read, whatever its status? Exit 2 when not."""
