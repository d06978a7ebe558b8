"""A stranger's pack with one tool that takes a while, and writes down when each call of it began and ended."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from typing import Any

from toolgate.model.tool import Context, Pack, Result, Tool

_numbers = itertools.count()
_files: list[int] = []


def _note(event: str, number: int) -> None:
    """One line by one write: many processes share the file."""
    if not _files:
        _files.append(os.open(os.environ["COUNTED_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    os.write(_files[0], f"{event} {os.getpid()} {number} {time.monotonic():.6f}\n".encode())


async def _brief(_ctx: Context, args: dict[str, Any]) -> Result:
    number = next(_numbers)
    _note("began", number)
    try:
        await asyncio.sleep(args.get("ms", 20) / 1000)
    finally:
        _note("ended", number)
    return Result(data={})


_MS = {"type": "integer", "minimum": 0, "maximum": 10_000, "description": "How long it takes."}
PACK = Pack(
    name="counted",
    tools=(
        Tool(
            name="counted_brief",
            id="counted.brief",
            summary="Takes a while.",
            input_schema={"type": "object", "properties": {"ms": _MS}, "additionalProperties": False},
            output_schema={"type": "object", "maxProperties": 1},
            effect="read",
            deadline_s=30.0,
            run=_brief,
        ),
    ),
)
