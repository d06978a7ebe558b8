"""A paper in the browser while it is edited: what `lra serve` does."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from watchfiles import awatch

from toolgate.errors import ToolError
from toolgate.model.threads import in_thread
from toolgate.packs.lra.cli.border import say
from toolgate.packs.lra.cli.making.building import concerns, rebuild, served
from toolgate.packs.lra.devsite import overlay as sites
from toolgate.packs.lra.devsite.site import DevSite, bind
from toolgate.powers.files import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable


FIRST_PORT: Final = 8080
PORTS_TRIED: Final = 100


def serve(*, path: Path, port: int | None) -> None:
    directory, source = served(path)
    asyncio.run(_serve(directory, port, source))


async def _serve(path: Path, port: int | None, source: Path | None = None) -> None:
    listener = bind(port) if port is not None else _next_free(bind)
    site = DevSite(sites.site(".", listener.getsockname()[1]), Workspace(path), path, _in_thread, listener)
    await site.start()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    say(sites.text(dict(site.details)))
    sys.stdout.flush()
    builder = asyncio.create_task(_rebuild(source, path, stop)) if source is not None else None
    await stop.wait()
    if builder is not None:
        await asyncio.gather(builder, return_exceptions=True)
    await site.stop()


async def _rebuild(source: Path, target: Path, stop: asyncio.Event) -> None:
    """The page follows its source; what is wrong with the source is told, and the last good page stays."""
    armed = False
    watched = awatch(
        source.parent, watch_filter=concerns(target), stop_event=stop, yield_on_timeout=True, rust_timeout=200
    )
    async for batch in watched:
        if armed and not batch:
            continue
        armed = True  # once more when the watcher is there: a change between the first build and this would be lost
        await in_thread(rebuild, source, target)
        sys.stdout.flush()


def _next_free(bind: Callable[[int], Any]) -> Any:
    for port in range(FIRST_PORT, FIRST_PORT + PORTS_TRIED):
        try:
            return bind(port)
        except ToolError as fault:
            if fault.code != "ADDRESS_IN_USE":
                raise
    raise ToolError("ADDRESS_IN_USE", f"No port from {FIRST_PORT} to {FIRST_PORT + PORTS_TRIED - 1} is free")


async def _in_thread(function: Callable[[Any], Any], data: Any, *, timeout_s: float) -> Any:
    """An author's own paper on the author's own machine: a thread is enough."""
    async with asyncio.timeout(timeout_s):
        return await in_thread(function, data)
