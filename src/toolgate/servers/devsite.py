"""The dev site: a paper (or a directory of papers) served to browsers on this machine while it is edited.

Loopback only, exact Host, GET and HEAD, no listing, no dotfiles, no keys, no link followed. A file is sent as it is; only
a page that a browser navigates to gets one script tag more, so that a verifier sees true bytes. Changes travel over
server-sent events, one for each batch, with the page's new source, so that a tab can show it without a reload; the
paper's own service worker is answered by one that removes itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from time import monotonic
from typing import Any, Final
from urllib.parse import parse_qs

import uvicorn
from msgspec import Struct
from watchfiles import Change, awatch

from toolgate.errors import ToolError
from toolgate.model.powers import ReadFiles, Site
from toolgate.servers.devsite_pages import TYPES, Body, Compute, Listener, Pages, decoded_path, digest, event
from toolgate.servers.guarded import ProtocolLimits, guarded_with, quiet_config

MAX_CONNECTIONS: Final = 512
SETTLE_MS: Final = 20
"""Milliseconds without a further change until a batch counts as complete: editors write, rename and touch in one go."""
BATCH_MS: Final = 200
"""A batch is sent after this even if changes go on."""
LIMITS: Final = ProtocolLimits(header_read_s=10.0, body_read_s=10.0, max_headers=64, header_bytes=16_384)
PREFIX: Final = "/__lra/"
_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"accept-ranges", b"none"),
)
_BODY_END: Final = re.compile(rb"</body\s*>", re.IGNORECASE)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def bind(port: int) -> socket.socket:
    """Raises ToolError ADDRESS_IN_USE, IO_ERROR."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError as fault:
        listener.close()
        if fault.errno == errno.EADDRINUSE:
            raise ToolError("ADDRESS_IN_USE", f"Address already in use: port {port}") from None
        raise ToolError("IO_ERROR", f"Port {port} cannot be opened") from None
    listener.setblocking(False)  # noqa: FBT003 (the standard library's own signature)
    return listener


class DevSites(Struct, frozen=True):
    """Starts sites over one workspace: the job kind `site`."""

    workspace: Path
    files: ReadFiles
    compute: Compute

    async def __call__(self, site: Site) -> DevSite:
        """Side effects: a port is bound, files are watched. Raises ToolError ADDRESS_IN_USE, IO_ERROR."""
        running = DevSite(site, self.files, self.workspace / site.root, self.compute, bind(site.port))
        await running.start()
        return running


