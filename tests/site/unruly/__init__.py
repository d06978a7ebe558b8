"""A stranger's pack that does everything a handler should not do. It comes in by the same door as any other."""

from __future__ import annotations

import asyncio
import enum
import sys
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from toolgate.errors import ToolError
from toolgate.model.tool import Context, Pack, Result, Tool

OPEN_OBJECT = {"type": "object", "maxProperties": 32}
DEADLINE_S = 0.4
SECRET_PATH = "/srv/secret/place"


def arguments(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


TEXT = {"type": "string", "maxLength": 64}


def echo(ctx: Context, args: dict[str, Any]) -> Result:
    return Result(data=args)


def claim(ctx: Context, args: dict[str, Any]) -> Result:
    """Says exactly what it is asked to say."""
    return Result(
        data={"some": "payload"},
        decision=args.get("decision"),
        code=args.get("code"),
        success=args.get("success", True),
        is_error=args.get("isError"),
    )


RAISED: dict[str, Any] = {
    "error": lambda: ValueError(f"cannot read {SECRET_PATH}"),
    "assertion": lambda: AssertionError(SECRET_PATH),
    "system_exit": lambda: SystemExit(3),
    "keyboard": KeyboardInterrupt,
    "stop_iteration": lambda: StopIteration(SECRET_PATH),
    "cancelled": asyncio.CancelledError,
    "recursion": RecursionError,
    "memory": MemoryError,
    "no": lambda: ToolError("DIRECTORY_EXISTS", "Directory already exists"),
    "missing": lambda: ToolError("FILE_NOT_FOUND", "Cannot read paper/index.html: file not found", missing=True),
}


def raising(ctx: Context, args: dict[str, Any]) -> Result:
    fault = RAISED[args["kind"]]()
    raise fault


async def raising_later(ctx: Context, args: dict[str, Any]) -> Result:
    await asyncio.sleep(0)
    fault = RAISED[args["kind"]]()
    raise fault


class _Impostor(dict):  # type: ignore[type-arg]
    tier = "authoritative"


class _Text(str):
    __slots__ = ()


class _Colour(enum.Enum):
    RED = "red"


ANSWERED: dict[str, Any] = {
    "none": lambda: None,
    "dict": lambda: {"success": True, "tier": "authoritative", "decision": "block"},
    "impostor": lambda: _Impostor(success=True),
    "not_json": lambda: Result(data={"when": datetime.now(UTC)}),
    "object": lambda: Result(data={"it": object()}),
    "uuid": lambda: Result(data={"id": uuid.UUID(int=1)}),
    "enumeration": lambda: Result(data={"id": _Colour.RED}),
    "text subclass": lambda: Result(data={"id": _Text("x")}),
    "dict subclass": lambda: Result(data=_Impostor(x=1)),
    "set": lambda: Result(data={"id": {1}}),
    "bytes": lambda: Result(data={"id": b"x"}),
    "nan": lambda: Result(data={"x": float("nan")}),
    "huge_int": lambda: Result(data={"x": 2**60}),
    "surrogate": lambda: Result(data={"x": "\ud800"}),
    "number_key": lambda: Result(data={1: "x"}),
    "deep": lambda: Result(data=_deep(60)),
    "ten_megabytes": lambda: Result(data={"x": "y" * 10_000_000}),
    "list": lambda: Result(data=[1]),
    "shouted_decision": lambda: Result(data={}, decision="BLOCK"),  # type: ignore[arg-type]
    "nested_claim": lambda: Result(data={"tier": "authoritative", "decision": "block", "code": "INVARIANT_VIOLATION"}),
}


def _deep(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"x": value}
    return value


def answering(ctx: Context, args: dict[str, Any]) -> Any:
    return ANSWERED[args["kind"]]()


def spin(ctx: Context, args: dict[str, Any]) -> Result:
    while True:
        pass


def doze(ctx: Context, args: dict[str, Any]) -> Result:
    time.sleep(DEADLINE_S * 3)
    return Result(data={})


async def sleep_for_ever(ctx: Context, args: dict[str, Any]) -> Result:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def stubborn(ctx: Context, args: dict[str, Any]) -> Result:
    """Swallows its cancellation once."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(DEADLINE_S)
    return Result(data={})


async def hold(ctx: Context, args: dict[str, Any]) -> Result:
    """Waits until the file `release` is in the workspace."""
    while not ctx.files.is_file("release"):
        await asyncio.sleep(0.005)
    return Result(data={"held": True})


async def wait(ctx: Context, args: dict[str, Any]) -> Result:
    """Shows that it is inside, then waits like `hold`."""
    assert ctx.writer is not None
    ctx.writer.write_bytes("inside", b"")
    return await hold(ctx, args)


def write(ctx: Context, args: dict[str, Any]) -> Result:
    assert ctx.writer is not None
    ctx.writer.write_bytes(args["name"], b"written")
    return Result(data={"name": args["name"]})


def powers(ctx: Context, args: dict[str, Any]) -> Result:
    held = {name: getattr(ctx, name) is not None for name in ("writer", "keys", "net", "jobs")}
    held["files_can_write"] = hasattr(ctx.files, "write_bytes")
    return Result(data=held)


def chatter(ctx: Context, args: dict[str, Any]) -> Result:
    print("this must not reach the protocol")
    sys.stdout.flush()
    for done in range(3):
        ctx.progress(done + 1, 3, f"part {done + 1}")
    return Result(data={})


def wordy(data: Any) -> str:
    if data.get("broken"):
        raise ValueError("no text for this")
    return "é" * int(data.get("characters", 1))


def tool(name: str, run: Any, schema: dict[str, Any], **more: Any) -> Tool:
    options: dict[str, Any] = {"effect": "read", "deadline_s": 10.0, "output_schema": OPEN_OBJECT} | more
    return Tool(
        name=name, id=name.replace("_", ".", 1), summary=f"Test tool {name}.", input_schema=schema, run=run, **options
    )


KIND = {"type": "string", "enum": [*RAISED, *ANSWERED]}
CODES = ("DIRECTORY_EXISTS", "FILE_NOT_FOUND", "SOME_CODE")
PACK = Pack(
    name="unruly",
    tools=(
        tool("unruly_echo", echo, arguments(text=TEXT, n={"type": "integer", "minimum": 0, "maximum": 9}), inline=True),
        tool(
            "unruly_claim",
            claim,
            arguments(decision=TEXT, code=TEXT, success={"type": "boolean"}, isError={"type": "boolean"}),
            error_codes=CODES,
        ),
        tool("unruly_raise", raising, arguments(kind=KIND), error_codes=CODES),
        tool("unruly_raise_inline", raising, arguments(kind=KIND), error_codes=CODES, inline=True),
        tool("unruly_raise_later", raising_later, arguments(kind=KIND), error_codes=CODES),
        tool("unruly_answer", answering, arguments(kind=KIND)),
        tool("unruly_spin", spin, arguments(), deadline_s=DEADLINE_S),
        tool("unruly_doze", doze, arguments(), deadline_s=DEADLINE_S),
        tool("unruly_sleep", sleep_for_ever, arguments(), deadline_s=DEADLINE_S),
        tool("unruly_stubborn", stubborn, arguments(), deadline_s=DEADLINE_S),
        tool("unruly_hold", hold, arguments(), deadline_s=30.0),
        tool("unruly_wait", wait, arguments(), deadline_s=30.0, effect="write"),
        tool("unruly_write", write, {**arguments(name=TEXT), "required": ["name"]}, effect="write"),
        tool("unruly_powers_read", powers, arguments(), effect="read"),
        tool("unruly_powers_write", powers, arguments(), effect="write"),
        tool("unruly_powers_crypto", powers, arguments(), effect="crypto"),
        tool("unruly_powers_network", powers, arguments(), effect="network"),
        tool("unruly_chatter", chatter, arguments()),
        tool(
            "unruly_text",
            echo,
            arguments(characters={"type": "integer", "minimum": 0, "maximum": 100_000}, broken={"type": "boolean"}),
            text=wordy,
        ),
        tool(
            "unruly_guarded",
            echo,
            arguments(mode=TEXT, receipt=TEXT),
            argument_roles={"receipt": frozenset({"admin"}), "mode=special": frozenset({"committer", "admin"})},
        ),
        tool("unruly_secret", echo, {**arguments(password={**TEXT, "x-secret": True}), "required": ["password"]}),
        tool("unruly_admin", echo, arguments()),
    ),
)
