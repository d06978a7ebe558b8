"""`toolgate policy`: judge the manifest, and show what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolgate.cli.governed import HomeOption, JsonOption, Scene, look, show, stop_on_refusal
from toolgate.errors import ExitCode

if TYPE_CHECKING:
    from toolgate.policy.manifest import Row

app = typer.Typer(help="The policy manifest: lint, show.", no_args_is_help=True)


@app.command()
def lint(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Judge manifest, tools, ADRs and lock by the five manifest rules.

    Exit 0: nothing worse than a warning. 1: a fatal rule, or a manifest that cannot be read. 3: contract drift only.
    """
    with stop_on_refusal():
        scene = look(home)
        breaches = scene.judge(scene.lock())
    severities = {breach.severity for breach in breaches}
    if as_json:
        show({"ok": severities <= {"warning"}, "breaches": [breach.as_json() for breach in breaches]})
    else:
        show(breaches)
        typer.echo(
            ", ".join(
                f"{sum(breach.severity == severity for breach in breaches)} {severity}"
                for severity in ("fatal", "drift", "warning")
            )
        )
    if "fatal" in severities:
        raise typer.Exit(ExitCode.FAILED)
    if "drift" in severities:
        raise typer.Exit(ExitCode.DRIFT)


ToolArgument = Annotated[str | None, typer.Argument(help="One tool. Without it: all of them.")]


@app.command("show")
def show_command(tool: ToolArgument = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """What the manifest in force says: tier, ADR and roles of each tool, and whether its code is there."""
    with stop_on_refusal():
        scene = look(home)
    rows = [row for name, row in sorted(scene.manifest.rows.items()) if tool in (None, name)]
    if tool is not None and not rows:
        typer.echo(f"{tool} has no row in the policy manifest.", err=True)
        raise typer.Exit(ExitCode.UNKNOWN_TOOL)
    told = [_told(row, scene) for row in rows]
    if as_json:
        show({"version": scene.manifest.version, "tools": told, "withdrawn": sorted(scene.manifest.withdrawn)})
        return
    for each in told:
        roles = ",".join(each["roles"])
        typer.echo(f"{each['name']:<28}{each['tier']:<15}{each['adr'] or '-':<10}{roles:<25}{each['state']}")
    for name in sorted(scene.manifest.withdrawn) if tool is None else ():
        typer.echo(f"{name:<28}withdrawn by this deployment")


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
