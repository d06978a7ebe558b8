"""One client's connection: bytes in, one message at a time, its answer out. All that it can hold or wait for is bounded.

A message is answered when it is whole and it is its caller's turn (`door.py`); the next one waits for that answer, so
answers keep their order and a client that does not wait for them gains nothing by it. What the head alone decides is
decided before the body is read: nobody's megabyte is kept for a stranger. An answer that waits for nothing needs no task;
one that waits more than once becomes a task. When it leaves, the application says: it may first have to be written down.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, BufferedProtocol, CancelledError, Future, Task, TimerHandle, Transport, isfuture
from collections.abc import Callable, Coroutine
from functools import partial
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Generic, Literal

from msgspec import Struct

from toolgate.faces.reply import JSON, Headers, Reply
from toolgate.model import strictjson
from toolgate.model.call import NO_ORIGIN
from toolgate.servers.application import Application, H
from toolgate.servers.door import LARGE_BODY_BYTES, NEWCOMERS, STRANGERS
from toolgate.servers.fault_report import report
from toolgate.servers.framing import (
    KNOWN_HEAD_BYTES,
    FramingFault,
    FramingLimits,
    Reader,
    Request,
    TooLarge,
    beginning_of,
)
from toolgate.servers.origins import peer_origin
from toolgate.servers.started_coroutine import StartedCoroutine

if TYPE_CHECKING:
    from toolgate.servers.door import Door

AHEAD_BYTES: Final = 4096
"""What a client may send ahead of its answers before it is no longer read: a few small messages."""
STRANGER_ANSWERS: Final = 32
"""Answers on one connection without an accepted key; then the client has to connect again. Enough for a health check that is
asked for minutes, and the kernel cannot be filled with answers that nobody reads."""
UNSENT_BYTES: Final = 16_384
"""What the kernel has not taken of an answer before its client counts as one that does not read."""
SEND_BUFFER_BYTES: Final = 131_072
"""What the kernel is asked to keep of answers for one connection. Left to itself it takes megabytes, and a client that does
not read is noticed only when they are full."""
LINGER_S: Final = 1.0
"""How long a refused client's bytes are still read and dropped. Closing at once would reset the connection, and a client
that is still sending would never see why."""
LINGER_BYTES: Final = 262_144
"""How many of them."""
_NOTHING: Final[Any] = None
"""Where there is always something while it is looked at."""


class WaitLimits(Struct, frozen=True):
    """In seconds."""

    head_s: float
    """From the first byte of a message, or from the connection itself, to the end of the head."""
    body_s: float
    """From the end of the head to the end of the body."""
    write_s: float
    """For the client to take what is ready for it."""
    idle_s: float
    """From an answer to the next message."""


Phase = Literal["idle", "head", "body", "answer", "refused"]
"""`answer`: from the whole message until its answer was written. `refused`: nothing is read any more; see `LINGER_S`.
Plain texts: on Python 3.11, reading a member of an enum takes longer than the rest of most methods here."""


class Connection(BufferedProtocol, Generic[H]):
    __slots__ = (
        "__weakref__", "_answers", "_app", "_asked", "_body", "_body_bytes", "_closing", "_cut", "_door", "_dropped",
        "_due", "_half_closed", "_has_turn", "_head", "_in_pieces", "_is_made_later", "_loop", "_phase", "_queued",
        "_reader", "_reading", "_request", "_reserved", "_task", "_timer", "_timer_at", "_transport", "_turn_began",
        "_unread", "_waits", "arrival", "caller_id", "gone", "origin", "turn_id",
    )  # fmt: skip
    """With more than thirty attributes Python looks up each of them in a dictionary: 3 % of a call."""

    def __init__(
        self,
        app: Application[H],
        door: Door,
        loop: AbstractEventLoop,
        *,
        framing: FramingLimits,
        waits: WaitLimits,
    ) -> None:
        self._app, self._door, self._loop, self._waits = app, door, loop, waits
        self._body_bytes = framing.body_bytes
        self._reader = Reader(framing, app.read_head)
        self._transport: Transport = _NOTHING
        self.caller_id = STRANGERS
        self.turn_id = NEWCOMERS
        self.gone: list[Callable[[], None]] = []
        self.arrival: Any = None
        self.origin = NO_ORIGIN
        self._phase: Phase = "idle"
        self._request: Request = _NOTHING
        self._head: H = _NOTHING
        self._body: bytes | None = None
        """A large one, whole, that waits for a turn of its own."""
        self._is_made_later = False
        """The answer waits for something: a handler, an upstream, the disk."""
        self._task: Task[None] | None = None
        """That makes it, if it waited more than once."""
        self._asked = False
        """Whether the application has been asked if the body may be read."""
        self._answers = 0
        self._in_pieces = False
        self._queued = False
        """It waits for its caller's turn."""
        self._closing = False
        """The answer under way, or the next one, is the last."""
        self._cut = False
        """Not all of the last message was read."""
        self._half_closed = False
        self._reading = True
        self._reserved = 0
        self._dropped = 0
        self._turn_began = 0.0
        self._has_turn = False
        """As bytes were read: nobody else's turn comes before they are looked at."""
        self._unread: Future[None] | None = None
        """Done when the client reads again; set only while it does not."""
        self._due = inf
        self._timer: TimerHandle | None = None
        self._timer_at = inf

    # What the transport calls ----------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.origin = peer_origin(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(UNSENT_BYTES)
        if self._door.enter(self):
            self._wait(self._waits.head_s)  # a client that connects and says nothing is slow, too
        else:
            transport.write(self._fault(503, "too_many_connections"))
            transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (asyncio's signature)
        """Called right before bytes are read. The time that reading takes is part of the caller's turn, too."""
        self._turn_began, door = perf_counter(), self._door
        self._has_turn = has_turn = len(door.guests) == 1 or door.turns.may_go(self.turn_id)
        return door.inbox if has_turn and self.caller_id is not STRANGERS else door.small_inbox

    def buffer_updated(self, nbytes: int) -> None:
        turn_id, door = self.turn_id, self._door
        if self._phase == "refused":
            self._drop(nbytes)
        else:
            data = bytes(door.inbox[:nbytes])
            if self._phase != "idle" or self._reader.arrived or not self._answers_known(data):
                self._reader.arrived += data
                self._advance()
        if len(door.guests) > 1:
            door.turns.spent(turn_id, self._turn_began)

    def eof_received(self) -> bool:
        """Messages that arrived whole are still answered; whoever closes while its answer is being made has left."""
        self._half_closed = True
        return self._queued or (self._phase == "answer" and not self._is_made_later)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        if self._timer is not None:
            self._timer.cancel()
        self._release()
        self._door.exit(self)
        if self._unread is not None:
            self._unread.set_result(None)
            self._unread = None
        if self._is_made_later:
            if self.arrival is not None:
                self.arrival.leave()
            for tell in self.gone:
                tell()

    def pause_writing(self) -> None:
        self._unread = self._loop.create_future()
        self._wait(self._waits.write_s)
        if not self._reserve(self._transport.get_write_buffer_size()):
            self._transport.abort()  # this caller lets too many answers lie

    def resume_writing(self) -> None:
        if self._unread is None:
            return
        self._unread.set_result(None)
        self._unread = None
        self._release()
        if self._phase == "idle":
            self._next()
        elif self._phase == "answer":
            self._due = inf

    # What the door calls ---------------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        return not self._queued and self._phase != "answer"

    def is_answered(self) -> bool:
        return self._phase == "answer"

    def leave(self) -> None:
        self._door.exit(self)
        self._transport.abort()

    def take_turn(self) -> None:
        self._queued = False
        if self._transport.is_closing():
            return
        turn_id, began = self.turn_id, perf_counter()
        if self._phase == "refused":
            self._read()
        elif self._unread is None:
            self._go_on()
        if len(self._door.guests) > 1:
            self._door.turns.spent(turn_id, began)

    # What a server calls ---------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """The server stops. What has begun to arrive is still answered."""
        self._closing = True
        if self._phase == "idle" and not self._queued:
            self._close()

    def abort(self) -> None:
        self._transport.abort()

    # A message, step by step -----------------------------------------------------------------------------------------

    def _answers_known(self, data: bytes) -> bool:
        """The usual case, one whole message whose head was seen before, is answered where it stands."""
        end = data.find(b"\r\n\r\n", 0, KNOWN_HEAD_BYTES) + 4
        found = self._reader.known.get(data[:end])
        if found is None or found[0].length != len(data) - end or self._unread is not None or not self._has_turn:
            return False
        self._request, self._head = found
        self._answer(data[end:])
        return True

    def _advance(self) -> None:
        """One step on with what has arrived, if nothing is in its way."""
        if self._queued or self._phase == "answer" or self._unread is not None:
            self._read_less()
            return
        if not self._may_go():
            self._queue()
            return
        self._go_on()

    def _go_on(self) -> None:
        try:
            self._step()
        except FramingFault as fault:
            self._refuse(self._fault(fault.status, fault.reason))

    def _step(self) -> None:
        """A head, then a body, then the answer, each when it is whole. Raises: FramingFault."""
        if self._body is not None:
            self._answer_large()
            return
        if self._phase != "body" and not self._begin():
            return
        try:
            body = self._reader.take_body()
        except TooLarge:
            self._closing = self._cut = True
            self._answer(None)
            return
        if body is None:
            self._await_body()
        elif len(body) > LARGE_BODY_BYTES:
            self._body, self._due, self._queued = body, inf, True
            self._door.turns.wait_with_large(self)
            self._read_less()
        else:
            self._answer(body)

    def _answer_large(self) -> None:
        """In a turn of its own, and what is ready to be sent does not wait for it."""
        body, self._body = self._body, None
        self._app.send_held()
        self._answer(body)

    def _begin(self) -> bool:
        """Take a head. True: its body may be looked at, now. Raises: FramingFault."""
        turn_id = self.turn_id
        found = self._reader.take_head()
        if found is None:
            self._await_head()
            return False
        self._request, self._head = found
        length = self._request.length
        # Asked now where looking at the body is work, and of a newcomer, whose caller's turn it then takes.
        self._asked = length is None or (length > 0 and turn_id is NEWCOMERS)
        if self._asked and not self._may_send_body():
            return False
        if self.turn_id is not turn_id and not self._may_go():
            self._await_body()
            self._queue()
            return False
        return True

    def _await_head(self) -> None:
        if self._half_closed:
            self._close()
            return
        if self._phase == "idle" and (self._reader.arrived or self._reader.blank):
            self._phase = "head"
            self._wait(min(self._waits.head_s, self._due - self._loop.time()))
        self._read()

    def _may_send_body(self) -> bool:
        """What the head alone decides comes before anything of the body is looked at."""
        refusal = self._app.before_body(self._head, self)
        if refusal is None:
            return True
        if self._reader.skip_body():
            self._phase, self._due = "answer", inf
            self.send_held(refusal)
        else:
            self._refuse(self._spelt(refusal, last=True))
        return False

    def _await_body(self) -> None:
        """Raises: FramingFault."""
        if self._phase != "body":
            if not self._asked and not self._may_send_body():
                return
            length = self._request.length
            if not self._reserve(self._body_bytes if length is None else length):
                raise FramingFault(429, "too_many_bytes_waiting")
            self._phase = "body"
            self._wait(self._waits.body_s)
            if self._request.expects:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._reader.has_more():
            self._queue()
        else:
            self._read()

    def _answer(self, body: bytes | None) -> None:
        self._phase, self._due = "answer", inf
        if self._reserved:
            self._release()
        work = self._app.respond(self._head, body, self)
        try:
            waits_for = work.send(None)  # its first step, at once: most answers wait for nothing
        except StopIteration as ended:
            if ended.value is not None:
                self._app.hold(self, ended.value, None if len(self._door.guests) == 1 else self._loop)
        except Exception as fault:  # noqa: BLE001 (the border: an application's fault ends its answer, not the server)
            self._fail(fault)
        else:
            self._is_made_later = True
            if isfuture(waits_for):
                # Its second step without a task, too: most of what waits does so once, for an upstream or for the disk.
                waits_for._asyncio_future_blocking = False  # noqa: SLF001 (what a task does with what it is handed)
                waits_for.add_done_callback(partial(self._go_on_with, work))
            else:
                self._task = self._loop.create_task(self._finish(StartedCoroutine(work, waits_for)))

    def _go_on_with(self, work: Coroutine[Any, Any, Reply | None], _done: Future[Any]) -> None:
        try:
            waits_for = work.send(None)
        except StopIteration as ended:
            self._made(ended.value)
        except CancelledError:
            self._transport.abort()  # whoever ends the server has cancelled what it waited for
        except Exception as fault:  # noqa: BLE001 (as above)
            self._is_made_later = False
            self._fail(fault)
        else:
            self._task = self._loop.create_task(self._finish(StartedCoroutine(work, waits_for)))

    async def _finish(self, rest: StartedCoroutine[Reply | None]) -> None:
        try:
            reply = await rest
        except Exception as fault:  # noqa: BLE001 (as above)
            self._is_made_later = False
            self._fail(fault)
        else:
            self._made(reply)

    def _made(self, reply: Reply | None) -> None:
        self._is_made_later, self._task = False, None
        if reply is not None:
            self._app.hold(self, reply, None if len(self._door.guests) == 1 else self._loop)
        elif not self._transport.is_closing():
            self._end_pieces()

    def _fail(self, fault: Exception) -> None:
        report(fault)
        if self._in_pieces:
            self._transport.abort()
        elif not self._transport.is_closing():
            self._refuse(self._fault(500, "internal_error"))

    def send_held(self, reply: Reply) -> None:
        if self._transport.is_closing():
            return
        if self._in_pieces:
            self._transport.abort()  # half an answer is out: there is no way left to say that the rest failed
            return
        last = self._closing or not self._request.keep_alive
        if self.caller_id is STRANGERS:
            self._answers += 1
            last = last or self._answers >= STRANGER_ANSWERS
        self._transport.write(self._spelt(reply, last=last))
        self._answered(last=last)

    def _answered(self, *, last: bool) -> None:
        self.arrival = None
        if self.gone:
            self.gone = []
        if self.turn_id is NEWCOMERS:
            self._door.heard(self)
        self._request = self._head = _NOTHING  # an idle connection keeps nothing of a call
        if not last:
            self._phase = "idle"
            if self._unread is None:
                self._next()
        elif self._cut or self._reader.arrived:
            self._linger()
        else:
            self._close()

    def _next(self) -> None:
        """Ready for the next message, which may have arrived already."""
        self._wait(self._waits.idle_s)
        if self._reader.arrived:
            self._queue()
        elif self._half_closed:
            self._close()
        elif not self._reading:
            self._read()

    def _queue(self) -> None:
        if not self._queued:
            self._queued = True
            self._door.turns.wait(self)
        self._read_less()

    def _read(self) -> None:
        if not self._reading and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    def _read_less(self) -> None:
        """Stop reading from a client that sends further requests without reading its answers."""
        if len(self._reader.arrived) > AHEAD_BYTES:
            self._pause()

    def _pause(self) -> None:
        if self._reading and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    # The end ---------------------------------------------------------------------------------------------------------

    def _refuse(self, answer: bytes) -> None:
        """Send the reason and stop reading."""
        self._transport.write(answer)
        self._linger()

    def _linger(self) -> None:
        self._phase = "refused"
        self._reader.arrived.clear()
        self._release()
        self._wait(LINGER_S)
        if self._half_closed:
            self._close()
        else:
            self._transport.write_eof()
            self._read()

    def _drop(self, size: int) -> None:
        self._dropped += size
        if self._dropped > LINGER_BYTES:
            self._close()
        elif not self._may_go():
            self._queue()
            self._pause()

    def _close(self) -> None:
        """When all that was written has left."""
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._wait(self._waits.write_s)

    # Bounds ----------------------------------------------------------------------------------------------------------

    def _may_go(self) -> bool:
        """Is it this caller's turn? A client that is alone never has to wait."""
        return len(self._door.guests) == 1 or self._door.turns.may_go(self.turn_id)

    def _reserve(self, size: int) -> bool:
        if not self._door.reserve(self.caller_id, size):
            return False
        self._reserved += size
        return True

    def _release(self) -> None:
        if self._reserved:
            self._door.release(self.caller_id, self._reserved)
            self._reserved = 0

    def _wait(self, seconds: float) -> None:
        """For whatever comes next. One timer a connection, not one a message: when it fires, it looks whether it is due."""
        self._due = due = self._loop.time() + seconds
        if due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_at = self._loop.call_later(seconds, self._check_deadline), due

    def _check_deadline(self) -> None:
        self._timer, self._timer_at = None, inf
        left = self._due - self._loop.time()
        if left <= 0:
            self._overdue()
        elif left < inf:
            self._wait(left)

    def _overdue(self) -> None:
        if self._unread is not None or self._phase == "refused" or self._transport.is_closing():
            self._transport.abort()
        elif self._phase == "idle" and self.turn_id is not NEWCOMERS:
            self._close()
        else:
            self._refuse(self._fault(408, "request_timeout"))

    # What the application calls --------------------------------------------------------------------------------------

    def known_as(self, caller_id: str) -> None:
        if caller_id != self.caller_id:
            self._door.welcome(self, caller_id)

    async def send(self, piece: bytes, status: int = 200, headers: Headers = (), request_id: str = "") -> None:
        if self._transport.is_closing():
            return
        if not self._in_pieces:
            self._in_pieces = True
            self._closing = self._closing or not self._request.keep_alive or not self._request.chunks_read
            coding = b"transfer-encoding: chunked\r\n" if self._request.chunks_read else b""
            start = beginning_of(status, headers, self._app.headers, self._closing)
            named = b"x-request-id: %b\r\n" % request_id.encode() if request_id else b""
            self._transport.write(start + named + coding + b"\r\n")
        if piece:
            self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._request.chunks_read else piece)
        if self._unread is not None:
            await self._unread

    def _end_pieces(self) -> None:
        self._in_pieces = False
        if self._request.chunks_read:
            self._transport.write(b"0\r\n\r\n")
        self._answered(last=self._closing)

    def _spelt(self, reply: Reply, *, last: bool) -> bytes:
        start, body = beginning_of(reply.status, reply.headers, self._app.headers, last), reply.body
        sent = body if self._request.method != b"HEAD" else b""
        if reply.request_id:
            named = (start, reply.request_id.encode(), len(body), sent)
            return b"%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n%b" % named
        return b"%bcontent-length: %d\r\n\r\n%b" % (start, len(body), sent)

    def _fault(self, status: int, reason: str) -> bytes:
        """An answer to bytes that are not a request; it does not take the road and is not recorded."""
        body = strictjson.dumps({"ok": False, "error": {"code": "bad_request", "message": reason, "details": None}})
        start = beginning_of(status, (JSON,), self._app.headers, last=True)
        return b"%bcontent-length: %d\r\n\r\n%b" % (start, len(body), body)
