"""`toolgate policy`: judge the manifest, show what it says, renew what is made from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolgate.cli import output
from toolgate.cli.options import Home, Json
from toolgate.errors import ExitCode

if TYPE_CHECKING:
    from toolgate.cli.governed import Scene
    from toolgate.policy.manifest import Row

app = typer.Typer(no_args_is_help=True)


@app.command()
def lint(home: Home = None, json: Json = False) -> None:
    """Judge manifest, tools, ADRs and lock by the five manifest rules.

    Exit 0: nothing worse than a warning. 1: a fatal rule, or a manifest that cannot be read. 3: contract drift only.
    """
    from toolgate.cli.governed import look, told

    scene = look(home)
    breaches = scene.judge(scene.lock())
    counts = {kind: sum(breach.severity == kind for breach in breaches) for kind in ("fatal", "drift", "warning")}
    if json:
        ok = not counts["fatal"] and not counts["drift"]
        output.answer_json({"ok": ok, "breaches": [breach.as_json() for breach in breaches]})
    else:
        output.say(told(breaches) + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    if counts["fatal"]:
        raise typer.Exit(ExitCode.FAILED)
    if counts["drift"]:
        raise typer.Exit(ExitCode.DRIFT)


@app.command()
def show(
    tool: Annotated[str | None, typer.Argument(help="One tool; else all of them.")] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """What the manifest in force says: tier, ADR and roles of each tool, and whether its code is there."""
    from toolgate.cli.governed import look

    scene = look(home)
    rows = [_told(row, scene) for name, row in sorted(scene.manifest.rows.items()) if tool in (None, name)]
    withdrawn = sorted(name for name in scene.manifest.withdrawn if tool in (None, name))
    if not rows and not withdrawn:
        output.fault(f"{tool} has no row in the policy manifest.\n`toolgate policy show` lists every row.")
        raise typer.Exit(ExitCode.UNKNOWN_TOOL)
    if json:
        output.answer_json({"version": scene.manifest.version, "tools": rows, "withdrawn": withdrawn})
        return
    lines = [[row["name"], row["tier"], row["adr"] or "-", ",".join(row["roles"]), row["state"]] for row in rows]
    lines += [[name, "-", "-", "-", "withdrawn"] for name in withdrawn]
    output.table(["tool", "tier", "adr", "roles", "state"], lines)


def _told(row: Row, scene: Scene) -> dict[str, Any]:
    live = any(tool.name == row.name for pack in scene.packs for tool in pack.tools)
    return {
        "name": row.name,
        "pack": row.pack,
        "tier": row.tier,
        "adr": row.adr,
        "hint": row.hint,
        "roles": sorted(row.roles),
        "state": "live" if live else "pre-declared",
    }


@app.command()
def docs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Markdown files.", exists=True, file_okay=False)
    ] = Path("docs/adr"),
    home: Home = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 3 if a file is stale.")] = False,
) -> None:
    """Renew the made parts of Markdown files: the tool policy table and the index of ADRs, from the committed lock."""
    from toolgate.cli.options import settings_at
    from toolgate.policy import adr, bundle, contract
    from toolgate.policy import docs as documents

    lock = contract.read_lock(bundle.lock_path(settings_at(home).paths.policy))
    stale = list(documents.stale(folder, documents.parts(lock, adr.load_directory(folder).values())))
    for path, fresh in stale:
        output.say(f"{path}: {'stale' if check else 'renewed'}")
        if not check:
            path.write_text(fresh, encoding="utf-8")
    if check and stale:
        raise typer.Exit(ExitCode.DRIFT)
