"""Work that is cancelled without a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from toolgate.model.work import Work, within


async def _waits(heard: list[str], future: asyncio.Future[str]) -> str:
    try:
        return await future
    except asyncio.CancelledError:
        heard.append("cancelled")
        raise


def test_it_hears_of_its_cancelling_where_it_waits_and_whoever_awaits_it_goes_on() -> None:
    async def scenario() -> None:
        heard: list[str] = []
        loop = asyncio.get_running_loop()
        work = Work(_waits(heard, loop.create_future()))
        loop.call_soon(work.cancel)
        with pytest.raises(asyncio.CancelledError):
            await work
        assert heard == ["cancelled"]
        await asyncio.sleep(0)  # the task itself was not cancelled

    asyncio.run(scenario())


@pytest.mark.parametrize("pauses", [0, 1, 3])
def test_work_that_waits_for_nothing_or_is_cancelled_beforehand_hears_of_it_too(pauses: int) -> None:
    async def turns() -> str:
        for _ in range(pauses):
            await asyncio.sleep(0)
        await asyncio.get_running_loop().create_future()
        return "never"

    async def scenario() -> None:
        work = Work(turns())
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(scenario())


def test_results_and_faults_come_through() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    async def scenario() -> None:
        assert await Work(asyncio.sleep(0, "done")) == "done"
        assert await within(10, asyncio.sleep(0, "done")) == "done"
        with pytest.raises(KeyError):
            await within(10, fails())

    asyncio.run(scenario())


def test_what_takes_too_long_is_a_timeout_and_what_is_cancelled_is_not() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            await within(0.01, _waits([], loop.create_future()))
        inner = within(60, _waits([], loop.create_future()))
        outer = Work(inner)
        loop.call_soon(outer.cancel)
        with pytest.raises(asyncio.CancelledError):
            await outer
        task = asyncio.ensure_future(within(60, _waits([], loop.create_future())))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


def test_it_works_outside_any_task() -> None:
    """As the first step of a request is run."""

    async def scenario() -> None:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        work: Coroutine[Any, Any, str] = within(10, _waits([], future))
        waits_for = work.send(None)
        assert waits_for is future
        future.set_result("done")
        with pytest.raises(StopIteration) as ended:
            work.send(None)
        assert ended.value.value == "done"

    asyncio.run(scenario())
