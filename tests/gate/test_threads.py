"""Blocking work beside the loop: who holds what until a thread has ended, and what happens when there is no thread."""

from __future__ import annotations

import asyncio
import gc
import re
import resource
import sys
import threading
import weakref
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faces import speak
from tests.gate.conftest import Gate
from tests.homes import PATIENCE_S, make_home
from tests.waiting import soon, until
from toolgate.errors import Ending, WorkFailed
from toolgate.gate.execute import Execution
from toolgate.model import threads
from toolgate.model.threads import Threads, in_thread
from toolgate.model.tool import Result, Tool

NOTHING: dict[str, Any] = {"type": "object"}


def tool_of(run: Any, deadline_s: float) -> Tool:
    return Tool("t", "t", "A tool.", NOTHING, NOTHING, "read", deadline_s, run)


def test_a_call_s_slot_waits_for_the_threads_that_its_handler_left_behind() -> None:
    release, ended = threading.Event(), []

    async def handler(_context: Any, _arguments: Any) -> Result:
        await in_thread(release.wait, PATIENCE_S)
        return Result()

    async def scene() -> None:
        over = asyncio.Event()
        execution = Execution(tool_of(handler, 0.05), on_end=lambda: (ended.append(True), over.set()))
        outcome = await execution.run(None, {})  # type: ignore[arg-type]
        assert outcome.reason == "deadline_exceeded"
        for _ in range(5):
            await asyncio.sleep(0)
        assert not ended, "the task was cancelled, its thread still blocks"
        release.set()
        await asyncio.wait_for(over.wait(), PATIENCE_S)
        assert ended == [True], "once, and not before the thread"

    asyncio.run(scene())


def test_a_handler_whose_caller_left_before_its_first_step_is_cancelled_without_a_word() -> None:
    """A coroutine that nobody awaits is reported on standard error; here that warning is an error."""

    async def handler(_context: Any, _arguments: Any) -> Result:
        raise AssertionError("never begun")

    async def scene() -> None:
        execution = Execution(tool_of(handler, 1.0), on_end=lambda: None, cancelled=True)
        outcome = await execution.run(None, {})  # type: ignore[arg-type]
        assert outcome.reason == "cancelled"

    asyncio.run(scene())
    gc.collect()


def test_work_that_fails_when_its_caller_has_left_is_no_news() -> None:
    """A deadline passes, the worker is killed, and only then does the thread that waited for it fail."""
    news: list[object] = []
    release = threading.Event()

    def fail() -> None:
        release.wait(PATIENCE_S)
        raise WorkFailed("worker_ended", "The worker process that did this work ended.")

    async def scene() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: news.append(context))
        waiting = asyncio.ensure_future(in_thread(fail))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        thread = next(one for one in threading.enumerate() if one.name == "fail")
        release.set()
        thread.join(PATIENCE_S)
        await asyncio.sleep(0)
        del waiting, thread  # what nobody holds any more speaks up now, if it has something to say
        gc.collect()

    asyncio.run(scene())
    assert news == []


def test_the_next_piece_of_work_waits_until_a_thread_has_really_ended() -> None:
    async def scene() -> None:
        places, release, began = Threads(1), threading.Event(), []
        first = asyncio.ensure_future(places(release.wait, PATIENCE_S))
        await asyncio.sleep(0)
        first.cancel()
        second = asyncio.ensure_future(places(began.append, 2))
        await asyncio.wait({first})
        for _ in range(5):
            await asyncio.sleep(0)
        assert not began, "the cancelled one still holds its place"
        release.set()
        await asyncio.wait_for(second, PATIENCE_S)
        assert began == [2]

    asyncio.run(scene())


