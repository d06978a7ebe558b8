"""The server on a socket: bind, ready, drain, stop. uvicorn's own handling of signals ends a drained server with 143."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import uvicorn

from toolgate.errors import ExitCode, StartRefused
from toolgate.servers.guarded import ProtocolLimits, quiet_config
from toolgate.servers.http import HttpApp
from toolgate.servers.lane import lane_with
from toolgate.servers.lifecycle import run, stop_on_signals

if TYPE_CHECKING:
    from toolgate.app import App
    from toolgate.settings import Settings

BACKLOG: Final = 2048
"""Connections the kernel keeps until we take them: a burst of clients is not turned away."""
LAST_WORDS_S: Final = 0.5
"""Between giving up and ending: cancelled handlers unwind, their outcomes are written."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def serve_http(app: App, settings: Settings, on_ready: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT. `on_ready` gets the URL when the first request can be answered.

    Raises: StartRefused: the address cannot be bound.
    """
    return run(_http(app, settings, on_ready))


async def _http(app: App, settings: Settings, on_ready: Callable[[str], None]) -> int:
    try:
        listener = _bind(settings.server.host, settings.server.port)
    except StartRefused:
        await app.close()
        raise
    asgi = HttpApp(app.road, app.mrt_face(), app.rpc_face(), body_bytes=settings.limits.body_bytes, ready=app.ready)
    port = listener.getsockname()[1]
    asgi.heads.hosts, asgi.heads.origins = _served_names(settings, port)
    server = _Server(
        quiet_config(
            asgi,
            lane_with(_protocol_limits(settings)),
            limit_concurrency=settings.server.max_connections,
            backlog=BACKLOG,
            timeout_keep_alive=75,
        ),
        on_started=lambda: on_ready(f"http://{_host_text(settings.server.host)}:{port}"),
        give_up=app.road.cancel_all,
        drain_s=settings.server.drain_seconds,
    )
    logging.getLogger("uvicorn").setLevel(
        logging.CRITICAL
    )  # strangers' malformed requests are no news; ours is the border
    try:
        with stop_on_signals(server.stop):
            await app.start_services()
            await server.serve(sockets=[listener])
    finally:
        await app.close()
    return ExitCode.OK


class _Server(uvicorn.Server):
    """uvicorn's server with our own stopping: the first signal drains, the second (or the drain time) gives up waiting."""

    def __init__(
        self, config: uvicorn.Config, *, on_started: Callable[[], None], give_up: Callable[[], None], drain_s: float
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._give_up = give_up
        self._drain_s = drain_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        if self.should_exit:
            self._end_now()
        else:
            self.should_exit = True
            asyncio.get_running_loop().call_later(self._drain_s, self._end_now)

    def _end_now(self) -> None:
        """Cancelled calls still write their outcome and answer; whoever then still runs is left to the next start."""
        self._give_up()
        asyncio.get_running_loop().call_later(LAST_WORDS_S, setattr, self, "force_exit", True)  # noqa: FBT003 (setattr's own)


def _bind(host: str, port: int) -> socket.socket:
    """Raises: StartRefused."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, _, _, address = found[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as fault:
        raise StartRefused(
            f"Cannot listen on {host} port {port}: {fault.strerror or fault}.\nUse --port 0 for a free one."
        ) from None
    listener.setblocking(False)  # noqa: FBT003 (the standard library's own signature)
    return listener


def _served_names(settings: Settings, port: int) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """Host and Origin values we answer to. Loopback names are always ours; any other name must be in the settings."""
    hosts = {f"{_host_text(name)}:{port}" for name in _LOOPBACK} | {
        name.lower() for name in settings.server.allowed_hosts
    }
    origins = {f"http://{_host_text(name)}:{port}" for name in _LOOPBACK} | {
        name.lower() for name in settings.server.allowed_origins
    }
    return frozenset(name.encode() for name in hosts), frozenset(name.encode() for name in origins)


def _host_text(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _protocol_limits(settings: Settings) -> ProtocolLimits:
    server = settings.server
    return ProtocolLimits(server.header_read_seconds, server.body_read_seconds, server.max_headers, server.header_bytes)
