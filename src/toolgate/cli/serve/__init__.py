"""`toolgate serve` and `toolgate stdio`: their flags and their help. `start.py` starts the server."""

from __future__ import annotations

from typing import Annotated

import typer

from toolgate.cli.options import Flags, Json, with_settings_flags
from toolgate.later import done_by

Dev = Annotated[
    bool, typer.Option("--dev", help="Make and use a development home, ./.toolgate, with a key for each role.")
]


@with_settings_flags
@done_by("toolgate.cli.serve.start:serve")
def serve(flags: Flags, dev: Dev = False, json: Json = False) -> None:
    """Serve over HTTP: MCP at /mcp, dispatch at /mrt_dispatch, JSON-RPC at /rpc. SIGTERM drains and ends with 0,
    SIGHUP reloads what was changed: settings, policy, pins (`toolgate reload` does the same and says what came of it).

    With --json the first line of standard output is one JSON object with the URLs, printed when the server is ready.
    """


@with_settings_flags
@done_by("toolgate.cli.serve.start:stdio")
def stdio(flags: Flags, dev: Dev = False) -> None:
    """Serve one client over standard input and output, with the rights of the key in TOOLGATE_API_KEY.

    A client starts this command; `toolgate mcp-config CLIENT --stdio` prints what the client needs to know.
    """
