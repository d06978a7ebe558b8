"""The quick lane: a small request that has arrived whole is answered where it stands.

An answer that waits for nothing needs no task, no cycle of ASGI messages and no timer of its own; leaving them out is
most of what a call costs on uvicorn. A client that keeps its connection sends nearly the same head each time, so a head
that the parser has read is known by its bytes from then on, for this connection alone. Where there are other connections,
an answer is held until the turn of the loop ends; see `toolgate.servers.outbox`.

What is unusual in any way (a large or chunked body, `Expect`, an upgrade, a connection that will close, an answer still
under way) takes uvicorn's own road, and so does an answer once it waits: pipelining, flow control and draining are
uvicorn's in both cases.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from toolgate.servers.eager import Rest, first_step
from toolgate.servers.guarded import GONE, GuardedProtocol, ProtocolLimits
from toolgate.servers.http import headers_of, send_reply

if TYPE_CHECKING:
    from toolgate.faces.reply import Headers, Reply
    from toolgate.servers.heads import Head
    from toolgate.servers.http import HttpApp, Receive, Scope, Send

LANE_BYTES: Final = 65536
"""Body size: what usually arrives in one read. More is waited for by a task, which costs little beside reading it."""
KNOWN_HEADS: Final = 16
"""Heads remembered for one connection: they differ by tool and by length of the body."""
KNOWN_HEAD_BYTES: Final = 2048
"""Size of a head that is remembered: with the above, at most 32 KB a connection."""
_END_OF_HEAD: Final = b"\r\n\r\n"


class LaneProtocol(GuardedProtocol):
    app: HttpApp
    """What uvicorn knows as any ASGI application."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gone: list[Callable[[], None]] = []
        self._in_lane = False
        self._held = False
        """The answer is made, and waits in the outbox for its record."""
        self._pieces: list[bytes] = []
        self._known: dict[bytes, Head] = {}
        self._piece = b""
        """What is being parsed, if a message began at its first byte; else empty."""
        self._late: _LateSend | None = None
        self._answered_at = 0.0
        self._idle: TimerHandle | None = None
        self._closing = False

    def data_received(self, data: bytes) -> None:
        if not self._arriving:
            end = data.find(_END_OF_HEAD) + 4
            head = self._known.get(data[:end])
            if head is not None and head.length == len(data) - end and self._is_free():
                if self.timeout_keep_alive_task is not None:
                    self._unset_keepalive_if_required()
                self._answer(head, data[end:])
                return
            self._piece = data
        super().data_received(data)
        self._piece = b""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._idle is not None:
            self._idle.cancel()

    def shutdown(self) -> None:
        if self._in_lane or self._held:
            self._closing = True  # what has begun to arrive is still answered
        else:
            super().shutdown()

    # Parser callbacks ------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._held:
            self.app.outbox.send()  # a client that does not wait for its answers gets them in their order
        self.url, self.headers = b"", []
        self._arriving, self._headers_done = True, False

    def on_headers_complete(self) -> None:
        fields = self.check_head()
        if self._is_usual(fields) and self._is_free():
            self._in_lane, self._pieces = True, []
            return
        self._piece = b""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        HttpToolsProtocol.on_message_begin(self)
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        cast(dict[str, Any], self.scope)[GONE] = []
        HttpToolsProtocol.on_headers_complete(self)

    def on_body(self, body: bytes) -> None:
        if self._in_lane:
            self._pieces.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._in_lane:
            super().on_message_complete()
            return
        self._in_lane = self._arriving = False
        body = b"".join(self._pieces)
        head = self.app.heads.read(self.parser.get_method(), self.url, self.headers)
        if self._piece:
            self._remember(head, body)
        self._answer(head, body)

    def _remember(self, head: Head, body: bytes) -> None:
        """Know this head again by its bytes, if the piece that was parsed is exactly this head and this body.

        The parser skips empty lines before a request and stops where it sees fit; so the piece must begin with the request
        line, and what follows its first empty line must be as long as the body that the parser found.
        """
        piece, self._piece = self._piece, b""  # only the first message of a piece begins at its first byte
        end = piece.find(_END_OF_HEAD) + 4
        if end <= KNOWN_HEAD_BYTES and len(piece) - end == len(body) == head.length and piece.startswith(b"POST "):
            if len(self._known) >= KNOWN_HEADS:
                self._known.clear()
            self._known[piece[:end]] = head

    def _is_usual(self, fields: dict[bytes, bytes]) -> bool:
        length, parser = fields.get(b"content-length", b"0"), self.parser
        return (
            length.isdigit()
            and int(length) <= LANE_BYTES
            and b"transfer-encoding" not in fields
            and b"expect" not in fields
            and b"?" not in self.url
            and parser.should_keep_alive()
            and not parser.should_upgrade()
        )

    def _is_free(self) -> bool:
        """Nothing is under way on this connection, its client reads, and the server has room."""
        cycle, limit = self.cycle, self.limit_concurrency
        return (
            (cycle is None or cycle.response_complete)
            and not self._held
            and not self.flow.write_paused
            and not self.transport.is_closing()
            and (limit is None or (len(self.connections) < limit and len(self.tasks) < limit))
        )

    # Answers ---------------------------------------------------------------------------------------------------------

    def _answer(self, head: Head, body: bytes) -> None:
        self.gone = []
        outbox = self.app.outbox
        found = first_step(self.app.respond(head, body, self), outbox.ledger)
        if isinstance(found, Rest):
            self._go_on(found)
        elif found is not None:
            self._held = True
            alone = len(self.connections) == 1
            outbox.take(self, found, head, body, None if alone else self.loop)

    def send_held(self, reply: Reply) -> None:
        self._held = False
        if self.transport.is_closing():
            return
        self.server_state.total_requests += 1
        start, body = _start_of(reply.status, reply.headers, self._closing), reply.body
        self.transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (start, len(body), body))
        if self._closing:
            self.transport.close()
        self._answered_at = self.loop.time()
        if self._idle is None:
            self._idle = self.loop.call_later(self.timeout_keep_alive, self._close_if_idle)

    def _close_if_idle(self) -> None:
        """One timer a connection, not one a request: when it fires, it looks how long ago the last answer was."""
        self._idle = None
        busy = self._arriving or self._held or (self.cycle is not None and not self.cycle.response_complete)
        left = self._answered_at + self.timeout_keep_alive - self.loop.time()
        if busy or left > 0:
            self._idle = self.loop.call_later(max(left, 1.0), self._close_if_idle)
        else:
            self.timeout_keep_alive_handler()

    def _go_on(self, rest: Rest[Reply | None]) -> None:
        """The answer waits: from here on it is a task and a cycle of uvicorn's."""
        self.cycle = RequestResponseCycle(
            scope=cast(Any, {"type": "http", "method": "POST", GONE: self.gone}),
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=not self._closing,
            on_response=self.on_response_complete,
        )
        self.cycle.more_body = False
        if self._late is not None:
            self._late.cycle, self._late = self.cycle, None

        async def finish(_scope: Scope, _receive: Receive, send: Send) -> None:
            reply = await rest
            if reply is not None:
                await send_reply(send, reply)

        self._start_asgi_task(self.cycle, cast(Any, finish))

    def stream(self) -> Send:
        self._late = _LateSend()
        return self._late


class _LateSend:
    """Sends through a cycle that is made when the answer begins to wait, which is before its first piece."""

    cycle: RequestResponseCycle

    async def __call__(self, message: Any) -> None:
        await self.cycle.send(message)


@lru_cache(maxsize=256)
def _start_of(status: int, headers: Headers, closing: bool) -> bytes:  # noqa: FBT001 (the key of a cache)
    more = ((b"connection", b"close"),) if closing else ()
    lines = [name + b": " + value + b"\r\n" for name, value in (*headers_of(headers), *more)]
    return STATUS_LINE[status] + b"".join(lines)


def lane_with(limits: ProtocolLimits) -> type[LaneProtocol]:
    return type("LaneProtocol", (LaneProtocol,), {"limits": limits})
