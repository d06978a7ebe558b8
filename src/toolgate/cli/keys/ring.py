"""What the commands of `toolgate keys` do with the key ring."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import typer

from toolgate.cli import output
from toolgate.cli.admin_records import recorded
from toolgate.cli.keys.roles import check_role
from toolgate.cli.options import home_at, seconds_of
from toolgate.errors import ExitCode
from toolgate.gate.keys import KeyRing, check_label
from toolgate.model.clock import rfc3339

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.gate.keys import KeyRing
    from toolgate.settings import Settings


def create(*, role: str, label: str, expires: str | None, home: Path | None, json: bool) -> None:
    settings, ring = _ring(home)
    check_role(role, settings.paths.policy)
    until = _moment(expires)
    about = {"role": role, "label": label, "expires": None if until is None else rfc3339(until)}
    try:
        check_label(label)
    except ValueError as fault:
        raise typer.BadParameter(str(fault)) from None
    with recorded(settings, "keys.create", about) as found:
        key, text = ring.create(role, label=label, expires=until)
        found["id"] = key.id
    if json:
        output.answer_json({"id": key.id, "role": key.role, "key": text})
        return
    sys.stdout.write(text + "\n")
    output.note(f"id {key.id}, role {key.role}; only its digest is kept, in {settings.paths.keys}. Copy the key now.")


def list_keys(*, home: Path | None, json: bool) -> None:
    _, ring = _ring(home)
    now = time.time()
    rows = [key.as_json() | {"state": key.state(now)} for key in ring.all()]
    if json:
        output.answer_json(rows)
        return
    names = ["id", "role", "state", "label", "created", "expires"]
    output.table(names, [[str(row[name] or "") for name in names] for row in rows])
    if not rows:
        output.note("There are no keys. Make one: toolgate keys create --role admin")


def revoke(*, key_id: str, home: Path | None, json: bool) -> None:
    settings, ring = _ring(home)
    if not any(key.id == key_id for key in ring.all()):
        # The argument is not repeated: people paste whole keys here.
        output.fault("There is no key with this id.\ntoolgate keys list shows the ids.")
        raise typer.Exit(ExitCode.FAILED)
    with recorded(settings, "keys.revoke", {"id": key_id}):
        key = ring.revoke(key_id)
    if json:
        output.answer_json(key.as_json())
    else:
        output.say(f"revoked {key.id} ({key.role})")


def _ring(home: Path | None) -> tuple[Settings, KeyRing]:
    settings = home_at(home)
    return settings, KeyRing(settings.paths.keys)


def _moment(life: str | None) -> float | None:
    """When a key made now with this life ends."""
    return None if life is None else time.time() + seconds_of(life, "--expires")
