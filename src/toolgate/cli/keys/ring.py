"""What the commands of `toolgate keys` do with the key ring."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import typer

from toolgate.cli import output
from toolgate.cli.admin_records import recorded
from toolgate.cli.keys.facts import last_uses, unmatched_scopes
from toolgate.cli.keys.roles import check_role
from toolgate.cli.options import home_at, seconds_of
from toolgate.errors import ExitCode, StartRefused
from toolgate.gate.keys import KeyNotRotated, KeyRing, check_label, check_owner, stored_bounds
from toolgate.model.call import CallerBounds, check_bounds
from toolgate.model.clock import rfc3339

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.gate.keys import Key
    from toolgate.settings import Settings
    from toolgate.settings.limits import LimitSettings


def create(
    *,
    role: str,
    label: str,
    owner: str,
    expires: str | None,
    scope: list[str] | None,
    address: list[str] | None,
    rate: int | None,
    concurrency: int | None,
    home: Path | None,
    json: bool,
) -> None:
    settings, ring = _ring(home)
    check_role(role, settings.paths.policy)
    until = _moment(expires)
    bounds = CallerBounds(tuple(scope or ()), tuple(address or ()), rate, concurrency)
    _check(label, owner, bounds, role)
    _check_limits(bounds, settings.limits)
    about = {
        "role": role,
        "label": label,
        "expires": None if until is None else rfc3339(until),
        **stored_bounds(bounds),
        **({"owner": owner} if owner else {}),
    }
    with recorded(settings, "keys.create", about) as found:
        key, text = ring.create(role, label=label, expires=until, bounds=bounds, owner=owner)
        found["id"] = key.id
    unmatched = unmatched_scopes(settings, key)
    if json:
        more = {"unmatchedScopes": unmatched} if unmatched else {}
        output.answer_json({"id": key.id, "role": key.role, "key": text, **more})
        return
    _show_secret(key, text, settings)
    for each in unmatched:
        output.note(f"scope {each} matches nothing that {role} holds on this server now.")


def list_keys(*, home: Path | None, json: bool) -> None:
    settings, ring = _ring(home)
    keys = ring.all()
    rows = _told(settings, keys)
    if json:
        output.answer_json(rows)
        return
    cells = [[*(row[name] or "" for name in _SHOWN), _bounds_of(key)] for key, row in zip(keys, rows, strict=True)]
    output.table([*_SHOWN, "bounds"], cells)
    if not rows:
        output.note("There are no keys. Make one: toolgate keys create --role admin")


def show(*, key_id: str, home: Path | None, json: bool) -> None:
    settings, ring = _ring(home)
    (row,) = _told(settings, [_found(ring, key_id)])
    if json:
        output.answer_json(row)
        return
    for name, value in row.items():
        text = ", ".join(value) if isinstance(value, list) else value
        output.say(f"{_NAMES.get(name, name):<20} {'-' if text in (None, '') else text}")


def rotate(*, key_id: str, overlap: str, home: Path | None, json: bool) -> None:
    settings, ring = _ring(home)
    seconds = 0 if overlap == "0" else seconds_of(overlap, "--overlap")
    _found(ring, key_id)
    with recorded(settings, "keys.rotate", {"id": key_id, "overlapSeconds": seconds}) as found:
        try:
            key, text = ring.rotate(key_id, seconds)
        except KeyNotRotated as fault:
            raise StartRefused(str(fault)) from None
        until = rfc3339(key.older[0].until)
        found["until"] = until
    if json:
        output.answer_json({"id": key.id, "role": key.role, "key": text, "oldUntil": until})
        return
    _show_secret(key, text, settings)
    output.note(f"The old secret is good until {until}.")


def revoke(*, key_id: str, home: Path | None, json: bool) -> None:
    settings, ring = _ring(home)
    _found(ring, key_id)
    with recorded(settings, "keys.revoke", {"id": key_id}):
        key = ring.revoke(key_id)
    if json:
        output.answer_json(key.as_json())
    else:
        output.say(f"revoked {key.id} ({key.role})")


_SHOWN: Final = ("id", "role", "state", "label", "owner", "created", "expires")
_NAMES: Final = {
    "lastUse": "last use",
    "perMinute": "calls a minute",
    "concurrency": "calls at once",
    "older": "older secrets until",
    "ranges": "addresses",
}


def _show_secret(key: Key, text: str, settings: Settings) -> None:
    sys.stdout.write(text + "\n")
    output.note(f"id {key.id}, role {key.role}; only its digest is kept, in {settings.paths.keys}. Copy the key now.")


def _check(label: str, owner: str, bounds: CallerBounds, role: str) -> None:
    """Raises: typer.BadParameter."""
    try:
        check_label(label)
        check_owner(owner)
        check_bounds(bounds)
    except ValueError as fault:
        raise typer.BadParameter(str(fault)) from None
    if bounds.scopes and role == "auditor":
        raise typer.BadParameter("an auditor calls no tool", param_hint="--scope")


def _check_limits(bounds: CallerBounds, limits: LimitSettings) -> None:
    """Raises: typer.BadParameter: a limit would be above that of every key."""
    for option, own, common, setting in (
        ("--rate", bounds.per_minute, limits.rate_per_minute, "rate_per_minute"),
        ("--concurrency", bounds.concurrency, limits.concurrency_per_caller, "concurrency_per_caller"),
    ):
        if own is not None and common and own > common and not limits.keys_may_exceed:
            raise typer.BadParameter(
                f"limits.{setting} is {common}; a key may have more where limits.keys_may_exceed is true",
                param_hint=option,
            )


def _told(settings: Settings, keys: list[Key]) -> list[dict[str, Any]]:
    uses, now = last_uses(settings), time.time()
    return [key.as_json() | {"state": key.state(now), "lastUse": uses.get(key.id)} for key in keys]


def _bounds_of(key: Key) -> str:
    return "" if key.bounds is None else key.bounds.told()


def _found(ring: KeyRing, key_id: str) -> Key:
    for key in ring.all():
        if key.id == key_id:
            return key
    # The argument is not repeated: people paste whole keys here.
    output.fault("There is no key with this id.\ntoolgate keys list shows the ids.")
    raise typer.Exit(ExitCode.FAILED)


def _ring(home: Path | None) -> tuple[Settings, KeyRing]:
    settings = home_at(home)
    return settings, KeyRing(settings.paths.keys)


def _moment(life: str | None) -> float | None:
    """When a key made now with this life ends."""
    return None if life is None else time.time() + seconds_of(life, "--expires")
