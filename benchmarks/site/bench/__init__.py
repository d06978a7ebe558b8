"""The echo tool that every peer in the benchmark has too: three fields in, the same three out."""

from __future__ import annotations

import os
from typing import Any

from toolgate.model.tool import Context, Pack, Result, Tool

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text", "count", "flag"],
    "properties": {
        "text": {"type": "string", "maxLength": 1_000_000},
        "count": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
        "flag": {"type": "boolean"},
    },
}


def echo(ctx: Context, args: dict[str, Any]) -> Result:  # noqa: ARG001 (the shape of a handler)
    return Result(data={"text": args["text"], "count": args["count"], "flag": args["flag"]})


def _tool(name: str, *, inline: bool = True) -> Tool:
    return Tool(
        name=name,
        id=name.replace("_", ".", 1),
        summary="Echo three fields.",
        input_schema=SCHEMA,
        output_schema=SCHEMA,
        effect="read",
        deadline_s=10,
        run=echo,
        inline=inline,
    )


MORE = int(os.environ.get("BENCH_TOOLS", "0"))
"""How many more tools the manifest holds: for the curve of cost over tools."""
PACK = Pack(
    name="bench",
    tools=(
        _tool("bench_echo"),
        _tool("bench_thread", inline=False),
        *(_tool(f"bench_more{number}") for number in range(MORE)),
    ),
)
