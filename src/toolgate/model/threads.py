"""Blocking work beside the event loop, each piece alone on a daemon thread.

Never asyncio's default executor: it has a handful of threads for everybody, so one caller's slow reads stop all others, and
the process cannot end before they do. A thread cannot be stopped, so whoever waits may be cancelled at once, but what the
work holds (a call's slot, a place in `Threads`) comes back only when the thread has really ended.

To wake a thread costs more than most work. So a thread that has ended a piece takes the next one that waits, and the loop is
woken once for all pieces that have ended meanwhile. No piece waits for another one: while any waits, a thread is on its way
to it, which calls the next thread before it begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from functools import partial
from typing import Any, Final, Generic, ParamSpec, TypeAlias, TypeVar

from toolgate.errors import WorkFailed

P = ParamSpec("P")
Out = TypeVar("Out")

IDLE_S: Final = 1.0
"""How long a thread waits for its next piece of work before it ends."""
MAX_IDLE: Final = 32
"""Threads that wait at once."""
UNDER_WAY: Final[ContextVar[set[asyncio.Future[Any]] | None]] = ContextVar("threads_under_way", default=None)
"""The threads that the current call has started and that have not ended: `gate.execute` keeps the slot for them."""

Told: TypeAlias = Callable[[Any, BaseException | None], None]
"""Hears on the loop how work ended: its result, or what it raised."""
Interrupt: TypeAlias = Callable[[type[BaseException]], None]


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


def start(work: Callable[[], Any], *, name: str) -> tuple[asyncio.Future[Any], Interrupt]:
    """Work under way: a future that is done when it has ended, not a moment earlier, and what interrupts it.

    Raises: WorkFailed: the system has no thread to give (a container's limit, no memory for a stack).
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    future.add_done_callback(_seen)
    interrupt = start_soon(work, partial(_settle, future), name=name)
    _wake_one()
    mine = UNDER_WAY.get()
    if mine is not None:
        mine.add(future)
        future.add_done_callback(mine.discard)
    return future, interrupt


def start_soon(work: Callable[[], Any], told: Told, *, name: str) -> Interrupt:
    """Work that begins when this turn of the loop is over, at one cost for all that begins then; what interrupts it.

    `told` is called on the loop, once, when the work has ended. Raises: WorkFailed.
    """
    inbox = _inbox_of(asyncio.get_running_loop())
    piece = _Piece(work, _End(told, inbox), name)
    with _lock:
        if not _coming:
            if _idle:
                inbox.wake_soon()
            else:
                _Worker().begin(name)
        _waiting.append(piece)
    return piece.interrupt


def _wake_one() -> None:
    with _lock:
        if _waiting and not _coming:
            _call_one()


def _call_one() -> None:
    """With the lock held, while a piece waits and nobody comes."""
    if _idle:
        _idle.pop().wake(_waiting[0].name)
        return
    try:
        _Worker().begin(_waiting[0].name)
    except WorkFailed as fault:
        while _waiting:
            _waiting.popleft().end.tell(None, WorkFailed(fault.reason, str(fault)))


_lock: Final = threading.Lock()
"""For what follows. Held for a few steps, and never by a thread that may be interrupted."""
_waiting: Final[deque[_Piece]] = deque()
"""Pieces that no thread has taken."""
_idle: Final[list[_Worker]] = []
"""Waiting for work, the last one first; each ends by itself after `IDLE_S`."""
_coming = 0
"""Threads that were woken or begun and have not looked yet. While a piece waits there is one, or a loop will wake one."""


class _Piece:
    """One piece of work. Who holds it holds all that the work holds, so nobody keeps it when it has ended."""

    __slots__ = ("__weakref__", "end", "name", "work", "worker")

    def __init__(self, work: Callable[[], Any], end: _End, name: str) -> None:
        self.work, self.end, self.name = work, end, name
        self.worker: _Worker | None = None
        """That has taken it."""

    def interrupt(self, raised: type[BaseException]) -> None:
        """Raise it inside the work, or instead of the work if that has not begun; nothing if it has ended."""
        with _lock:
            if self.worker is None:
                self.work = partial(_raise, raised)
                return
        self.worker.interrupt(self, raised)


class _Worker:
    """A thread that takes piece after piece.

    It is used again only if nobody interrupted it: an interrupt arrives at some later step, and would hit the next piece.
    """

    def __init__(self) -> None:
        self._woken = threading.Lock()
        """Released by who wakes it."""
        self._woken.acquire()
        self._is_coming = False
        self._lock = threading.Lock()
        self._now: weakref.ref[_Piece] | None = None
        """What may be interrupted."""
        self._interrupted = False
        self._thread = threading.Thread(target=self._live, daemon=True)

    def begin(self, name: str) -> None:
        """With the lock held. Raises: WorkFailed."""
        self._thread.name = name
        try:
            self._thread.start()
        except (RuntimeError, MemoryError):
            raise WorkFailed("no_thread", "The system has no thread left for this work; try again shortly.") from None
        self._come()

    def wake(self, name: str) -> None:
        """With the lock held, by who took it from `_idle`."""
        self._thread.name = name
        self._come()
        self._woken.release()

    def _come(self) -> None:
        global _coming  # noqa: PLW0603 (the threads of the process)
        self._is_coming = True
        _coming += 1

    def interrupt(self, piece: _Piece, raised: type[BaseException]) -> None:
        """Of a piece that it has taken."""
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
        """None: there was nothing to do for a while."""
        while True:
            with _lock:
                if (piece := self._take()) is not None:
                    return piece
                if len(_idle) >= MAX_IDLE:
                    return None
                _idle.append(self)  # who stands there must look at what comes
            if not self._woken.acquire(timeout=IDLE_S) and self._may_leave():
                return None

    def _take(self) -> _Piece | None:
        """With the lock held."""
        global _coming  # noqa: PLW0603 (as in `_come`)
        if self._is_coming:
            self._is_coming = False
            _coming -= 1
        if not _waiting:
            return None
        piece = _waiting.popleft()
        piece.worker, self._thread.name = self, piece.name
        if _waiting and not _coming:
            _call_one()
        return piece

    def _may_leave(self) -> bool:
        with _lock:
            try:
                _idle.remove(self)
            except ValueError:  # taken in this moment: it is on its way
                pass
            else:
                return not _waiting
        self._woken.acquire()
        return False

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
            again = not self._interrupted
        if again:
            end.tell_with_others(result, fault)
        else:
            end.tell(result, fault)
        # A fault remembers this frame. If the frame led back to it, by name or by what carries it, all that the work held
        # (a call's files) would wait for the collector.
        del result, fault
        return again


class _End:
    """Tells the loop how the work ended, and then knows of nobody who waits for it."""

    __slots__ = ("_inbox", "_told")

    def __init__(self, told: Told, inbox: _Inbox) -> None:
        self._told: Told | None = told
        self._inbox = inbox

    def tell(self, result: Any, fault: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # a closed loop: the server has stopped and nobody waits any more
            self._inbox.loop.call_soon_threadsafe(self.settle, result, fault)

    def tell_with_others(self, result: Any, fault: BaseException | None) -> None:
        """The same at a part of the cost, by a thread that nobody interrupts any more."""
        self._inbox.put(self, result, fault)

    def settle(self, result: Any, fault: BaseException | None) -> None:
        """On the loop."""
        told, self._told = self._told, None
        if told is not None:
            told(result, fault)


class _Inbox:
    """What has ended and one loop has not heard of. It is woken once for all of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ended: deque[tuple[_End, Any, BaseException | None]] = deque()
        self._is_told = False
        self._wakes = False

    def wake_soon(self) -> None:
        if not self._wakes:
            self._wakes = True
            self.loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._wakes = False
        _wake_one()

    def put(self, end: _End, result: Any, fault: BaseException | None) -> None:
        """From any thread."""
        self._ended.append((end, result, fault))
        if not self._is_told:
            self._is_told = True
            try:
                self.loop.call_soon_threadsafe(self._open)
            except BaseException as raised:
                self._is_told = False
                if not isinstance(raised, RuntimeError):  # as in `_End.tell`
                    raise

    def _open(self) -> None:
        self._is_told = False  # first: what comes from here on is told of anew
        try:
            while self._ended:
                end, result, fault = self._ended.popleft()
                end.settle(result, fault)
        finally:
            if self._ended:
                self.loop.call_soon(self._open)  # who could not hear of an end keeps nobody else from hearing


_inbox: _Inbox | None = None
"""Of the loop that asked last: a process has one."""


def _inbox_of(loop: asyncio.AbstractEventLoop) -> _Inbox:
    global _inbox  # noqa: PLW0603 (kept from call to call)
    if _inbox is None or _inbox.loop is not loop:
        _inbox = _Inbox(loop)
    return _inbox


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
