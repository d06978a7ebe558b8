"""`lra serve`: its flags and its help. `live.py` serves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolgate.later import done_by

app = typer.Typer(add_completion=False)


@app.command()
@done_by("toolgate.packs.lra.cli.live:serve")
def serve(
    path: Annotated[
        Path, typer.Argument(help="A paper's directory, a directory of papers, or the source of a paper.")
    ] = Path(),
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=0, max=65535, help="Without it, 8080 or the next free.")
    ] = None,
) -> None:
    """Serve a paper while you edit it: live reload, findings on the page. A paper made by `lra build` is built again
    whenever its source changes. Ctrl+C stops it."""
