"""`toolgate keys`: make, list and revoke callers' keys."""

from __future__ import annotations

import re
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toolgate.cli import output
from toolgate.cli.options import Home, Json, settings_at
from toolgate.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.gate.keys import KeyRing

app = typer.Typer(no_args_is_help=True)

_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class RoleName(StrEnum):
    builder = "builder"
    committer = "committer"
    admin = "admin"


@app.command()
def create(
    role: Annotated[RoleName, typer.Option("--role", help="What the key may do; see the policy manifest.")],
    label: Annotated[str, typer.Option("--label", help="A reminder of whose key this is.")] = "",
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="30d", help="Life of the key: 90m, 12h, 30d, 8w.")
    ] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Make a key. It is shown once: only its digest is kept."""
    ring, path = _ring(home)
    try:
        key, text = ring.create(role.value, label=label, expires=_moment(expires))
    except ValueError as fault:
        raise typer.BadParameter(str(fault)) from None
    if json:
        output.answer_json({"id": key.id, "role": key.role, "key": text})
        return
    sys.stdout.write(text + "\n")
    output.note(f"id {key.id}, role {key.role}; only its digest is kept, in {path}. Copy the key now.")


@app.command("list")
def list_keys(home: Home = None, json: Json = False) -> None:
    """List keys: never their secrets."""
    ring, _ = _ring(home)
    now = time.time()
    rows = [key.as_json() | {"state": key.state(now)} for key in ring.all()]
    if json:
        output.answer_json(rows)
        return
    names = ["id", "role", "state", "label", "created", "expires"]
    output.table(names, [[str(row[name] or "") for name in names] for row in rows])
    if not rows:
        output.note("There are no keys. Make one: toolgate keys create --role admin")


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `toolgate keys list` shows it.")],
    home: Home = None,
    json: Json = False,
) -> None:
    """Revoke a key: a running server refuses it from its next call on."""
    ring, _ = _ring(home)
    try:
        key = ring.revoke(key_id)
    except KeyError:
        # The argument is not repeated: people paste whole keys here.
        output.fault("There is no key with this id.\ntoolgate keys list shows the ids.")
        raise typer.Exit(ExitCode.FAILED) from None
    if json:
        output.answer_json(key.as_json())
    else:
        output.say(f"revoked {key.id} ({key.role})")


def _ring(home: Path | None) -> tuple[KeyRing, Path]:
    from toolgate.gate.keys import KeyRing

    path = settings_at(home).paths.keys
    return KeyRing(path), path


def _moment(life: str | None) -> float | None:
    """When a key made now with this life ends."""
    if life is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhdw])", life)
    if not found:
        raise typer.BadParameter("give a number and a unit: 90m, 12h, 30d or 8w", param_hint="--expires")
    return time.time() + int(found[1]) * _SECONDS[found[2]]