class DevSite:
    """One site under way."""

    def __init__(
        self, site: Site, files: ReadFiles, directory: Path, compute: Compute, listener: socket.socket
    ) -> None:
        self.port: int = listener.getsockname()[1]
        self.details: Mapping[str, Any] = {
            "url": f"http://localhost:{self.port}/",
            "port": self.port,
            "path": site.root,
        }
        self._directory = directory
        self._listener = listener
        self._pages = Pages(site, files, compute)
        self._stopping = asyncio.Event()
        self._server = _Server(
            quiet_config(
                _App(self._pages, self.port),
                guarded_with(LIMITS),
                limit_concurrency=MAX_CONNECTIONS,
                timeout_graceful_shutdown=1,
            )
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._server.serve(sockets=[self._listener])),
            asyncio.create_task(self._watch()),
        ]
        ready = asyncio.ensure_future(self._server.ready.wait())
        await asyncio.wait({ready, self._tasks[0]}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await self.stop()
            raise ToolError("IO_ERROR", f"The server on port {self.port} could not start")

    async def stop(self) -> None:
        self._stopping.set()
        self._pages.end()
        self._server.should_exit = True
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._listener.close()

    def idle_s(self) -> float:
        return 0.0 if self._pages.listeners else monotonic() - self._pages.last_used

    async def _watch(self) -> None:
        root = str(self._directory.resolve())

        def is_watched(_: Change, path: str) -> bool:
            # Editors' backups and swap files are dotfiles or end with `~`; what is not served need not reload anything.
            inside = path.removeprefix(root)
            return "/." not in inside and not inside.endswith("~")

        for polling in (False, True):
            # The system's own watcher has limits (inotify) and fails on some mounts: then files are looked at in turn.
            with contextlib.suppress(OSError, RuntimeError):
                async for batch in awatch(
                    root,
                    watch_filter=is_watched,
                    debounce=BATCH_MS,
                    step=SETTLE_MS,
                    stop_event=self._stopping,
                    force_polling=polling,
                ):
                    if paths := _lasting(batch):
                        await self._pages.changed(sorted(path.removeprefix(f"{root}/") for path in paths))
                return


def _lasting(batch: set[tuple[Change, str]]) -> set[str]:
    """The changed files without those that came and went in the same batch: editors save beside, then rename."""
    passing = {path for change, path in batch if change is Change.added and not Path(path).exists()}
    return {path for _, path in batch} - passing


class _Server(uvicorn.Server):
    """uvicorn without its signal handling, and with word when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


# -- HTTP ----------------------------------------------------------------------------------------------------


class _App:
    """Raw ASGI. Order: Host and Origin, method, path, then the file."""

    def __init__(self, pages: Pages, port: int) -> None:
        self._pages = pages
        self._hosts = {f"{name}:{port}".encode() for name in ("localhost", "127.0.0.1")}
        self._origins = {b"http://" + host for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if headers.get(b"host") not in self._hosts:
            await _reply(send, 421, b"This host name is not served here.\n")
        elif headers.get(b"origin", next(iter(self._origins))) not in self._origins:
            await _reply(send, 403, b"Other origins are not served.\n")
        elif scope["method"] not in ("GET", "HEAD"):
            await _reply(send, 405, b"GET and HEAD only.\n", ((b"allow", b"GET, HEAD"),))
        else:
            await self._get(scope, headers, receive, send)

    async def _get(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send) -> None:
        path = decoded_path(scope["raw_path"])
        if path == f"{PREFIX}events" and scope["method"] == "GET":
            await self._events(scope, receive, send)
            return
        body = await self._body(path, headers)
        if body is not None:
            sent = b"" if scope["method"] == "HEAD" else body.data
            more = ((b"content-type", body.kind.encode()), (b"content-length", b"%d" % len(body.data)))
            await _reply(send, 200, sent, more)
        elif path is not None and await asyncio.to_thread(self._pages.is_directory, path):
            await _reply(send, 308, b"", ((b"location", scope["raw_path"] + b"/"),))
        else:
            await _reply(send, 404, b"Not found.\n")

    async def _body(self, path: str | None, headers: Mapping[bytes, bytes]) -> Body | None:
        if path is None:
            return None
        if path.startswith(PREFIX):
            return Body(TYPES["js"], client_script()) if path == f"{PREFIX}client.js" else None
        if headers.get(b"service-worker") == b"script":
            return Body(TYPES["js"], REMOVING_WORKER)
        version = self._pages.version
        body = await self._pages.read(path)
        if body is not None and body.kind == TYPES["html"] and headers.get(b"sec-fetch-dest") == b"document":
            return Body(body.kind, with_client(body.data, version))
        return body

    async def _events(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        page = decoded_path(query.get("page", ["/"])[0].encode("utf-8", "replace")) or "/"
        listener = self._pages.listen(page)
        if listener is None:
            await _reply(send, 503, b"Too many tabs.\n")
            return
        try:
            start = {
                "type": "http.response.start",
                "status": 200,
                "headers": [*_HEADERS, (b"content-type", b"text/event-stream")],
            }
            await send(start)
            await _send_event(send, b"retry: 500\n" + await self._hello(page, query.get("shown", [""])[0]))
            await self._stream(listener, receive, send)
        finally:
            self._pages.leave(listener)

    async def _hello(self, page: str, shown: str) -> bytes:
        """The version, and the page's source when it is what the tab shows: later differences are taken from it."""
        greeting = {"version": self._pages.version}
        source = await self._pages.source(page) if shown else None
        if source is not None and source.digest == shown:
            greeting["html"] = source.text
        return event("hello", greeting)

    async def _stream(self, listener: Listener, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            while not gone.done():
                news = asyncio.ensure_future(listener.events.get())
                await asyncio.wait({news, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not news.done():
                    news.cancel()
                    return
                item = news.result()
                if item is None:
                    break
                await _send_event(send, item)
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_event(send: Send, event: bytes) -> None:
    await send({"type": "http.response.body", "body": event, "more_body": True})


async def _reply(send: Send, status: int, body: bytes, more: Sequence[tuple[bytes, bytes]] = ()) -> None:
    headers = [*_HEADERS, *more]
    if not any(name == b"content-type" for name, _ in more):
        headers += [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def with_client(html: bytes, version: str) -> bytes:
    """The page with the reload script at its end: a file of this origin, so the paper's own policy (CSP) stays as it is."""
    tag = f'<script src="{PREFIX}client.js?v={version}" data-shown="{digest(html)}" defer></script>'.encode()
    ends = list(_BODY_END.finditer(html))
    at = ends[-1].start() if ends else len(html)
    return html[:at] + tag + html[at:]


@cache
def client_script() -> bytes:
    """Both files in one function, so that no name of theirs meets one of the paper's."""
    here = resources.files(__package__)
    parts = [(here / name).read_bytes() for name in ("devsite_inplace.js", "devsite_client.js")]
    return b'"use strict";\n(() => {\n' + b"\n".join(parts) + b"})();\n"


REMOVING_WORKER: Final = b"""// Served by the dev site instead of the paper's own worker, whose cache would hide edits.
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => {
  event.waitUntil((async () => {
    for (const name of await caches.keys()) await caches.delete(name);
    const pages = await self.clients.matchAll({ type: "window" });
    await self.registration.unregister();
    for (const page of pages) page.navigate(page.url);
  })());
});
"""
