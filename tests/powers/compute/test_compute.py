"""Worker processes: what they are allowed, who gets one, what crosses the border, and how they end."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.homes import PATIENCE_S, ROOT
from tests.powers.compute import work
from tests.waiting import soon
from toolgate.errors import ToolError, WorkFailed
from toolgate.powers import compute
from toolgate.powers.compute import CallCompute, ComputePool, WorkerCrashed, _Places
from toolgate.powers.worker import MEMORY_BYTES

T = TypeVar("T")


@pytest.fixture(scope="module")
def pool() -> Iterator[ComputePool]:
    made = ComputePool(2)
    yield made
    made.close()


def run(scene: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(scene, 50))


async def until(path: Path) -> None:
    await soon(path.exists, f"there is a file {path.name}", 3 * PATIENCE_S)


async def failing(work: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(WorkFailed) as caught:
        await work
    return caught.value.reason


def test_an_answer_has_the_type_that_its_function_declares(pool: ComputePool) -> None:
    assert run(pool.run(work.pair, "a", seconds=40)) == work.Pair("a", (1, 2))
    assert run(pool.run(work.untold, (1, {"b": b"c"}), seconds=40)) == [1, {"b": b"c"}], "plain data"


def test_what_a_function_says_and_how_it_fails_cross_the_border(pool: ComputePool) -> None:
    with pytest.raises(ToolError) as said:
        run(pool.run(work.says_no, None, seconds=40))
    assert (said.value.code, said.value.text, said.value.missing) == ("SOME_CODE", "some text", True)
    assert said.value.data == {"why": 1}
    with pytest.raises(WorkerCrashed, match=r"^ValueError$"):
        run(pool.run(work.raises, None, seconds=40))


def test_an_answer_of_another_type_is_a_crash(pool: ComputePool) -> None:
    with pytest.raises(WorkerCrashed):
        run(pool.run(work.wrongly_told, "text", seconds=40))


def test_a_worker_that_was_taken_over_runs_nothing_in_the_server(tmp_path: Path) -> None:
    pool, canary = ComputePool(1), tmp_path / "canary"
    run(pool.run(work.pair, "a", seconds=40))
    run(pool.run(work.take_over, str(canary), seconds=40))
    with pytest.raises(WorkerCrashed):
        run(pool.run(work.pair, "a", seconds=40))
    assert not canary.exists()
    assert run(pool.run(work.pair, "a", seconds=40)).name == "a", "another worker took its place"
    pool.close()


def test_an_answer_beyond_the_limit_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "MAX_ANSWER_BYTES", 1000)
    pool = ComputePool(1)

    async def scene() -> None:
        await pool.run(work.take_over_with_length, 1001, seconds=40)
        assert await failing(pool.run(work.pair, "a", seconds=40)) == "worker_ended"
        assert (await pool.run(work.pair, "a", seconds=40)).name == "a"

    run(scene())
    pool.close()


@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not enforce the limit")
def test_a_worker_has_a_limit_of_memory_and_the_others_go_on(pool: ComputePool) -> None:
    async def scene() -> None:
        before = await pool.run(work.pid, None, seconds=40)
        assert await failing(pool.run(work.take_memory, 2 * MEMORY_BYTES, seconds=40)) == "out_of_memory"
        assert await pool.run(work.pid, None, seconds=40) != before, "what is left of it is not used again"
        assert await pool.run(work.take_memory, 1000, seconds=40) == 1000

    run(scene())
    assert run(pool.run(work.surroundings, None, seconds=40))["memory"] == [MEMORY_BYTES, MEMORY_BYTES]


def test_a_worker_writes_nothing_to_a_disk(pool: ComputePool, tmp_path: Path) -> None:
    with pytest.raises(WorkerCrashed, match=r"^OSError$"):
        run(pool.run(work.write_file, str(tmp_path / "file"), seconds=40))
    assert (tmp_path / "file").stat().st_size == 0
    assert run(pool.run(work.surroundings, None, seconds=40))["file"] == [0, 0]


def test_a_worker_that_dies_is_a_clear_outcome_and_replaced(pool: ComputePool) -> None:
    async def scene() -> None:
        assert await failing(pool.run(work.segfault, None, seconds=40)) == "worker_ended"
        assert (await pool.run(work.pair, "a", seconds=40)).name == "a"

    run(scene())


def test_f13_a_worker_has_nothing_of_the_directory_the_variables_or_the_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_API_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", ".", "relative", *sys.path])
    for name in ("selectors", "socket", "signal", "sitecustomize", "usercustomize", "msgspec", "json"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')")
    pool = ComputePool(1)
    around = run(pool.run(work.surroundings, None, seconds=40))
    pool.close()
    assert not (tmp_path / "canary").exists()
    assert (around["isolated"], around["safe_path"], around["directory"]) == (1, True, "/")
    assert all(place.startswith("/") for place in around["path"])
    assert set(around["environment"]) <= {*compute._KEPT_VARIABLES}
    assert around["core"] == [0, 0]
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != MEMORY_BYTES, "the server's own limits are its own"


def test_f10_no_caller_holds_the_last_worker(tmp_path: Path) -> None:
    pool = ComputePool(2)

    async def scene() -> None:
        slow = [
            asyncio.ensure_future(pool.run(work.wait_for, str(tmp_path / str(number)), seconds=40, caller="a"))
            for number in range(3)
        ]
        await until(tmp_path / "0.inside")
        for _ in range(3):
            assert (await pool.run(work.pair, "b", seconds=40, caller="b")).name == "b"
        assert not (tmp_path / "1.inside").exists(), "the last worker was kept for others"
        for number in range(3):
            (tmp_path / str(number)).touch()
        assert len(await asyncio.gather(*slow)) == 3

    run(scene())
    pool.close()


def test_f10_who_finds_no_worker_is_told_so_in_time(tmp_path: Path) -> None:
    pool = ComputePool(1)

    async def scene() -> None:
        slow = asyncio.ensure_future(pool.run(work.wait_for, str(tmp_path / "x"), seconds=40, caller="a"))
        await until(tmp_path / "x.inside")
        assert await failing(pool.run(work.pair, "b", seconds=0.05, caller="b")) == "workers_busy"
        (tmp_path / "x").touch()
        await slow
        assert (await pool.run(work.pair, "b", seconds=40, caller="b")).name == "b"

    run(scene())
    pool.close()


def test_f10_a_document_s_own_time_is_below_its_call_s_deadline() -> None:
    asked: list[float] = []

    class Watched(ComputePool):
        async def run(self, function: Any, data: Any, *, seconds: float, caller: str = "") -> Any:
            asked.append(seconds)

    pool = Watched(1)
    run(CallCompute(lambda: pool, time.monotonic() + 1000)(work.pair, "a"))
    run(CallCompute(lambda: pool, time.monotonic() + 1000)(work.pair, "a", timeout_s=2))
    run(CallCompute(lambda: pool, time.monotonic() - 1)(work.pair, "a"))
    assert 700 < asked[0] <= 800
    assert asked[1:] == [2, 0]


@pytest.mark.parametrize("function", [work.hang, work.stop_reading], ids=["spins", "stopped"])
def test_work_past_its_time_is_killed_and_its_place_comes_back(tmp_path: Path, function: Any) -> None:
    pool = ComputePool(1)

    async def scene() -> None:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await pool.run(function, str(tmp_path / "x"), seconds=0.5)
        assert (await pool.run(work.pair, "a", seconds=40)).name == "a"

    run(scene())
    pool.close()


def test_a_worker_that_does_not_read_is_killed_too() -> None:
    pool = ComputePool(1)

    async def scene() -> None:
        process = await pool.run(work.pid, None, seconds=40)
        os.kill(process, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            await pool.run(work.untold, bytes(10_000_000), seconds=0.3)
        assert (await pool.run(work.pair, "a", seconds=40)).name == "a"

    run(scene())
    pool.close()


def test_a_caller_that_leaves_frees_its_worker(tmp_path: Path) -> None:
    pool = ComputePool(1)

    async def scene() -> None:
        slow = asyncio.ensure_future(pool.run(work.hang, str(tmp_path / "x"), seconds=20))
        await until(tmp_path / "x.inside")
        slow.cancel()
        assert (await pool.run(work.pair, "a", seconds=40)).name == "a"

    run(scene())
    pool.close()


def test_f14_a_process_that_cannot_start_gives_the_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ComputePool(1)

    async def scene() -> None:
        with monkeypatch.context() as without:
            without.setattr(sys, "executable", "/nonexistent/python")
            for _ in range(3):
                assert await failing(pool.run(work.pair, "a", seconds=40)) == "no_worker"
        with monkeypatch.context() as without:
            without.setattr(threading.Thread, "start", _no_thread)
            without.setattr("toolgate.model.threads._idle", [])
            for _ in range(3):
                assert await failing(pool.run(work.pair, "a", seconds=40)) == "no_thread"
        assert (await pool.run(work.pair, "a", seconds=40)).name == "a"

    run(scene())
    pool.close()


def _no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("function", ["hang", "pair"])
def test_f27_a_worker_whose_server_is_killed_ends_in_silence(tmp_path: Path, function: str) -> None:
    """`hang`: in the middle of its work; its own alarm ends it. The pipe closes when the last of both has ended."""
    code = f"""
