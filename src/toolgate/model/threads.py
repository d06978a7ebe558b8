"""Blocking work beside the event loop, each piece alone on a daemon thread.

Never asyncio's default executor: it has a handful of threads for everybody, so one caller's slow reads stop all others, and
the process cannot end before they do. A thread cannot be stopped, so whoever waits may be cancelled at once, but what the
work holds (a call's slot, a place in `Threads`) comes back only when the thread has really ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable
from contextvars import Context, ContextVar
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, ParamSpec, TypeVar

from toolgate.errors import WorkFailed

P = ParamSpec("P")
Out = TypeVar("Out")

IDLE_S: Final = 1.0
"""How long a thread waits for its next piece of work before it ends."""
MAX_IDLE: Final = 32
"""Threads that wait at once."""
UNDER_WAY: Final[ContextVar[set[asyncio.Future[Any]] | None]] = ContextVar("threads_under_way", default=None)
"""The threads that the current call has started and that have not ended: `gate.execute` keeps the slot for them."""


async def in_thread(function: Callable[P, Out], *arguments: P.args, **named: P.kwargs) -> Out:
    """Call a function that blocks. For a tool's handler: its slot bounds how many of these a caller can have.

    Raises: what the function raises; WorkFailed: there is no thread.
    """
    future, _ = start(partial(function, *arguments, **named), name=getattr(function, "__name__", "work"))
    result: Out = await asyncio.shield(future)
    return result


class Threads:
    """At most `limit` pieces of work at once; the next one waits. For work that no slot bounds, such as a server's own."""

    def __init__(self, limit: int) -> None:
        self._places = asyncio.Semaphore(limit)

    async def __call__(self, function: Callable[P, Out], *arguments: P.args, **named: P.kwargs) -> Out:
        """As `in_thread`."""
        await self._places.acquire()
        try:
            future, _ = start(partial(function, *arguments, **named), name=getattr(function, "__name__", "work"))
        except WorkFailed:
            self._places.release()
            raise
        future.add_done_callback(lambda _: self._places.release())
        result: Out = await asyncio.shield(future)
        return result


def start(work: Callable[[], Any], *, name: str) -> tuple[asyncio.Future[Any], Callable[[type[BaseException]], None]]:
    """Work under way: a future that is done when it has ended, not a moment earlier, and what interrupts it.

    Raises: WorkFailed: the system has no thread to give (a container's limit, no memory for a stack).
    """
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.add_done_callback(_seen)
    piece = _Piece(work, _End(future))
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
        worker.begin(piece, name)
    else:
        worker.go_on(piece, name)
    mine = UNDER_WAY.get()
    if mine is not None:
        mine.add(future)
        future.add_done_callback(mine.discard)
    return future, partial(worker.interrupt, piece)


class _Piece:
    """One piece of work. Who holds it holds all that the work holds, so nobody keeps it when it has ended."""

    __slots__ = ("__weakref__", "end", "work")

    def __init__(self, work: Callable[[], Any], end: _End) -> None:
        self.work, self.end = work, end


class _Worker:
    """A thread that takes piece after piece, because starting one costs more than most work.

    It is used again only if nobody interrupted it: an interrupt arrives at some later step, and would hit the next piece.
    """

    def __init__(self) -> None:
        self._inbox: SimpleQueue[_Piece] = SimpleQueue()
        self._lock = threading.Lock()
        self._now: weakref.ref[_Piece] | None = None
        """What may be interrupted."""
        self._interrupted = False
        self._thread = threading.Thread(target=self._live, daemon=True)

    def begin(self, first: _Piece, name: str) -> None:
        """Raises: WorkFailed."""
        self.go_on(first, name)
        try:
            self._thread.start()
        except (RuntimeError, MemoryError):
            raise WorkFailed("no_thread", "The system has no thread left for this work; try again shortly.") from None

    def go_on(self, piece: _Piece, name: str) -> None:
        self._thread.name = name
        self._inbox.put(piece)

    def interrupt(self, piece: _Piece, raised: type[BaseException]) -> None:
        """Raise it inside the work, or instead of the work if that has not begun; nothing if it has ended."""
        import ctypes  # noqa: PLC0415 (2 ms, for the work that overruns)

        with self._lock:
            if piece.work is not _nothing:
                piece.work = partial(_raise, raised)
            elif self._now is not None and self._now() is piece and self._thread.ident is not None:
                self._interrupted = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident), ctypes.py_object(raised))

    def _live(self) -> None:
        with contextlib.suppress(BaseException):  # an interrupt that arrives between the last steps
            while self._do(self._next()):
                pass

    def _next(self) -> _Piece | None:
        try:
            return self._inbox.get(timeout=IDLE_S)
        except Empty:
            try:
                _idle.remove(self)
            except ValueError:  # taken in this moment: a piece is on its way
                return self._inbox.get()
            return None

    def _do(self, piece: _Piece | None) -> bool:
        """True: another one may come."""
        if piece is None:
            return False
        end = piece.end
        try:
            return self._end(end, *self._outcome(piece))
        except BaseException:  # noqa: BLE001 (an interrupt may come when the work is done, between any two steps)
            end.tell(None, RuntimeError())
            return False

    def _outcome(self, piece: _Piece) -> tuple[Any, BaseException | None]:
        with self._lock:
            self._now = weakref.ref(piece)
            work, piece.work = piece.work, _nothing
        try:
            return Context().run(work), None
        except BaseException as raised:  # noqa: BLE001 (crosses the thread border and is settled on the loop)
            return None, raised

    def _end(self, end: _End, result: Any, fault: BaseException | None) -> bool:
        with self._lock:
            self._now = None
            again = not self._interrupted and len(_idle) < MAX_IDLE
        end.tell(result, fault)
        # A fault remembers this frame. If the frame led back to it, by name or by the future that carries it, all that the
        # work held (a call's files) would wait for the collector.
        del result, fault
        if again:
            _idle.append(self)  # the last step: who stands there must take what comes
        return again


_idle: Final[list[_Worker]] = []
"""Waiting for work, the last one first; each ends by itself after `IDLE_S`."""


class _End:
    """Tells the loop how the work ended, and then knows of nobody who waits for it."""

    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future: asyncio.Future[Any] | None = future

    def tell(self, result: Any, fault: BaseException | None) -> None:
        future = self._future
        if future is not None:
            with contextlib.suppress(RuntimeError):  # a closed loop: the server has stopped and nobody waits any more
                future.get_loop().call_soon_threadsafe(_settle, future, result, fault)
            self._future = None


def _settle(future: asyncio.Future[Any], result: Any, fault: BaseException | None) -> None:
    if future.done():
        return
    if fault is None:
        future.set_result(result)
    else:
        # StopIteration cannot be set on a future, SystemExit would end the loop: both are a crash of the work.
        carried = isinstance(fault, Exception) and not isinstance(fault, StopIteration)
        future.set_exception(fault if carried else RuntimeError())


def _seen(future: asyncio.Future[Any]) -> None:
    """Whoever waits still gets the fault. If nobody waits any more, the deadline has passed or the caller has left."""
    if not future.cancelled():
        future.exception()


def _nothing() -> None:
    """The work of a piece that has begun."""


def _raise(raised: type[BaseException]) -> None:
    raise raised


class Lazy(Generic[Out]):
    """A proxy for a power that is created when it is first used."""

    def __init__(self, make: Callable[[], Out]) -> None:
        self._make = make
        self._made: Out | None = None
        self._lock = threading.Lock()  # handlers run in threads

    def made(self) -> Out:
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._made = self._make()
        return self._made

    @property
    def is_made(self) -> bool:
        return self._made is not None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made(), name)
