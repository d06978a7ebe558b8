"""HTTP: a raw ASGI application over the road. Each route reads top to bottom; the road and the faces do the rest.

Order (an anonymous caller gets 401 whatever else is wrong): Host and Origin -> authenticate from the headers -> method ->
size -> content type -> strict JSON -> the face's own reading -> the road.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import replace

from toolgate.errors import Happening, Refusal
from toolgate.faces import mcp, mrt, rpc
from toolgate.faces.reply import JSON, Headers, Reply
from toolgate.model import strictjson
from toolgate.model.clock import rfc3339
from toolgate.model.envelope import Answer
from toolgate.servers.border import report
from toolgate.servers.guarded import GONE
from toolgate.servers.heads import HeadReader
from toolgate.servers.outbox import Outbox

if TYPE_CHECKING:
    from toolgate.faces.mrt import MrtFace
    from toolgate.faces.rpc import RpcFace
    from toolgate.gate.road import Road, Ticket
    from toolgate.model.call import Call, Caller
    from toolgate.servers.heads import Head

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Body = bytes | Callable[[int], Awaitable[bytes]]
"""A body that has arrived, or how to wait for one of at most so many bytes. Raises: TooLarge, Gone."""

SSE_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_COMMON: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_DISCONNECT: Final = "http.disconnect"
MAX_NOTES: Final = 256
"""Progress notes waiting for one client; a reader slower than that misses some."""


class Gone(Exception):
    """The client left while its body was still arriving. There is nobody to answer."""


class TooLarge(Exception):
    """More of a body arrived than may."""


class Client(Protocol):
    """Whoever waits for an answer."""

    gone: list[Callable[[], None]]
    """Called when the client leaves before its answer is complete."""

    def stream(self) -> Send:
        """A way to send the answer in pieces. The first one must not be sent before the answer has waited."""
        ...


class HttpApp:
    """The ASGI application. `heads` learns its hosts and origins when the port is known."""

    def __init__(
        self,
        road: Road,
        mrt_face: MrtFace,
        rpc_face: RpcFace,
        *,
        body_bytes: int,
        ready: Callable[[], Awaitable[dict[str, bool]]],
    ) -> None:
        self._road = road
        self._mrt_face = mrt_face
        self._rpc_face = rpc_face
        self._body_bytes = body_bytes
        self._ready = ready
        self.heads = HeadReader(body_bytes)
        self.outbox = Outbox(road.ledger, self._unrecorded)
        self._routes: dict[bytes, Callable[[Head, Body, Client], Awaitable[Reply | None]]] = {
            mcp.ROUTE.encode(): self._mcp,
            mrt.ROUTE.encode(): self._mrt,
            rpc.ROUTE.encode(): self._rpc,
            b"/healthz": self._healthz,
            b"/readyz": self._readyz,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # uvicorn is started without lifespan and without WebSocket
        head = self.heads.read(scope["method"].encode(), scope["raw_path"], scope["headers"])
        reply = await self.respond(head, partial(_whole_body, receive), _AsgiClient(scope, send))
        if reply is not None:
            await send_reply(send, reply)

    async def respond(self, head: Head, body: Body, client: Client) -> Reply | None:
        """The answer; None where there is nothing more to send."""
        try:
            if not head.served:
                return self._plain(Happening.WRONG_HOST)
            return await self._routes.get(head.path, self._nothing_here)(head, body, client)
        except Gone:
            return None
        except Exception as fault:  # noqa: BLE001 (the border: a fault of our own is one line for the operator, one 500 for the caller)
            report(fault)
            return self._plain(Happening.TOOL_FAILED)

    async def _mrt(self, head: Head, body: Body, client: Client) -> Reply:
        caller = call = None
        try:
            caller = self._authenticate(head)  # 1
            call = self._mrt_face.parse(
                self._json(head, body if head.fits and isinstance(body, bytes) else await self._arrived(head, body))
            )
            ticket = self._road.enter(caller, call)  # 2, 3
        except Refusal as refusal:
            return self._mrt_face.render(self._road.refuse(refusal, mrt.WIRE, caller, call))
        client.gone.append(ticket.cancel)
        return self._mrt_face.render(await self._road.travel(ticket))  # 4-9

    async def _rpc(self, head: Head, body: Body, client: Client) -> Reply:
        caller = call = request_id = None
        try:
            caller = self._authenticate(head)  # 1
            message = self._json(
                head, body if head.fits and isinstance(body, bytes) else await self._arrived(head, body)
            )
            request_id = rpc.request_id_of(message)
            call = self._rpc_face.parse(message, "http")
            ticket = self._road.enter(caller, call)  # 2, 3
        except Refusal as refusal:
            return self._rpc_face.render(self._road.refuse(refusal, rpc.WIRES["http"], caller, call), request_id)
        client.gone.append(ticket.cancel)
        return self._rpc_face.render(await self._road.travel(ticket), request_id)  # 4-9

    async def _mcp(self, head: Head, body: Body, client: Client) -> Reply | None:
        caller: Caller | None = None
        call: Call | None = None
        request: mcp.Request | None = None
        notes: _ProgressStream | None = None
        try:
            caller = self._authenticate(head)  # 1
            message = self._mcp_message(
                head, body if head.fits and isinstance(body, bytes) else await self._arrived(head, body)
            )
            if isinstance(message, mcp.Notification):
                return Reply(202)
            request = message
            if request.method != "tools/call":
                return mcp.answer_plain(request, self._road.permits.visible(caller))
            call = mcp.call_of(request, "http")
            if request.progress_token is not None and head.takes_events:
                notes = _ProgressStream(request.progress_token, client.stream())
                call = replace(call, progress=notes.progress)
            ticket = self._road.enter(caller, call)  # 2, 3
        except mcp.Fault as fault:
            return fault.reply()
        except Refusal as refusal:
            answer = self._road.refuse(refusal, mcp.WIRES["http"], caller, call)
            return mcp.refusal_reply(
                answer, request_id=request.id if request else None, modern=request is not None and request.modern
            )
        client.gone.append(ticket.cancel)
        if notes is not None:
            return await notes.carry(request, ticket, self._road)
        return mcp.render(request, await self._road.travel(ticket))  # 4-9

    def _unrecorded(self, reply: Reply, head: Head, body: bytes) -> Reply:
        """What to send in place of a reply that was ready when the log failed. What has no record is sent as it is."""
        answer = self._road.unrecorded()
        if head.path == mrt.ROUTE.encode():
            return self._mrt_face.render(answer)
        try:
            request_id = rpc.request_id_of(strictjson.loads(body, max_bytes=self._body_bytes))
        except strictjson.JsonFault:
            request_id = None
        if head.path == rpc.ROUTE.encode():
            return self._rpc_face.render(answer, request_id)
        if head.path == mcp.ROUTE.encode():
            return mcp.refusal_reply(answer, request_id=request_id, modern=head.routing.modern)
        return reply

    def _authenticate(self, head: Head) -> Caller:
        """Step 1. Raises: Refusal."""
        if head.key_fault is not None:
            raise Refusal(Happening.INVALID_KEY, head.key_fault)
        return self._road.authenticate(head.credential)

    def _mcp_message(self, head: Head, data: bytes) -> mcp.Request | mcp.Notification:
        """Raises: Refusal, mcp.Fault."""
        body = self._json(head, data)
        if not head.takes_json:
            raise mcp.Fault(mcp.INVALID_REQUEST, "Not Acceptable: the client must accept application/json", status=406)
        if head.routing_twice is not None:
            text = f"{head.routing_twice} appears more than once"
            raise mcp.Fault(mcp.HEADER_MISMATCH, text, request_id=rpc.request_id_of(body))
        return mcp.read(body, head.routing)

    async def _arrived(self, head: Head, body: Body) -> bytes:
        """The body, once method and size are right. Raises: Refusal, Gone.

        A route does not ask for a body that is here and fits: waiting for nothing would cost more than looking.
        """
        if not head.post:
            raise Refusal(Happening.WRONG_METHOD, "Use POST.", reason="method_not_allowed")
        if not head.fits:
            raise self._too_large()
        if isinstance(body, bytes):
            return body
        try:
            return await body(self._body_bytes)
        except TooLarge:
            raise self._too_large() from None

    def _json(self, head: Head, data: bytes) -> Any:
        """The decoded body. Raises: Refusal: media type or JSON is wrong."""
        if not head.sends_json:
            raise Refusal(Happening.WRONG_MEDIA_TYPE, "Send application/json.", reason="unsupported_media_type")
        try:
            return strictjson.loads(data, max_bytes=self._body_bytes)
        except strictjson.JsonFault as fault:
            raise Refusal(Happening.MALFORMED, f"Parse error: {fault}", reason=fault.reason) from None

    def _too_large(self) -> Refusal:
        return Refusal(
            Happening.TOO_LARGE, f"The body is larger than {self._body_bytes} bytes.", reason="body_too_large"
        )

    async def _healthz(self, _head: Head, _body: Body, _client: Client) -> Reply:
        return Reply(200, b'{"status":"ok"}', (JSON,))

    async def _readyz(self, _head: Head, _body: Body, _client: Client) -> Reply:
        checks = await self._ready()
        good = all(checks.values())
        body = {"status": "ready" if good else "not ready", "checks": checks}
        return Reply(200 if good else 503, strictjson.dumps(body), (JSON,))

    async def _nothing_here(self, _head: Head, _body: Body, _client: Client) -> Reply:
        return self._plain(Happening.UNKNOWN_ROUTE)

    def _plain(self, happening: Happening) -> Reply:
        """A refusal outside the road: no caller, no tool, no record."""
        ids = self._road.ids.for_call(None, None)
        return mrt.error_reply(Answer(happening, None, ids.request, rfc3339(self._road.clock.wall())))


class _ProgressStream:
    """An answer that may become a stream of events: only for a call that carries a progress token.

    The status line is not committed before the first progress, so a refusal keeps its own status.
    """

    def __init__(self, token: str | int, send: Send) -> None:
        self._token = token
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[bytes | None] = asyncio.Queue()
        """What is still to be sent; None after the last note."""

    def progress(self, done: int, total: int | None, message: str) -> None:
        """From any thread. A reader too slow to take its progress misses some; it never slows the tool."""
        event = mcp.progress_message(self._token, done, total, message)
        self._loop.call_soon_threadsafe(self._offer, event)

    def _offer(self, event: bytes) -> None:
        if self._news.qsize() < MAX_NOTES:
            self._news.put_nowait(event)

    async def carry(self, request: mcp.Request, ticket: Ticket, road: Road) -> Reply | None:
        travel = asyncio.ensure_future(road.travel(ticket))
        travel.add_done_callback(lambda _: self._news.put_nowait(None))
        started = False
        while (event := await self._news.get()) is not None:
            if not started:
                started = True
                await self._send({"type": "http.response.start", "status": 200, "headers": list(SSE_HEADERS)})
            await self._send({"type": "http.response.body", "body": _event(event), "more_body": True})
        reply = mcp.render(request, await travel)
        if not started:
            return reply
        await self._send({"type": "http.response.body", "body": _event(reply.body), "more_body": False})
        return None


def _event(message: bytes) -> bytes:
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"


class _AsgiClient:
    def __init__(self, scope: Scope, send: Send) -> None:
        self.gone: list[Callable[[], None]] = scope.get(GONE, [])
        self._send = send

    def stream(self) -> Send:
        return self._send


async def _whole_body(receive: Receive, limit: int) -> bytes:
    """Raises: TooLarge, Gone."""
    message = await receive()
    parts: list[bytes] = []
    size = 0
    while message["type"] != _DISCONNECT:
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise TooLarge
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()
    raise Gone


def headers_of(own: Headers) -> Headers:
    """A reply's own headers, and those that every answer has."""
    return (*own, *_COMMON)


async def send_reply(send: Send, reply: Reply) -> None:
    headers = [*headers_of(reply.headers), (b"content-length", str(len(reply.body)).encode())]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
