"""FastMCP's proxy, as its documentation makes one, in front of a server that is already there.

fastproxy.py URL
fastproxy.py COMMAND ...      a program that speaks MCP on its pipes
"""

from __future__ import annotations

import sys
from typing import Any

import listen
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy


def target() -> Any:
    first, *rest = sys.argv[1:]
    return first if first.startswith("http") else StdioTransport(first, rest)


if __name__ == "__main__":
    listen.serve(create_proxy(target(), name="bench").http_app(path="/mcp", json_response=True, stateless_http=True))
