"""`toolgate upstream add`, `import`, `remove` and `list`: the tables of toolgate.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolgate.cli import output
from toolgate.cli.admin_records import recorded
from toolgate.cli.options import Home, Json, home_at
from toolgate.cli.upstream.files import add_table, keep_rows, remove_table, roles_of, write_secret
from toolgate.cli.upstream.shared import Name, Yes, confirmed, report, table_of
from toolgate.errors import ExitCode, StartRefused
from toolgate.packs.upstream.importing import ImportFault, read_configuration
from toolgate.powers.mcp.table import read_table
from toolgate.upstreams import pin_path, read_pins, read_tables

if TYPE_CHECKING:
    pass

app = typer.Typer()

MAX_IMPORT_BYTES: Final = 1024 * 1024


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and hyphens.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND ...", help="A program that speaks MCP on its pipes.")
    ] = None,
    url: Annotated[str | None, typer.Option("--url", help="A server that speaks MCP over streamable HTTP.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="K=V", help="A variable for the program; a secret as file:NAME or env:NAME."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="K=V", help='A header for the server: "Authorization=Bearer file:NAME".'),
    ] = None,
    prefix: Annotated[str | None, typer.Option("--prefix", help="Before each of its tools' names; else NAME_.")] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Write an upstream into toolgate.toml. Nothing of it is served before it is adopted."""
    settings = home_at(home)
    table: dict[str, Any] = {"url": url} if url is not None else {}
    if command:
        table["command"] = [*command]
    table |= {
        key: _pairs(pairs, flag)
        for key, flag, pairs in (("env", "--env", env), ("headers", "--header", header))
        if pairs
    }
    if prefix is not None:
        table["prefix"] = prefix
    read_table(name, table)
    with recorded(settings, "upstream.add", {"upstream": name}):
        add_table(settings, name, table)
    report(json, {"added": name}, f"added {name}. Look at it: toolgate upstream try {name}")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="mcp.json, claude_desktop_config.json, ... of an MCP client.")],
    home: Home = None,
    json: Json = False,
) -> None:
    """Take over the servers of an MCP client's own configuration. Secrets in it are moved to the secrets directory."""
    settings = home_at(home)
    try:
        with file.expanduser().open("rb") as opened:
            found, skipped = read_configuration(opened.read(MAX_IMPORT_BYTES))
    except ImportFault as fault:
        raise StartRefused(
            f"{file} is not the configuration of an MCP client: {fault}.\nName the right file."
        ) from None
    added, left = [], [{"name": server.name, "reason": server.reason} for server in skipped]
    for server in found:
        try:
            read_table(server.name, server.table)
            with recorded(settings, "upstream.import", {"upstream": server.name, "secrets": sorted(server.secrets)}):
                for secret, value in server.secrets.items():
                    write_secret(settings, secret, value)
                add_table(settings, server.name, server.table)
        except StartRefused as fault:
            left.append({"name": server.name, "reason": str(fault).partition("\n")[0]})
            continue
        added.append({"name": server.name, "secrets": sorted(server.secrets), "notes": list(server.notes)})
        settings = home_at(home)
    if json:
        output.answer_json({"added": added, "skipped": left})
    else:
        _show_imported(added, left)
    raise typer.Exit(ExitCode.OK if added or not left else ExitCode.FAILED)


def _show_imported(added: Sequence[Mapping[str, Any]], left: Sequence[Mapping[str, Any]]) -> None:
    for server in added:
        moved = f"; moved to secrets: {', '.join(server['secrets'])}" if server["secrets"] else ""
        output.line(("added   ", "green"), (f"{server['name']}{moved}", ""))
        for note in server["notes"]:
            output.line((f"        {note}", "yellow"))
    for server in left:
        output.line(("skipped ", "yellow"), (f"{server['name']}: {server['reason']}", ""))
    if added:
        output.note(f"Look at one: toolgate upstream try {added[0]['name']}")


@app.command()
def remove(name: Name, yes: Yes = False, home: Home = None, json: Json = False) -> None:
    """Take an upstream out: its table, its pin and its rows. Secrets stay where they are."""
    settings = home_at(home)
    table = table_of(settings, name)
    if not yes and not confirmed(f"Remove {name}, its pin and its rows?"):
        raise typer.Exit(ExitCode.FAILED)
    with recorded(settings, "upstream.remove", {"upstream": name}):
        remove_table(settings, name)
        if settings.paths.policy is not None:
            keep_rows(settings.paths.policy, name, ())
            pin_path(settings.paths.policy, name).unlink(missing_ok=True)
    secrets = table.secrets()
    left = f" Its secrets are still there: {', '.join(secrets)}." if secrets else ""
    report(
        json,
        {"removed": name, "secrets": secrets},
        f"removed {name}.{left} A running server takes it over: toolgate reload.",
    )


@app.command("list")
def list_(home: Home = None, json: Json = False) -> None:
    """Every upstream, from the settings and the pins; none is asked anything."""
    settings = home_at(home)
    tables = read_tables(settings)
    pins = read_pins(settings.paths.policy, tables)
    rows = [
        {
            "name": name,
            "where": table.url or " ".join(table.command),
            "adopted": name in pins,
            "tools": len(roles_of(settings.paths.policy, name)) if settings.paths.policy is not None else 0,
            "pin": pins[name].digest if name in pins else "",
        }
        for name, table in sorted(tables.items())
    ]
    if json:
        output.answer_json(rows)
        return
    shown = [
        [str(row["name"]), "yes" if row["adopted"] else "no", str(row["tools"]), str(row["where"])] for row in rows
    ]
    output.table(["name", "adopted", "tools", "where"], shown)
    if not rows:
        output.note("There are none. toolgate upstream import FILE takes over those of an MCP client.")


def _pairs(pairs: Sequence[str], flag: str) -> dict[str, str]:
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter("give K=V", param_hint=flag)
        found[key] = value
    return found
