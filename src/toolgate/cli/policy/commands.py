"""`toolgate policy` and `toolgate contract`: their flags and their help. The modules beside this one do what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolgate.cli.options import Home, Json
from toolgate.later import done_by

policy = typer.Typer(no_args_is_help=True)
contract = typer.Typer(no_args_is_help=True)


@policy.command("test")
@done_by("toolgate.cli.policy.judging:try_examples")
def try_examples(home: Home = None, json: Json = False) -> None:
    """Judge the manifest's own examples: each is decided as it expects, or exit 1."""


@policy.command("explain")
@done_by("toolgate.cli.policy.judging:explain")
def explain(
    tool: Annotated[str, typer.Option("--tool", help="Its name, as the manifest has it.")],
    role: Annotated[str | None, typer.Option("--role", help="Of the caller.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="ID", help="The caller's key: with its role, label and scopes.")
    ] = None,
    args: Annotated[
        str | None, typer.Option("--args", metavar="FILE", help="The arguments as JSON; - reads them.")
    ] = None,
    label: Annotated[str, typer.Option("--label", help="Of the caller's key.")] = "",
    environment: Annotated[str, typer.Option("--environment", help="local or cloud.")] = "local",
    home: Home = None,
    json: Json = False,
) -> None:
    """Say how the policy decides about one call, and which rule does. Exits as `toolgate call` would."""


@policy.command("replay")
@done_by("toolgate.cli.policy.judging:replay")
def replay(
    policy: Annotated[Path, typer.Option("--policy", metavar="DIR", help="The proposed policy.")],
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="Calls from then on: 7d, 2026-11-15.")] = "7d",
    home: Home = None,
    json: Json = False,
) -> None:
    """Judge calls on record by a proposed policy: whom would it have refused, whom let through?

    The log holds arguments only where `[ledger.keep]` keeps them: what a rule must know and the log does not say is told.
    """


@policy.command()
@done_by("toolgate.cli.policy.manifest:lint")
def lint(home: Home = None, json: Json = False) -> None:
    """Judge manifest, tools, ADRs and lock by the five manifest rules.

    Exit 0: nothing worse than a warning. 1: a fatal rule, or a manifest that cannot be read. 3: contract drift only.
    """


@policy.command()
@done_by("toolgate.cli.policy.manifest:show")
def show(
    tool: Annotated[str | None, typer.Argument(help="One tool; else all of them.")] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """What the manifest in force says: tier, ADR and roles of each tool, and whether its code is there."""


@policy.command()
@done_by("toolgate.cli.policy.manifest:docs")
def docs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Markdown files.", exists=True, file_okay=False)
    ] = Path("docs/adr"),
    home: Home = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 3 if a file is stale.")] = False,
    json: Json = False,
) -> None:
    """Renew the made parts of Markdown files: the tool policy table and the index of ADRs, from the committed lock."""


@contract.command()
@done_by("toolgate.cli.policy.contract:build")
def build(home: Home = None, json: Json = False) -> None:
    """Write mcp-contract.json from the packs, the manifest and the ADRs, and say what changed for callers.

    Exit 0: written, or already up to date. 1: a manifest rule forbids it, and nothing is written.
    """


@contract.command()
@done_by("toolgate.cli.policy.contract:check")
def check(
    home: Home = None,
    json: Json = False,
    record: Annotated[
        Path | None, typer.Option("--record", help="Also append the result to this file, for `contract health`.")
    ] = None,
    commit: Annotated[
        str, typer.Option("--commit", envvar=["GITHUB_SHA", "CI_COMMIT_SHA"], help="What --record says was checked.")
    ] = "",
) -> None:
    """Is the committed mcp-contract.json what the code and the policy say now?

    Exit 0: yes. 1: a tool without a row, an authoritative tool without an accepted ADR, an experimental tool that
    claims L0. 3: drift.
    """


@contract.command()
@done_by("toolgate.cli.policy.contract:health")
def health(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="What `contract check --record` wrote, or the output of `gh run list --json`; else stores.contract_checks."
        ),
    ] = None,
    home: Home = None,
    window: Annotated[str, typer.Option("--window", help="How far to look back, in days.")] = "30d",
    badge: Annotated[Path | None, typer.Option("--badge", help="Also write an SVG with the result.")] = None,
    json: Json = False,
) -> None:
    """How long has the contract check been green? One mark a day, oldest first: + green, x red, . no check.

    Exit 0: green now, and on every day of the window that had a check. 1: not.
    """


@contract.command("diff")
@done_by("toolgate.cli.policy.contract:diff_command")
def diff_command(
    old: Annotated[Path | None, typer.Argument(help="A contract file; else the committed lock.")] = None,
    new: Annotated[Path | None, typer.Argument(help="A contract file; else what the code says now.")] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """What changed between two contracts, as callers feel it: breaking, widening or text-only.

    A breaking change must have been announced, in the older contract, two weeks ago (manifest: `deprecations`).
    Exit 0: nothing breaks unannounced. 1: something does. 3: the code differs from the lock, and nothing breaks.
    """
