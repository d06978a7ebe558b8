"""Agent libraries, each used as its own documentation shows: connect, list, call. The library is the word on the command line.

A library that offers a model only what it listed cannot call an unknown tool; that step is told as "not offered".
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from steps import drive

Connected = tuple[list[str], Callable[..., Any], None]


def bearer(where: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {where['key']}"}


def said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


class NotOffered(Exception):
    pass


def among(tools: dict[str, Any], name: str) -> Any:
    if name not in tools:
        raise NotOffered("not offered")
    return tools[name]


@asynccontextmanager
async def langchain(where: dict[str, Any]) -> AsyncIterator[Connected]:
    from langchain_core.tools import ToolException
    from langchain_mcp_adapters.client import MultiServerMCPClient

    if "url" in where:
        connection = {"transport": "streamable_http", "url": where["url"], "headers": bearer(where)}
    else:
        command, *arguments = where["command"]
        connection = {"transport": "stdio", "command": command, "args": arguments, "env": where["env"]}
    tools = {tool.name: tool for tool in await MultiServerMCPClient({"toolgate": connection}).get_tools()}

    async def call(name: str, arguments: dict[str, Any], _progress: Any = None) -> tuple[bool, str]:
        try:
            return False, said(await among(tools, name).ainvoke(arguments))
        except ToolException as fault:
            return True, str(fault)

    yield list(tools), call, None


@asynccontextmanager
async def openai_agents(where: dict[str, Any]) -> AsyncIterator[Connected]:
    from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

    if "url" in where:
        made = MCPServerStreamableHttp(
            {"url": where["url"], "headers": bearer(where)}, client_session_timeout_seconds=30
        )
    else:
        command, *arguments = where["command"]
        made = MCPServerStdio(
            {"command": command, "args": arguments, "env": where["env"]}, client_session_timeout_seconds=30
        )
    async with made as connected:

        async def call(name: str, arguments: dict[str, Any], _progress: Any = None) -> tuple[bool, str]:
            result = await connected.call_tool(name, arguments)
            is_error = getattr(result, "is_error", getattr(result, "isError", False))
            return bool(is_error), result.content[0].text

        yield [tool.name for tool in await connected.list_tools()], call, None


@asynccontextmanager
async def pydantic_ai(where: dict[str, Any]) -> AsyncIterator[Connected]:
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
    from pydantic_ai.mcp import MCPToolset

    if "url" in where:
        transport: Any = StreamableHttpTransport(where["url"], headers=bearer(where))
    else:
        command, *arguments = where["command"]
        transport = StdioTransport(command=command, args=arguments, env=where["env"])
    async with MCPToolset(transport) as connected:
        names = [tool.name for tool in await connected.list_tools()]

        async def call(name: str, arguments: dict[str, Any], _progress: Any = None) -> tuple[bool, str]:
            return False, said(await connected.direct_call_tool(name, arguments))

        yield names, call, None


@asynccontextmanager
async def mcp_use(where: dict[str, Any]) -> AsyncIterator[Connected]:
    from mcp_use import MCPClient

    if "url" in where:
        entry = {"url": where["url"], "headers": bearer(where)}
    else:
        command, *arguments = where["command"]
        entry = {"command": command, "args": arguments, "env": where["env"]}
    client = MCPClient.from_dict({"mcpServers": {"toolgate": entry}})
    session = await client.create_session("toolgate")
    try:

        async def call(name: str, arguments: dict[str, Any], _progress: Any = None) -> tuple[bool, str]:
            result = await session.call_tool(name, arguments)
            return bool(result.isError), result.content[0].text

        yield [tool.name for tool in await session.list_tools()], call, None
    finally:
        await client.close_all_sessions()


@asynccontextmanager
async def llama_index(where: dict[str, Any]) -> AsyncIterator[Connected]:
    from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

    if "url" in where:
        client = BasicMCPClient(where["url"], headers=bearer(where))
    else:
        command, *arguments = where["command"]
        client = BasicMCPClient(command, args=arguments, env=where["env"])
    tools = {tool.metadata.name: tool for tool in await McpToolSpec(client).to_tool_list_async()}

    async def call(name: str, arguments: dict[str, Any], _progress: Any = None) -> tuple[bool, str]:
        output = await among(tools, name).acall(**arguments)
        result = output.raw_output
        is_error = getattr(result, "is_error", getattr(result, "isError", output.is_error))
        return bool(is_error), output.content

    yield list(tools), call, None


@asynccontextmanager
async def smolagents(where: dict[str, Any]) -> AsyncIterator[Connected]:
    from mcp import StdioServerParameters
    from smolagents import MCPClient

    if "url" in where:
        parameters: Any = {"url": where["url"], "transport": "streamable-http", "headers": bearer(where)}
    else:
        command, *arguments = where["command"]
        parameters = StdioServerParameters(command=command, args=arguments, env=where["env"])
    client = await asyncio.to_thread(MCPClient, parameters, structured_output=False)
    tools = {tool.name: tool for tool in client.get_tools()}

    async def call(name: str, arguments: dict[str, Any], _progress: Any = None) -> tuple[bool, str]:
        text = said(await asyncio.to_thread(lambda: among(tools, name)(**arguments)))
        return "hello" not in text and "still here" not in text, text  # it knows no isError

    try:
        yield list(tools), call, None
    finally:
        await asyncio.to_thread(client.disconnect)


@asynccontextmanager
async def autogen(where: dict[str, Any]) -> AsyncIterator[Connected]:
    from autogen_core import CancellationToken
    from autogen_ext.tools.mcp import StdioServerParams, StreamableHttpServerParams, mcp_server_tools

    if "url" in where:
        parameters: Any = StreamableHttpServerParams(url=where["url"], headers=bearer(where))
    else:
        command, *arguments = where["command"]
        parameters = StdioServerParams(command=command, args=arguments, env=where["env"])
    tools = {tool.name: tool for tool in await mcp_server_tools(parameters)}

    async def call(name: str, arguments: dict[str, Any], _progress: Any = None) -> tuple[bool, str]:
        tool = among(tools, name)
        return False, tool.return_value_as_string(await tool.run_json(arguments, CancellationToken()))

    yield list(tools), call, None


@asynccontextmanager
async def semantic_kernel(where: dict[str, Any]) -> AsyncIterator[Connected]:
    from semantic_kernel.connectors.mcp import MCPStdioPlugin, MCPStreamableHttpPlugin

    if "url" in where:
        made: Any = MCPStreamableHttpPlugin("toolgate", where["url"], headers=bearer(where), load_prompts=False)
    else:
        command, *arguments = where["command"]
        made = MCPStdioPlugin("toolgate", command, args=arguments, env=where["env"], load_prompts=False)
    async with made as plugin:

        async def call(name: str, arguments: dict[str, Any], _progress: Any = None) -> tuple[bool, str]:
            return False, " ".join(
                said(getattr(each, "text", each)) for each in await plugin.call_tool(name, **arguments)
            )

        yield [tool.name for tool in (await plugin.session.list_tools()).tools], call, None


@asynccontextmanager
async def strands(where: dict[str, Any]) -> AsyncIterator[Connected]:
    import httpx2
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from strands.tools.mcp import MCPClient

    def transport() -> Any:
        if "url" in where:
            http = httpx2.AsyncClient(headers=bearer(where), timeout=30)
            return streamable_http_client(where["url"], http_client=http)
        command, *arguments = where["command"]
        return stdio_client(StdioServerParameters(command=command, args=arguments, env=where["env"]))

    client = MCPClient(transport)
    await asyncio.to_thread(client.start)
    try:

        async def call(name: str, arguments: dict[str, Any], _progress: Any = None) -> tuple[bool, str]:
            result = await client.call_tool_async("1", name, arguments)
            return result["status"] != "success", said(result["content"][0].get("text", ""))

        yield [tool.tool_name for tool in await asyncio.to_thread(client.list_tools_sync)], call, None
    finally:
        await asyncio.to_thread(client.stop, None, None, None)


@asynccontextmanager
async def agno(where: dict[str, Any]) -> AsyncIterator[Connected]:
    from agno.tools.mcp import MCPTools, StreamableHTTPClientParams
    from mcp import StdioServerParameters

    if "url" in where:
        made = MCPTools(
            transport="streamable-http",
            server_params=StreamableHTTPClientParams(url=where["url"], headers=bearer(where)),
            timeout_seconds=30,
        )
    else:
        command, *arguments = where["command"]
        parameters = StdioServerParameters(command=command, args=arguments, env=where["env"])
        made = MCPTools(server_params=parameters, timeout_seconds=30)
    async with made as connected:

        async def call(name: str, arguments: dict[str, Any], _progress: Any = None) -> tuple[bool, str]:
            result = await among(connected.functions, name).entrypoint(**arguments)
            return False, said(getattr(result, "content", result))

        yield list(connected.functions), call, None


@asynccontextmanager
async def google_adk(where: dict[str, Any]) -> AsyncIterator[Connected]:
    from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
    from mcp import StdioServerParameters

    if "url" in where:
        parameters: Any = StreamableHTTPConnectionParams(url=where["url"], headers=bearer(where))
    else:
        command, *arguments = where["command"]
        parameters = StdioConnectionParams(
            server_params=StdioServerParameters(command=command, args=arguments, env=where["env"]), timeout=30
        )
    toolset = McpToolset(connection_params=parameters)
    try:
        tools = {tool.name: tool for tool in await toolset.get_tools()}

        async def call(name: str, arguments: dict[str, Any], _progress: Any = None) -> tuple[bool, str]:
            answer = await among(tools, name)._run_async_impl(args=arguments, tool_context=None, credential=None)
            return bool(answer.get("isError")), said(answer["content"][0]["text"])

        yield list(tools), call, None
    finally:
        await toolset.close()


drive(globals()[sys.argv[1].replace("-", "_")], sdk=False)
