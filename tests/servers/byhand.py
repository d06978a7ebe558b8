"""The protocol without a socket: its transport and its loop stand still until a test moves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from toolgate.servers.guarded import ProtocolLimits
from toolgate.servers.lane import lane_with


class Wire:
    """What was sent. `on_write` is called first: the moment at which an answer leaves."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False
        self.on_write: Callable[[], None] = lambda: None

    def write(self, data: bytes) -> None:
        self.on_write()
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str) -> None:
        return None


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

    def cancel(self) -> None:
        """No timer of these tests is cancelled in earnest."""

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


def connected(app: Any, loop: Any, state: ServerState | None = None) -> tuple[Any, Wire]:
    """A new connection; those that share a state are of one server."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, proxy_headers=False)
    protocol = lane_with(ProtocolLimits(1000, 1000, 64, 16384))(config, state or ServerState(), {}, loop)
    wire = Wire()
    protocol.connection_made(wire)
    return protocol, wire
