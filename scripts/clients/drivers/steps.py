"""What every driver does with its client, in the same order; told as JSON, one object on the last line.

A driver is a program of its own, run by the interpreter that has the client: it gets the server as JSON on standard input, by
transport: {"url", "key"} or {"command", "env"}. It answers, by transport, {step: {"ok": bool, "text": str}}. What does not
answer in time is "hangs". Under "full" there may be a second server, whose audit log has no room left.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

STEP_S = 15.0
PAUSE_S = 0.05
ANSWER_S = 2.0
"""For the answer to a cancelled call, which over a pipe never comes."""
SLOTS = 2
"""Calls at once that the server under test admits a key."""
BURST = 6
"""Calls that an agent library makes at once."""
MAX_CALLS = 200
"""After which a log of a few kilobytes is full, many times over."""

Call = Callable[..., Awaitable[tuple[bool, str]]]
"""call(tool, arguments, on_progress=None) -> (is it an error?, its text); raises what the client raises."""
Leave = Callable[[], Awaitable[None]]
"""Tells the server that the calls under way are cancelled, where the client does not do so by itself."""
Connect = Callable[[dict[str, Any]], AbstractAsyncContextManager[tuple[list[str], Call, Leave | None]]]
"""The names of the tools, and what can be done with them."""

SINGLE: dict[str, tuple[str, dict[str, Any]]] = {
    "good": ("wire_echo", {"text": "hello"}),
    "bad_arguments": ("wire_echo", {"txt": "hello"}),
    "said_no": ("wire_fail", {"text": "The shop"}),
    "not_there": ("wire_trouble", {"kind": "missing"}),
    "crashed": ("wire_trouble", {"kind": "crash"}),
    "bad_output": ("wire_trouble", {"kind": "nonsense"}),
    "role": ("wire_admin", {"text": "hello"}),
    "role_of_argument": ("analyze_dissonance", {"mode": "calibration", "files": ["a"]}),
    "unknown": ("wire_ecko", {"text": "hello"}),
    "null": ("wire_echo", {"text": "hello", "times": None}),
    "afterwards": ("wire_echo", {"text": "still here"}),
}


def drive(connect: Connect, *, sdk: bool = True) -> None:
    """Take every step and tell. `sdk`: progress and cancelling, too; else many calls at once, as agents make them."""
    servers = json.load(sys.stdin)
    told = {transport: asyncio.run(_drive(connect, where, sdk=sdk)) for transport, where in servers.items()}
    print("\n" + json.dumps(told), flush=True)


async def _drive(connect: Connect, where: dict[str, Any], *, sdk: bool) -> dict[str, Any]:
    told: dict[str, Any] = {}
    try:
        async with connect(where) as (names, call, leave):
            told |= await single_steps(call, names)
            if sdk:
                told["progress"] = await with_progress(call)
                told |= await limited(call, leave)
            else:
                told["burst"] = await burst(call)
        if "full" in where:
            async with connect(where["full"]) as (_, call, _):
                told |= await until_full(call)
    except BaseException as fault:  # noqa: BLE001 (whatever a client makes of an answer is what we want to know)
        told["session"] = {"ok": False, "text": f"{type(fault).__name__}: {spelt(fault)}"}
    return told


async def tried(work: Awaitable[tuple[bool, str]]) -> dict[str, Any]:
    try:
        is_error, text = await asyncio.wait_for(work, STEP_S)
    except TimeoutError:
        return {"ok": False, "text": "hangs"}
    except BaseException as fault:  # noqa: BLE001 (whatever a client raises is what we want to know)
        return {"ok": False, "text": f"{type(fault).__name__}: {spelt(fault)}"}
    return {"ok": not is_error, "text": text}


def spelt(fault: BaseException) -> str:
    inner = getattr(fault, "exceptions", None)
    return "; ".join(spelt(each) for each in inner) if inner else str(fault)


async def single_steps(call: Call, names: list[str]) -> dict[str, Any]:
    told: dict[str, Any] = {"list": {"ok": "wire_echo" in names, "text": f"{len(names)} tools"}}
    for step, (tool, arguments) in SINGLE.items():
        told[step] = await tried(call(tool, arguments))
    return told


async def with_progress(call: Call) -> dict[str, Any]:
    heard: list[float] = []

    async def listen(done: float, *_: Any) -> None:
        heard.append(done)

    answer = await tried(call("wire_progress", {"text": "done"}, listen))
    return answer if not answer["ok"] else {"ok": heard == [1, 2, 3], "text": str(heard)}


async def limited(call: Call, leave: Leave | None) -> dict[str, Any]:
    """Fill every slot, be refused, cancel, and have the slots back."""
    begun = asyncio.Semaphore(0)

    async def begins(*_: Any) -> None:
        begun.release()

    waiting = [asyncio.ensure_future(call("wire_wait", {"text": "x"}, begins)) for _ in range(SLOTS)]
    for _ in waiting:  # each tells when it runs, so that it is known to hold its slot
        await asyncio.wait_for(begun.acquire(), STEP_S)
    refused = await tried(call("wire_echo", {"text": "one too many"}))
    untouched = all(not each.done() for each in waiting)
    freed = await cancelled(call, leave, waiting)
    return {
        "too_many": refused,
        "others_go_on": {"ok": untouched, "text": "" if untouched else "calls under way were lost"},
        "cancel": freed,
    }


async def cancelled(call: Call, leave: Leave | None, waiting: Sequence[asyncio.Future[Any]]) -> dict[str, Any]:
    """What every slot answers once the calls that hold them are cancelled.

    Who tells the server by a message of its own still waits for its calls: a task of major 1 that is cancelled just as its
    answer arrives ends the session's receive loop, and every later call fails with it.
    """
    freed = None
    if leave is not None:
        await leave()
        freed = await until_free(call)
        await asyncio.wait(waiting, timeout=ANSWER_S)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return freed if freed is not None else await until_free(call)


async def until_free(call: Call) -> dict[str, Any]:
    """Every slot, at once. Cancelling is a message of its own; the slots are free when the server has read it, long before the
    tool's 30 s."""
    due = asyncio.get_running_loop().time() + STEP_S
    while True:
        work = [tried(call("wire_progress", {"text": "hello"})) for _ in range(SLOTS)]
        answers = await asyncio.gather(*work)
        refused = [answer for answer in answers if not answer["ok"]]
        if not refused or asyncio.get_running_loop().time() > due:
            return refused[0] if refused else answers[0]
        await asyncio.sleep(PAUSE_S)