def test_an_interrupt_that_comes_when_the_work_is_done_still_tells_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised in the thread after the work returned, before its result was handed over: the slot would never come back."""

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        hand_over, interrupted = loop.call_soon_threadsafe, []

        def late_interrupt(*arguments: Any) -> Any:
            if not interrupted:
                interrupted.append(True)
                raise SystemExit
            return hand_over(*arguments)

        monkeypatch.setattr(loop, "call_soon_threadsafe", late_interrupt)
        with pytest.raises(RuntimeError):
            await asyncio.wait_for(in_thread(int), PATIENCE_S)

    asyncio.run(scene())


class Idle(list[Any]):
    """Takes in only threads that began in this test: those of an earlier one may end their work now."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def append(self, worker: Any) -> None:
        if worker._thread not in self._before:
            super().append(worker)


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Idle:
    monkeypatch.setattr(threads, "_idle", found := Idle())
    return found


def test_a_thread_takes_the_next_piece_of_work_when_it_has_ended_one(idle: Idle) -> None:
    async def scene() -> set[int]:
        ran_on = set()
        for _ in range(20):
            ran_on.add(await in_thread(threading.get_ident))
            await soon(lambda: len(idle) == 1, "it waits for more")
        return ran_on

    assert len(asyncio.run(scene())) == 1


def test_two_pieces_at_once_have_two_threads() -> None:
    both = threading.Barrier(2)

    async def scene() -> None:
        await asyncio.gather(*(in_thread(both.wait, PATIENCE_S) for _ in range(2)))

    asyncio.run(scene())


class Late(BaseException):
    """Raised in a thread from outside."""


def test_a_thread_that_was_interrupted_is_never_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt arrives at some later step of the thread: the next piece of work must not be there to be hit."""
    monkeypatch.setattr(threads, "_idle", [])
    monkeypatch.setattr(threads, "IDLE_S", 3600.0)
    begun, release = threading.Event(), threading.Event()

    def stuck_work() -> None:
        begun.set()
        release.wait(PATIENCE_S)

    async def scene() -> None:
        future, interrupt = threads.start(stuck_work, name="stuck")
        assert begun.wait(PATIENCE_S)
        interrupt(Late)
        stuck = next(one for one in threading.enumerate() if one.name == "stuck")
        assert await in_thread(threading.get_ident) != stuck.ident
        release.set()
        with pytest.raises(RuntimeError):
            await asyncio.wait_for(future, PATIENCE_S)
        stuck.join(PATIENCE_S)
        assert not stuck.is_alive()

    asyncio.run(scene())


def test_work_that_is_interrupted_before_its_thread_has_taken_it_never_runs(
    idle: Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, ran = threading.Event(), threading.Event()
    of_the_worker = threads._Worker._next

    def late(worker: threads._Worker) -> threads._Piece | None:
        take.wait(PATIENCE_S)
        return of_the_worker(worker)

    monkeypatch.setattr(threads._Worker, "_next", late)

    async def scene() -> None:
        future, interrupt = threads.start(ran.set, name="late")
        interrupt(Late)
        take.set()
        with pytest.raises(RuntimeError):
            await asyncio.wait_for(future, PATIENCE_S)

    asyncio.run(scene())
    assert not ran.is_set()


def test_an_interrupt_of_work_that_has_ended_reaches_nobody(idle: Idle) -> None:
    release = threading.Event()

    async def scene() -> None:
        first, interrupt = threads.start(int, name="first")
        await first
        await soon(lambda: len(idle) == 1, "it waits for more")
        second, _ = threads.start(partial(release.wait, PATIENCE_S), name="second")
        interrupt(Late)
        release.set()
        assert await asyncio.wait_for(second, PATIENCE_S) is True

    asyncio.run(scene())


def told_into(ended: list[Any]) -> Any:
    return lambda result, fault: ended.append(result if fault is None else fault)


def test_work_that_waits_behind_work_that_blocks_gets_a_thread_of_its_own(idle: Idle) -> None:
    """All of it begins in one turn, and one thread is woken for it: that one calls the next before it begins."""
    all_three = threading.Barrier(3)
    ended: list[Any] = []

    async def scene() -> None:
        await in_thread(int)
        await soon(lambda: len(idle) == 1, "one waits for more")
        for _ in range(3):
            threads.start_soon(partial(all_three.wait, PATIENCE_S), told_into(ended), name="blocks")
        await soon(lambda: len(ended) == 3, "each has its own")

    asyncio.run(scene())
    assert sorted(ended) == [0, 1, 2]


def test_work_of_one_turn_begins_when_that_is_over_and_is_told_of_together(
    idle: Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Any] = []

    async def scene() -> int:
        loop = asyncio.get_running_loop()
        wake_ups = []
        hand_over = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *what: (wake_ups.append(1), hand_over(*what)))
        await in_thread(int)
        await soon(lambda: len(idle) == 1, "one waits for more")
        wake_ups.clear()
        for number in range(10):
            threads.start_soon(partial(abs, number), told_into(ended), name="quick")
        assert not ended
        await asyncio.sleep(0)  # the turn is over, the thread woken
        until(lambda: not threads._waiting and len(idle) >= 1, "all is done, while the loop is busy")
        assert not ended
        await soon(lambda: len(ended) == 10, "the loop hears of it")
        return len(wake_ups)

    assert asyncio.run(scene()) == 1
    assert sorted(ended) == list(range(10))


def test_work_that_waits_for_a_thread_that_cannot_begin_is_told_so(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows how long the work before it takes."""
    release = threading.Event()
    first: list[Any] = []
    others: list[Any] = []

    async def scene() -> None:
        await in_thread(int)
        await soon(lambda: len(idle) == 1, "one waits for more")
        monkeypatch.setattr(threading.Thread, "start", _refuse)
        threads.start_soon(partial(release.wait, PATIENCE_S), told_into(first), name="blocks")
        for _ in range(2):
            threads.start_soon(int, told_into(others), name="waits")
        await soon(lambda: len(others) == 2, "the others are told")
        assert not first
        release.set()
        await soon(lambda: first == [True], "it goes on")

    asyncio.run(scene())
    assert [one.reason for one in others] == ["no_thread"] * 2


