"""One TCP connection to a stranger. To an address, never to a name."""

from __future__ import annotations

import asyncio
import select
import socket
from contextlib import ExitStack
from typing import Any, Protocol


class Stream(Protocol):
    """One TCP connection, as the connector makes it."""

    @property
    def peer(self) -> str:
        """The address at the other end."""
        ...

    async def receive(self, max_bytes: int) -> bytes:
        """What has come; empty at the end. Raises: OSError."""
        ...

    async def send(self, data: bytes) -> None: ...
    def is_quiet(self) -> bool: ...
    def close(self) -> None: ...


class TcpStream:
    """The loop watches it from the first read on, and not only while somebody waits: who keeps a connection reads it often."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[bytes] | None = None
        self._most = 0
        self._watched = False
        self._poll: Any = select.poll() if hasattr(select, "poll") else None  # Windows has none
        if self._poll is not None:
            self._poll.register(connected, select.POLLIN)

    @property
    def peer(self) -> str:
        return str(self._socket.getpeername()[0])

    async def receive(self, max_bytes: int) -> bytes:
        return await self.next_piece(max_bytes)

    def next_piece(self, max_bytes: int) -> asyncio.Future[bytes]:
        """What `receive` waits for."""
        self._most = max_bytes
        self._waiting = waiting = self._loop.create_future()
        if not self._watched:
            self._watched = True
            self._loop.add_reader(self._socket, self._read)
        return waiting

    def _read(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None or waiting.done():
            self._unwatch()  # it stays in the socket, where `is_quiet` finds it
            return
        try:
            waiting.set_result(self._socket.recv(self._most))
        except BlockingIOError:
            self._waiting = waiting
        except OSError as fault:
            waiting.set_exception(fault)

    def fail(self, fault: OSError) -> None:
        """What is waited for will not come."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(fault)

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.remove_reader(self._socket)

    async def send(self, data: bytes) -> None:
        sent = self.send_now(data)
        if sent < len(data):
            await self._loop.sock_sendall(self._socket, data[sent:])

    def send_now(self, data: bytes) -> int:
        """As much as the system takes at once. Raises: OSError."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    def is_quiet(self) -> bool:
        """Nothing has come that nobody has read: neither bytes nor the end."""
        if self._poll is not None:
            return not self._poll.poll(0)  # each relayed call asks: a peek that finds nothing takes three times as long
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        self._unwatch()
        self._socket.close()


async def connect(address: str, port: int) -> TcpStream:
    """To an address, never to a name: nothing is resolved here. Raises: OSError."""
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    with ExitStack() as undo:
        undo.callback(made.close)
        made.setblocking(False)  # noqa: FBT003 (the library's shape)
        await asyncio.get_running_loop().sock_connect(made, (address, port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        undo.pop_all()
    return TcpStream(made)
