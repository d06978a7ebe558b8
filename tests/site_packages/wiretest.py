"""A stranger's pack, as a stranger would write it: the tools that the tests of the MCP wire call.

The folder beside this file (`wiretest-1.0.dist-info`) is what an installed package leaves behind, so the server finds the
pack through its entry point as soon as this directory is on its path.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from toolgate.errors import ToolError
from toolgate.model.tool import Context, Pack, Result, Tool

_TEXT = {"type": "string", "minLength": 1, "maxLength": 200, "description": "What to say back."}
_TEXT_ONLY = {"type": "object", "properties": {"text": _TEXT}, "required": ["text"], "additionalProperties": False}
STEPS = 3
"""Progress notes that `wire_progress` and `wire_steps` send before they answer."""
STEP_S = 0.05
"""Seconds that a step of `wire_progress` takes."""


def _echo(_ctx: Context, args: dict[str, Any]) -> Result:
    return Result(data={"text": args["text"] * args.get("times", 1)})


def _fail(_ctx: Context, args: dict[str, Any]) -> Result:
    raise ToolError("NOT_TODAY", f"{args['text']} is closed. Come back tomorrow.")


def _trouble(_ctx: Context, args: dict[str, Any]) -> Result:
    """Every way to end badly that is left to a handler, behind an output schema that takes none of it."""
    match args["kind"]:
        case "missing":
            raise ToolError("NOT_TODAY", "There is no such shop.", missing=True, data={"street": "none"})
        case "elsewhere":
            raise ToolError("NOT_TODAY", "The supplier does not answer.", elsewhere=True)
        case "said":
            return Result(success=False, is_error=True, code="NOT_TODAY", message="NOT_TODAY: closed", data={"odd": 1})
        case "nonsense":
            return Result(data={"words": 3})
        case _:
            raise RuntimeError("boom")


def _count(ctx: Context, args: dict[str, Any]) -> Result:
    for step in range(1, STEPS + 1):
        ctx.progress(step, STEPS, f"step {step}")
    return Result(data={"text": args["text"]})


def _work(ctx: Context, args: dict[str, Any]) -> Result:
    """Steps that take a moment, as real ones do: the TypeScript SDK 1.x drops a note that arrives together with the answer."""
    for step in range(1, STEPS + 1):
        ctx.progress(step, STEPS, f"step {step}")
        time.sleep(STEP_S)
    return Result(data={"text": args["text"]})


async def _wait(ctx: Context, args: dict[str, Any]) -> Result:
    """Say that it runs, then wait until the caller gives up: nobody sets this event."""
    ctx.progress(1, 2, "waiting")
    await asyncio.Event().wait()
    return Result(data={"text": args["text"]})


PACK = Pack(
    name="wiretest",
    tools=(
        Tool(
            name="wire_echo",
            id="wiretest.echo",
            summary="Say it again.",
            input_schema={
                "type": "object",
                "properties": {
                    "text": _TEXT,
                    "times": {"type": "integer", "minimum": 1, "maximum": 5, "description": "How often."},
                },
                "required": ["text"],
                "additionalProperties": False,
            },
            output_schema={
                "type": "object",
                "properties": {"text": {"type": "string", "maxLength": 1000}},
                "required": ["text"],
                "additionalProperties": False,
            },
            effect="read",
            deadline_s=5,
            run=_echo,
        ),
        Tool(
            name="wire_fail",
            id="wiretest.fail",
            summary="Always say no.",
            input_schema=_TEXT_ONLY,
            output_schema=_TEXT_ONLY,
            effect="read",
            deadline_s=5,
            run=_fail,
            error_codes=("NOT_TODAY",),
        ),
        Tool(
            name="wire_trouble",
            id="wiretest.trouble",
            summary="End badly.",
            input_schema={
                "type": "object",
                "properties": {"kind": {"enum": ["missing", "elsewhere", "said", "nonsense", "crash"]}},
                "required": ["kind"],
                "additionalProperties": False,
            },
            output_schema=_TEXT_ONLY,
            effect="read",
            deadline_s=5,
            run=_trouble,
            error_codes=("NOT_TODAY",),
        ),
        Tool(
            name="wire_progress",
            id="wiretest.progress",
            summary="Report progress, then say it again.",
            input_schema=_TEXT_ONLY,
            output_schema=_TEXT_ONLY,
            effect="read",
            deadline_s=5,
            run=_work,
        ),
        Tool(
            name="wire_steps",
            id="wiretest.steps",
            summary="Report progress without waiting, then say it again.",
            input_schema=_TEXT_ONLY,
            output_schema=_TEXT_ONLY,
            effect="read",
            deadline_s=5,
            run=_count,
            inline=True,  # the answer is there before the first note could leave
        ),
        Tool(
            name="wire_wait",
            id="wiretest.wait",
            summary="Wait for ever.",
            input_schema=_TEXT_ONLY,
            output_schema=_TEXT_ONLY,
            effect="read",
            deadline_s=30,
            run=_wait,
        ),
        Tool(
            name="wire_admin",
            id="wiretest.admin",
            summary="Say it again, to administrators.",
            input_schema=_TEXT_ONLY,
            output_schema=_TEXT_ONLY,
            effect="read",
            deadline_s=5,
            run=_echo,
        ),
    ),
)
