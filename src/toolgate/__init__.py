"""Toolgate: a governed MCP server. The way in is `toolgate.app`; one call is followed in `toolgate.gate.road`."""

__version__ = "0.1.0"
