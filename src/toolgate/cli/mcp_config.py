"""`toolgate mcp-config`: what to paste into an MCP client."""

from __future__ import annotations

import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolgate.cli import output
from toolgate.cli.options import Home, settings_at

if TYPE_CHECKING:
    from toolgate.settings import Settings


class Client(StrEnum):
    claude_code = "claude-code"
    claude_desktop = "claude-desktop"
    cursor = "cursor"
    vscode = "vscode"


FILES: Final = {
    Client.claude_code: ".mcp.json in your project",
    Client.claude_desktop: "claude_desktop_config.json (Settings, Developer, Edit Config)",
    Client.cursor: "~/.cursor/mcp.json, or .cursor/mcp.json in your project",
    Client.vscode: ".vscode/mcp.json in your project",
}
"""Where each client reads its servers from."""
KEYS: Final = {
    Client.claude_code: "${TOOLGATE_API_KEY}",
    Client.claude_desktop: "PASTE-A-KEY-HERE",
    Client.cursor: "${env:TOOLGATE_API_KEY}",
    Client.vscode: "${input:toolgate-api-key}",
}
"""How each client is told a key without writing it into the file. Claude Desktop expands nothing."""


def mcp_config(
    client: Annotated[Client, typer.Argument(help="The client.")],
    http: Annotated[
        bool | None,
        typer.Option(
            "--http/--stdio", help="Over HTTP, or started by the client. Default: --http; claude-desktop: --stdio."
        ),
    ] = None,
    url: Annotated[str | None, typer.Option("--url", help="Where the server is; else from the settings.")] = None,
    home: Home = None,
) -> None:
    """Print the client's configuration. The key itself is not in it: make one with `toolgate keys create`."""
    over_http = client is not Client.claude_desktop if http is None else http
    if over_http and client is Client.claude_desktop:
        raise typer.BadParameter("Claude Desktop cannot send a key over HTTP; use --stdio", param_hint="--http")
    settings = settings_at(home)
    server = _http(client, url or address(settings)) if over_http else _stdio(client, settings)
    sys.stdout.write(pretty(configuration(client, server)))
    output.note(f"Put this into {FILES[client]}. {_how_to_give_the_key(client)}")


def configuration(client: Client, server: dict[str, Any]) -> dict[str, Any]:
    if client is not Client.vscode:
        return {"mcpServers": {"toolgate": server}}
    question = {"type": "promptString", "id": "toolgate-api-key", "description": "Toolgate API key", "password": True}
    return {"servers": {"toolgate": server}, "inputs": [question]}


def _http(client: Client, url: str) -> dict[str, Any]:
    kind = {} if client is Client.cursor else {"type": "http"}
    return {**kind, "url": f"{url.rstrip('/')}/mcp", "headers": {"Authorization": f"Bearer {KEYS[client]}"}}


def _stdio(client: Client, settings: Settings) -> dict[str, Any]:
    kind = {"type": "stdio"} if client is Client.vscode else {}
    arguments = ["stdio", "--home", str(settings.home)]
    return {**kind, "command": program(), "args": arguments, "env": {"TOOLGATE_API_KEY": KEYS[client]}}


def program() -> str:
    """Clients start programs without a shell's PATH, so the whole path is given."""
    beside = Path(sys.executable).with_name("toolgate")
    return str(beside) if beside.exists() else shutil.which("toolgate") or "toolgate"


def address(settings: Settings) -> str:
    """What a client on this machine would connect to."""
    host = settings.server.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.server.port}"


def pretty(value: Any) -> str:
    from toolgate.model import strictjson

    return strictjson.dumps_pretty(value).decode()


def _how_to_give_the_key(client: Client) -> str:
    if client is Client.vscode:
        return "It asks for the key once."
    if client is Client.claude_desktop:
        return "Replace PASTE-A-KEY-HERE by a key, and keep the file private."
    return "Set TOOLGATE_API_KEY where the client starts."
