"""Commands for people."""

import json as codec
from pathlib import Path
from typing import Annotated

import typer

from toolgate.local import open_local
from toolgate_pack_tickets import PACK
from toolgate_pack_tickets.settings import USE
from toolgate_pack_tickets.tables import STORE

Home = Annotated[Path | None, typer.Option("--home", help="Where toolgate.toml is; else TOOLGATE_HOME, else here.")]


def notes(home: Home = None) -> None:
    """Print every note, and how often a server was started, as JSON."""

    def read(connection):
        from sqlalchemy import text

        rows = connection.execute(text("SELECT ticket, note FROM tickets_note ORDER BY ticket, n")).all()
        starts = connection.execute(text("SELECT COUNT(*) FROM tickets_start")).scalar_one()
        return {"notes": [list(row) for row in rows], "starts": starts}

    with open_local(PACK, home) as local:
        typer.echo(codec.dumps(local.run(STORE, read)))


def key(home: Home = None) -> None:
    """Make the key that stamps notes, and print its public half. The act is in the audit log."""
    with open_local(PACK, home, keeps=True) as local:
        name = local.settings["stamp_key"]
        with local.act("tickets.key", {"key": name}):
            public = local.keys.generate(name, use=USE)
        typer.echo(public.hex())
