"""Two published HTTP/1.1 parsers as judges of our framing: llhttp (by httptools) and h11.

Both are more lenient than we are, each in its own way. So the law is one-sided: what we read, both must read as the very
same messages.
"""

from __future__ import annotations

import contextlib
from typing import Any

import h11
import httptools

Message = tuple[bytes, bytes, bytes]
"""Method, target, body."""


class _Heard:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.url = b""
        self.body = b""
        self.parser: Any = None

    def on_message_begin(self) -> None:
        self.url = self.body = b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.messages.append((self.parser.get_method(), self.url, self.body))


def llhttp(stream: bytes) -> list[Message]:
    """The messages up to a fault, an upgrade or the end."""
    heard = _Heard()
    heard.parser = httptools.HttpRequestParser(heard)
    with contextlib.suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
        heard.parser.feed_data(stream)
    return heard.messages


def h11_reads(stream: bytes) -> list[Message]:
    """As `llhttp`. A fresh parser for each message: h11 reads no empty line before a request, and stops at `close`."""
    messages: list[Message] = []
    while stream:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        while stream.startswith(b"\r\n"):
            stream = stream[2:]
        connection.receive_data(stream)
        try:
            message = _one(connection)
        except h11.RemoteProtocolError:
            break
        if message is None:
            break
        messages.append(message)
        stream = connection.trailing_data[0]
    return messages


def _one(connection: h11.Connection) -> Message | None:
    """None while it is not whole. Raises: h11.RemoteProtocolError."""
    head, body = (b"", b""), b""
    while True:
        match connection.next_event():
            case h11.Request() as request:
                head = bytes(request.method), bytes(request.target)
            case h11.Data() as data:
                body += bytes(data.data)
            case h11.EndOfMessage():
                return *head, body
            case _:
                return None
