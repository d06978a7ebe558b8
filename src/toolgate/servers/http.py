"""HTTP: which path is which face's, what a head alone decides, and when answers leave. The road does the rest.

Order (an anonymous caller gets 401 whatever else is wrong): Host and Origin -> authenticate from the headers -> method and
content type -> size -> strict JSON -> the face's own reading -> the road. All up to the content type needs only the head,
and is asked twice of a body that takes its time: before it is read, and again when it is there.

Answers that are ready in one turn of the event loop leave together: one write puts all their records into the log, then
they are sent. A busy server finds many requests at each turn; answered one by one, each costs a write to the log and, where
the client has gone to sleep, a wake-up of its process. Nothing is sent before its record is written, and nothing waits for
a clock: the turn ends when nothing else is to be done.
"""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import replace

from toolgate.errors import Ending, LedgerUnavailable, Refusal
from toolgate.faces.reply import JSON, Headers, Reply, error_reply
from toolgate.gate.arrival import Arrival, logging_to, stepping_to
from toolgate.model import strictjson
from toolgate.model.clock import rfc3339
from toolgate.model.envelope import Answer
from toolgate.servers.cors import headers_for, preflight
from toolgate.servers.fault_report import report
from toolgate.servers.observed.page import PATH, WIRE
from toolgate.servers.origins import Origins
from toolgate.servers.request_head import HeadReader

if TYPE_CHECKING:
    from toolgate.faces.face import Asked, Face
    from toolgate.gate.road import Road
    from toolgate.gate.sessions.seals import SealedSession, Seals
    from toolgate.model.call import Call, Caller, Wire
    from toolgate.model.tool import Level
    from toolgate.servers.application import Client, PageSite
    from toolgate.servers.framing import Request
    from toolgate.servers.observed.page import MetricsPage
    from toolgate.servers.request_head import RequestHead

