"""`toolgate init`: a home with settings, policy, workspace and a first key. `home.py` makes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolgate.cli.options import Json
from toolgate.later import done_by


@done_by("toolgate.cli.init.home:init")
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Made if it is not there.")] = Path(),
    json: Json = False,
) -> None:
    """Make a home: toolgate.toml, policy/, workspace/, and a first admin key, which is shown once."""
