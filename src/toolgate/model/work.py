"""Coroutines that can be cancelled without a task of their own. A task, and the turn of the loop that starts it, costs as much as
a relayed call's whole answer; and the first step of a request is run outside any task (`servers/started_coroutine.py`), where
`asyncio.timeout` does not work."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Work(Generic[T]):
    """A coroutine that is run by whoever awaits it. `cancel` cancels what it waits for, as a task's would; to be awaited once.

    For coroutines of our own: one that goes on after it was cancelled keeps whoever awaits it.
    """

    __slots__ = ("_cancelled", "_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._waits_for: Any = None
        self._cancelled = False

    def cancel(self) -> None:
        """It hears of it where it waits, or at its next wait."""
        self._cancelled = True
        if self._waits_for is not None:
            self._waits_for.cancel()

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine = self._coroutine
        value: Any = None
        thrown: BaseException | None = None
        while True:
            try:
                waits_for = coroutine.send(value) if thrown is None else coroutine.throw(thrown)
            except StopIteration as ended:
                result: T = ended.value
                return result
            value = thrown = None
            if self._cancelled and waits_for is not None:
                waits_for.cancel()
            self._waits_for = waits_for
            try:
                value = yield waits_for
            except BaseException as fault:  # noqa: BLE001 (handed on into the coroutine, whatever it is)
                thrown = fault
            else:
                thrown = (
                    asyncio.CancelledError() if self._cancelled else None
                )  # it waited for no future, or for a done one
            self._waits_for, self._cancelled = None, False


async def within(seconds: float, coroutine: Coroutine[Any, Any, T]) -> T:
    """What it returns, if it does so in time. Raises: TimeoutError; what it raises."""
    work, late = Work(coroutine), False

    def expire() -> None:
        nonlocal late
        late = True
        work.cancel()

    timer = asyncio.get_running_loop().call_later(max(0.0, seconds), expire)
    try:
        return await work
    except asyncio.CancelledError:
        if late:
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()
