"""Upstreams for the tests: the stub as a real child of the real client."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from toolgate.kit.pins import Offer
from toolgate.model.mcpwire import RelayedCall
from toolgate.powers.mcp.bounds import STANDARD, Bounds
from toolgate.powers.mcp.children import ChildRegister, Program, environment_for, open_child
from toolgate.powers.mcp.transport import Transport
from toolgate.powers.mcp.upstream import Upstream, UpstreamEvent, UpstreamOptions

STUB = Path(__file__).parent / "stub.py"
PATIENCE_S = 20.0
"""For what must happen, on a machine that others use, too."""


def program(behaviour: str, log: Path | None = None, **environment: str) -> Program:
    more = {"STUB_LOG": str(log), **environment} if log else environment
    command = (sys.executable, str(STUB), behaviour)
    return Program(command, environment_for(more, os.environ), grace_s=0.3)


def lines(log: Path, word: str) -> list[str]:
    """What follows a word in the stub's log."""
    found = log.read_text().splitlines() if log.exists() else []
    return [line.partition(" ")[2] for line in found if line.split(" ")[0] == word]


def all_approved(_offer: Offer) -> Mapping[str, str]:
    return {}


@asynccontextmanager
async def stub(
    behaviour: str,
    log: Path | None = None,
    *,
    judge: Callable[[Offer], Mapping[str, str]] = all_approved,
    bounds: Bounds = STANDARD,
    events: list[UpstreamEvent] | None = None,
    births: ChildRegister | None = None,
    concurrency: int = 16,
    connect_s: float = PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Upstream]:
    started = program(behaviour, log, **(environment or {}))

    async def connect() -> Transport:
        return await open_child(started, bounds, births)

    options = UpstreamOptions(concurrency=concurrency, connect_s=connect_s, bounds=bounds)
    on_event = events.append if events is not None else lambda _: None
    made = Upstream("stub", connect, judge, options=options, on_event=on_event, clock=clock)
    try:
        yield made
    finally:
        await made.close()


async def say(upstream: Upstream, text: str = "hello", *, seconds: float = PATIENCE_S, **more: Any) -> str:
    call = RelayedCall("echo", "tools/call", {"name": "echo", "arguments": {"text": text}}, **more)
    answer = await upstream.request(call, seconds=seconds)
    return str(answer.result["content"][0]["text"])


def alive(pid: int) -> bool:
    """A zombie is dead: it waits to be read, and runs nothing."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return False
    return state not in "ZX"


def memory_bytes() -> int:
    """What this process holds now; 0 where the system does not tell (then nothing is judged)."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0
