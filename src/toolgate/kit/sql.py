"""For stores: SQL text as a statement, without loading SQLAlchemy before a store is used, and what was read of a store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from toolgate.model.powers import Unchanged

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@cache
def sql(statement: str) -> TextClause:
    """`:name` parameters; one object per text, so that SQLAlchemy compiles each statement once."""
    # `toolgate contract check` imports every pack and must stay light: the engine waits for its first use.
    from sqlalchemy import text  # noqa: PLC0415

    return text(statement)


class Views(Generic[Key, Value]):
    """What was read of stores and still holds, the latest `most` of it. Nothing in it is believed without asking the marks."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Key, tuple[Value, tuple[Unchanged, ...]]] = {}

    def get(self, key: Key) -> Value | None:
        """None: it was not read yet, or something has changed since."""
        found = self._kept.get(key)
        if found is None:
            return None
        value, marks = found
        for is_unchanged in marks:
            if not is_unchanged():
                self._kept.pop(key, None)
                return None
        return value

    def put(self, key: Key, value: Value, *marks: Unchanged | None) -> None:
        """`marks`: taken before the value was read. One that nobody could take: it is not kept."""
        taken = tuple(mark for mark in marks if mark is not None)
        if len(taken) < max(1, len(marks)):
            return
        self._kept.pop(key, None)
        while len(self._kept) >= self._most:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = (value, taken)


class SharedReads(Generic[Key, Value]):
    """Reads of one thing that wait at the same time are one read: it begins after all of them asked, so it is new to each."""

    def __init__(self) -> None:
        self._waiting: dict[Key, asyncio.Future[Value]] = {}

    async def read(
        self, key: Key, run: Callable[[Callable[[Any], Value]], Awaitable[Value]], work: Callable[[Any], Value]
    ) -> Value:
        """`work`, as `run` runs it on a store's thread. Raises: what they raise, to all who share it."""
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = asyncio.ensure_future(self._begun(key, run, work))
            waiting.add_done_callback(_seen)
        return await asyncio.shield(waiting)  # whoever is cancelled leaves it to the others

    async def _begun(
        self, key: Key, run: Callable[[Callable[[Any], Value]], Awaitable[Value]], work: Callable[[Any], Value]
    ) -> Value:
        own = self._waiting[key]

        def begin(store: Any) -> Value:
            self._forget(key, own)  # who asks from now on needs a newer one
            return work(store)

        try:
            return await run(begin)
        finally:
            self._forget(key, own)  # a store that is not there begins nothing

    def _forget(self, key: Key, own: asyncio.Future[Value]) -> None:
        if self._waiting.get(key) is own:
            del self._waiting[key]


def _seen(read: asyncio.Future[Any]) -> None:
    """Nobody may be left to hear of a fault."""
    if not read.cancelled():
        read.exception()
