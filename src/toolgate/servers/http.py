"""HTTP: a raw ASGI application over the road. Each route reads top to bottom; the road and the faces do the rest.

Order (an anonymous caller gets 401 whatever else is wrong): Host and Origin -> authenticate from the headers -> method ->
size -> content type -> strict JSON -> the face's own reading -> the road.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import Happening, Refusal
from toolgate.faces import mcp, mrt, rpc
from toolgate.faces.reply import JSON, Reply
from toolgate.model import strictjson
from toolgate.model.clock import rfc3339
from toolgate.model.envelope import Answer
from toolgate.servers.border import report
from toolgate.servers.guarded import GONE

if TYPE_CHECKING:
    from toolgate.faces.mrt import MrtFace
    from toolgate.faces.rpc import RpcFace
    from toolgate.gate.road import Road, Ticket
    from toolgate.model.call import Call, Caller

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SSE_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_COMMON: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_ROUTING: Final = {name.encode(): name for name in sorted(mcp.ROUTING_HEADERS)}
_DISCONNECT: Final = "http.disconnect"
MAX_NOTES: Final = 256
"""Progress notes waiting for one client; a reader slower than that misses some."""


class Gone(Exception):
    """The client left while its body was still arriving. There is nobody to answer."""


@dataclass(slots=True)
class Head:
    """A request's headers by name. `twice` holds those that came more than once (the last value is in `fields`)."""

    method: str
    fields: dict[bytes, bytes]
    twice: frozenset[bytes]
    gone: list[Callable[[], None]]

    def get(self, name: bytes) -> bytes | None:
        value = self.fields.get(name)
        return None if value is None else value.strip(b" \t")  # RFC 9110 5.5; the parser leaves trailing blanks

    def credential(self) -> bytes | None:
        """The key, from `X-MCP-API-Key` or `Authorization: Bearer`. Raises: Refusal: two keys that differ."""
        if b"x-mcp-api-key" in self.twice or b"authorization" in self.twice:
            raise Refusal(Happening.INVALID_KEY, "Send one key header.")
        key = self.get(b"x-mcp-api-key")
        authorization = self.get(b"authorization")
        if authorization is None:
            return key
        scheme, _, token = authorization.partition(b" ")
        bearer = token.strip() if scheme.lower() == b"bearer" else None
        if key is not None and bearer is not None and key != bearer:
            raise Refusal(Happening.INVALID_KEY, "The two key headers hold different keys.")
        return key if key is not None else bearer

    def accepts(self, kind: str) -> bool:
        """Does `Accept` admit this media type? Absent means anything (RFC 9110)."""
        accept = self.fields.get(b"accept")
        return accept is None or _admits(accept, kind)


