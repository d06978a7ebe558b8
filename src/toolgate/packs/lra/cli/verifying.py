"""`lra verify`: a deployed paper, fetched and examined."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from toolgate.errors import ExitCode, ToolError
from toolgate.model import strictjson
from toolgate.packs.lra.cli.border import say
from toolgate.packs.lra.cli.shared import REGISTRY, Allow, CaFile, Json, RegistryFile
from toolgate.powers.files import open_directory

app = typer.Typer(add_completion=False)


@app.command()
def verify(
    target: Annotated[str, typer.Argument(help="URL of a deployed paper, or sha256:HASH of one in the registry.")],
    receipt: Annotated[
        Path | None, typer.Option("--receipt", help="Write the verification receipt to this file.")
    ] = None,
    registry: RegistryFile = REGISTRY,
    run: Annotated[bool, typer.Option("--run", help="Run the WASM evidence of each claim in a sandbox.")] = False,
    allow: Allow = None,
    ca_file: CaFile = None,
    json: Json = False,
) -> None:
    """Fetch a deployed paper, hash every file of it, check its claims and its tier. Exit 1 if a check fails."""
    from toolgate.packs.lra.cli import fetching  # the network and every check, which help does without

    if receipt is not None:
        _refuse_signed(receipt)
    seen = asyncio.run(fetching.verify_target(target, fetching.read_registry(registry), allow or [], ca_file, run=run))
    if receipt is not None:
        with open_directory(receipt.parent) as files:
            files.write_bytes(receipt.name, strictjson.dumps_pretty(seen.receipt))
    if json:
        say(strictjson.dumps_pretty(seen.receipt).decode())
    else:
        say(fetching.as_text(target, seen))
        say(f"\nVerification receipt generated and written to:\n{receipt}\n" if receipt is not None else "")
    if not seen.passed:
        raise typer.Exit(ExitCode.FAILED)


def _refuse_signed(receipt: Path) -> None:
    """What somebody signed stays as it is. Raises ToolError ALREADY_SIGNED."""
    from toolgate.packs.lra.receipts.sign import is_signed  # as above

    with open_directory(receipt.parent) as files:
        if receipt.is_file() and (signed := is_signed(files, receipt.name)):
            raise ToolError(
                "ALREADY_SIGNED", f"{receipt} is signed ({signed}) and is not overwritten; name another file"
            )
