"""Coroutines that seldom wait: their first step is run at once, and only what is then left needs a task."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class StartedCoroutine(Generic[T]):
    """What is left of a coroutine whose first step has run and now waits for a future. To be awaited once."""

    __slots__ = ("_waiting_for", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], waiting_for: Any) -> None:
        self._work, self._waiting_for = work, waiting_for

    def __await__(self) -> Generator[Any, Any, T]:
        while True:
            try:
                value = yield self._waiting_for
            except BaseException as thrown:  # noqa: BLE001 (handed on into the coroutine, whatever it is)
                step = partial(self._work.throw, thrown)
            else:
                step = partial(self._work.send, value)
            try:
                self._waiting_for = step()
            except StopIteration as ended:
                result: T = ended.value
                return result
