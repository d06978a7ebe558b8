"""The official Python SDK, major 2; the era is the second word of the command line."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from steps import drive


@asynccontextmanager
async def client_of(where: dict[str, Any], mode: str) -> AsyncIterator[Client]:
    if "url" in where:
        headers = {"Authorization": f"Bearer {where['key']}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(where["url"], http_client=http), mode=mode) as client,
        ):
            yield client
    else:
        command, *arguments = where["command"]
        async with Client(
            StdioServerParameters(command=command, args=arguments, env=where["env"]), mode=mode
        ) as client:
            yield client


@asynccontextmanager
async def connect(where: dict[str, Any]) -> AsyncIterator[Any]:
    async with client_of(where, sys.argv[1]) as client:

        async def call(tool: str, arguments: dict[str, Any], on_progress: Any = None) -> tuple[bool, str]:
            result = await client.call_tool(tool, arguments, progress_callback=on_progress)
            return bool(result.is_error), result.content[0].text

        yield [tool.name for tool in (await client.list_tools()).tools], call, None


drive(connect)
