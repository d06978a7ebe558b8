"""The compute power: pure functions over strangers' bytes run in worker processes that are killed at the deadline.

A worker takes one piece of work at a time and is reused; one that overruns is killed and replaced, so a page with 100 000
nested elements or a pathological pattern costs its caller a deadline and nobody else anything. Workers start on first use.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from toolgate.errors import ToolError, ToolgateError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

In = TypeVar("In")
Out = TypeVar("Out")

WORKER_MEMORY_BYTES: Final = 1 << 30
"""Address space of one worker: ten times what a 10 MB document needs, far from what would hurt the machine."""

LONGEST_S: Final = 3600.0
"""For work without a caller's deadline (services): an hour is an end, too."""


class WorkerCrashed(ToolgateError):
    """The work ended its process (memory, a fault in a library) or raised something of its own."""


class _Worker:
    """One process and the pipe to it."""

    def __init__(self) -> None:
        import multiprocessing  # noqa: PLC0415 (4 ms, for the first piece of work)

        context: Any = multiprocessing.get_context("spawn" if sys.platform == "darwin" else "forkserver")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="toolgate-compute", daemon=True)
        self._process.start()
        theirs.close()

    def run(self, function: Callable[[In], Out], data: In, seconds: float) -> Out:
        """Raises: TimeoutError, WorkerCrashed: this worker is then dead; ToolError: what the function said."""
        try:
            self._pipe.send((function, data))
            if not self._pipe.poll(seconds):
                self.kill()
                raise TimeoutError
            kind, value = self._pipe.recv()
        except (EOFError, ConnectionError):
            self.kill()
            raise WorkerCrashed("the worker process ended") from None
        if kind == "result":
            return value  # type: ignore[no-any-return] # what the function returned
        if kind == "tool_error":
            code, text, missing, more = value
            raise ToolError(code, text, missing=missing, data=more)
        raise WorkerCrashed(value)

    @property
    def alive(self) -> bool:
        return bool(self._process.is_alive())

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(pipe: Connection) -> None:
    """A worker's whole life: take work, answer, wait for more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the server, which ends its workers itself
    resource.setrlimit(resource.RLIMIT_AS, (WORKER_MEMORY_BYTES, WORKER_MEMORY_BYTES))
    while True:
        try:
            function, data = pipe.recv()
        except EOFError:
            return
        pipe.send(_answer(function, data))


def _answer(function: Callable[[Any], Any], data: Any) -> tuple[str, Any]:
    try:
        return "result", function(data)
    except ToolError as said:
        return "tool_error", (said.code, said.text, said.missing, said.data)
    except Exception as fault:  # noqa: BLE001 (the border of the process: only the kind of fault crosses it)
        return "crashed", type(fault).__name__


class ComputePool:
    """At most `workers` processes. Work that finds none free waits, and its deadline runs meanwhile."""

    def __init__(self, workers: int) -> None:
        self._threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="compute")
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._lock = threading.Lock()
        self._closed = False

    async def run(self, function: Callable[[In], Out], data: In, *, seconds: float) -> Out:
        """Raises: TimeoutError, WorkerCrashed, ToolError."""
        due = monotonic() + seconds
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._run, function, data, due)
        return await work

    def _run(self, function: Callable[[In], Out], data: In, due: float) -> Out:
        if monotonic() >= due:
            raise TimeoutError
        worker = self._take()
        try:
            return worker.run(function, data, max(0.0, due - monotonic()))
        finally:
            self._put_back(worker)

    def _take(self) -> _Worker:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        worker = _Worker()
        with self._lock:
            self._all.add(worker)
        return worker

    def _put_back(self, worker: _Worker) -> None:
        with self._lock:
            if worker.alive and not self._closed:
                self._idle.append(worker)
            else:
                self._all.discard(worker)

    def close(self) -> None:
        """Side effects: ends every worker, busy or not."""
        with self._lock:
            self._closed = True
            workers, self._all = list(self._all), set()
        for worker in workers:
            if worker.alive:
                worker.kill()
        self._threads.shutdown(wait=False, cancel_futures=True)


class CallCompute:
    """The pool as one call sees it: nothing outlives the call's deadline."""

    __slots__ = ("_deadline", "_pool")

    def __init__(self, pool: Callable[[], ComputePool], deadline: float) -> None:
        self._pool = pool
        self._deadline = deadline

    async def __call__(self, function: Callable[[In], Out], data: In, *, timeout_s: float | None = None) -> Out:
        left = min(max(0.0, self._deadline - monotonic()), LONGEST_S)
        return await self._pool().run(function, data, seconds=left if timeout_s is None else min(left, timeout_s))
