"""Both ends of TLS without a socket: a test moves the bytes, and the clock."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Any

from tests.servers.byhand import FRAMING, WAITS, Wire
from toolgate.servers.connection import Connection
from toolgate.servers.door import Door
from toolgate.servers.tls.layer import TlsInbox, TlsLayer


class Client:
    """A client of a layer. What it hears is what it could decrypt."""

    def __init__(self, app: Any, context: ssl.SSLContext, trust: ssl.SSLContext, loop: Any, house: Door) -> None:
        self._loop = loop
        self.wire = Wire()
        connection = Connection(app, house, loop, framing=FRAMING, waits=WAITS)
        self.layer = TlsLayer(connection, context, house, TlsInbox(), loop)
        self.layer.connection_made(self.wire)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = trust.wrap_bio(self._in, self._out, server_hostname="localhost")
        self._taken = 0
        self.heard = b""
        self.is_told_goodbye = False

    def hello(self) -> bytes:
        """The first words of a handshake."""
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._out.read()

    def shake_hands(self) -> None:
        self.give(self.hello())
        self._listen()
        self.tls.do_handshake()
        self.give(self._out.read())
        self._loop.end_turns()

    def send(self, data: bytes) -> None:
        self.give(self.encrypted(data))
        self._loop.end_turns()
        self.hear()

    def encrypted(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self._out.read()

    def give(self, data: bytes) -> None:
        """As the loop does, while the socket is read; what is left is returned by the kernel later."""
        while data and not self.wire.closed:
            room = self.layer.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self.layer.buffer_updated(size)
            data = data[size:]

    def hear(self) -> None:
        self._listen()
        try:
            while piece := self.tls.read(65_536):
                self.heard += piece
            self.is_told_goodbye = True
        except ssl.SSLWantReadError:
            return

    def _listen(self) -> None:
        self._in.write(self.wire.sent[self._taken :])
        self._taken = len(self.wire.sent)
