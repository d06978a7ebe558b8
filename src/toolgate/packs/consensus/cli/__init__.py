"""`toolgate consensus`: a person's own look at the arbiter's store, and checks of evidence that need nothing but bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolgate.later import done_by

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Rounds, votes and their finality.")

Home = Annotated[
    Path | None, typer.Option("--home", metavar="DIR", help="Where toolgate.toml is; else TOOLGATE_HOME, else here.")
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]


@app.command()
@done_by("toolgate.packs.consensus.cli.rounds:status")
def status(home: Home = None, json: Json = False) -> None:
    """Who the arbiters are, how far the rounds have come, and the hash of everything known."""


@app.command()
@done_by("toolgate.packs.consensus.cli.rounds:show")
def show(
    round_id: Annotated[int, typer.Argument(metavar="ROUND", min=1, max=2**63 - 1, help="The round's number.")],
    home: Home = None,
    json: Json = False,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the last evidence there, for `verify`.")
    ] = None,
) -> None:
    """Draw a round's ladder: who voted what, and when it rose."""


@app.command()
@done_by("toolgate.packs.consensus.cli.rounds:verify")
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Evidence: bytes, or their hex digits.")],
    arbiters: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The arbiter set (status --json); else the one of the settings."),
    ] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Check a certificate, a rise or an equivocation proof offline. Exit 1: it proves nothing."""


@app.command()
@done_by("toolgate.packs.consensus.cli.rounds:seal")
def seal(home: Home = None, json: Json = False) -> None:
    """Propose a checkpoint over every certificate that is not ABSOLUTE yet. It takes effect when a quorum accepts it."""


@app.command()
@done_by("toolgate.packs.consensus.cli.rounds:keys")
def keys(
    make: Annotated[bool, typer.Option("--make", help="Make the keys that are missing.")] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Move the voting key to this store. Its old store must be gone for good.")
    ] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """The public halves of this server's voting and VRF keys: what the other arbiters put into their settings."""
