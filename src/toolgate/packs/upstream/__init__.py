"""MCP servers that somebody else wrote, as packs made of pins: what was approved is what is served."""
