"""Coroutines that seldom wait: run the first step at once, and make a task only of what is then left."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from toolgate.model.record import Ledger

T = TypeVar("T")


class Rest(Generic[T]):
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


def first_step(work: Coroutine[Any, Any, T], ledger: Ledger) -> T | Rest[T]:
    """The result of a coroutine that did not wait, or what is left of one that did.

    A record made in this step is gathered: the result must be held until `ledger.flush`.
    """
    ledger.gathering = True
    try:
        return Rest(work, work.send(None))
    except StopIteration as ended:
        result: T = ended.value
        return result
    finally:
        ledger.gathering = False
