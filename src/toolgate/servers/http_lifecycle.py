"""The gate on a socket: bind, limits from the settings, ready, stop on signals."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ExitCode, StartRefused
from toolgate.servers.connection import WaitLimits
from toolgate.servers.door import DoorLimits
from toolgate.servers.fault_report import report
from toolgate.servers.framing import FramingLimits
from toolgate.servers.http import HttpApp
from toolgate.servers.lifecycle import run, stop_on_signals
from toolgate.servers.observed.beside import observed, page_of
from toolgate.servers.processes.control import Answers, ControlSocket
from toolgate.servers.processes.supervisor import Supervisor
from toolgate.servers.request_head import HeadReader
from toolgate.servers.server import BACKLOG, Server
from toolgate.servers.tls.certificate import ServerCertificate
from toolgate.telemetry.oplog import told

if TYPE_CHECKING:
    from toolgate.app import App
    from toolgate.ruleset import Ruleset
    from toolgate.running import Running
    from toolgate.servers.observed.page import MetricsPage
    from toolgate.servers.processes.member import Member
    from toolgate.settings import Settings

SPARE_DESCRIPTORS: Final = 128
"""For the log, stores, workers and files, beside one for each connection."""
Ready = Callable[[Mapping[str, Any]], None]
_log: Final = logging.getLogger("toolgate.serve")
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def serve_http(running: Running, on_ready: Callable[[str], None], member: Member | None = None) -> int:
    """Serve until SIGTERM or SIGINT; SIGHUP reloads. `on_ready` gets the URL when the first request can be answered.

    `member`: this is one of several processes, and its supervisor hears the signals.

    Raises: StartRefused: the address cannot be bound, or the certificate cannot be used.
    """
    return run(_http(running, on_ready, member))


def serve_several(settings: Settings, flags: dict[str, Any], processes: int, on_ready: Ready) -> int:
    """Serve by so many processes. `on_ready` gets what the first of them says of itself when all can answer.

    Raises: StartRefused.
    """
    return run(_several(settings, flags, processes, on_ready))


async def _several(settings: Settings, flags: dict[str, Any], processes: int, on_ready: Ready) -> int:
    open_certificate(settings)  # said once
    listener = _bind(settings.server.host, settings.server.port)
    listener.listen(BACKLOG)
    try:
        supervisor = Supervisor(settings, flags, processes, listener)
    except OSError as fault:
        raise StartRefused(
            f"The memory that workers share cannot be made: {fault.strerror}.\nMake room for temporary files."
        ) from None
    control = ControlSocket(
        settings.paths.state, {"status": supervisor.status, "reload": partial(supervisor.reload, "toolgate reload")}
    )
    hang_ups = HangUps(partial(supervisor.reload, "SIGHUP"))
    with stop_on_signals(supervisor.stop, settings.server.drain_seconds, hang_ups.hear):
        told = await supervisor.start()
        if told is not None:
            await _open(control)
            on_ready(told)
        code = await supervisor.ended()
        await control.close()
        await hang_ups.close()
    return code


async def _http(running: Running, on_ready: Callable[[str], None], member: Member | None) -> int:
    app, settings = running.app, running.app.settings
    try:
        certificate = open_certificate(settings)
        page = page_of(app, member.all_numbers if member is not None else None)
        listener = member.place.listening() if member else _bind(settings.server.host, settings.server.port)
    except StartRefused:
        await app.close()
        raise
    port = listener.getsockname()[1]
    http = _front(running, port, page)
    running.url = f"{settings.server.scheme}://{_host_text(settings.server.host)}:{port}"
    running.parts.append(partial(_renewed_front, http, app, port))
    if certificate is not None:
        running.parts.append(partial(_renewed_certificate, certificate))
    server = _server(app, http, settings, certificate, 1 if member is None else member.place.processes)
    hang_ups = HangUps(partial(running.reload, "SIGHUP")) if member is None else None
    try:
        with stop_on_signals(server.stop, settings.server.drain_seconds, hang_ups.hear if hang_ups else None):
            await app.start_services()
            joined = _controlled(running) if member is None else member.joined(running, http, server.stop)
            async with observed(app, settings, server, page, running.url, _bind), joined:
                await server.start(listener)
                on_ready(running.url)
                with told(app, running.url):
                    await server.ended()
    finally:
        if hang_ups is not None:
            await hang_ups.close()
        await running.close()
        await app.close()
        listener.close()  # also where a service refused the start before anybody listened
        if member is not None:
            member.leave()
    return ExitCode.OK


@asynccontextmanager
async def _controlled(running: Running) -> AsyncIterator[None]:
    """Of a server that is one process: the operator reaches it."""
    answers: Answers = {"status": running.status, "reload": partial(running.reload, "toolgate reload")}
    control = ControlSocket(running.app.settings.paths.state, answers)
    await _open(control)
    try:
        yield
    finally:
        await control.close()


class HangUps:
    """Each SIGHUP asks for a reload; those that come during one ask for one more."""

    def __init__(self, reload: Callable[[], Awaitable[object]]) -> None:
        self._reload = reload
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def hear(self) -> None:
        self._again = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._again:
                self._again = False
                await self._reload()
        except Exception as fault:  # noqa: BLE001 (the border: a fault of our own is one line, and the server goes on)
            report(fault)
        finally:
            self._task = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def _open(control: ControlSocket) -> None:
    """Without it the server serves all the same: SIGHUP still reloads."""
    try:
        await control.open()
    except OSError as fault:
        reason = fault.strerror or str(fault)
        _log.warning("no control socket at %s (%s): toolgate status and reload cannot reach us", control.path, reason)


def _front(running: Running, port: int, page: MetricsPage | None) -> HttpApp:
    app, settings = running.app, running.app.settings
    http = HttpApp(
        app.road,
        app.faces(),
        body_bytes=settings.limits.body_bytes,
        ready=app.ready,
        besides=running.besides,
        trusted_proxies=settings.server.trusted_proxies,
        metrics=page if settings.metrics.enabled else None,
        site=app.site(),
    )
    http.heads.hosts, http.heads.origins = _served_names(settings, port)
    return http


def _renewed_front(http: HttpApp, app: App, port: int, rules: Ruleset) -> Callable[[], None]:
    """Part of a reload: the faces, and the names we answer to."""
    heads = HeadReader(app.faces(rules), None if http.site is None else http.site.path)
    heads.hosts, heads.origins = _served_names(rules.settings, port)
    return lambda: http.obey(app.road, heads, rules.settings.server.trusted_proxies)


def _renewed_certificate(certificate: ServerCertificate, rules: Ruleset) -> Callable[[], None]:
    """Part of a reload: the files of the certificate in use, read again."""
    fresh = open_certificate(rules.settings)
    assert fresh is not None  # whether there is one does not change while we run
    return lambda: certificate.take_over(fresh)


def _server(
    app: App, http: HttpApp, settings: Settings, certificate: ServerCertificate | None, processes: int
) -> Server:
    connections = max(4, settings.server.max_connections // processes)
    return Server(
        http,
        door=DoorLimits(_affordable(connections), settings.limits.waiting_bytes_per_caller),
        framing=_framing_limits(settings),
        waits=_wait_limits(settings),
        certificate=certificate,
        give_up=app.road.cancel_all,
        on_stop=partial(_end_streams, app, http),
        drain_s=settings.server.drain_seconds,
    )


def _end_streams(app: App, http: HttpApp) -> None:
    app.road.watch.close_all()
    if http.site is not None:
        http.site.close()


def open_certificate(settings: Settings) -> ServerCertificate | None:
    """None: plain HTTP. Raises: StartRefused."""
    certificate, key = settings.server.tls_certificate, settings.server.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise StartRefused(
            "server.tls_certificate and server.tls_key are used together, and one of them is missing.\n"
            "Set both, or neither for plain HTTP."
        )
    return ServerCertificate(certificate, key)


def _affordable(connections: int) -> int:
    """As many connections as there can be descriptors; the soft limit is raised as far as the hard one allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, min(connections, soft - SPARE_DESCRIPTORS, soft // 2 + soft // 4))
    return connections


def _bind(host: str, port: int) -> socket.socket:
    """Raises: StartRefused."""
    # As text even 127.0.0.1 would load the tables of international names.
    name = host.encode() if host.isascii() else host
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return _bound(*found[0])
    except OSError as fault:
        raise StartRefused(
            f"Cannot listen on {host} port {port}: {fault.strerror or fault}.\nUse --port 0 for a free one."
        ) from None


def _bound(family: int, kind: int, _protocol: int, _name: str, address: Any) -> socket.socket:
    listener = socket.socket(family, kind)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)  # noqa: FBT003 (the standard library's own signature)
    except OSError:
        listener.close()
        raise
    return listener


def _served_names(settings: Settings, port: int) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """Host and Origin values we answer to. Loopback names are always ours; any other name must be in the settings."""
    hosts = {f"{_host_text(name)}:{port}" for name in _LOOPBACK} | {
        name.lower() for name in settings.server.allowed_hosts
    }
    origins = {f"{settings.server.scheme}://{_host_text(name)}:{port}" for name in _LOOPBACK} | {
        name.lower() for name in settings.server.allowed_origins
    }
    return frozenset(name.encode() for name in hosts), frozenset(name.encode() for name in origins)


def _host_text(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _framing_limits(settings: Settings) -> FramingLimits:
    server = settings.server
    return FramingLimits(server.request_line_bytes, server.header_bytes, server.max_headers, settings.limits.body_bytes)


def _wait_limits(settings: Settings) -> WaitLimits:
    server = settings.server
    return WaitLimits(
        server.header_read_seconds, server.body_read_seconds, server.write_seconds, server.keep_alive_seconds
    )
