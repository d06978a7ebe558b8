"""Start, drain, stop: what every server shares, and the one on standard input and output, which needs nothing of HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from toolgate.errors import ExitCode, StartRefused
from toolgate.servers.stdio import Pipes, StdioServer

if TYPE_CHECKING:
    from toolgate.app import App
    from toolgate.settings import Settings


def serve_stdio(app: App, settings: Settings, credential: bytes | None) -> int:
    """Serve the peer on standard input and output until it closes its end, or SIGTERM."""
    return run(_stdio(app, settings, credential))


async def _stdio(app: App, settings: Settings, credential: bytes | None) -> int:
    app.road.authenticate(credential)  # no key, no start; every later message is checked again
    pipes = await Pipes.claim()
    server = StdioServer(app.road, app.rpc_face(), credential, pipes, body_bytes=settings.limits.body_bytes)
    serving = asyncio.ensure_future(server.serve())
    try:
        with stop_on_signals(serving.cancel):
            await app.start_services()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
            await asyncio.wait_for(server.drain(), settings.server.drain_seconds or 1)
    except TimeoutError:
        pass  # what did not end in time is found by the next run, as an intent without an outcome
    finally:
        await app.close()
    return ExitCode.OK


def run(main: Any) -> int:
    """The exit code of a server's coroutine. Raises: StartRefused: not on this platform."""
    if sys.platform == "win32":
        raise StartRefused("Toolgate serves on Linux and macOS.\nUse WSL on Windows.")
    import uvloop  # noqa: PLC0415 (not on every platform we can be imported on)

    code: int = uvloop.run(main)
    return code


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], object]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop` on the loop, each time one comes."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
