"""What to paste into an MCP client, and where."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from toolgate.cli import output
from toolgate.cli.calls.instructions import show
from toolgate.cli.calls.mcp_config import McpClient
from toolgate.cli.keys.roles import check_role
from toolgate.cli.options import home_at, settings_at
from toolgate.model import strictjson

if TYPE_CHECKING:
    from toolgate.settings import Settings


FILES: Final = {
    McpClient.claude_code: ".mcp.json in your project",
    McpClient.claude_desktop: "claude_desktop_config.json (Settings, Developer, Edit Config)",
    McpClient.codex: "~/.codex/config.toml",
    McpClient.copilot: ".vscode/mcp.json in your project",
    McpClient.cursor: "~/.cursor/mcp.json, or .cursor/mcp.json in your project",
    McpClient.gemini: "~/.gemini/settings.json, or .gemini/settings.json in your project",
    McpClient.opencode: "opencode.json in your project, or ~/.config/opencode/opencode.json",
    McpClient.vscode: ".vscode/mcp.json in your project",
    McpClient.zed: "~/.config/zed/settings.json",
}
"""Where each client reads its servers from."""
KEYS: Final = {
    McpClient.claude_code: "${TOOLGATE_API_KEY}",
    McpClient.claude_desktop: "PASTE-A-KEY-HERE",
    McpClient.codex: "TOOLGATE_API_KEY",
    McpClient.copilot: "${input:toolgate-api-key}",
    McpClient.cursor: "${env:TOOLGATE_API_KEY}",
    McpClient.gemini: "${TOOLGATE_API_KEY}",
    McpClient.opencode: "{env:TOOLGATE_API_KEY}",
    McpClient.vscode: "${input:toolgate-api-key}",
    McpClient.zed: "PASTE-A-KEY-HERE",
}
"""How each client is told a key without writing it into the file. Codex takes the name of a variable; Claude Desktop and Zed
expand nothing."""
PASTED: Final = frozenset({McpClient.claude_desktop, McpClient.zed})


def mcp_config(
    *,
    client: McpClient,
    http: bool | None,
    url: str | None,
    instructions: bool,
    write: bool,
    role: str,
    home: Path | None,
    json: bool,
) -> None:
    if write and not instructions:
        raise typer.BadParameter("it goes with --instructions", param_hint="--write")
    if instructions:
        settings = settings_at(home)
        check_role(role, settings.paths.policy)
        show(client.value, role, settings, write=write, json=json)
        return
    over_http = client is not McpClient.claude_desktop if http is None else http
    if over_http and client is McpClient.claude_desktop:
        raise typer.BadParameter("Claude Desktop cannot send a key over HTTP; use --stdio", param_hint="--http")
    settings = settings_at(home) if over_http else home_at(home)  # the client will be told this home
    server = _http(client, url or address(settings)) if over_http else _stdio(client, settings)
    if json:
        output.answer_json({"file": FILES[client], "configuration": configuration(client, server)})
        return
    sys.stdout.write(written(client, configuration(client, server)))
    output.note(f"Put this into {FILES[client]}. {_how_to_give_the_key(client)}")


def configuration(client: McpClient, server: dict[str, Any]) -> dict[str, Any]:
    """Around a server's own entry, what the client's file has around it."""
    named = {"toolgate": server}
    match client:
        case McpClient.codex:
            return {"mcp_servers": named}
        case McpClient.opencode:
            return {"mcp": named}
        case McpClient.zed:
            return {"context_servers": named}
        case McpClient.vscode | McpClient.copilot:
            question = {"type": "promptString", "id": "toolgate-api-key", "description": "Toolgate API key"}
            return {"servers": named, "inputs": [question | {"password": True}]}
        case _:
            return {"mcpServers": named}


def _http(client: McpClient, url: str) -> dict[str, Any]:
    address, headers = f"{url.rstrip('/')}/mcp", {"Authorization": f"Bearer {KEYS[client]}"}
    match client:
        case McpClient.codex:
            return {"url": address, "bearer_token_env_var": KEYS[client]}
        case McpClient.gemini:
            return {"httpUrl": address, "headers": headers}
        case McpClient.opencode:
            return {"type": "remote", "url": address, "oauth": False, "headers": headers}
        case McpClient.cursor | McpClient.zed:
            return {"url": address, "headers": headers}
        case _:
            return {"type": "http", "url": address, "headers": headers}


def _stdio(client: McpClient, settings: Settings) -> dict[str, Any]:
    command, key = [program(), "stdio", "--home", str(settings.home)], {"TOOLGATE_API_KEY": KEYS[client]}
    match client:
        case McpClient.codex:
            return {"command": command[0], "args": command[1:], "env_vars": list(key)}
        case McpClient.opencode:
            return {"type": "local", "command": command, "environment": key}
        case _:
            kind = {"type": "stdio"} if client in (McpClient.vscode, McpClient.copilot) else {}
            return {**kind, "command": command[0], "args": command[1:], "env": key}


def written(client: McpClient, value: dict[str, Any]) -> str:
    """As the client's file has it: TOML for Codex, JSON for all others."""
    if client is not McpClient.codex:
        return pretty(value)
    ((table, named),) = value.items()
    ((name, entries),) = named.items()
    return "".join([f"[{table}.{name}]\n", *(f"{key} = {_toml(entry)}\n" for key, entry in entries.items())])


def _toml(value: Any) -> str:
    """Text and lists of it are written in TOML as they are in JSON, all but one character that JSON does not escape."""
    from toolgate.model import strictjson

    return strictjson.dumps(value).decode().replace("\x7f", "\\u007f")


def program() -> str:
    """Clients start programs without a shell's PATH, so the whole path is given."""
    beside = Path(sys.executable).with_name("toolgate")
    return str(beside) if beside.exists() else shutil.which("toolgate") or "toolgate"


def address(settings: Settings) -> str:
    """What a client on this machine would connect to."""
    host = settings.server.host
    return f"{settings.server.scheme}://{f'[{host}]' if ':' in host else host}:{settings.server.port}"


def pretty(value: Any) -> str:
    return strictjson.dumps_pretty(value).decode()


def _how_to_give_the_key(client: McpClient) -> str:
    if client in (McpClient.vscode, McpClient.copilot):
        return "It asks for the key once."
    if client in PASTED:
        return "Replace PASTE-A-KEY-HERE by a key, and keep the file private."
    return "Set TOOLGATE_API_KEY where the client starts."
