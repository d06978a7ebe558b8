"""What `toolgate tools` shows: the tools of a home as the policy has them, and one of them in full."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import typer
from msgspec.structs import asdict

from toolgate.cli import output
from toolgate.cli.calls.arguments import arguments, example
from toolgate.cli.options import settings_at
from toolgate.config import read_secret
from toolgate.enabled import enabled_packs
from toolgate.errors import ExitCode
from toolgate.gate.keys import KeyRing
from toolgate.model import strictjson
from toolgate.model.suggest import did_you_mean
from toolgate.policy.bundle import load_policy
from toolgate.policy.rules import check_start

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.model.call import Caller
    from toolgate.settings import Settings

LISTED: Final = "`toolgate tools list` shows all of them."


def list_tools(*, key: str | None, home: Path | None, json: bool) -> None:
    settings = settings_at(home)
    rows = _rows(settings, _caller(settings, key or read_secret("TOOLGATE_API_KEY", os.environ)))
    if json:
        output.answer_json(rows)
        return
    cells = [[row["name"], row["tier"], row["effect"], ",".join(row["roles"]), row["hint"]] for row in rows]
    output.table(["tool", "tier", "effect", "roles", "what it is"], cells)
    if output.is_watched():
        from toolgate.cli.doctor.checks import environment_now

        output.badges("environment:", *environment_now(settings).split(",", 1))


def show(*, name: str, home: Path | None, json: bool) -> None:
    rows = {row["name"]: row for row in _rows(settings_at(home), None)}
    row = rows.get(name) or next((each for each in rows.values() if each["id"] == name), None)
    if row is None:
        output.fault(f"There is no tool {name}.\n{did_you_mean(name, rows) or LISTED}")
        raise typer.Exit(ExitCode.UNKNOWN_TOOL)
    fields = list(arguments(row["inputSchema"]))
    sample = example(row["inputSchema"])
    if json:
        output.answer_json(row | {"arguments": [asdict(each) for each in fields], "example": sample})
        return
    output.say(row["name"], style="bold")
    output.say(f"{row['summary']}\n")
    rest = f"  {row['effect']}  {', '.join(row['roles'])}  {row['deadlineSeconds']:g} s\n"
    output.line((f"{row['id']}  ", ""), output.badge(row["tier"]), (rest, ""))
    if fields:
        cells = [[each.path, "required" if each.required else "", each.kind, each.what] for each in fields]
        output.table(["argument", "", "a value is", "what it is"], cells)
    else:
        output.say("It takes no arguments.")
    if row["errorCodes"]:
        output.say(f"\ncodes  {', '.join(row['errorCodes'])}")
    output.say(f"\nexample\n  toolgate call {row['name']}{_as_words(sample)}")


def _as_words(sample: dict[str, Any]) -> str:
    """As a shell takes it."""
    from shlex import quote

    return f" --args {quote(strictjson.dumps(sample).decode())}" if sample else ""


def _caller(settings: Settings, key: str | None) -> Caller | None:
    if key is None:
        return None

    return KeyRing(settings.paths.keys).authenticate(key.encode("utf-8", "surrogateescape"))


def _rows(settings: Settings, caller: Caller | None) -> list[dict[str, Any]]:
    """The same manifest and the same start-up rules as the server's, without opening a log."""
    enabled, policy = enabled_packs(settings), load_policy(settings.paths.policy)
    if settings.upstreams:
        from toolgate.ruleset import open_upstreams, with_upstreams

        enabled = with_upstreams(settings, enabled, open_upstreams(settings), policy.manifest)
    packs = enabled.packs
    check_start(packs, policy.manifest, policy.adrs, policy.lock)
    found = []
    for tool in sorted(
        (tool for pack in packs for tool in pack.tools if tool.kind == "tool"), key=lambda each: each.name
    ):
        row = policy.manifest.rows.get(tool.name)
        if row is None or (caller is not None and not row.is_held_by(caller)):
            continue
        found.append(
            {
                "name": tool.name,
                "id": tool.canonical_id,
                "tier": row.tier,
                "effect": tool.effect,
                "roles": sorted(row.roles),
                "hint": row.hint,
                "summary": tool.summary,
                "inputSchema": tool.input_schema,
                "deadlineSeconds": tool.deadline_s,
                "errorCodes": sorted(tool.error_codes),
            }
        )
    return found
