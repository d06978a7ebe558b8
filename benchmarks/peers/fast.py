"""FastMCP: one `async def` echo tool.

fast.py http      streamable HTTP with JSON answers, no sessions
fast.py stdio
"""

from __future__ import annotations

import sys
from typing import Annotated

import uvloop
from fastmcp import FastMCP
from pydantic import Field
from typing_extensions import TypedDict  # pydantic insists on it before Python 3.12


class Echo(TypedDict):
    text: str
    count: int
    flag: bool


SERVER: FastMCP = FastMCP("bench")


@SERVER.tool
async def bench_echo(
    text: Annotated[str, Field(max_length=1_000_000)],
    count: Annotated[int, Field(ge=0, le=1_000_000)],
    flag: bool,
) -> Echo:
    """Echo three fields."""
    return {"text": text, "count": count, "flag": flag}


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        uvloop.run(SERVER.run_stdio_async(show_banner=False))
    else:
        import listen

        listen.serve(SERVER.http_app(path="/mcp", json_response=True, stateless_http=True))
