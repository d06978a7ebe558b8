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
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from time import monotonic
from typing import Any, Final
from urllib.parse import parse_qs

from msgspec import Struct
from watchfiles import Change, awatch

from toolgate.errors import ToolError
from toolgate.faces.reply import Headers, Reply
from toolgate.model.powers import ReadFiles
from toolgate.model.tool import JobContext
from toolgate.packs.lra.devsite.overlay import Site
from toolgate.packs.lra.devsite.pages import TYPES, Compute, PageBody, Pages, decoded_path, digest, event
from toolgate.servers.application import Client
from toolgate.servers.connection import WaitLimits
from toolgate.servers.door import DoorLimits
from toolgate.servers.framing import FramingLimits, Request
from toolgate.servers.server import Server

DOOR: Final = DoorLimits(connections=512, waiting_bytes_per_caller=256 * 1024 * 1024)
"""Tabs hold a connection each and none of them has a key, so strangers may hold three quarters of these."""
SETTLE_MS: Final = 20
"""Milliseconds without a further change until a batch counts as complete: editors write, rename and touch in one go."""
BATCH_MS: Final = 200
"""A batch is sent after this even if changes go on."""
FRAMING: Final = FramingLimits(line_bytes=4096, header_bytes=16_384, max_headers=64, body_bytes=0)
WAITS: Final = WaitLimits(head_s=10.0, body_s=1.0, write_s=30.0, idle_s=75.0)
DRAIN_S: Final = 1.0
PREFIX: Final = "/__lra/"
_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_BODY_END: Final = re.compile(rb"</body\s*>", re.IGNORECASE)


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


def starter(context: JobContext) -> DevSites:
    return DevSites(context.workspace, context.files, context.compute)


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
        self._server = Server(_App(self._pages, self.port), door=DOOR, framing=FRAMING, waits=WAITS, drain_s=DRAIN_S)
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises ToolError IO_ERROR."""
        try:
            await self._server.start(self._listener)
        except OSError:
            self._listener.close()
            raise ToolError("IO_ERROR", f"The server on port {self.port} could not start") from None
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        self._stopping.set()
        self._pages.end()
        self._server.stop()
        await self._server.ended()
        if self._watching is not None:
            await asyncio.gather(self._watching, return_exceptions=True)

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


# -- HTTP ----------------------------------------------------------------------------------------------------


class _App:
    """Order: Host and Origin, method, path, then the file."""

    headers: Headers = (
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"referrer-policy", b"no-referrer"),
        (b"accept-ranges", b"none"),
    )

    def __init__(self, pages: Pages, port: int) -> None:
        self._pages = pages
        self._hosts = {f"{name}:{port}".encode() for name in ("localhost", "127.0.0.1")}
        self._origins = {b"http://" + host for host in self._hosts}

    def read_head(self, request: Request) -> Request:
        return request

    def before_body(self, _head: Request, _client: Client) -> Reply:
        return Reply(413, b"No bodies here.\n", (_TEXT,))

    async def respond(self, request: Request, body: bytes | None, client: Client) -> Reply | None:
        fields = dict(request.headers)
        if body != b"":
            return self.before_body(request, client)
        if fields.get(b"host") not in self._hosts:
            return Reply(421, b"This host name is not served here.\n", (_TEXT,))
        if fields.get(b"origin", next(iter(self._origins))) not in self._origins:
            return Reply(403, b"Other origins are not served.\n", (_TEXT,))
        if fields.get(b"sec-fetch-site") == b"cross-site":
            return Reply(403, b"Pages of other sites are not served.\n", (_TEXT,))
        if request.method not in (b"GET", b"HEAD"):
            return Reply(405, b"GET and HEAD only.\n", (_TEXT, (b"allow", b"GET, HEAD")))
        return await self._get(request, fields, client)

    def hold(self, client: Client, reply: Reply, loop: asyncio.AbstractEventLoop | None) -> None:  # noqa: ARG002 (the shape of Application)
        """Nothing of a dev site is written down, so nothing waits for it."""
        client.send_held(reply)

    def send_held(self) -> None:
        """Nothing is held."""

    async def _get(self, request: Request, fields: Mapping[bytes, bytes], client: Client) -> Reply | None:
        path = decoded_path(request.path)
        if path == f"{PREFIX}events" and request.method == b"GET":
            return await self._events(request, client)
        body = await self._body(path, fields)
        if body is not None:
            return Reply(200, body.data, ((b"content-type", body.kind.encode()),))
        if path is not None and await self._pages.is_directory(path):
            return Reply(308, b"", ((b"location", request.path + b"/"),))
        return Reply(404, b"Not found.\n", (_TEXT,))

    async def _body(self, path: str | None, headers: Mapping[bytes, bytes]) -> PageBody | None:
        if path is None:
            return None
        if path.startswith(PREFIX):
            return PageBody(TYPES["js"], client_script()) if path == f"{PREFIX}client.js" else None
        if headers.get(b"service-worker") == b"script":
            return PageBody(TYPES["js"], REMOVING_WORKER)
        version = self._pages.version
        body = await self._pages.read(path)
        if body is not None and body.kind == TYPES["html"] and headers.get(b"sec-fetch-dest") == b"document":
            return PageBody(body.kind, with_client(body.data, version))
        return body

    async def _events(self, request: Request, client: Client) -> Reply | None:
        query = parse_qs(request.query.decode("latin-1"))
        page = decoded_path(query.get("page", ["/"])[0].encode("utf-8", "replace")) or "/"
        listener = self._pages.listen(page)
        if listener is None:
            return Reply(503, b"Too many tabs.\n", (_TEXT,))
        client.gone.append(lambda: self._pages.dismiss(listener))
        try:
            hello = b"retry: 500\n" + await self._hello(page, query.get("shown", [""])[0])
            await client.send(hello, headers=((b"content-type", b"text/event-stream"),))
            while (news := await listener.events.get()) is not None:
                await client.send(news)
        finally:
            self._pages.leave(listener)
        return None

    async def _hello(self, page: str, shown: str) -> bytes:
        """The version, and the page's source when it is what the tab shows: later differences are taken from it."""
        greeting = {"version": self._pages.version}
        source = await self._pages.source(page) if shown else None
        if source is not None and source.digest == shown:
            greeting["html"] = source.text
        return event("hello", greeting)


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
    parts = [(here / name).read_bytes() for name in ("inplace.js", "client.js")]
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
