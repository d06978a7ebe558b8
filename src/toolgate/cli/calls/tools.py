"""`toolgate tools`: what can be called. Here are the flags; `listing.py` does it."""

from __future__ import annotations

from typing import Annotated

import typer

from toolgate.cli.options import Home, Json
from toolgate.later import done_by

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _tools() -> None:
    """The tools a key may call."""


@app.command("list")
@done_by("toolgate.cli.calls.listing:list_tools")
def list_tools(
    key: Annotated[
        str | None, typer.Option("--key", help="Only what this key may call; else TOOLGATE_API_KEY, else all.")
    ] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """List the tools of this home, as the policy has them. With a key: only those it may call."""


@app.command()
@done_by("toolgate.cli.calls.listing:show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `toolgate tools list` shows it.")],
    home: Home = None,
    json: Json = False,
) -> None:
    """Show one tool: what it does, its arguments with every nested field, its codes, and an example to call it with.

    Exit 6: there is no such tool.
    """
