"""`toolgate tools`: what can be called."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolgate.cli import output
from toolgate.cli.options import Home, Json, settings_at
from toolgate.config import read_secret

if TYPE_CHECKING:
    from toolgate.settings import Settings

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _tools() -> None:
    """The tools a key may call."""


@app.command("list")
def list_tools(
    key: Annotated[
        str | None, typer.Option("--key", help="Only what this key may call; else TOOLGATE_API_KEY, else all.")
    ] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """List the tools of this home, as the policy has them. With a key: only those it may call."""
    settings = settings_at(home)
    rows = _rows(settings, _role(settings, key or read_secret("TOOLGATE_API_KEY", os.environ)))
    if json:
        output.answer_json(rows)
        return
    cells = [[row["name"], row["tier"], row["effect"], ",".join(row["roles"]), row["hint"]] for row in rows]
    output.table(["tool", "tier", "effect", "roles", "what it is"], cells)


def _role(settings: Settings, key: str | None) -> str | None:
    if key is None:
        return None
    from toolgate.gate.keys import KeyRing

    return KeyRing(settings.paths.keys).authenticate(key.encode("utf-8", "surrogateescape")).role


def _rows(settings: Settings, role: str | None) -> list[dict[str, Any]]:
    """The same manifest and the same start-up rules as the server's, without opening a log."""
    from toolgate.packs.loader import load_packs
    from toolgate.policy.bundle import load_policy
    from toolgate.policy.rules import check_start

    packs = load_packs(settings.packs.enabled)
    policy = load_policy(settings.paths.policy)
    check_start(packs, policy.manifest, policy.adrs, policy.lock)
    found = []
    for tool in sorted((tool for pack in packs for tool in pack.tools), key=lambda each: each.name):
        row = policy.manifest.rows.get(tool.name)
        if row is None or (role is not None and role not in row.roles):
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
            }
        )
    return found
