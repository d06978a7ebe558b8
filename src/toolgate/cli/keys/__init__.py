"""`toolgate keys`: make, list and revoke callers' keys. Here are the flags; `ring.py` does it."""

from __future__ import annotations

from typing import Annotated

import typer

from toolgate.cli.options import Home, Json
from toolgate.later import done_by

app = typer.Typer(no_args_is_help=True)


@app.command()
@done_by("toolgate.cli.keys.ring:create")
def create(
    role: Annotated[
        str,
        typer.Option("--role", help="builder, committer, admin, auditor, or a role of the policy manifest."),
    ],
    label: Annotated[str, typer.Option("--label", help="A reminder of whose key this is.")] = "",
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="30d", help="Life of the key: 90m, 12h, 30d, 8w.")
    ] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Make a key. It is shown once: only its digest is kept."""


@app.command("list")
@done_by("toolgate.cli.keys.ring:list_keys")
def list_keys(home: Home = None, json: Json = False) -> None:
    """List keys: never their secrets."""


@app.command()
@done_by("toolgate.cli.keys.ring:revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `toolgate keys list` shows it.")],
    home: Home = None,
    json: Json = False,
) -> None:
    """Revoke a key: a running server refuses it from its next call on."""
