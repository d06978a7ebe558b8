"""stdio: one JSON message a line, MCP and `mcp.tool.invoke` on the same stream, the same road as over HTTP.

Invariants of the claim on the file descriptors: while serving, standard input is ours alone (fd 0 becomes /dev/null) and
standard output carries protocol only (fd 1 becomes standard error), so a stray `print` in a pack cannot corrupt the wire.
Answers leave in the order in which calls end; all that are ready leave in one write, after their records by another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from toolgate.errors import Happening, LedgerUnavailable, Refusal
from toolgate.faces import mcp, rpc
from toolgate.model import strictjson
from toolgate.servers.border import report
from toolgate.servers.eager import Rest, first_step

if TYPE_CHECKING:
    from toolgate.faces.rpc import RpcFace
    from toolgate.gate.road import Road, Ticket
    from toolgate.model.call import Call, Caller
    from toolgate.model.envelope import Answer

READ_BYTES: Final = 1 << 18
"""One read(2): a burst of calls is taken in one piece."""
MAX_PENDING: Final = 256
"""Lines being answered at once; above it reading pauses, so a client that does not read cannot fill our memory."""


class Pipes:
    """The protocol's two ends. Pipes and sockets are read and written without blocking; plain files as they are."""

    def __init__(
        self, reader: asyncio.StreamReader | None, writer: asyncio.StreamWriter | None, read_fd: int, write_fd: int
    ) -> None:
        self._reader, self._writer, self._read_fd, self._write_fd = reader, writer, read_fd, write_fd

    @classmethod
    async def claim(cls) -> Pipes:
        """Take fd 0 and fd 1 and leave harmless ones in their place. Side effects: both descriptors of this process."""
        sys.stdout.flush()
        read_fd, write_fd = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        reader, writer = await _stream_reader(read_fd), await _stream_writer(write_fd)
        return cls(reader, writer, read_fd, write_fd)

    async def read(self) -> bytes:
        """Some bytes, or none at the end."""
        if self._reader is not None:
            return await self._reader.read(READ_BYTES)
        return await asyncio.to_thread(os.read, self._read_fd, READ_BYTES)

    async def write(self, data: bytes) -> None:
        """Into the pipe's buffer, waiting only while the peer does not read. A peer that has gone is no fault of ours."""
        if self._writer is None:
            os.write(self._write_fd, data)
            return
        with contextlib.suppress(ConnectionError):
            self._writer.write(data)
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


async def _stream_writer(fd: int) -> asyncio.StreamWriter | None:
    if _is_plain_file(fd):
        return None
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(fd, "wb", buffering=0)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
    return asyncio.StreamWriter(transport, protocol, None, loop)


