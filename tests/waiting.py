"""The only place where a test waits by looking again: bounded, and no longer than it takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.homes import PATIENCE_S

T = TypeVar("T")
PAUSE_S = 0.01


def until(look: Callable[[], T], what: str = "what was waited for", seconds: float = PATIENCE_S) -> T:
    """What `look` found, as soon as that is true."""
    due = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < due, f"never: {what}"
        time.sleep(PAUSE_S)
    return found


async def soon(look: Callable[[], T], what: str = "what was waited for", seconds: float = PATIENCE_S) -> T:
    """The same, while the event loop goes on."""
    due = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < due, f"never: {what}"
        await asyncio.sleep(PAUSE_S)
    return found


async def eventually(
    look: Callable[[], Awaitable[T]], what: str = "what was waited for", seconds: float = PATIENCE_S
) -> T:
    """The same, where looking is itself waited for."""
    due = time.monotonic() + seconds
    while not (found := await look()):
        assert time.monotonic() < due, f"never: {what}"
        await asyncio.sleep(PAUSE_S)
    return found
