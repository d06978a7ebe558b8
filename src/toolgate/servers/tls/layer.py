"""TLS between a socket and its connection: what a connection may hold, wait for and use holds for its handshake, too.

A connection exists, and has a place at the door, from the first byte of the handshake on: its deadline runs, and when the
house is full it goes like any other newcomer. A handshake costs a signature, so it takes the newcomers' turn. What was read
and not yet decrypted is at most one read; what the kernel has not taken is counted by the socket's own transport.
"""

from __future__ import annotations

import ssl
from asyncio import AbstractEventLoop, BufferedProtocol, Transport
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from toolgate.servers.door import READ_BYTES, SMALL_READ_BYTES, STRANGERS

if TYPE_CHECKING:
    from toolgate.servers.connection import Connection
    from toolgate.servers.door import Door

HANDSHAKE_BYTES: Final = 16_384
"""What a client may send before its handshake is complete: a hello and a few words more, some 2 KB."""
SILENT_BYTES: Final = 65_536
"""What a client may send without one byte for the application: a record has 16 KB, and messages that only renew keys cost us
more than their sender."""
_NOTHING: Final[Any] = None
_PLAIN: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: 44\r\n\r\n"
    b"This port speaks TLS: use https, not http.\r\n"
)


class TlsInbox:
    """Where encrypted bytes of every connection of a server arrive, one connection at a time."""

    def __init__(self) -> None:
        self.large = memoryview(bytearray(READ_BYTES))
        self.small = self.large[:SMALL_READ_BYTES]


class TlsLayer(BufferedProtocol):
    """The socket's protocol on one side, the connection's transport on the other."""

    def __init__(
        self,
        connection: Connection[Any],
        context: ssl.SSLContext,
        door: Door,
        inbox: TlsInbox,
        loop: AbstractEventLoop,
    ) -> None:
        self._connection, self._door, self._inbox, self._loop = connection, door, inbox, loop
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._read_into: Callable[[int, memoryview], int] = cast("Any", self._tls.read)  # typeshed knows one form of it
        self._socket: Transport = _NOTHING
        self._is_open = False
        """The handshake is complete."""
        self._is_reading = True
        """The connection takes bytes."""
        self._is_ended = False
        """We have said our last word; what still comes is counted and dropped."""
        self._silent = 0
        self._is_waiting = False
        """For the newcomers' turn."""

    # What the socket's transport calls -------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._socket = transport
        self._connection.connection_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (asyncio's signature)
        is_small = self._connection.caller_id is STRANGERS or not self._may_go()
        return self._inbox.small if is_small else self._inbox.large

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_ended:
            self._connection.get_buffer(-1)
            self._connection.buffer_updated(nbytes)  # it drops them, whatever they are
            return
        self._in.write(self._inbox.large[:nbytes])
        self._silent += nbytes
        if self._is_open:
            self._decrypt()
        else:
            self._shake_hands_in_turn()

    def eof_received(self) -> bool:
        return self._is_open and self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    # The handshake ---------------------------------------------------------------------------------------------------

    @property
    def turn_id(self) -> str:
        return self._connection.turn_id

    def take_turn(self) -> None:
        self._is_waiting = False
        if not self._socket.is_closing():
            self._socket.resume_reading()
            self._shake_hands()

    def _shake_hands_in_turn(self) -> None:
        if self._is_waiting:
            return
        if self._may_go():
            self._shake_hands()
        else:
            self._is_waiting = True
            self._socket.pause_reading()
            self._door.turns.wait(self)

    def _may_go(self) -> bool:
        return len(self._door.guests) == 1 or self._door.turns.may_go(self.turn_id)

    def _shake_hands(self) -> None:
        began = perf_counter()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            if self._silent > HANDSHAKE_BYTES:
                self._socket.abort()
        except ssl.SSLError as fault:
            self._fail(fault)
        else:
            self._flush()
            self._is_open = True
        self._door.turns.spent(self.turn_id, began)
        if self._is_open:
            self._decrypt()

    def _fail(self, fault: ssl.SSLError) -> None:
        """Tell the client, by an alert or, if it does not speak TLS at all, in its own words."""
        if fault.reason == "HTTP_REQUEST":
            self._out.read()
            self._socket.write(_PLAIN)
        else:
            self._flush()
        self._socket.close()

    # Bytes to the connection -----------------------------------------------------------------------------------------

    def _decrypt(self) -> None:
        """Everything that has arrived, as long as the connection takes it."""
        while self._is_reading and not self._is_ended and not self._socket.is_closing():
            room, began = self._connection.get_buffer(-1), perf_counter()
            try:
                size = self._read_into(len(room), room)
            except ssl.SSLWantReadError:
                self._await_more(began)
                return
            except ssl.SSLError:  # garbage, or a record that was changed on the way
                self._flush()
                self._socket.close()
                return
            if not size:
                self._ended_by_client()
                return
            self._silent = 0
            self._connection.buffer_updated(size)

    def _await_more(self, began: float) -> None:
        self._flush()  # what TLS itself answers, such as a change of keys
        if self._silent:
            self._door.turns.spent(self.turn_id, began)
        if self._silent > SILENT_BYTES:
            self._socket.abort()

    def _ended_by_client(self) -> None:
        """It has said that nothing follows."""
        self._is_reading = False
        if not self._connection.eof_received():
            self.close()

    # What the connection calls ---------------------------------------------------------------------------------------

    def get_extra_info(self, name: str) -> Any:
        return self._socket.get_extra_info(name)

    def set_write_buffer_limits(self, high: int) -> None:
        self._socket.set_write_buffer_limits(high)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._socket.is_closing()

    def write(self, data: bytes) -> None:
        """Before the handshake is complete there is no way to tell the client anything."""
        if self._is_open and not self._is_ended:
            self._tls.write(data)
            self._flush()

    def write_eof(self) -> None:
        if self._is_open:
            self._say_last_word()
            self._socket.write_eof()
        else:
            self._socket.abort()

    def close(self) -> None:
        if self._is_open:
            self._say_last_word()
        self._socket.close()

    def abort(self) -> None:
        self._socket.abort()

    def pause_reading(self) -> None:
        self._is_reading = False
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading = True
        self._loop.call_soon(self._go_on_reading)

    def _go_on_reading(self) -> None:
        """First what was read before; the socket after that, if the connection has not had enough."""
        if self._is_open and not self._is_ended:
            self._decrypt()
        if self._is_reading and not self._socket.is_closing():
            self._socket.resume_reading()

    def _say_last_word(self) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        with suppress(ssl.SSLError):  # it is written at once; the client's own is not waited for
            self._tls.unwrap()
        self._flush()

    def _flush(self) -> None:
        if self._out.pending and not self._socket.is_closing():
            self._socket.write(self._out.read())
