"""What was read of a store is remembered while its marks say that nothing has changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from toolgate.kit.sql import SharedReads, Views

if TYPE_CHECKING:
    from collections.abc import Callable


class Mark:
    """A mark that a test can turn."""

    def __init__(self) -> None:
        self.holds = True
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.holds


def test_what_was_kept_is_found_while_every_mark_holds() -> None:
    views: Views[str, int] = Views(2)
    one, other = Mark(), Mark()
    views.put("a", 1, one, other)
    assert (views.get("a"), views.get("b"), one.asked, other.asked) == (1, None, 1, 1)
    other.holds = False
    assert views.get("a") is None


def test_what_has_changed_once_is_gone_even_if_its_mark_holds_again() -> None:
    views: Views[str, int] = Views(2)
    mark = Mark()
    views.put("a", 1, mark)
    mark.holds = False
    assert views.get("a") is None
    mark.holds = True
    assert views.get("a") is None


def test_nothing_is_kept_without_all_of_its_marks() -> None:
    views: Views[str, int] = Views(2)
    views.put("a", 1)
    views.put("b", 1, None)
    views.put("c", 1, Mark(), None)
    assert [views.get(key) for key in "abc"] == [None] * 3


def test_the_oldest_makes_room_and_what_is_kept_again_is_the_newest() -> None:
    views: Views[str, int] = Views(2)
    for key in ("a", "b", "a", "c"):
        views.put(key, ord(key), Mark())
    assert [views.get(key) for key in "abc"] == [ord("a"), None, ord("c")]


class Thread:
    """A store's thread that begins its next work when a test says so."""

    def __init__(self) -> None:
        self.queue: list[tuple[Callable[[Any], int], asyncio.Future[int]]] = []

    async def run(self, work: Callable[[Any], int]) -> int:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.queue.append((work, done))
        return await done

    def begin(self) -> Callable[[], None]:
        """Returns what ends it."""
        work, done = self.queue.pop(0)
        found = work(None)
        return lambda: done.set_result(found)


class Counter:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self, _store: Any) -> int:
        self.now += 1
        return self.now


async def settle() -> None:
    """Every task goes as far as it can."""
    loop = asyncio.get_running_loop()
    for _ in range(5):
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


def test_reads_that_wait_at_the_same_time_are_one() -> None:
    async def ask() -> list[int]:
        reads: SharedReads[str, int] = SharedReads()
        thread, count = Thread(), Counter()
        asked = [asyncio.ensure_future(reads.read("a", thread.run, count)) for _ in range(3)]
        other = asyncio.ensure_future(reads.read("b", thread.run, count))
        await settle()
        assert len(thread.queue) == 2
        thread.begin()()
        thread.begin()()
        return [*await asyncio.gather(*asked), await other]

    assert asyncio.run(ask()) == [1, 1, 1, 2]


def test_who_asks_when_a_read_has_begun_gets_a_newer_one() -> None:
    async def ask() -> tuple[int, int]:
        reads: SharedReads[str, int] = SharedReads()
        thread, count = Thread(), Counter()
        first = asyncio.ensure_future(reads.read("a", thread.run, count))
        await settle()
        end = thread.begin()
        second = asyncio.ensure_future(reads.read("a", thread.run, count))
        await settle()
        assert len(thread.queue) == 1, "the second waits for a read of its own"
        end()
        thread.begin()()
        return await first, await second

    assert asyncio.run(ask()) == (1, 2)


def test_who_leaves_takes_nothing_from_those_who_share_the_read() -> None:
    async def ask() -> int:
        reads: SharedReads[str, int] = SharedReads()
        thread, count = Thread(), Counter()
        first, second = (asyncio.ensure_future(reads.read("a", thread.run, count)) for _ in range(2))
        await settle()
        first.cancel()
        await settle()
        thread.begin()()
        return await second

    assert asyncio.run(ask()) == 1


def test_a_read_that_never_begins_fails_for_all_and_the_next_tries_again() -> None:
    async def silent(_work: Callable[[Any], int]) -> int:
        raise LookupError

    async def ask() -> int:
        reads: SharedReads[str, int] = SharedReads()
        found = await asyncio.gather(*(reads.read("a", silent, Counter()) for _ in range(2)), return_exceptions=True)
        assert [type(each) for each in found] == [LookupError, LookupError]
        thread = Thread()
        again = asyncio.ensure_future(reads.read("a", thread.run, Counter()))
        await settle()
        thread.begin()()
        return await again

    assert asyncio.run(ask()) == 1