SSE_HEADERS: Final = ((b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no"))
GZIP_BYTES: Final = 8192
"""Answers that are not a call's (the list of tools) are compressed from this size in bytes on, if the client accepts that."""
GZIP_LEVEL: Final = 3
"""30 KB in a third of a millisecond, to a fifth; more effort gains little."""
_GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS
MAX_NOTES: Final = 256
"""Progress notes waiting for one client; a reader slower than that misses some."""
STILL_HERE_S: Final = 25.0
"""After so many seconds without a change a stream says that it is still there: proxies close what is silent for half a minute."""
_STILL_HERE: Final = b": still here\r\n\r\n"
MOST_HELD: Final = 16
"""Answers held at once. More would gain little, and let the first of a long turn wait for the last."""
_HEALTH: Final = b"/healthz"
"""Answers by any Host, because an orchestrator asks a container by its address. It says `ok`, and nothing else."""


async def nothing_besides() -> Mapping[str, Any]:
    return {}


class HttpArrival(Arrival):
    """One request over HTTP."""

    client: Client = cast("Client", None)
    head: RequestHead = cast("RequestHead", None)
    app: HttpApp = cast("HttpApp", None)
    notes: _NoteStream | None = None

    def know(self, caller: Caller) -> None:
        self.client.known_as(caller.key_id)

    def cancel(self, request_id: str | int) -> None:
        assert self.caller is not None
        self.app.cancel(self.caller.key_id, request_id, self.face.wires["http"])

    def with_progress(self, asked: Asked) -> Call:
        assert asked.call is not None
        assert asked.note is not None
        if not self.head.takes_events:
            return asked.call
        return replace(asked.call, progress=stepping_to(self._stream().offer, asked.note))

    def with_log(self, call: Call, asked: Asked, level: Level) -> Call:
        assert asked.log is not None
        if not self.head.takes_events:
            return call
        return replace(call, log=logging_to(self._stream().offer, asked.log, level))

    def asking(self) -> Callable[[bytes], None] | None:
        return self._stream().offer if self.head.takes_events else None

    def _stream(self) -> _NoteStream:
        if self.notes is None:
            self.notes = _NoteStream(self)
        return self.notes

    def keep_session(self, session: SealedSession, seals: Seals) -> tuple[bytes, bytes]:
        return (b"mcp-session-id", seals.sealed(session).encode())


class HttpApp:
    """What `toolgate.servers.connection` asks. `heads` learns its hosts and origins when the port is known."""

    headers: Headers = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))

    def __init__(
        self,
        road: Road,
        faces: Sequence[Face],
        *,
        body_bytes: int,
        ready: Callable[[], Awaitable[dict[str, bool]]],
        besides: Callable[[], Awaitable[Mapping[str, Any]]] = nothing_besides,
        trusted_proxies: Sequence[str] = (),
        metrics: MetricsPage | None = None,
        site: PageSite | None = None,
    ) -> None:
        """`metrics`: the page of numbers, if it is served here. `site`: the pages for people."""
        self._road = road
        self.site = site
        self._body_bytes = body_bytes
        self._ready = ready
        self._besides = besides
        self.heads = HeadReader(faces, None if site is None else site.path)
        self._origins = Origins(trusted_proxies)
        self._held: list[tuple[Client, Reply]] = []
        self._signs = {_HEALTH: self._healthz, b"/readyz": self._readyz}
        self._metrics = metrics
        self.cancel_elsewhere: Callable[[str, str | int, Wire], None] | None = None
        """Where other processes serve the same port: of a call that is none of ours."""

    def obey(self, road: Road, heads: HeadReader, trusted_proxies: Sequence[str]) -> None:
        """From the next request on."""
        self._road, self.heads, self._origins = road, heads, Origins(trusted_proxies)

    def read_head(self, request: Request) -> RequestHead:
        return self.heads.read(request)

    def before_body(self, head: RequestHead, client: Client) -> Reply | None:
        """What the head alone decides; None: the body may be read."""
        if head.visit is not None and self.site is not None:
            return self.site.before_body(head.visit, served=head.served)
        if head.face is None or not head.served:
            return self._elsewhere(head)
        reply = self._unasked(head, head.face, client)
        if reply is None:
            reply = self._road.before_body(self._arrival(head.face, head, None, client, is_held=False))
        return None if reply is None else _for_pages(head, reply)

    async def respond(self, head: RequestHead, body: bytes | None, client: Client) -> Reply | None:
        """Returns None if the answer was sent in pieces. `body` is None if it was too large."""
        try:
            if head.face is None or not head.served:
                return await self._off_the_road(head, body, client)
            if head.is_look or head.is_preflight:
                unasked = self._unasked(head, head.face, client)
                if unasked is not None:
                    return _for_pages(head, unasked)
            arrival = client.arrival = self._arrival(head.face, head, body, client, is_held=True)
            if head.is_look:
                arrival.message, arrival.fault = head.face.look(head.hints), None
            reply = await self._road.carry(arrival)
            if reply.stream is not None:
                await self._stream(arrival, reply)
                return None
            if arrival.notes is not None:
                streamed = await arrival.notes.end(partial(self._recorded, arrival, reply))
                return None if streamed is None else _for_pages(head, streamed)
            if head.takes_gzip and arrival.ticket is None and len(reply.body) >= GZIP_BYTES:
                reply = _compressed(reply)
            return reply if head.page is None else _for_pages(head, reply)
        except Exception as fault:  # noqa: BLE001 (the border: a fault of our own is one line for the operator, one 500 for the caller)
            report(fault)
            return self._plain(Ending.TOOL_FAILED, "crashed")

    def _unasked(self, head: RequestHead, face: Face, client: Client) -> Reply | None:
        """The answer to a CORS preflight, or to a GET that looks for an event stream. Neither is recorded."""
        if head.is_preflight and head.page is not None:
            return preflight(head.page)
        if not head.is_look or (head.takes_events and face.look(head.hints) is not None):
            return None
        arrival = self._arrival(face, head, None, client, is_held=False)
        arrival.fault = None
        refused = self._road.before_body(arrival)  # who has no key is told nothing else
        return refused if refused is not None else face.render(face.unread(None), self._answer(Ending.WRONG_METHOD))

    async def _stream(self, arrival: HttpArrival, reply: Reply) -> None:
        """Until the client goes, the stream is ended, or we stop."""
        stream, client = reply.stream, arrival.client
        client.gone.append(partial(self._road.watch.close, stream))
        try:
            first = _event(reply.body) if reply.body else _STILL_HERE
            await client.send(first, headers=(*SSE_HEADERS, *headers_for(arrival.head.page)))
            while (message := await stream.next(STILL_HERE_S)) is not None:
                await client.send(_event(message) if message else _STILL_HERE)
            assert arrival.asked is not None
            last = arrival.asked.besides.ended if arrival.asked.besides is not None else b""
            if last:
                await client.send(_event(last))
        finally:
            self._road.watch.close(stream)

    # When answers leave ----------------------------------------------------------------------------------------------

    def hold(self, client: Client, reply: Reply, loop: asyncio.AbstractEventLoop | None) -> None:
        """Send it at the end of this turn of the loop, or when enough are held; without a loop, now."""
        self._held.append((client, reply))
        if loop is None or len(self._held) == MOST_HELD:
            self.send_held()
        elif len(self._held) == 1:
            loop.call_soon(self.send_held)

    def send_held(self) -> None:
        """Every answer that is held, after its record."""
        held, self._held = self._held, []
        try:
            self._road.ledger.flush()
        except LedgerUnavailable:
            for client, reply in held:
                # What has no record, a health check, is sent as it is.
                client.send_held(reply if client.arrival is None else self._road.unrecorded(client.arrival))
        else:
            for client, reply in held:
                client.send_held(reply)

    def _recorded(self, arrival: Arrival, reply: Reply) -> Reply:
        """What may be sent in place of a reply that is not held."""
        try:
            self._road.ledger.flush()
        except LedgerUnavailable:
            return self._road.unrecorded(arrival)
        return reply

    def _arrival(
        self, face: Face, head: RequestHead, body: bytes | None, client: Client, *, is_held: bool
    ) -> HttpArrival:
        return HttpArrival(
            face=face,
            transport="http",
            credential=head.credential,
            key_fault=head.key_fault,
            body=body,
            body_bytes=self._body_bytes,
            hints=head.hints,
            fault=head.fault,
            origin=client.origin if head.said is None else self._origins.of(head.said, client.origin),
            caller_id=client.caller_id,
            is_held=is_held,
            client=client,
            head=head,
            app=self,
        )

    def cancel(self, key_id: str, request_id: str | int, wire: Wire) -> None:
        """Of this caller's own calls, the one with this id. Ids are unique only on one client's connection, and there are no
        connections here: where two clients share a key and an id, neither is cancelled by the other."""
        found = [
            ticket
            for ticket in self._road.under_way
            if ticket.caller.key_id == key_id and ticket.is_answer_to(request_id, wire)
        ]
        if len(found) == 1:
            found[0].cancel()
        elif not found and self.cancel_elsewhere is not None:
            self.cancel_elsewhere(key_id, request_id, wire)

    # What is not on the road -----------------------------------------------------------------------------------------

    async def _off_the_road(self, head: RequestHead, body: bytes | None, client: Client) -> Reply | None:
        if head.visit is not None and self.site is not None:
            address = self._origins.of(head.said, client.origin).address
            return await self.site.respond(head.visit, body, client, served=head.served, address=address)
        if self._metrics is not None and head.path == PATH and head.served and head.is_look and not body:
            return self._unreadable(head, client) or await self._metrics.reply()
        sign = self._signs.get(head.path) if body == b"" and (head.served or head.path == _HEALTH) else None
        return await sign() if sign is not None else self._elsewhere(head)

    def _unreadable(self, head: RequestHead, client: Client) -> Reply | None:
        """The refusal of who may not read the numbers. It is recorded, as every refused key is."""
        caller = None
        origin = client.origin if head.said is None else self._origins.of(head.said, client.origin)
        try:
            if head.key_fault is not None:
                raise Refusal(Ending.INVALID_KEY, head.key_fault)
            caller = self._road.authenticate(head.credential, origin.address)
            if not caller.administers:
                raise Refusal(Ending.INSUFFICIENT_ROLE, role=caller.role)
        except Refusal as refusal:
            return error_reply(self._road.refuse(refusal, WIRE, caller, origin=origin))
        return None

    async def _healthz(self) -> Reply:
        return Reply(200, b'{"status":"ok"}', (JSON,))

    async def _readyz(self) -> Reply:
        checks = await self._ready()
        good = all(checks.values())
        body: dict[str, Any] = {"status": "ready" if good else "not ready", "checks": checks}
        body |= await self._besides()  # none of it makes the gate unready
        return Reply(200 if good else 503, strictjson.dumps(body), (JSON,))

    def _elsewhere(self, head: RequestHead) -> Reply:
        """Another host's name, a path that is not there, or a body where none is taken."""
        if not head.served:
            return self._plain(Ending.WRONG_HOST, "host_not_served")
        if head.path in self._signs:
            return self._plain(Ending.TOO_LARGE, "body_too_large")
        return self._plain(Ending.UNKNOWN_ROUTE, "unknown_route")

    def _plain(self, ending: Ending, reason: str) -> Reply:
        """A refusal outside the road: no caller, no tool, no record."""
        return error_reply(self._answer(ending, reason))

    def _answer(self, ending: Ending, reason: str | None = None) -> Answer:
        ids, now = self._road.admission.ids.for_call(None, None), rfc3339(self._road.clock.wall())
        return Answer(ending, None, ids.request, now, None if reason is None else {"reason": reason})


