"""What goes on beside a server that shows numbers: its event loop is watched, and the page may have a port of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from toolgate.servers.observed.page import DOOR, FRAMING, WAITS, MetricsApp, MetricsPage
from toolgate.servers.server import Server

if TYPE_CHECKING:
    import socket

    from toolgate.app import App
    from toolgate.settings import Settings
    from toolgate.telemetry.families import Numbers
    from toolgate.telemetry.gathering import Telemetry

    Bind = Callable[[str, int], socket.socket]


def page_of(app: App, of_all: Callable[[], Awaitable[list[Numbers]]] | None = None) -> MetricsPage | None:
    """None: it shows no numbers. `of_all`: those of every process behind this port, where there are several.

    Raises: StartRefused.
    """
    if app.telemetry is None or not app.settings.metrics.are_shown:
        return None
    return MetricsPage(of_all or partial(_collected, app.telemetry))


async def _collected(telemetry: Telemetry) -> list[Numbers]:
    """Of the only process behind this port."""
    return [telemetry.numbers()]


@asynccontextmanager
async def observed(
    app: App, settings: Settings, server: Server, page: MetricsPage | None, url: str, bind: Bind
) -> AsyncIterator[None]:
    """While a server that shows numbers is ready: its loop is watched, and the port of their own is open.

    Raises: StartRefused: that address cannot be bound.
    """
    if app.telemetry is None or page is None:
        yield
        return
    from toolgate.telemetry.loop_lag import LoopLag  # noqa: PLC0415 (for servers that show numbers)

    lag = LoopLag(asyncio.get_running_loop())
    app.telemetry.more.append(
        lambda: {
            "toolgate_connections": [((), float(server.connections()))],
            "toolgate_loop_lag_seconds": [((), lag.longest_s())],
        }
    )
    beside, app.telemetry.address = None, f"{url}/metrics"
    if settings.metrics.listen and (app.share is None or app.share.is_owner):
        beside, app.telemetry.address = await _beside(settings, page, bind)
    lag.start()
    try:
        yield
    finally:
        lag.stop()
        if beside is not None:
            beside.stop()
            await beside.ended()


async def _beside(settings: Settings, page: MetricsPage, bind: Bind) -> tuple[Server, str]:
    """The port of its own, and its address. Raises: StartRefused."""
    host, _, port = settings.metrics.listen.rpartition(":")
    listener = bind(host.strip("[]"), int(port))
    names = frozenset(name.lower().encode() for name in settings.server.allowed_hosts)
    server = Server(MetricsApp(page, names), door=DOOR, framing=FRAMING, waits=WAITS, drain_s=0)
    await server.start(listener)
    return server, f"http://{host}:{listener.getsockname()[1]}/metrics"
