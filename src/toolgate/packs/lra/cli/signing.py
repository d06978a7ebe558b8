"""`lra keygen` and `lra sign`: their flags and their help. `signatures.py` does what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolgate.cli.options import AlwaysJson
from toolgate.later import done_by
from toolgate.packs.lra.cli.shared import KEYS, Json

app = typer.Typer(add_completion=False)

KeyDirectoryOption = Annotated[Path, typer.Option("--keys", help="The key directory.")]


@app.command()
@done_by("toolgate.packs.lra.cli.signatures:keygen")
def keygen(
    name: Annotated[str, typer.Argument(help="Name of the new key.")] = "lra-identity.key",
    keys: KeyDirectoryOption = KEYS,
    json: Json = False,
) -> None:
    """Make an Ed25519 signing key (PKCS#8 PEM, mode 0600). Never overwrites one."""


@app.command()
@done_by("toolgate.packs.lra.cli.signatures:sign")
def sign(
    receipt: Annotated[Path, typer.Argument(help="A receipt of lra verify; a .dsse.json gets one more signature.")],
    key: Annotated[
        str, typer.Option("--key", "-k", help="A key file, or the name of a key in ~/.lra.")
    ] = "lra-identity.key",
    formats: Annotated[list[str] | None, typer.Option("--format", help="Also write: sshsig, minisign.")] = None,
    keys: KeyDirectoryOption = KEYS,
    even_failed: Annotated[
        bool, typer.Option("--even-failed", help="Sign although the receipt says that the verification failed.")
    ] = False,
    json: AlwaysJson = False,
) -> None:
    """Sign a receipt: DSSE envelope, flat form, log entry. Prints the signed receipt."""
