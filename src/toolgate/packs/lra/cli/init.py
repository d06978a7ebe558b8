"""`lra init`: a new paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolgate.errors import ToolError
from toolgate.packs.lra.build import scaffold
from toolgate.packs.lra.cli.border import say
from toolgate.packs.lra.cli.shared import JsonLine, say_json_line, today
from toolgate.packs.lra.paper import metadata
from toolgate.packs.lra.paper.licences import LICENCES
from toolgate.powers.files import open_directory

if TYPE_CHECKING:
    pass

app = typer.Typer(add_completion=False)


@app.command()
def init(  # noqa: PLR0917 (typer reads the options from the signature)
    name: Annotated[str, typer.Argument(help="Name of the new directory, such as my-paper or paper.v2.")],
    title: Annotated[str, typer.Option(help="Title; without it, made from the name.")] = "",
    author: Annotated[list[str] | None, typer.Option(help="`Jane Doe` or `Doe, Jane`; repeat for more.")] = None,
    orcid: Annotated[list[str] | None, typer.Option(help="ORCID iD of each author, in the same order.")] = None,
    license: Annotated[str, typer.Option(help=f"One of {', '.join(LICENCES)}.")] = "GPL-3.0-or-later",  # noqa: A002 (the option's name)
    tier: Annotated[str, typer.Option(help="bronze, silver or gold.")] = "silver",
    template: Annotated[str, typer.Option(help="The sample to start from; there is one, lattice.")] = "lattice",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be made, and make nothing.")] = False,
    json: JsonLine = False,
) -> None:
    """Make a new paper that already passes its tier."""
    if tier not in scaffold.TIERS or template != "lattice":
        raise typer.BadParameter("--tier is bronze, silver or gold; --template is lattice")
    ids = orcid or []
    if len(ids) > len(author or []):
        raise typer.BadParameter("each --orcid belongs to an --author")
    names = author or []
    authors = tuple(metadata.author(written, ids[at] if at < len(ids) else "") for at, written in enumerate(names))
    made = scaffold.scaffold(scaffold.ScaffoldOptions(name, today(), title, authors, license, tier))
    name = made.name
    if dry_run and Path(name).exists():
        raise ToolError("DIRECTORY_EXISTS", "Directory already exists")
    if not dry_run:
        with open_directory(Path()) as files:
            files.create_tree(name, made.files)
    if json:
        say_json_line({"project": name, "tier": tier.upper(), "files": list(made.files), "dry_run": dry_run})
    else:
        text = scaffold.created_text(name, list(made.files))
        say(text.replace("Created", "Would create", 1) if dry_run else text + f"\nTier: {tier.upper()}\n")
        say("" if dry_run else scaffold.next_steps(name))
