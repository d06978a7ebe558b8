"""Start, drain, stop: what every server shares, and the one on standard input and output, which needs nothing of HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ExitCode, StartRefused
from toolgate.servers.allocator import keep_little
from toolgate.servers.stdio import StdioPipes, StdioServer
from toolgate.telemetry.oplog import told

if TYPE_CHECKING:
    from toolgate.app import App
    from toolgate.errors import Refusal
    from toolgate.settings import Settings


UNWIND_S: Final = 1.0
"""For tasks that are still there when a server has ended: time to clean up, none to wait for a thread."""
LINGER_S: Final = 1.0
"""Between the last word and the end of the process. Threads of ours never hold it; a pack may have started others."""
LAST_RESORT_S: Final = 30.0
"""Beyond the drain time, for a server whose event loop a handler has blocked: longer than any way of ending that works."""


def serve_stdio(app: App, settings: Settings, credential: bytes | None) -> int:
    """Serve the peer on standard input and output until it closes its end, or SIGTERM; then answer what was read."""
    return run(_stdio(app, settings, credential))


def refuse_stdio(app: App, settings: Settings, refusal: Refusal, line: bytes) -> int:
    """Answer the first line of a peer that has no good key with the refusal, which is recorded as over HTTP."""
    return run(_refuse(app, settings, refusal, line))


async def _stdio(app: App, settings: Settings, credential: bytes | None) -> int:
    app.road.authenticate(credential)  # no key, no start; every later message is checked again
    server = await _stdio_server(app, settings, credential)
    serving = asyncio.ensure_future(server.serve())

    def stop() -> None:
        if not serving.cancel():  # it has ended: this is the second signal, or the peer's patience is at its end
            server.give_up()

    try:
        with stop_on_signals(stop, settings.server.drain_seconds):
            await app.start_services()
            with told(app, "standard input"):
                with contextlib.suppress(asyncio.CancelledError):
                    await serving
                await server.drain(settings.server.drain_seconds)
    finally:
        await app.close()
    return ExitCode.OK


async def _refuse(app: App, settings: Settings, refusal: Refusal, line: bytes) -> int:
    try:
        await (await _stdio_server(app, settings, None)).refuse(refusal, line)
    finally:
        await app.close()
    return ExitCode.DENIED


async def _stdio_server(app: App, settings: Settings, credential: bytes | None) -> StdioServer:
    pipes = await StdioPipes.claim()
    return StdioServer(app.road, app.faces(), credential, pipes, body_bytes=settings.limits.body_bytes)


def run(main: Coroutine[Any, Any, int]) -> int:
    """The exit code of a server's coroutine. When it has ended, so does the process, whatever a handler still does.

    Raises: StartRefused: not on this platform.
    """
    if sys.platform == "win32":
        raise StartRefused("Toolgate serves on Linux and macOS.\nUse WSL on Windows.")
    import uvloop  # noqa: PLC0415 (not on every platform we can be imported on)

    keep_little()
    loop = uvloop.new_event_loop()
    try:
        code = loop.run_until_complete(main)
    finally:
        # Not asyncio.run: it waits without end for tasks that do not, and for the default executor's threads.
        loop.run_until_complete(_unwind())
        loop.close()
    _end_within(LINGER_S, code)
    return code


async def _unwind() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=UNWIND_S)


def _end_within(seconds: float, code: int) -> None:
    """Let the interpreter shut down normally, but for no longer than this. Side effects: may end the process."""
    last = threading.Timer(seconds, os._exit, (code,))
    last.daemon = True
    last.start()


@contextlib.contextmanager
def stop_on_signals(
    stop: Callable[[], object], drain_s: float, reload: Callable[[], object] | None = None
) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop` on the loop, each time one comes. So does SIGHUP, unless there is something to reload and
    the terminal that we were started from, if any, is still there.

    Once one has come the process is ending, within bounds of its own: those that come after the block are ignored, because
    they would kill it while it writes its last checkpoint.

    A plain handler, not the loop's own: it also runs while a handler blocks the loop, and then ends the process by force.
    """
    loop = asyncio.get_running_loop()
    asked, had_terminal = False, _has_terminal()
    outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # how `nohup` starts us

    def on_signal(number: int, _frame: object) -> None:
        nonlocal asked
        if number == signal.SIGHUP and reload is not None and (outlives or had_terminal == _has_terminal()):
            loop.call_soon_threadsafe(reload)
            return
        if not asked:
            asked = True
            _end_within(drain_s + LAST_RESORT_S, ExitCode.FAILED)
        loop.call_soon_threadsafe(stop)

    before = {number: signal.signal(number, on_signal) for number in _heard(reloads=reload is not None)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if asked else handler)


def _heard(*, reloads: bool) -> Iterator[signal.Signals]:
    """A terminal that closes sends SIGHUP; who started us with `nohup` has said that it does not stop us."""
    yield from (signal.SIGTERM, signal.SIGINT)
    if reloads or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        yield signal.SIGHUP


def _has_terminal() -> bool:
    """Is there a terminal that this process belongs to?"""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
