"""Requirements that the MCP wire answers for."""

ROWS: dict[str, str] = {
    "001-M1": "document 001: governance tools are exposed to agents through MCP, and tools/list names them",
    "001-M2": "document 001: the text of a tools/call result is the governance envelope, as the floor left it",
    "001-M3": "document 001: tier and environment are in every answer's envelope",
}