async def burst(call: Call) -> dict[str, Any]:
    """More calls at once than are admitted: each is answered or told why not, and the connection lives."""
    work = [tried(call("wire_progress", {"text": f"hello {number}"})) for number in range(BURST)]
    answers = await asyncio.gather(*work)
    return judged_burst(answers, await tried(call("wire_echo", {"text": "hello"})))


def judged_burst(answers: Sequence[dict[str, Any]], after: dict[str, Any]) -> dict[str, Any]:
    texts = [str(each["text"]) for each in answers]
    good = sum("hello" in text for text in texts)
    refused = sum("calls of this key are running" in text for text in texts)
    lost = [text for text in texts if "hello" not in text and "are running" not in text]
    lost += [] if "hello" in after["text"] else [f"afterwards: {after['text']}"]
    return {"ok": not lost, "text": f"{good} answered, {refused} refused; {'; '.join(lost)[:300]}"}


async def until_full(call: Call) -> dict[str, Any]:
    """Call until the server's audit log takes no more; the answer is told, and so is the next one."""
    for _ in range(MAX_CALLS):
        answer = await tried(call("wire_echo", {"text": "hello"}))
        if not answer["ok"]:
            break
    return {"unavailable": answer, "unavailable_again": await tried(call("wire_echo", {"text": "hello"}))}