class StdioServer:
    """One peer, one key: `credential` is checked again for every message, so a revoked key is dead here too."""

    def __init__(
        self, road: Road, rpc_face: RpcFace, credential: bytes | None, pipes: Pipes, *, body_bytes: int
    ) -> None:
        self._road = road
        self._rpc_face = rpc_face
        self._credential = credential
        self._pipes = pipes
        self._body_bytes = body_bytes
        self._ready: list[tuple[bytes, bytes | None]] = []
        """What is to be sent, each with the line that it answers if its record may still be gathered."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._tickets: dict[str | int, Ticket] = {}
        self._room = asyncio.Event()

    async def serve(self) -> None:
        """Until the peer closes its end. What is then under way is for `drain`, which the caller bounds in time."""
        lines = Lines(self._body_bytes)
        while chunk := await self._pipes.read():
            for line in lines.feed(chunk):
                await self._take(line)
            await self._flush()
        for line in lines.rest():
            await self._take(line)

    async def drain(self) -> None:
        """Cancel what waits, let finish what acts, send what is ready."""
        self._road.cancel_all()  # all calls of this process are this one peer's
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._flush()

    async def _take(self, line: bytes | None) -> None:
        """One line (None: too long to be kept), answered at once where nothing waits, else by a task of its own."""
        while len(self._tasks) >= MAX_PENDING:
            self._room.clear()
            await self._room.wait()
        rest = first_step(self._handle(line), self._road.ledger)
        if rest is not None:
            task = asyncio.get_running_loop().create_task(_finish(rest))
            self._tasks.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.set()

    async def _handle(self, line: bytes | None) -> None:
        try:
            answer = await self._answer(line)
        except Exception as fault:  # noqa: BLE001 (the border: a fault of our own ends one call, not the stream)
            report(fault)
            answer = mcp.error_reply(None, mcp.INTERNAL_ERROR, "Internal error", status=500).body
        if answer is None:
            return
        if asyncio.current_task() in self._tasks:
            self._ready.append((answer, None))
            await self._flush()
        else:
            self._ready.append((answer, line))

    async def _flush(self) -> None:
        """Send what is ready, after its records."""
        if self._ready:
            ready, self._ready = self._ready, []
            try:
                self._road.ledger.flush()
            except LedgerUnavailable:
                ready = [(answer if line is None else self._unrecorded(line), None) for answer, line in ready]
            await self._pipes.write(b"".join(answer + b"\n" for answer, _ in ready))

    def _unrecorded(self, line: bytes) -> bytes:
        """What to send in place of an answer that was ready when the log failed."""
        try:
            body = self._decoded(line)
        except Refusal:
            body = None
        return self._spelled(self._road.unrecorded(), body)

    async def _answer(self, line: bytes | None) -> bytes | None:
        """The bytes that answer one line, or None where the protocol wants silence."""
        caller: Caller | None = None
        call: Call | None = None
        body: Any = None
        try:
            body = self._decoded(line)  # first, so that a refusal can name the request it answers
            caller = self._road.authenticate(self._credential)  # 1
            if _is_rpc(body):
                call = self._rpc_face.parse(body, "stdio")
                answer = await self._travel(self._road.enter(caller, call), body.get("id"))  # 2-9
                return self._rpc_face.render(answer, rpc.request_id_of(body)).body
            message = mcp.read(body, None)
            if isinstance(message, mcp.Notification):
                self._cancel(message)
                return None
            if message.method != "tools/call":
                return mcp.answer_plain(message, self._road.permits.visible(caller)).body
            call = self._with_progress(mcp.call_of(message, "stdio"), message)
            ticket = self._road.enter(caller, call)  # 2, 3
            answer = await self._travel(ticket, message.id)  # 4-9
            return None if ticket.cancelled else mcp.render(message, answer).body  # a cancelled request gets no answer
        except mcp.Fault as fault:
            return fault.reply().body
        except Refusal as refusal:
            return self._refused(refusal, body, caller, call)

    def _refused(self, refusal: Refusal, body: Any, caller: Caller | None, call: Call | None) -> bytes:
        wire = rpc.WIRES["stdio"] if _is_rpc(body) else mcp.WIRES["stdio"]
        return self._spelled(self._road.refuse(refusal, wire, caller, call), body)

    def _spelled(self, answer: Answer, body: Any) -> bytes:
        """A refusal of what `body` asked for."""
        request_id = rpc.request_id_of(body)
        if _is_rpc(body):
            return self._rpc_face.render(answer, request_id).body
        return mcp.refusal_reply(answer, request_id=request_id, modern=True).body

    async def _travel(self, ticket: Ticket, request_id: Any) -> Answer:
        self._tickets[request_id] = ticket
        try:
            return await self._road.travel(ticket)
        finally:
            if self._tickets.get(request_id) is ticket:  # a peer may use an id twice, to its own confusion only
                del self._tickets[request_id]

    def _decoded(self, line: bytes | None) -> Any:
        if line is None:
            raise Refusal(
                Happening.TOO_LARGE, f"The line is longer than {self._body_bytes} bytes.", reason="body_too_large"
            )
        try:
            return strictjson.loads(line, max_bytes=self._body_bytes)
        except strictjson.JsonFault as fault:
            raise Refusal(Happening.MALFORMED, f"Parse error: {fault}", reason=fault.reason) from None

    def _cancel(self, notification: mcp.Notification) -> None:
        """`notifications/cancelled`: only this peer's own calls are here, so its word is enough."""
        if notification.method == "notifications/cancelled":
            request_id = notification.params.get("requestId")
            ticket = self._tickets.get(request_id) if isinstance(request_id, str) or type(request_id) is int else None
            if ticket is not None:
                ticket.cancel()

    def _push(self, message: bytes) -> None:
        self._ready.append((message, None))
        task = asyncio.get_running_loop().create_task(self._flush())
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _with_progress(self, call: Call, request: mcp.Request) -> Call:
        token = request.progress_token
        if token is None:
            return call
        loop, here = asyncio.get_running_loop(), threading.get_ident()

        def progress(done: int, total: int | None, message: str) -> None:
            note = mcp.progress_message(token, done, total, message)
            if threading.get_ident() == here:
                self._push(note)  # at once: the answer of a tool that never waits would overtake it
            else:
                loop.call_soon_threadsafe(self._push, note)

        return replace(call, progress=progress)


class Lines:
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


def _is_rpc(body: Any) -> bool:
    return isinstance(body, dict) and body.get("method") == rpc.METHOD


async def _finish(rest: Rest[None]) -> None:
    await rest
