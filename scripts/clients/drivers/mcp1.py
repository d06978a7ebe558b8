"""The official Python SDK, major 1."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CancelledNotification, CancelledNotificationParams, ClientNotification
from steps import SLOTS, drive


@asynccontextmanager
async def session_of(where: dict[str, Any]) -> AsyncIterator[ClientSession]:
    if "url" in where:
        headers = {"Authorization": f"Bearer {where['key']}"}
        async with (
            httpx.AsyncClient(headers=headers, timeout=60) as http,
            streamable_http_client(where["url"], http_client=http) as (read, write, _),
            ClientSession(read, write) as session,
        ):
            yield session
    else:
        command, *arguments = where["command"]
        parameters = StdioServerParameters(command=command, args=arguments, env=where["env"])
        async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
            yield session


@asynccontextmanager
async def connect(where: dict[str, Any]) -> AsyncIterator[Any]:
    async with session_of(where) as session:
        await session.initialize()

        async def call(tool: str, arguments: dict[str, Any], on_progress: Any = None) -> tuple[bool, str]:
            result = await session.call_tool(tool, arguments, progress_callback=on_progress)
            return bool(result.isError), result.content[0].text

        async def leave() -> None:
            """Major 1 sends nothing when a task is cancelled, and keeps the ids of its requests to itself: the last one was
            refused, those before it are under way."""
            last = session._request_id - 1
            for ident in range(last - SLOTS, last):
                parameters = CancelledNotificationParams(requestId=ident, reason="not needed any more")
                note = CancelledNotification(method="notifications/cancelled", params=parameters)
                await session.send_notification(ClientNotification(note))

        yield [tool.name for tool in (await session.list_tools()).tools], call, leave


drive(connect)
