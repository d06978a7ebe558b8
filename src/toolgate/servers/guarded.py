"""The HTTP/1.1 protocol of the server: uvicorn's, plus what only this layer can see.

Neither of uvicorn's parsers closes a connection that never ends its headers, and both take requests that two readers could
frame differently. So here: one Host, no Content-Length beside Transfer-Encoding, bounded headers, a deadline for a request
to arrive, and word to the application when the client has gone.
"""

from __future__ import annotations

from asyncio import TimerHandle
from dataclasses import dataclass
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from toolgate.model import strictjson

GONE = "toolgate.gone"
"""Key in the ASGI scope: a list of callbacks for when the client goes away before its answer is complete."""


@dataclass(frozen=True, slots=True)
class ProtocolLimits:
    header_read_s: float
    body_read_s: float
    max_headers: int
    header_bytes: int


class _Unacceptable(Exception):
    """Stops the parser; the protocol then answers with the fault noted on it."""


class GuardedProtocol(HttpToolsProtocol):
    limits: ProtocolLimits
    """Set on a subclass by `guarded_with`: uvicorn makes the protocol objects itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fault = (400, "malformed_request")
        self._header_total = 0
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
            self._disarm()
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
        self._header_total = 0
        self._arriving, self._headers_done = True, False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_total += len(name) + len(value)
        if self._header_total > self.limits.header_bytes or len(self.headers) >= self.limits.max_headers:
            self._refuse(431, "headers_too_large")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._headers_done = True
        self._disarm()
        names = [name for name, _ in self.headers]
        if names.count(b"host") != 1:
            self._refuse(400, "one_host_header_needed")
        if b"transfer-encoding" in names and dict(self.headers)[b"transfer-encoding"].strip().lower() != b"chunked":
            self._refuse(400, "unsupported_transfer_encoding")
        if self.parser.get_http_version() not in ("1.1", "1.0"):
            self._refuse(505, "unsupported_http_version")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arriving = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn's text; ours is stable and names the reason)
        status, reason = self._fault
        body = strictjson.dumps({"ok": False, "error": {"code": "bad_request", "message": reason, "details": None}})
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()

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


def guarded_with(limits: ProtocolLimits) -> type[GuardedProtocol]:
    return type("GuardedProtocol", (GuardedProtocol,), {"limits": limits})
