"""The oracle: the same tools on the official SDK, with no governance at all. `python reference_server.py http|stdio`.

What the tools are (names, texts, schemas) comes from the packs themselves; how they answer is written here a second time,
so that an answer which both servers give was reached twice.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from typing import Any

import jsonschema
import mcp_types as types
import uvicorn
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from wiretest import PACK

from toolgate import __version__
from toolgate.faces.mcp_results import INSTRUCTIONS, LIST_TTL_MS
from toolgate.packs.governance import PACK as GOVERNANCE


class ToolSaysNo(Exception):
    pass


def _say_no(arguments: dict[str, Any]) -> dict[str, Any]:
    raise ToolSaysNo(f"{arguments['text']} is closed.")


# Only what the tests call; the other tools are listed, and that is compared.
ANSWERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "dummy_experimental": lambda _: {"some": "payload"},
    "wire_echo": lambda arguments: {"text": arguments["text"] * arguments.get("times", 1)},
    "wire_fail": _say_no,
    "wire_trouble": _say_no,
    "wire_progress": lambda arguments: {"text": arguments["text"]},
    "wire_steps": lambda arguments: {"text": arguments["text"]},
    "wire_wait": lambda arguments: {"text": arguments["text"]},
    "wire_admin": lambda arguments: {"text": arguments["text"]},
}
DEFINITIONS = {tool.name: tool for tool in sorted([*GOVERNANCE.tools, *PACK.tools], key=lambda tool: tool.name)}


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name=tool.name,
                description=tool.summary,
                input_schema=dict(tool.input_schema),
                output_schema=dict(tool.output_schema),
            )
            for tool in DEFINITIONS.values()
        ]
    )


async def call_tool(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    tool = DEFINITIONS.get(params.name)
    if tool is None:
        raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name}")
    arguments = params.arguments or {}
    try:
        jsonschema.validate(arguments, dict(tool.input_schema), cls=jsonschema.Draft202012Validator)
        data = ANSWERS[params.name](arguments)
    except (jsonschema.ValidationError, ToolSaysNo) as fault:
        return types.CallToolResult(content=[types.TextContent(type="text", text=str(fault))], is_error=True)
    text = types.TextContent(type="text", text=json.dumps(data))
    return types.CallToolResult(content=[text], structured_content=data, is_error=False)


SERVER = Server(
    "toolgate",
    version=__version__,
    title="Toolgate",
    instructions=INSTRUCTIONS,
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    cache_hints={method: CacheHint(ttl_ms=LIST_TTL_MS) for method in ("tools/list", "server/discover")},
)


async def over_stdio() -> None:
    async with stdio_server() as (reader, writer):
        await SERVER.run(reader, writer, SERVER.create_initialization_options())


def over_http() -> None:
    """Prints `{"url": ...}` once the port is bound. h11: httptools leaves blanks at the end of header values."""
    security = TransportSecuritySettings(
        allowed_hosts=["127.0.0.1:*", "localhost:*"],
        allowed_origins=["http://127.0.0.1:*", "http://localhost:*"],
    )
    app = SERVER.streamable_http_app(json_response=True, stateless_http=True, transport_security=security)
    listener = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    config = uvicorn.Config(app, http="h11", log_level="critical")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    asyncio.run(over_stdio()) if sys.argv[1] == "stdio" else over_http()
