"""`toolgate config`: its flags and its help. `settings.py` shows the settings."""

from __future__ import annotations

from typing import Annotated

import typer

from toolgate.cli.options import Flags, Json, with_settings_flags
from toolgate.later import done_by

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _config() -> None:
    """Show the settings and where each comes from."""


@app.command("print")
@with_settings_flags
@done_by("toolgate.cli.config.settings:print_settings")
def print_settings(
    flags: Flags,
    resolved: Annotated[bool, typer.Option("--resolved", help="Also say where each value comes from.")] = False,
    json: Json = False,
) -> None:
    """Print every setting as the server would see it. What a secret holds is not shown."""
