"""A stranger's pack that does everything a handler should not do. It comes in by the same door as any other."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import sqlite3
import sys
import threading
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from toolgate.errors import ToolError
from toolgate.model.clock import Clock
from toolgate.model.threads import in_thread
from toolgate.model.tool import Context, Pack, Result, Tool

OPEN_OBJECT = {"type": "object", "maxProperties": 32}
DEADLINE_S = 0.4
LINGER_S = 2.5
"""The deadline of a handler that a short drain time cuts off, and a long one does not."""
SECRET_PATH = "/srv/secret/place"


def arguments(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


TEXT = {"type": "string", "maxLength": 64}


def echo(ctx: Context, args: dict[str, Any]) -> Result:
    return Result(data=args)


def claim(ctx: Context, args: dict[str, Any]) -> Result:
    """Says exactly what it is asked to say; what it raises is said, too."""
    if "raise" in args:
        raise ToolError(args["code"], "said by an exception", missing=args["raise"] == "missing")
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
    "odd_letters": lambda: ToolError("DIRECTORY_EXISTS", "\ud800"),
    "odd_text": lambda: ToolError("DIRECTORY_EXISTS", SECRET_PATH.encode()),  # type: ignore[arg-type]
    "odd_reason": lambda: ToolError("INVALID_INPUT", "no", data={"reason": [SECRET_PATH]}),
    "odd_code": lambda: ToolError(7, SECRET_PATH),  # type: ignore[arg-type]
    "target": lambda: ToolError("TIMEOUT", "Connection timeout (10s)", elsewhere=True),
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
    "undeclared_code": lambda: Result(data={}, code="NOT_DECLARED"),
    "code_that_is_no_text": lambda: Result(data={}, code=["INVARIANT_VIOLATION"]),  # type: ignore[arg-type]
    "failed_with_a_number": lambda: Result(data={}, code=7, success=False),  # type: ignore[arg-type]
    "code_of_a_text_subclass": lambda: Result(data={}, code=_Text("SOME_CODE")),
    "message_that_is_no_text": lambda: Result(data={}, message=object()),  # type: ignore[arg-type]
    "message_of_no_letters": lambda: Result(data={}, message="\ud800"),
    "success_that_is_no_flag": lambda: Result(data={}, success=object()),  # type: ignore[arg-type]
    "error_that_is_no_flag": lambda: Result(data={}, is_error=object()),  # type: ignore[arg-type]
    "degraded_that_is_no_flag": lambda: Result(data={}, degraded=object()),  # type: ignore[arg-type]
    "exit_code_that_is_none": lambda: Result(data={}, exit_code="0"),  # type: ignore[arg-type]
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


async def linger(ctx: Context, args: dict[str, Any]) -> Result:
    """Shows that it is inside, and never ends."""
    assert ctx.writer is not None
    ctx.writer.write_bytes("inside", b"")
    return await sleep_for_ever(ctx, args)


def _for_ever(path: str) -> None:
    while True:
        pass


def _query_for_ever() -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    sqlite3.connect(":memory:").execute(endless).fetchall()


async def stuck(ctx: Context, args: dict[str, Any]) -> Result:
    """Shows that it is inside, then does what no signal and no cancellation ends."""
    assert ctx.writer is not None
    kind = args["kind"]
    ctx.writer.write_bytes(f"stuck-{kind}", b"")
    if kind == "worker":
        await ctx.compute(_for_ever, "")
    elif kind == "executor":
        await asyncio.to_thread(time.sleep, 3600)
    elif kind == "query":
        await in_thread(_query_for_ever)
    elif kind == "thread":
        threading.Thread(target=time.sleep, args=(3600,)).start()
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


STUCK = ("worker", "executor", "query", "thread", "cancelled")


def stuck_thread(ctx: Context, args: dict[str, Any]) -> Result:
    assert ctx.writer is not None
    ctx.writer.write_bytes("stuck-handler", b"")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(3600)


def write(ctx: Context, args: dict[str, Any]) -> Result:
    assert ctx.writer is not None
    ctx.writer.write_bytes(args["name"], b"written")
    return Result(data={"name": args["name"]})


def powers(ctx: Context, args: dict[str, Any]) -> Result:
    held = {name: getattr(ctx, name) is not None for name in ("writer", "keys", "net", "jobs")}
    held["files_can_write"] = hasattr(ctx.files, "write_bytes")
    return Result(data=held)


def at_once(clock: Clock, memory: Any, args: dict[str, Any]) -> Result | None:
    if args["name"] == "boom":
        raise RuntimeError
    return Result(data={"name": "at once"}) if args["name"] == "quick" else None


def chatter(ctx: Context, args: dict[str, Any]) -> Result:
    print("this must not reach the protocol")
    sys.stdout.flush()
    for done in range(3):
        ctx.progress(done + 1, 3, f"part {done + 1}")
    return Result(data={})


def wordy(data: Any) -> str:
    if data.get("broken"):
        raise ValueError("no text for this")
    if data.get("torn"):
        return "\ud800"
    return "é" * int(data.get("characters", 1))


def tool(name: str, run: Any, schema: dict[str, Any], **more: Any) -> Tool:
    options: dict[str, Any] = {"effect": "read", "deadline_s": 10.0, "output_schema": OPEN_OBJECT} | more
    return Tool(
        name=name, id=name.replace("_", ".", 1), summary=f"Test tool {name}.", input_schema=schema, run=run, **options
    )


KIND = {"type": "string", "enum": [*RAISED, *ANSWERED]}
CODES = ("DIRECTORY_EXISTS", "FILE_NOT_FOUND", "SOME_CODE", "TIMEOUT")
PACK = Pack(
    name="unruly",
    tools=(
        tool("unruly_echo", echo, arguments(text=TEXT, n={"type": "integer", "minimum": 0, "maximum": 9}), inline=True),
        tool(
            "unruly_claim",
            claim,
            arguments(
                decision=TEXT,
                code=TEXT,
                success={"type": "boolean"},
                isError={"type": "boolean"},
                **{"raise": {"enum": ["no", "missing"]}},
            ),
            error_codes=CODES,
        ),
        tool("unruly_raise", raising, arguments(kind=KIND), error_codes=CODES),
        tool("unruly_raise_inline", raising, arguments(kind=KIND), error_codes=CODES, inline=True),
        tool("unruly_raise_later", raising_later, arguments(kind=KIND), error_codes=CODES),
        tool("unruly_answer", answering, arguments(kind=KIND), error_codes=CODES),
        tool("unruly_spin", spin, arguments(), deadline_s=DEADLINE_S),
        tool("unruly_doze", doze, arguments(), deadline_s=DEADLINE_S),
        tool("unruly_sleep", sleep_for_ever, arguments(), deadline_s=DEADLINE_S),
        tool("unruly_stubborn", stubborn, arguments(), deadline_s=DEADLINE_S),
        tool("unruly_hold", hold, arguments(), deadline_s=30.0),
        tool("unruly_wait", wait, arguments(), deadline_s=30.0, effect="write"),
        tool("unruly_linger", linger, arguments(), deadline_s=LINGER_S, effect="write"),
        tool(
            "unruly_stuck",
            stuck,
            {**arguments(kind={"enum": list(STUCK)}), "required": ["kind"]},
            deadline_s=60.0,
            effect="write",
        ),
        tool("unruly_stuck_thread", stuck_thread, arguments(), deadline_s=60.0, effect="write"),
        tool("unruly_write", write, {**arguments(name=TEXT), "required": ["name"]}, effect="write"),
        tool(
            "unruly_write_secretly",
            write,
            {**arguments(name=TEXT, password={**TEXT, "x-secret": True}), "required": ["name", "password"]},
            effect="write",
        ),
        tool("unruly_powers_read", powers, arguments(), effect="read"),
        tool("unruly_powers_write", powers, arguments(), effect="write"),
        tool("unruly_powers_crypto", powers, arguments(), effect="crypto"),
        tool("unruly_powers_network", powers, arguments(), effect="network"),
        tool("unruly_chatter", chatter, arguments()),
        tool(
            "unruly_text",
            echo,
            arguments(
                characters={"type": "integer", "minimum": 0, "maximum": 100_000},
                broken={"type": "boolean"},
                torn={"type": "boolean"},
            ),
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
        tool("unruly_at_once", write, {**arguments(name=TEXT), "required": ["name"]}, effect="write", at_once=at_once),
        tool("unruly_stopped", echo, arguments()),
    ),
)
