"""The HTTP/1.1 protocol of the server: uvicorn's, plus what only this layer can see.

Neither of uvicorn's parsers closes a connection that never ends its headers, and both take requests that two readers could
frame differently. So here: one Host, no Content-Length beside Transfer-Encoding, bounded headers, a deadline for a request
to arrive, and word to the application when the client has gone.
"""

from __future__ import annotations

from asyncio import TimerHandle
from typing import Any, Final, cast

import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from toolgate.model import strictjson

GONE = "toolgate.gone"
"""Key in the ASGI scope: a list of callbacks for when the client goes away before its answer is complete."""


class ProtocolLimits(Struct, frozen=True):
    header_read_s: float
    body_read_s: float
    max_headers: int
    header_bytes: int


_TOO_MANY_HEADERS: Final = (431, "headers_too_large")


class _Unacceptable(Exception):
    """Stops the parser; the protocol then answers with the fault noted on it."""


class GuardedProtocol(HttpToolsProtocol):
    limits: ProtocolLimits
    """Set on a subclass by `guarded_with`: uvicorn makes the protocol objects itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fault = (400, "malformed_request")
        self._arriving = False
        self._headers_done = False
        self._timer: TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._arm(self.limits.header_read_s)  # a client that connects and says nothing is slow, too

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # already refused; what still arrives is read by nobody
        super().data_received(data)
        if not self._arriving:
            if self._timer is not None:
                self._disarm()
        elif not self._headers_done and self._has_too_many_headers() and not self.transport.is_closing():
            self._fault = _TOO_MANY_HEADERS
            self.send_400_response("")
        elif self._timer is None:
            self._arm(self.limits.body_read_s if self._headers_done else self.limits.header_read_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        cycle = self.cycle
        super().connection_lost(exc)
        if cycle is not None and not cycle.response_complete:
            for tell in cast(dict[str, Any], cycle.scope).get(GONE, ()):
                tell()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast(dict[str, Any], self.scope)[GONE] = []
        self._arriving, self._headers_done = True, False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))  # counted when they end, or when the piece that brought them does

    def on_headers_complete(self) -> None:
        self.check_head()
        super().on_headers_complete()

    def check_head(self) -> dict[bytes, bytes]:
        """The headers by name. Raises: _Unacceptable."""
        self._headers_done = True
        self._disarm()
        if self._has_too_many_headers():
            self._refuse(*_TOO_MANY_HEADERS)
        fields = dict(self.headers)
        if b"host" not in fields or (
            len(fields) != len(self.headers) and [name for name, _ in self.headers].count(b"host") != 1
        ):
            self._refuse(400, "one_host_header_needed")
        if b"transfer-encoding" in fields and fields[b"transfer-encoding"].strip().lower() != b"chunked":
            self._refuse(400, "unsupported_transfer_encoding")
        if self.parser.get_http_version() not in ("1.1", "1.0"):
            self._refuse(505, "unsupported_http_version")
        self.expect_100_continue = fields.get(b"expect", b"").lower() == b"100-continue"
        return fields

    def on_message_complete(self) -> None:
        self._arriving = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn's text; ours is stable and names the reason)
        status, reason = self._fault
        body = strictjson.dumps({"ok": False, "error": {"code": "bad_request", "message": reason, "details": None}})
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()

    def _has_too_many_headers(self) -> bool:
        headers = self.headers
        return (
            len(headers) > self.limits.max_headers
            or sum([len(name) + len(value) for name, value in headers]) > self.limits.header_bytes
        )

    def _refuse(self, status: int, reason: str) -> None:
        self._fault = (status, reason)
        raise _Unacceptable(reason)

    def _arm(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self._fault = (408, "request_timeout")
            self.send_400_response("")


def quiet_config(app: Any, protocol: type[GuardedProtocol], **more: Any) -> uvicorn.Config:
    """Uvicorn without a word of its own: no log, no headers of its making, no WebSocket, no trust in proxies' headers."""
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        **more,
    )


def guarded_with(limits: ProtocolLimits) -> type[GuardedProtocol]:
    return type("GuardedProtocol", (GuardedProtocol,), {"limits": limits})
