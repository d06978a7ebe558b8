"""How FastMCP reaches the server under test."""

from __future__ import annotations

from typing import Any

from fastmcp.client.transports import StdioTransport, StreamableHttpTransport


def transport(where: dict[str, Any]) -> Any:
    if "url" in where:
        return StreamableHttpTransport(where["url"], headers={"Authorization": f"Bearer {where['key']}"})
    command, *arguments = where["command"]
    return StdioTransport(command=command, args=arguments, env=where["env"])