def test_who_cannot_hear_of_an_end_keeps_nobody_else_from_hearing(idle: Idle) -> None:
    ended: list[Any] = []

    def deaf(_result: Any, _fault: BaseException | None) -> None:
        raise ValueError

    async def scene() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: ended.append(context["exception"]))
        await in_thread(int)
        await soon(lambda: len(idle) == 1, "one waits for more")
        threads.start_soon(int, deaf, name="first")
        threads.start_soon(int, told_into(ended), name="second")
        await asyncio.sleep(0)
        until(lambda: threads._inbox is not None and len(threads._inbox._ended) == 2, "both have ended")
        await soon(lambda: len(ended) == 2, "both are told")

    asyncio.run(scene())
    assert {type(one) for one in ended} == {ValueError, int}


def test_what_one_piece_of_work_sets_for_its_context_the_next_does_not_see(idle: Idle) -> None:
    who: ContextVar[str] = ContextVar("who", default="nobody")

    async def scene() -> None:
        await in_thread(who.set, "the first caller")
        await soon(lambda: len(idle) == 1, "it waits for more")
        assert await in_thread(who.get) == "nobody"

    asyncio.run(scene())


def test_an_idle_thread_ends_by_itself(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE_S", 0.01)

    async def scene() -> None:
        before = set(threading.enumerate())
        assert await in_thread(int) == 0
        await soon(lambda: not idle and set(threading.enumerate()) <= before, "the thread ends")
        assert await in_thread(int) == 0

    asyncio.run(scene())


def test_threads_past_their_deadline_count_against_their_own_caller_only(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr("unruly.time", SimpleNamespace(sleep=lambda _: release.wait(PATIENCE_S)))

    async def scene() -> None:
        late = await asyncio.gather(*(gate.acall("unruly_doze") for _ in range(10)))
        assert {one.details["reason"] for one in late if one.details} == {"deadline_exceeded"}
        assert (await gate.acall("unruly_doze")).ending is Ending.TOO_MANY, "ten threads still run"
        assert (await gate.acall("unruly_claim", key="builder")).ending is Ending.OK
        release.set()
        await soon(lambda: not gate.app.road.admission.slots.held(), "every slot comes back")
        assert (await gate.acall("unruly_claim")).ending is Ending.OK

    gate.run(scene())


def test_f14_a_thread_that_cannot_start_gives_the_slot_back_and_is_an_outcome(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", _refuse)
        without_threads.setattr("toolgate.model.threads._idle", [])
        answers = [gate.call("unruly_claim") for _ in range(12)]
    assert {(one.ending, one.details["reason"]) for one in answers if one.details} == {
        (Ending.TOOL_FAILED, "no_thread")
    }
    assert gate.app.road.admission.slots.held() == 0
    assert gate.call("unruly_claim").ending is Ending.OK


def test_f14_work_that_gets_no_thread_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        places = Threads(1)
        with monkeypatch.context() as without_threads:
            without_threads.setattr(threading.Thread, "start", _refuse)
            without_threads.setattr("toolgate.model.threads._idle", [])
            for _ in range(3):
                with pytest.raises(WorkFailed) as caught:
                    await places(int)
                assert caught.value.reason == "no_thread"
        assert await places(int) == 0

    asyncio.run(scene())


def _refuse(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit(2) of another process")
def test_f14_a_server_without_threads_answers_records_and_recovers(tmp_path: Path) -> None:
    """For a real process: no address space for a thread's stack, as under a container's limit."""
    home = make_home(tmp_path / "home", packs=("unruly",))
    with home.serving() as server:
        pid = server.process.pid
        size = re.search(r"VmSize:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        assert size
        _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
        resource.prlimit(pid, resource.RLIMIT_AS, (int(size[1]) * 1024 + 2 * 1024 * 1024, hard))
        heard = [
            speak.mrt(server.port, "unruly_write", {"name": f"f{number}"}, home.keys["admin"]) for number in range(12)
        ]
        resource.prlimit(pid, resource.RLIMIT_AS, (hard, hard))
        assert {(one.status, one.reason) for one in heard} == {(500, "no_thread")}
        assert speak.mrt(server.port, "unruly_write", {"name": "after"}, home.keys["admin"]).status == 200
    assert not (home.workspace / "f0").exists()
    records = [one for one in home.calls() if one["metadata"]["toolId"] == "mcp.tool:unruly.write"]
    assert [one["event"] for one in records] == ["intent", "outcome"] * 13


class Held:
    """Stands for the files of a call."""


@pytest.mark.parametrize("deadline_s", [PATIENCE_S, 0.01], ids=["in time", "late"])
@pytest.mark.parametrize("where", ["task", "thread of a task", "thread"])
def test_f9_what_a_handler_that_fails_held_is_free_at_once(where: str, deadline_s: float) -> None:
    """Without the collector: it comes when there are many objects, and a call's files are few and large."""
    kept: list[weakref.ref[Held]] = []
    late = threading.Event()

    def fail(held: Held) -> None:
        kept.append(weakref.ref(held))
        if deadline_s < PATIENCE_S:
            late.wait(PATIENCE_S)
        raise WorkFailed("worker_ended", "x")

    async def in_task(_context: Any, _arguments: Any) -> Result:
        held = Held()
        if where == "task":
            kept.append(weakref.ref(held))
            if deadline_s < PATIENCE_S:
                await asyncio.Event().wait()
            raise WorkFailed("worker_ended", "x")
        await in_thread(fail, held)
        return Result()

    def in_a_thread(_context: Any, _arguments: Any) -> Result:
        fail(Held())
        return Result()

    async def scene() -> str | None:
        over = asyncio.Event()
        handler = in_a_thread if where == "thread" else in_task
        outcome = await Execution(tool_of(handler, deadline_s), on_end=over.set).run(None, {})  # type: ignore[arg-type]
        late.set()
        await asyncio.wait_for(over.wait(), PATIENCE_S)
        await asyncio.sleep(0)
        return outcome.reason

    gc.collect()
    gc.disable()
    try:
        reason = asyncio.run(scene())
        assert reason == ("worker_ended" if deadline_s == PATIENCE_S else "deadline_exceeded")
        for thread in [one for one in threading.enumerate() if one.daemon]:
            thread.join(PATIENCE_S if thread.name in ("fail", "tool-t") else 0)
        assert [one() for one in kept] == [None]
    finally:
        gc.enable()
