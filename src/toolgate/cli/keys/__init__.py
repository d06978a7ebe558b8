"""`toolgate keys`: make, list, rotate and revoke callers' keys. Here are the flags; `ring.py` does it."""

from __future__ import annotations

from typing import Annotated

import typer

from toolgate.cli.options import Home, Json
from toolgate.later import done_by

app = typer.Typer(no_args_is_help=True)

KeyId = Annotated[str, typer.Argument(metavar="ID", help="As `toolgate keys list` shows it.")]


@app.command()
@done_by("toolgate.cli.keys.ring:create")
def create(
    *,
    role: Annotated[
        str,
        typer.Option("--role", help="builder, committer, admin, auditor, or a role of the policy manifest."),
    ],
    label: Annotated[str, typer.Option("--label", help="A reminder of whose key this is.")] = "",
    owner: Annotated[
        str, typer.Option("--owner", help="Who is behind it: keys of one owner are one person where people approve.")
    ] = "",
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="30d", help="Life of the key: 90m, 12h, 30d, 8w.")
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="GLOB", help="Tools it may use, of those its role holds; may be repeated."),
    ] = None,
    address: Annotated[
        list[str] | None,
        typer.Option("--address", metavar="CIDR", help="Where it may be used from: 10.0.0.0/8; may be repeated."),
    ] = None,
    rate: Annotated[
        int | None, typer.Option("--rate", metavar="N", help="Calls it may make in a minute, of those every key may.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", metavar="N", help="Calls of it that may run at once, likewise.")
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
@done_by("toolgate.cli.keys.ring:show")
def show(key_id: KeyId, home: Home = None, json: Json = False) -> None:
    """Show all that is known of one key, but for its secret."""


@app.command()
@done_by("toolgate.cli.keys.ring:rotate")
def rotate(
    key_id: KeyId,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="24h", help="How long the old secret stays good: 0, 90m, 12h, 7d.")
    ] = "24h",
    home: Home = None,
    json: Json = False,
) -> None:
    """Give a key a new secret. Its id, role, label and bounds stay; the old secret is refused when the overlap has ended."""


@app.command()
@done_by("toolgate.cli.keys.ring:revoke")
def revoke(key_id: KeyId, home: Home = None, json: Json = False) -> None:
    """Revoke a key: a running server refuses it from its next call on."""
