"""stdio: one JSON message a line, MCP and `mcp.tool.invoke` on the same stream, the same road as over HTTP.

Invariants of the claim on the file descriptors: while serving, standard input is ours alone (fd 0 becomes /dev/null) and
standard output carries protocol only (fd 1 becomes standard error), so a stray `print` in a pack cannot corrupt the wire.
Answers leave in the order in which calls end; all that are ready leave in one write, after their records by another.
What was read before the peer closed its end is answered: `drain`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import replace

from toolgate.errors import Ending, LedgerUnavailable, Refusal
from toolgate.gate.arrival import UNREAD, Arrival, logging_to, stepping_to
from toolgate.gate.road import malformed
from toolgate.model import strictjson
from toolgate.model.threads import in_thread
from toolgate.servers.fault_report import LAST_WORDS_S, report
from toolgate.servers.started_coroutine import StartedCoroutine

if TYPE_CHECKING:
    from toolgate.faces.face import Asked, Face
    from toolgate.gate.road import Road
    from toolgate.gate.sessions.seals import SealedSession, Seals
    from toolgate.gate.sessions.watch import WatchStream
    from toolgate.model.call import Call
    from toolgate.model.tool import Level

READ_BYTES: Final = 1 << 18
"""One read(2): a burst of calls is taken in one piece."""
MAX_PENDING: Final = 256
"""Lines being answered at once; above it reading pauses, so a client that does not read cannot fill our memory."""
_EVER: Final = 3600.0
"""A pipe needs no sign of life."""
FIRST_LINE_S: Final = 5.0
"""For a peer that will not be served to say something, so that it can be told why. Clients greet at once."""
_CRASHED: Final = strictjson.dumps(
    {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "Internal error"}}
)
"""What both faces of this stream say when the fault is our own."""


class StdioPipes:
    """The protocol's two ends. Pipes and sockets are read and written without blocking; plain files as they are."""

    def __init__(
        self, reader: asyncio.StreamReader | None, writer: asyncio.StreamWriter | None, read_fd: int, write_fd: int
    ) -> None:
        self._reader, self._writer, self._read_fd, self._write_fd = reader, writer, read_fd, write_fd
        self._left = asyncio.Event()

    @classmethod
    async def claim(cls) -> StdioPipes:
        """Take fd 0 and fd 1 and leave harmless ones in their place. Side effects: both descriptors of this process."""
        sys.stdout.flush()
        read_fd, write_fd = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        pipes = cls(await _stream_reader(read_fd), None, read_fd, write_fd)
        pipes._writer = await _stream_writer(write_fd, pipes._left.set)
        return pipes

    async def read(self) -> bytes:
        """Some bytes, or none at the end."""
        if self._reader is not None:
            return await self._reader.read(READ_BYTES)
        return await in_thread(os.read, self._read_fd, READ_BYTES)

    async def write(self, data: bytes) -> None:
        """Into the pipe's buffer, waiting only while the peer does not read. A peer that has gone is no fault of ours."""
        if self._writer is None:
            os.write(self._write_fd, data)
            return
        with contextlib.suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    async def left(self) -> None:
        """Wait until nobody can read what we write."""
        await self._left.wait()

    async def sent(self) -> None:
        """Wait until all that was written has left this process: nothing of it is sent once we have ended."""
        if self._writer is not None:
            with contextlib.suppress(ConnectionError, RuntimeError):  # the peer has gone
                self._writer.transport.set_write_buffer_limits(0)
                await self._writer.drain()


def _is_plain_file(fd: int) -> bool:
    return stat.S_ISREG(os.fstat(fd).st_mode)


