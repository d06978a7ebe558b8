"""An application on a listening socket: accept, drain, stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

from toolgate.servers.application import Application
from toolgate.servers.connection import SEND_BUFFER_BYTES, Connection, WaitLimits
from toolgate.servers.door import Door, DoorLimits
from toolgate.servers.fault_report import LAST_WORDS_S
from toolgate.servers.framing import FramingLimits
from toolgate.servers.tls.certificate import ServerCertificate
from toolgate.servers.tls.layer import TlsInbox, TlsLayer

BACKLOG: Final = 2048
"""Connections the kernel keeps until we take them: a burst of clients is not turned away."""
ACCEPTS_A_TURN: Final = 4
"""The event loop takes one connection from a listening socket in each of its turns. A crowd would make everybody who comes
wait for as many turns, so there are so many handles of the one socket."""


class Server:
    """An application on a socket. The first `stop` drains; the second, or the drain time, gives up waiting."""

    def __init__(
        self,
        app: Application[Any],
        *,
        door: DoorLimits,
        framing: FramingLimits,
        waits: WaitLimits,
        drain_s: float,
        certificate: ServerCertificate | None = None,
        give_up: Callable[[], object] = lambda: None,
        on_stop: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_stop`: called when the server begins to stop, so that answers without an end come to one. `give_up`: called
        when the drain time is over, so that answers under way end. `certificate`: speak TLS, with what it holds when a
        client connects."""
        self._loop = asyncio.get_running_loop()
        self._app, self._framing, self._waits = app, framing, waits
        self._door = Door(door, self._loop)
        self._drain_s, self._give_up, self._on_stop = drain_s, give_up, on_stop
        self._certificate, self._tls_inbox = certificate, TlsInbox()
        self._listening: list[asyncio.Server] = []
        self._stopping = False
        self._ended: asyncio.Future[None] = self._loop.create_future()

    async def start(self, listener: socket.socket) -> None:
        """Raises: OSError."""
        protocol = self._connection if self._certificate is None else self._secured
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)  # its connections inherit it
        for each in [listener, *(listener.dup() for _ in range(ACCEPTS_A_TURN - 1))]:
            self._listening.append(await self._loop.create_server(protocol, sock=each, backlog=BACKLOG))
        if self._stopping:
            self._stop_listening()

    async def ended(self) -> None:
        """Waits until `stop` was called and every connection is closed."""
        await self._ended

    def connections(self) -> int:
        """That are open."""
        return len(self._door.guests)

    def stop(self) -> None:
        if self._stopping:
            self._end_now()
            return
        self._stopping = True
        self._on_stop()
        self._stop_listening()
        self._loop.call_later(self._drain_s, self._end_now)
        self._door.on_empty = self._end
        for connection in list(self._door.guests):
            connection.shutdown()
        if not self._door.guests:
            self._end()

    def _stop_listening(self) -> None:
        for each in self._listening:
            each.close()

    def _connection(self) -> Connection[Any]:
        return Connection(self._app, self._door, self._loop, framing=self._framing, waits=self._waits)

    def _secured(self) -> TlsLayer:
        assert self._certificate is not None
        return TlsLayer(self._connection(), self._certificate.context, self._door, self._tls_inbox, self._loop)

    def _end_now(self) -> None:
        """Cancelled calls still write their outcome and answer; whoever then still runs is left to the next start."""
        self._give_up()
        self._loop.call_later(LAST_WORDS_S, self._abort)

    def _abort(self) -> None:
        for connection in list(self._door.guests):
            connection.abort()
        self._end()

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
