"""MCP over the pipes of a child: one message a line. The event loop reads one small piece in each turn.

What is not a message ends the connection: after a line that cannot be read nobody knows where the next one begins, and an
answer that nobody waits for may be meant for anyone.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.model.mcpwire import NOTHING
from toolgate.powers.mcp import messages
from toolgate.powers.mcp.bounds import STANDARD, Ring
from toolgate.powers.mcp.failures import Lost, NotSent
from toolgate.powers.mcp.messages import MalformedMessage, Notification, Response, UpstreamRequest
from toolgate.powers.mcp.transport import Deadlines, Inbox, LogHeard, Step, ignore, new_future, nothing, with_token

if TYPE_CHECKING:
    from toolgate.powers.mcp.bounds import Bounds

READ_BYTES: Final = 16_384
"""One piece: at most a few hundred messages, a millisecond or two."""
STDERR_READ_BYTES: Final = 65_536
"""As much as a pipe holds: it is kept and not read."""
STDERR_PAUSE_S: Final = 0.01
"""Between two looks at standard error: a child that floods it costs us a hundred looks a second."""
LAST_WORDS: Final = 8
"""Looks at standard error when the line ends: more than a pipe holds."""
ABANDONED: Final = 1024
"""Requests given up whose answers may still come. An older one's answer counts as one that nobody asked for."""
_NOT_TAKEN: Final = ("connection_lost", "the upstream closed its standard input")


class ChildPipes(Struct, frozen=True):
    """Our ends, not blocking. The line closes them."""

    stdin: int
    stdout: int
    stderr: int