@lru_cache(maxsize=256)
def _is_json(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() == b"application/json"


@lru_cache(maxsize=256)
def _admits(accept: bytes, kind: str) -> bool:
    ranges = {part.partition(";")[0].strip().lower() for part in accept.decode("latin-1").split(",")}
    return bool(ranges & {kind, kind.partition("/")[0] + "/*", "*/*"})


def read_head(scope: Scope) -> Head:
    headers = scope["headers"]
    fields = dict(headers)
    twice = _NOTHING if len(fields) == len(headers) else _repeated(headers)
    return Head(scope["method"], fields, twice, scope.get(GONE, []))


_NOTHING: Final[frozenset[bytes]] = frozenset()


def _repeated(headers: Sequence[tuple[bytes, bytes]]) -> frozenset[bytes]:
    counted = Counter(name for name, _ in headers)
    return frozenset(name for name, count in counted.items() if count > 1)


class HttpApp:
    """The ASGI application. `hosts` and `origins` are filled in when the port is known."""

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
        self.hosts: frozenset[bytes] = frozenset()
        self.origins: frozenset[bytes] = frozenset()
        self._routes: dict[bytes, Callable[[Head, Receive, Send], Awaitable[Reply | None]]] = {
            mcp.ROUTE.encode(): self._mcp,
            mrt.ROUTE.encode(): self._mrt,
            rpc.ROUTE.encode(): self._rpc,
            b"/healthz": self._healthz,
            b"/readyz": self._readyz,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # uvicorn is started without lifespan and without WebSocket
        head = read_head(scope)
        try:
            if not self._host_is_ours(head):
                reply: Reply | None = self._plain(Happening.WRONG_HOST)
            else:
                route = self._routes.get(scope["raw_path"], self._nothing_here)
                reply = await route(head, receive, send)
        except Gone:
            return
        except Exception as fault:  # noqa: BLE001 (the border: a fault of our own is one line for the operator, one 500 for the caller)
            report(fault)
            reply = self._plain(Happening.TOOL_FAILED)
        if reply is not None:
            await _send(send, reply)

    def _host_is_ours(self, head: Head) -> bool:
        """DNS rebinding: a page in a browser can reach loopback, but it cannot forge these two."""
        if b"origin" in head.twice or (head.get(b"host") or b"").lower() not in self.hosts:
            return False
        origin = head.get(b"origin")
        return origin is None or origin.lower() in self.origins

    async def _mrt(self, head: Head, receive: Receive, _send: Send) -> Reply:
        caller = call = None
        try:
            caller = self._road.authenticate(head.credential())  # 1
            call = self._mrt_face.parse(self._json(head, await self._body(head, receive)))
            ticket = self._road.enter(caller, call)  # 2, 3
        except Refusal as refusal:
            return self._mrt_face.render(self._road.refuse(refusal, mrt.WIRE, caller, call))
        head.gone.append(ticket.cancel)
        return self._mrt_face.render(await self._road.travel(ticket))  # 4-9

    async def _rpc(self, head: Head, receive: Receive, _send: Send) -> Reply:
        caller = call = request_id = None
        try:
            caller = self._road.authenticate(head.credential())  # 1
            body = self._json(head, await self._body(head, receive))
            request_id = rpc.request_id_of(body)
            call = self._rpc_face.parse(body, "http")
            ticket = self._road.enter(caller, call)  # 2, 3
        except Refusal as refusal:
            return self._rpc_face.render(self._road.refuse(refusal, rpc.WIRES["http"], caller, call), request_id)
        head.gone.append(ticket.cancel)
        return self._rpc_face.render(await self._road.travel(ticket), request_id)  # 4-9

    async def _mcp(self, head: Head, receive: Receive, send: Send) -> Reply | None:
        caller: Caller | None = None
        call: Call | None = None
        request: mcp.Request | None = None
        try:
            caller = self._road.authenticate(head.credential())  # 1
            message = self._mcp_message(head, await self._body(head, receive))
            if isinstance(message, mcp.Notification):
                return Reply(202)
            request = message
            if request.method != "tools/call":
                return mcp.answer_plain(request, self._road.permits.visible(caller))
            call = mcp.call_of(request, "http")
            stream = _ProgressStream.wanted(request, head, send)
            if stream is not None:
                call = replace(call, progress=stream.progress)
            ticket = self._road.enter(caller, call)  # 2, 3
        except mcp.Fault as fault:
            return fault.reply()
        except Refusal as refusal:
            answer = self._road.refuse(refusal, mcp.WIRES["http"], caller, call)
            return mcp.refusal_reply(
                answer, request_id=request.id if request else None, modern=request is not None and request.modern
            )
        head.gone.append(ticket.cancel)
        if stream is not None:
            return await stream.carry(request, ticket, self._road)
        return mcp.render(request, await self._road.travel(ticket))  # 4-9

    def _mcp_message(self, head: Head, data: bytes) -> mcp.Request | mcp.Notification:
        """Raises: Refusal, mcp.Fault."""
        body = self._json(head, data)
        if not head.accepts("application/json"):
            raise mcp.Fault(mcp.INVALID_REQUEST, "Not Acceptable: the client must accept application/json", status=406)
        for name in head.twice & _ROUTING.keys():
            raise mcp.Fault(
                mcp.HEADER_MISMATCH, f"{_ROUTING[name]} appears more than once", request_id=rpc.request_id_of(body)
            )
        routing = {
            text: value.decode("latin-1") for name, text in _ROUTING.items() if (value := head.get(name)) is not None
        }
        return mcp.read(body, routing)

    async def _body(self, head: Head, receive: Receive) -> bytes:
        """The body, once method and size are right. Raises: Refusal, Gone."""
        if head.method != "POST":
            raise Refusal(Happening.WRONG_METHOD, "Use POST.", reason="method_not_allowed")
        length = head.get(b"content-length") or b"0"
        if not length.isdigit() or int(length) > self._body_bytes:
            raise self._too_large()
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            return message["body"]  # type: ignore[no-any-return] # the usual case: all of it in one piece
        parts: list[bytes] = []
        size = 0
        while message["type"] != _DISCONNECT:
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._body_bytes:
                raise self._too_large()
            if not message.get("more_body"):
                return b"".join(parts)
            message = await receive()
        raise Gone

    def _json(self, head: Head, data: bytes) -> Any:
        """The decoded body. Raises: Refusal: media type or JSON is wrong."""
        if not _is_json(head.fields.get(b"content-type", b"")) or b"content-type" in head.twice:
            raise Refusal(Happening.WRONG_MEDIA_TYPE, "Send application/json.", reason="unsupported_media_type")
        try:
            return strictjson.loads(data, max_bytes=self._body_bytes)
        except strictjson.JsonFault as fault:
            raise Refusal(Happening.MALFORMED, f"Parse error: {fault}", reason=fault.reason) from None

    def _too_large(self) -> Refusal:
        return Refusal(
            Happening.TOO_LARGE, f"The body is larger than {self._body_bytes} bytes.", reason="body_too_large"
        )

    async def _healthz(self, _head: Head, _receive: Receive, _send: Send) -> Reply:
        return Reply(200, b'{"status":"ok"}', (JSON,))

    async def _readyz(self, _head: Head, _receive: Receive, _send: Send) -> Reply:
        checks = await self._ready()
        good = all(checks.values())
        body = {"status": "ready" if good else "not ready", "checks": checks}
        return Reply(200 if good else 503, strictjson.dumps(body), (JSON,))

    async def _nothing_here(self, _head: Head, _receive: Receive, _send: Send) -> Reply:
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

    @staticmethod
    def wanted(request: mcp.Request, head: Head, send: Send) -> _ProgressStream | None:
        token = request.progress_token
        if token is None or not head.accepts("text/event-stream"):
            return None
        return _ProgressStream(token, send)

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


async def _send(send: Send, reply: Reply) -> None:
    headers = [*reply.headers, *_COMMON, (b"content-length", str(len(reply.body)).encode())]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
