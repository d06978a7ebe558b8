"""A connection without a socket: its transport and its loop stand still until a test moves them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from toolgate.servers.connection import Connection, WaitLimits
from toolgate.servers.door import Door, DoorLimits
from toolgate.servers.framing import FramingLimits

FRAMING = FramingLimits(line_bytes=4096, header_bytes=16_384, max_headers=64, body_bytes=1 << 20)
WAITS = WaitLimits(head_s=10.0, body_s=20.0, write_s=30.0, idle_s=75.0)


class Wire:
    """What was sent. `on_write` is called first: the moment at which an answer leaves."""

    def __init__(self) -> None:
        self.sent = b""
        self.unsent = 0
        """Bytes that the kernel did not take."""
        self.closed = self.aborted = self.ended = False
        self.reading = True
        self.on_write: Callable[[], None] = lambda: None

    def write(self, data: bytes) -> None:
        self.on_write()
        self.sent += data

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("192.0.2.1", 50_000) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """Whether it is exceeded, a test decides."""

    def get_write_buffer_size(self) -> int:
        return self.unsent


class Later:
    """Stands for the loop: timers fire when told to, and so do the calls of a turn's end."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> Later:
        self.timers.append((self.now + seconds, call))
        return self

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def create_future(self) -> Future[None]:
        return Future()

    def cancel(self) -> None:
        """A timer that is not due finds that out by itself."""

    def go_to(self, now: float) -> None:
        self.now = now
        due = [call for moment, call in self.timers if moment <= now]
        self.timers = [one for one in self.timers if one[0] > now]
        for call in due:
            call()

    def end_turn(self) -> None:
        due, self.soon = self.soon, []
        for call in due:
            call()

    def end_turns(self) -> None:
        """Until nothing is left to do."""
        while self.soon:
            self.end_turn()


def door(loop: Any, *, connections: int = 1024, waiting_bytes: int = 1 << 24) -> Door:
    return Door(DoorLimits(connections, waiting_bytes), loop)


def connected(app: Any, loop: Any, house: Door | None = None) -> tuple[Connection[Any], Wire]:
    """A new connection; those that share a door are of one server."""
    connection = Connection(app, house or door(loop), loop, framing=FRAMING, waits=WAITS)
    wire = Wire()
    connection.connection_made(wire)
    return connection, wire


def feed(connection: Connection[Any], data: bytes) -> None:
    """As the loop does: into the shared buffer, as much as it takes at once."""
    while data:
        room = connection.get_buffer(-1)
        size = min(len(room), len(data))
        room[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]