async def _stream_reader(fd: int) -> asyncio.StreamReader | None:
    if _is_plain_file(fd):
        return None
    reader = asyncio.StreamReader(limit=READ_BYTES)
    pipe = os.fdopen(fd, "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


async def _stream_writer(fd: int, on_left: Callable[[], None]) -> asyncio.StreamWriter | None:
    if _is_plain_file(fd):
        return None
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(fd, "wb", buffering=0)
    transport, protocol = await loop.connect_write_pipe(lambda: _Writing(on_left), pipe)
    return asyncio.StreamWriter(transport, protocol, None, loop)


class _Writing(asyncio.streams.FlowControlMixin):
    def __init__(self, on_left: Callable[[], None]) -> None:
        super().__init__()
        self._on_left = on_left

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._on_left()


class _Line(Arrival):
    """One line."""

    server: StdioServer = cast("StdioServer", None)
    answer: bytes = b""
    """Ready to be sent."""
    is_unwanted: bool = False
    """The peer has cancelled it: it gets no answer."""

    def cancel(self, request_id: str | int) -> None:
        self.server.cancel(request_id)

    def with_progress(self, asked: Asked) -> Call:
        assert asked.call is not None
        assert asked.note is not None
        return replace(asked.call, progress=stepping_to(self._pushing(), asked.note))

    def with_log(self, call: Call, asked: Asked, level: Level) -> Call:
        assert asked.log is not None
        return replace(call, log=logging_to(self._pushing(), asked.log, level))

    def asking(self) -> Callable[[bytes], None]:
        return self._pushing()

    def _pushing(self) -> Callable[[bytes], None]:
        """Sends a note, from any thread."""
        server, loop, here = self.server, asyncio.get_running_loop(), threading.get_ident()

        def send(note: bytes) -> None:
            if threading.get_ident() == here:
                server.push(note)  # at once: the answer of a tool that never waits would overtake it
            else:
                loop.call_soon_threadsafe(server.push, note)

        return send

    def keep_session(self, session: SealedSession, seals: Seals) -> None:  # noqa: ARG002 (a pipe is one client's, and so is its session)
        self.server.session = session


class StdioServer:
    """One peer, one key: `credential` is checked again for every message, so a revoked key is dead here too."""

    def __init__(
        self, road: Road, faces: Sequence[Face], credential: bytes | None, pipes: StdioPipes, *, body_bytes: int
    ) -> None:
        self._road = road
        self._faces = [face for face in faces if "stdio" in face.wires]
        self._credential = credential
        self._pipes = pipes
        self._body_bytes = body_bytes
        self._ready: list[_Line | bytes] = []
        """What is to be sent: notes, and answers that wait for their records."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: list[_Line] = []
        """Lines whose answers wait for something, oldest first."""
        self._room = asyncio.Event()
        self.session: SealedSession | None = None
        """What the client has told us since it greeted; gone with the pipe."""
        self._streams: dict[Any, WatchStream] = {}
        """By the id of the message that opened them."""

    async def serve(self) -> None:
        """Until the peer closes its end. What is then under way is for `drain`."""
        lines = LineReader(self._body_bytes)
        while chunk := await self._pipes.read():
            for line in lines.feed(chunk):
                await self._take(line)
            await self._flush()
        for line in lines.rest():
            await self._take(line)

    async def drain(self, seconds: float) -> None:
        """Answer what was read. What has not ended after `seconds`, or has nobody left to tell, is cancelled."""
        self._road.watch.close_all()
        settled, left = asyncio.ensure_future(self._settled()), asyncio.ensure_future(self._pipes.left())
        await asyncio.wait({settled, left}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not settled.done():
            self.give_up()
            await asyncio.wait({settled}, timeout=LAST_WORDS_S)
        left.cancel()
        settled.cancel()

    def give_up(self) -> None:
        """Cancel what waits. What acts in a thread goes on, and is found by the next run if it does not end in time."""
        self._road.cancel_all()  # all calls of this process are this one peer's

    async def refuse(self, refusal: Refusal, line: bytes) -> None:
        """Tell a peer that is not served why, in answer to what it said first."""
        arrival, _ = self._arrival(line)
        self._ready.append(self._road.turn_away(arrival, refusal).body)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._settled()

    def push(self, note: bytes) -> None:
        """Send something that no record belongs to."""
        self._ready.append(note)
        self._start(self._flush())

    def cancel(self, request_id: str | int) -> None:
        """Only this peer's own calls are here, so its word is enough. It may use an id twice: the later one is meant."""
        if (stream := self._streams.pop(request_id, None)) is not None:
            self._road.watch.close(stream)
            return
        for line in reversed(self._under_way):
            if line.asked is not None and line.asked.id == request_id:
                line.is_unwanted = True
                line.give_up()
                return

    async def _settled(self) -> None:
        """All that was taken is answered, and all answers have left."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._flush()
        await self._pipes.sent()

    async def _take(self, line: bytes | None) -> None:
        """One line (None: too long to be kept), answered at once where nothing waits, else by a task of its own."""
        while len(self._tasks) >= MAX_PENDING:
            self._room.clear()
            await self._room.wait()
        arrival, fault = self._arrival(line)
        work = self._answer(arrival, fault)
        try:
            waits_for = work.send(None)
        except StopIteration:
            return
        self._under_way.append(arrival)
        self._start(self._finish(arrival, StartedCoroutine(work, waits_for)))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.set()

    def _arrival(self, line: bytes | None) -> tuple[_Line, Refusal | None]:
        """Decoded first, because only the message tells whose it is, and a refusal names the request that it answers."""
        message: Any = UNREAD
        fault = None
        try:
            message = self._decoded(line)
        except Refusal as refusal:
            fault = refusal
        face = next((face for face in self._faces if face.speaks(message)), self._faces[-1])
        session = self.session
        return _Line(
            face, "stdio", self._credential, message=message, is_held=True, session=session, server=self
        ), fault

    def _decoded(self, line: bytes | None) -> Any:
        """Raises: Refusal."""
        if line is None:
            text = f"The line is longer than {self._body_bytes} bytes."
            raise Refusal(Ending.TOO_LARGE, text, reason="body_too_large")
        try:
            return strictjson.loads(line, max_bytes=self._body_bytes)
        except strictjson.JsonFault as fault:
            raise malformed(fault) from None

    async def _answer(self, arrival: _Line, fault: Refusal | None) -> None:
        """Puts what answers a line to what is ready; nothing where the protocol wants silence."""
        try:
            reply = await self._road.carry(arrival) if fault is None else self._road.turn_away(arrival, fault)
            arrival.answer = reply.body
            if reply.stream is not None:
                self._start(self._tell(arrival, reply.stream))
        except Exception as crash:  # noqa: BLE001 (the border: a fault of our own ends one call, not the stream)
            report(crash)
            arrival.answer = _CRASHED
        if arrival.answer and not arrival.is_unwanted:
            self._ready.append(arrival)

    async def _finish(self, arrival: _Line, rest: StartedCoroutine[None]) -> None:
        try:
            await rest
        finally:
            self._under_way.remove(arrival)
        await self._flush()

    async def _tell(self, arrival: _Line, stream: WatchStream) -> None:
        """What a stream says, until it ends. The line's own answer has been put to what is ready."""
        assert arrival.asked is not None
        asked = arrival.asked
        self._streams[asked.id] = stream
        try:
            await self._flush()
            while (message := await stream.next(_EVER)) is not None:
                if message:
                    self._ready.append(message)
                    await self._flush()
            is_cancelled = self._streams.get(asked.id) is not stream
            if asked.besides is not None and asked.besides.ended and not is_cancelled:
                self._ready.append(asked.besides.ended)
                await self._flush()
        finally:
            if self._streams.get(asked.id) is stream:
                del self._streams[asked.id]
            self._road.watch.close(stream)

    async def _flush(self) -> None:
        """Send what is ready, after its records."""
        ready, self._ready = self._ready, []
        is_written = True
        try:
            self._road.ledger.flush()
        except LedgerUnavailable:
            is_written = False
        if ready:
            await self._pipes.write(b"".join(self._spelt(line, is_written=is_written) + b"\n" for line in ready))

    def _spelt(self, held: _Line | bytes, *, is_written: bool) -> bytes:
        if isinstance(held, bytes):
            return held
        return held.answer if is_written else self._road.unrecorded(held).body


class LineReader:
    """Bytes in, lines out; a line longer than the limit comes out as None and is never kept in memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = b""
        self._too_long = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        *whole, self._kept = (self._kept + chunk).split(b"\n")
        found: list[bytes | None] = []
        for line in whole:
            if self._too_long or len(line) > self._limit:
                found.append(None)
            elif line.strip():
                found.append(line)
            self._too_long = False
        if len(self._kept) > self._limit:
            self._kept, self._too_long = b"", True
        return found

    def rest(self) -> list[bytes | None]:
        """The last line, if it came without its end."""
        return [self._kept] if self._kept.strip() and not self._too_long else []


def first_line(limit: int) -> bytes | None:
    """What the peer says first, without its line break. None: nothing in time, or more than `limit` bytes of it.

    For a process that will not serve: what follows the line is lost.
    """
    due, said = time.monotonic() + FIRST_LINE_S, b""
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    while b"\n" not in said and len(said) <= limit:
        left = due - time.monotonic()
        if left <= 0 or not waiting.poll(left * 1000):
            return None
        piece = os.read(0, READ_BYTES)
        if not piece:
            break
        said += piece
    line = said.partition(b"\n")[0]
    return line if line.strip() and len(line) <= limit else None
