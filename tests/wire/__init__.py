"""The MCP wire against the world: the official SDK as oracle and as client, the conformance suite, the Inspector."""
