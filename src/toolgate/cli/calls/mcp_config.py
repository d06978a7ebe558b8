"""`toolgate mcp-config`: its flags and its help. `client_files.py` has what to paste into each client."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from toolgate.cli.options import Home, Json
from toolgate.later import done_by


class McpClient(StrEnum):
    claude_code = "claude-code"
    claude_desktop = "claude-desktop"
    copilot = "copilot"
    codex = "codex"
    cursor = "cursor"
    gemini = "gemini"
    opencode = "opencode"
    vscode = "vscode"
    zed = "zed"


@done_by("toolgate.cli.calls.client_files:mcp_config")
def mcp_config(
    client: Annotated[McpClient, typer.Argument(help="The client.")],
    http: Annotated[
        bool | None,
        typer.Option(
            "--http/--stdio", help="Over HTTP, or started by the client. Default: --http; claude-desktop: --stdio."
        ),
    ] = None,
    url: Annotated[str | None, typer.Option("--url", help="Where the server is; else from the settings.")] = None,
    instructions: Annotated[
        bool,
        typer.Option("--instructions", help="Print what its assistant has to know of this server's tools instead."),
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="With --instructions: put it into the client's file here, between marks.")
    ] = False,
    role: Annotated[str, typer.Option("--role", help="With --instructions: whose tools it names.")] = "builder",
    home: Home = None,
    json: Json = False,
) -> None:
    """Print the client's configuration. The key itself is not in it: make one with `toolgate keys create`."""
