"""The official SDK's low-level server: one `async def` echo tool, input checked by pydantic as its own servers do.

sdk.py http       streamable HTTP with JSON answers: serves revision 2026-07-28, and the handshake with sessions
sdk.py stdio
"""

from __future__ import annotations

import json
import sys
from typing import Any

import uvloop
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import BaseModel, ConfigDict, Field


class Echo(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str = Field(max_length=1_000_000)
    count: int = Field(ge=0, le=1_000_000)
    flag: bool


SCHEMA = Echo.model_json_schema()
TOOL = types.Tool(name="bench_echo", description="Echo three fields.", input_schema=SCHEMA, output_schema=SCHEMA)


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[TOOL])


async def call_tool(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    data = Echo.model_validate(params.arguments).model_dump()
    text = types.TextContent(type="text", text=json.dumps(data))
    return types.CallToolResult(content=[text], structured_content=data)


SERVER = Server(
    "bench",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    get_tool_input_schema=lambda name: SCHEMA if name == TOOL.name else None,
)
"""Without `get_tool_input_schema` it would run tools/list before each call."""


async def over_stdio() -> None:
    async with stdio_server() as (reader, writer):
        await SERVER.run(reader, writer, SERVER.create_initialization_options())


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        uvloop.run(over_stdio())
    else:
        import listen

        listen.serve(SERVER.streamable_http_app(json_response=True))