class _NoteStream:
    """An answer that may become a stream of events: for a call that asked to hear of its progress, or whose tool logs.

    The status line is not committed before the first note, so a refusal keeps its own status.
    """

    def __init__(self, arrival: HttpArrival) -> None:
        self._arrival = arrival
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue()
        """What is still to be sent; None after the last one."""
        self._sending: asyncio.Task[None] | None = None
        self._is_over = False

    def offer(self, note: bytes) -> None:
        """From any thread. A reader too slow to take its notes misses some; it never slows the tool."""
        event = _event(note)
        if threading.get_ident() == self._thread:
            self._offer(event)  # at once: the answer of a tool that never waits would overtake it
        else:
            self._loop.call_soon_threadsafe(self._offer, event)

    def _offer(self, event: bytes) -> None:
        if self._is_over:
            return  # its handler goes on after its deadline
        if self._sending is None:
            self._sending = self._loop.create_task(self._send())
        if self._events.qsize() < MAX_NOTES:
            self._events.put_nowait(event)

    async def _send(self) -> None:
        ticket, client = self._arrival.ticket, self._arrival.client
        assert ticket is not None  # a handler reports
        headers = (*SSE_HEADERS, *headers_for(self._arrival.head.page))
        while (event := await self._events.get()) is not None:
            await client.send(event, headers=headers, request_id=ticket.ids.request)

    async def end(self, recorded: Callable[[], Reply]) -> Reply | None:
        """The whole answer, if no note has left; else it becomes the last event. `recorded`: what may be sent."""
        self._is_over = True
        reply = recorded()
        if self._sending is None:
            return reply
        self._events.put_nowait(None)
        await self._sending
        await self._arrival.client.send(_event(reply.body))
        return None


def _for_pages(head: RequestHead, reply: Reply) -> Reply:
    return reply if head.page is None else replace(reply, headers=(*reply.headers, *headers_for(head.page)))


def _compressed(reply: Reply) -> Reply:
    """A list, which holds nothing of its caller's: what compresses together with a secret can betray it."""
    body = zlib.compress(reply.body, GZIP_LEVEL, wbits=_GZIP_FORMAT)
    return replace(
        reply, body=body, headers=(*reply.headers, (b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding"))
    )


def _event(message: bytes) -> bytes:
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"