class StdioTransport:
    """See `transport.Transport`. `on_end` is told once that the line ended."""

    may_ignore_probe = True
    names_calls = False

    def __init__(self, pipes: ChildPipes, bounds: Bounds = STANDARD) -> None:
        self._pipes = pipes
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._inbox = Inbox(bounds)
        self._deadlines = Deadlines(self._loop)
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._abandoned: deque[int] = deque(maxlen=ABANDONED)
        self._partial = bytearray()
        self._outbox = bytearray()
        self._held: list[asyncio.Future[Response]] = []
        """Requests that leave at the end of this turn, with all that it brings; see `_send`."""
        self._is_blocked = False
        """The pipe is full, and the loop tells when it takes more."""
        self._ended: Lost | None = None
        self._stderr_open = True
        self.stderr = Ring()
        self.on_note: Callable[[Notification], None] = ignore
        self.on_ask: Callable[[UpstreamRequest], bytes | None] = messages.reply
        self.on_end: Callable[[], None] = lambda: None
        self._loop.add_reader(pipes.stdout, self._read)
        self._loop.add_reader(pipes.stderr, self._read_stderr)

    @property
    def open(self) -> bool:
        return self._ended is None

    def speak(self, version: str | None) -> None:
        """Each message says its own version, or the handshake did."""

    async def request(
        self,
        method: str,
        params: dict[str, object],
        *,
        seconds: float,
        step: Step | None = None,
        mirrored: Mapping[str, str] = NOTHING,  # noqa: ARG002 (the shape of a transport: pipes have no headers)
        log: LogHeard | None = None,  # noqa: ARG002 (and no stream for each request)
    ) -> Response:
        number = next(self._numbers)
        if step is not None:
            params = with_token(params, number)
            self._inbox.steps[number] = step
        self._waiting[number] = future = new_future()
        try:
            self._send(messages.request(number, method, params), future)
            self._deadlines.begin(future, seconds)
            return await future
        except TimeoutError:
            self._abandon(number)
            raise Lost("no_answer", f"no answer came within {seconds:g} s") from None
        except asyncio.CancelledError:
            self._abandon(number)
            raise
        finally:
            self._deadlines.end(future)
            self._waiting.pop(number, None)
            self._inbox.steps.pop(number, None)

    async def note(self, method: str) -> None:
        self._send(messages.note(method))

    def send_reply(self, data: bytes) -> None:
        with suppress(NotSent):
            self._send(data)

    async def watch(self, seconds: float, opened: Callable[[], None] = nothing) -> None:
        """All that an upstream says comes on the one pipe: there is nothing else to stay for."""
        opened()
        await asyncio.sleep(seconds)

    def _abandon(self, number: int) -> None:
        self._abandoned.append(number)
        with suppress(NotSent):
            self._send(messages.note("notifications/cancelled", {"requestId": number}))

    def leave(self) -> None:
        """A pipe is its session: both end together."""

    async def close(self) -> None:
        self._end("closed", "the connection was closed")

    async def why(self) -> str:
        return str(self._ended) if self._ended is not None else ""

    # Out

    def _send(self, message: bytes, waiting: asyncio.Future[Response] | None = None) -> None:
        """At once; while others wait for answers, a request waits for the end of this turn of the loop: what the turn brings is
        one write for us, and wakes the child once. It then tells `waiting` what this would raise. Raises: NotSent."""
        if self._ended is not None:
            raise NotSent(self._ended.reason, str(self._ended))
        if len(self._outbox) + len(message) > self._bounds.outbox_bytes:
            raise NotSent("not_reading", "the upstream does not read what it is sent")
        first = not self._outbox
        self._outbox += message
        self._outbox += b"\n"
        if waiting is not None and (self._held or (first and len(self._waiting) > 1)):
            self._held.append(waiting)
            if first:
                self._loop.call_soon(self._flush)
        elif first:
            self._flush()
            if self._ended is not None:
                raise NotSent(*_NOT_TAKEN)

    def _flush(self) -> None:
        if self._ended is not None:
            return
        try:
            written = os.write(self._pipes.stdin, self._outbox)
        except BlockingIOError:
            written = 0
        except OSError:
            self._end(*_NOT_TAKEN)
            return
        self._held.clear()
        del self._outbox[:written]
        if self._outbox and not self._is_blocked:
            self._loop.add_writer(self._pipes.stdin, self._flush)
        elif self._is_blocked and not self._outbox:
            self._loop.remove_writer(self._pipes.stdin)
        self._is_blocked = bool(self._outbox)

    # In

    def _read(self) -> None:
        try:
            piece = os.read(self._pipes.stdout, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._end("connection_lost", "the upstream ended the connection")
            return
        try:
            self._take(piece)
        except MalformedMessage as fault:
            self._end(fault.reason, str(fault))

    def _take(self, piece: bytes) -> None:
        *whole, rest = piece.split(b"\n")
        for part in whole:
            line = bytes(self._partial) + part if self._partial else part
            self._partial.clear()
            if self._ended is None:
                self._take_line(line)
        self._partial += rest
        if len(self._partial) > self._bounds.message_bytes:
            raise MalformedMessage("answer_too_large", f"a line is longer than {self._bounds.message_bytes} bytes")

    def _take_line(self, line: bytes) -> None:
        if not line.strip():
            self._inbox.count()
            return
        message = self._inbox.read(line)
        if isinstance(message, Response):
            self._take_answer(message)
        elif isinstance(message, Notification):
            self.on_note(message)
        elif isinstance(message, UpstreamRequest):
            replied = self.on_ask(message)
            if replied is not None:
                self.send_reply(replied)

    def _take_answer(self, answer: Response) -> None:
        waiting = self._waiting.pop(answer.id, None)
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(answer)
        elif answer.id in self._abandoned:
            self._abandoned.remove(answer.id)
        else:
            raise MalformedMessage("unasked_answer", "an answer came to a request that nobody sent, or a second one")

    def _read_stderr(self) -> None:
        try:
            data = os.read(self._pipes.stderr, STDERR_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._loop.remove_reader(self._pipes.stderr)
        if data:
            self.stderr.add(data)
            self._loop.call_later(STDERR_PAUSE_S, self._watch_stderr)
        else:
            self._close_stderr()

    def _watch_stderr(self) -> None:
        if self._stderr_open:
            self._loop.add_reader(self._pipes.stderr, self._read_stderr)

    def _close_stderr(self) -> None:
        if self._stderr_open:
            self._stderr_open = False
            self._loop.remove_reader(self._pipes.stderr)
            os.close(self._pipes.stderr)

    def _drain_stderr(self) -> None:
        """The last words of a child: they say why it ended."""
        with suppress(OSError):
            for _ in range(LAST_WORDS if self._stderr_open else 0):
                self.stderr.add(os.read(self._pipes.stderr, READ_BYTES))

    def _end(self, reason: str, text: str) -> None:
        if self._ended is not None:
            return
        self._ended = Lost(reason, text)
        self._loop.remove_reader(self._pipes.stdout)
        self._loop.remove_writer(self._pipes.stdin)
        os.close(self._pipes.stdin)
        os.close(self._pipes.stdout)
        self._drain_stderr()
        self._close_stderr()
        self._partial.clear()
        self._outbox.clear()
        for future in self._held:
            if not future.done():
                future.set_exception(NotSent(reason, text))
                future.exception()  # as below
        self._held.clear()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Lost(reason, text))
                future.exception()  # seen: whoever waited may just have been cancelled
        self._waiting.clear()
        self._deadlines.close()
        self.on_end()
