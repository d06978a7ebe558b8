"""FastMCP, majors 2 and 4."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fast_transport import transport
from fastmcp import Client
from steps import SLOTS, drive


@asynccontextmanager
async def connect(where: dict[str, Any]) -> AsyncIterator[Any]:
    async with Client(transport(where)) as client:

        async def call(tool: str, arguments: dict[str, Any], on_progress: Any = None) -> tuple[bool, str]:
            result = await client.call_tool(tool, arguments, raise_on_error=False, progress_handler=on_progress)
            return bool(result.is_error), result.content[0].text

        async def leave() -> None:
            """As with major 1 of the SDK, on which FastMCP 2 is built."""
            last = client.session._request_id - 1
            for ident in range(last - SLOTS, last):
                await client.cancel(ident, "not needed any more")

        old = version("fastmcp").startswith("2.")
        yield [tool.name for tool in await client.list_tools()], call, leave if old else None


drive(connect)