import asyncio, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.powers.compute import work
from toolgate.powers.compute import ComputePool
async def main():
    pool = ComputePool(1)
    await pool.run(work.pair, "a", seconds=40)
    print("ready", flush=True)
    await pool.run(work.{function}, {str(tmp_path / "x")!r}, seconds=1)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    if function == "hang":
        run(until(tmp_path / "x.inside"))
    server.kill()
    _, errors = server.communicate(timeout=PATIENCE_S)
    assert errors == b""


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=40)


@given(workers=st.integers(1, 4), steps=STEPS)
def test_f10_places_are_never_more_than_there_are_and_never_all_of_one_caller_s(
    workers: int, steps: list[tuple[str, bool]]
) -> None:
    """Whatever comes and goes: the bound holds, whoever can be served is, and in the end everybody was."""

    async def scene() -> None:
        places = _Places(workers)
        waiting: list[tuple[str, asyncio.Task[None]]] = []
        for caller, comes in [*steps, *[("a", False)] * len(steps)]:
            if comes:
                waiting.append((caller, asyncio.ensure_future(places.take(caller, 10))))
                await asyncio.sleep(0)
            else:
                served = [one for one in waiting if one[1].done()]
                if served:
                    waiting.remove(served[0])
                    places.give_back(served[0][0])
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            holders = [one for one, task in waiting if task.done()]
            assert len(holders) <= workers
            assert all(holders.count(one) <= max(1, workers - 1) for one in holders)
            idle = {one for one, task in waiting if not task.done() and holders.count(one) < max(1, workers - 1)}
            assert len(holders) == workers or not idle, "nobody waits beside a free worker"
        assert all(task.done() for _, task in waiting[: max(1, workers - 1)])
        for _, task in waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)

    asyncio.run(scene())


def test_f10_whoever_waits_longest_for_a_first_worker_is_served_before_those_who_had_one() -> None:
    async def scene() -> None:
        places, order = _Places(1), []

        async def come(caller: str) -> None:
            await places.take(caller, 10)
            order.append(caller)

        tasks = []
        for caller in "aaabc":
            tasks.append(asyncio.ensure_future(come(caller)))
            await asyncio.sleep(0)
        for _ in tasks:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            places.give_back(order[-1])
        await asyncio.gather(*tasks)
        assert "".join(order) == "abcaa"

    asyncio.run(scene())
