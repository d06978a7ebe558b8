"""The compute power: pure functions over strangers' bytes run in worker processes that are killed at the deadline.

A worker takes one piece of work at a time and is reused; one that overruns is killed and replaced, so a page with 100 000
nested elements or a pathological pattern costs its caller a deadline and nobody else anything: no caller ever holds the last
worker, and whoever waits is served in turn. Workers start on first use, isolated from the directory we were started in.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache, partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from toolgate.errors import ToolError, ToolgateError, WorkFailed
from toolgate.model.threads import start

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

In = TypeVar("In")
Out = TypeVar("Out")

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""One answer of a worker: as much text as one call may hand it. Longer ones are not read."""
LONGEST_S: Final = 3600.0
"""For work without a caller's deadline (services): an hour is an end, too."""
WORK_SHARE: Final = 0.8
"""Of the time its call has left, for waiting and working: the answer then says which of the two it was, and a slow document's
worker is free again before the next call with the same deadline has given up."""

_BOOT: Final = "import sys; sys.path[:] = sys.argv[2:]; from toolgate.powers.worker import main; main(int(sys.argv[1]))"
_KEPT_VARIABLES: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""What a worker gets of our environment: no secrets, nothing that tells Python to load code."""


class WorkerCrashed(ToolgateError):
    """The work raised something of its own, or answered something other than its function declares."""


class _Worker:
    """One process and the pipe to it."""

    def __init__(self) -> None:
        """Raises: OSError: the system has no process, memory or descriptor to give."""
        from multiprocessing.connection import Connection  # noqa: PLC0415 (4 ms, for the first piece of work)

        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as undo:
            undo.callback(ours.close)
            self._process = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
                _command(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=2,  # a stray print in a pack must not reach the protocol on our standard output
                cwd="/",
                env=_environment(os.environ),
                pass_fds=(theirs.fileno(),),
                process_group=0,  # Ctrl+C is for the server, which ends its workers itself
            )
            undo.pop_all()
        self._pipe: Connection = Connection(ours.detach())
        self.ended = False

    def run(self, function: Callable[[In], Out], data: In, seconds: float) -> Out:
        """Blocks until the worker answers or is killed.

        Raises: WorkFailed, this worker has then ended; ToolError: what the function said; WorkerCrashed: how it failed.
        """
        decoder = _decoder(function)
        request = pickle.dumps((function, data, seconds), protocol=pickle.HIGHEST_PROTOCOL)
        try:
            self._pipe.send_bytes(request)
            answer = self._pipe.recv_bytes(MAX_ANSWER_BYTES)
        except (EOFError, OSError):
            self.end()
            raise WorkFailed("worker_ended", "The worker process that did this work ended.") from None
        result: Out = self._read(decoder, memoryview(answer))
        return result

    def _read(self, decoder: msgspec.msgpack.Decoder[Any], answer: memoryview) -> Any:
        from toolgate.powers import worker  # noqa: PLC0415 (with its limits, which are not ours)

        kind, body = bytes(answer[:1]), answer[1:]
        try:
            if kind == worker.RESULT:
                return decoder.decode(body)
            if kind == worker.SAID:
                code, text, missing, more = _SAID.decode(body)
                raise ToolError(code, text, missing=missing, data=more)
        except msgspec.MsgspecError:
            kind = b""
        if kind == worker.RAISED:
            raise WorkerCrashed(bytes(body).decode(errors="replace"))
        self.end()  # out of memory, or no longer ours: what is left of it is of no use
        if kind == worker.NO_MEMORY:
            raise WorkFailed("out_of_memory", "The work needs more memory than a worker process may use.")
        raise WorkerCrashed("an answer that its function does not declare")

    def kill(self) -> None:
        """At once, and without waiting: `run`, in its thread, notices and cleans up."""
        self._process.kill()

    def end(self) -> None:
        self.ended = True
        self._process.kill()
        self._process.wait()
        self._pipe.close()


def _command(descriptor: int) -> list[str]:
    """Isolated (-I): no PYTHON* variable, no user site, no current directory. Code comes from where ours came from."""
    places = [place for place in sys.path if place.startswith("/")]
    return [sys.executable, "-I", "-c", _BOOT, str(descriptor), *places]


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    return {name: ours[name] for name in _KEPT_VARIABLES if name in ours}


_SAID: Final = msgspec.msgpack.Decoder(tuple[str, str, bool, Any])


@cache
def _decoder(function: Callable[[Any], Any]) -> msgspec.msgpack.Decoder[Any]:
    """For what the function declares to return; plain data where it declares nothing."""
    declared = function.__annotations__.get("return", Any)
    if isinstance(declared, str):
        declared = eval(declared, function.__globals__)  # noqa: S307 (an annotation in a pack's own source)
    return msgspec.msgpack.Decoder(declared)


class _Places:
    """Who may use a worker. Nobody gets the last one besides others of its own; who waits is served in turn."""

    def __init__(self, total: int) -> None:
        self._free = total
        self._share = max(1, total - 1)
        self._held: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._served: dict[str, int] = {}
        """When each caller that is here was last served, in turns of all callers."""
        self._turns = 0

    async def take(self, caller: str, seconds: float) -> None:
        """Raises: WorkFailed: none came free in time."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        self._serve()
        try:
            await asyncio.wait({turn}, timeout=seconds)
        except asyncio.CancelledError:
            if turn.done():
                self.give_back(caller)  # it came in the same moment
            else:
                self._leave(caller, turn)
            raise
        if not turn.done():
            self._leave(caller, turn)
            raise WorkFailed("workers_busy", "All worker processes are busy; try again shortly.")

    def give_back(self, caller: str) -> None:
        self._free += 1
        held = self._held.pop(caller) - 1
        if held:
            self._held[caller] = held
        elif caller not in self._waiting:
            self._served.pop(caller, None)
        self._serve()

    def _leave(self, caller: str, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting[caller]
        waiting.remove(turn)
        if not waiting:
            del self._waiting[caller]
            if caller not in self._held:
                self._served.pop(caller, None)

    def _serve(self) -> None:
        while self._free:
            able = [caller for caller in self._waiting if self._held.get(caller, 0) < self._share]
            if not able:
                return
            caller = min(able, key=lambda name: (self._held.get(name, 0), self._served.get(name, 0)))
            turn = self._waiting[caller].popleft()
            if not self._waiting[caller]:
                del self._waiting[caller]
            self._turns += 1
            self._served[caller] = self._turns
            self._held[caller] = self._held.get(caller, 0) + 1
            self._free -= 1
            turn.set_result(None)


class ComputePool:
    """At most `workers` processes. Used from one event loop at a time."""

    def __init__(self, workers: int) -> None:
        self._places = _Places(workers)
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._closed = False

    async def run(self, function: Callable[[In], Out], data: In, *, seconds: float, caller: str = "") -> Out:
        """Wait for a worker and do the work, both within `seconds`.

        Raises: TimeoutError: the work took too long; WorkFailed: it could not be done; WorkerCrashed, ToolError.
        """
        due = monotonic() + seconds
        await self._places.take(caller, seconds)
        try:
            worker = self._idle.pop() if self._idle else await _started()
            left = max(0.0, due - monotonic())
            return await self._run(worker, partial(worker.run, function, data, left), left)
        finally:
            self._places.give_back(caller)

    async def _run(self, worker: _Worker, work: Callable[[], Out], seconds: float) -> Out:
        self._busy.add(worker)
        try:
            future, _ = start(work, name="compute")
            async with asyncio.timeout(seconds):
                result: Out = await asyncio.shield(future)
                return result
        except (TimeoutError, asyncio.CancelledError):
            worker.kill()
            worker.ended = True
            raise
        finally:
            self._busy.discard(worker)
            if self._closed and not worker.ended:
                worker.end()
            elif not worker.ended:
                self._idle.append(worker)

    def close(self) -> None:
        """Side effects: ends every worker, busy or not."""
        self._closed = True
        for worker in self._busy:
            worker.kill()
        while self._idle:
            self._idle.pop().end()


async def _started() -> _Worker:
    """Raises: WorkFailed."""
    future, _ = start(_Worker, name="compute-start")
    try:
        worker: _Worker = await asyncio.shield(future)
    except asyncio.CancelledError:
        future.add_done_callback(_unwanted)
        raise
    except OSError:
        raise WorkFailed("no_worker", "The system has no process left for this work; try again shortly.") from None
    return worker


def _unwanted(future: asyncio.Future[_Worker]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().end()


class CallCompute:
    """The pool as one caller sees it: nothing outlives its deadline."""

    __slots__ = ("_caller", "_deadline", "_pool")

    def __init__(self, pool: Callable[[], ComputePool], deadline: float, caller: str = "") -> None:
        self._pool = pool
        self._deadline = deadline
        self._caller = caller

    async def __call__(self, function: Callable[[In], Out], data: In, *, timeout_s: float | None = None) -> Out:
        left = WORK_SHARE * min(max(0.0, self._deadline - monotonic()), LONGEST_S)
        seconds = left if timeout_s is None else min(left, timeout_s)
        return await self._pool().run(function, data, seconds=seconds, caller=self._caller)
