"""The pages of a dev site: which files are served, as what, and who is told when they change."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from msgspec import Struct, field

from toolgate.errors import ToolError, ToolgateError
from toolgate.model import strictjson
from toolgate.model.threads import Threads

if TYPE_CHECKING:
    from toolgate.model.powers import ReadFiles
    from toolgate.packs.lra.devsite.overlay import Site

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
"""One file of a paper: a video at most."""
MAX_READS: Final = 8
"""Files of one site read at once; a browser asks for six."""
MAX_LISTENERS: Final = 256
"""Tabs with live reload at once; a browser opens six connections to a host, so this is many browsers."""
REPORT_TIMEOUT_S: Final = 10.0
MAX_PUSHED_BYTES: Final = 1024 * 1024
"""A page's source that travels with the event; a larger page is loaded anew, which its parsing dominates anyway."""
REPORT_AFTER_S: Final = 0.1
"""Judging a paper takes the processor that the browser needs to paint it: the findings wait until it is painted."""
MAX_REPORTS: Final = 64
"""Findings kept, one for each paper that somebody looks at; a paper beyond that is judged again."""
QUEUE: Final = 32
"""Events kept for a slow tab; one that is further behind is told to reload."""
_KEY_NAMES: Final = re.compile(r".*\.(?:key|pem|p12|pfx|jks)|id_(?:ed25519|rsa|ecdsa|dsa)", re.IGNORECASE)
TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "json": "application/json",
    "wasm": "application/wasm",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "avif": "image/avif",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
    "pdf": "application/pdf",
    "mp4": "video/mp4",
    "txt": "text/plain; charset=utf-8",
    "md": "text/plain; charset=utf-8",
    "cff": "text/plain; charset=utf-8",
    "bib": "text/plain; charset=utf-8",
    "wat": "text/plain; charset=utf-8",
}
_TEXT_NAMES: Final = frozenset({"LICENSE"})

Compute = Callable[..., Awaitable[Any]]


class PageBody(Struct, frozen=True):
    kind: str
    data: bytes


class PageSource(Struct, frozen=True):
    """The HTML of a page as its author wrote it, and the digest by which a tab knows that this is what it shows."""

    text: str
    digest: str


class Listener(Struct, eq=False):
    """One tab that waits for news about the page it shows and the paper in that page's directory."""

    page: str
    events: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(QUEUE))
    judged: str = ""
    """The version whose findings it was told."""

    @property
    def directory(self) -> str:
        return self.page.rpartition("/")[0] + "/"

    @property
    def file(self) -> str:
        """Where the page lies, as changed paths are written."""
        return f"{self.page}index.html"[1:] if self.page.endswith("/") else self.page[1:]


class Pages:
    """The files of the site, its version, and who listens."""

    def __init__(self, site: Site, files: ReadFiles, compute: Compute) -> None:
        self._site = site
        self._files = files
        self._compute = compute
        self._threads = Threads(MAX_READS)
        self._changes = 0
        # A restarted server must not look like an unchanged one to a tab that was open before.
        self._boot = f"{monotonic():.6f}"
        self._reporting: asyncio.Task[None] | None = None
        self._reports: dict[str, tuple[str, bytes | None]] = {}
        self.listeners: set[Listener] = set()
        self.last_used = monotonic()

    @property
    def version(self) -> str:
        return f"{self._boot}.{self._changes}"

    async def read(self, path: str) -> PageBody | None:
        """The file at a decoded path, or None: what is not served looks like what is not there."""
        self.last_used = monotonic()
        return await self._threads(self._read, path)

    def _read(self, path: str) -> PageBody | None:
        name = path.strip("/")
        if any(part.startswith(".") or _KEY_NAMES.fullmatch(part) for part in name.split("/") if part):
            return None
        inside = self._inside(name)
        try:
            if path.endswith("/"):
                return self._page(inside, is_top=not name)
            data = self._files.read_bytes(inside, max_bytes=MAX_FILE_BYTES)
        except ToolError:
            return None
        return PageBody(_type_of(name), data)

    def _page(self, directory: str, *, is_top: bool) -> PageBody | None:
        index = f"{directory}/index.html"
        if self._files.is_file(index):
            return PageBody(TYPES["html"], self._files.read_bytes(index, max_bytes=MAX_FILE_BYTES))
        if is_top and self._site.home is not None:
            return PageBody(TYPES["html"], self._site.home(self._files, directory))
        return None

    async def is_directory(self, path: str) -> bool:
        return await self._threads(self._is_directory, path)

    def _is_directory(self, path: str) -> bool:
        with contextlib.suppress(ToolError):
            return not path.endswith("/") and self._files.is_file(f"{self._inside(path)}/index.html")
        return False

    def _inside(self, path: str) -> str:
        """Where a path of the site lies in the workspace."""
        return "/".join(part for part in (self._site.root, path.strip("/")) if part not in ("", ".")) or "."

    async def source(self, path: str) -> PageSource | None:
        """None for what is not a page, is not there, or is too large to be pushed."""
        body = await self.read(path)
        if body is None or body.kind != TYPES["html"] or len(body.data) > MAX_PUSHED_BYTES:
            return None
        # Decoded as browsers do: a byte order mark is dropped, what is not UTF-8 shows as U+FFFD.
        return PageSource(body.data.decode("utf-8-sig", "replace"), digest(body.data))

    def listen(self, page: str) -> Listener | None:
        if len(self.listeners) >= MAX_LISTENERS:
            return None
        listener = Listener(page)
        self.listeners.add(listener)
        if self._reporting is None or self._reporting.done():
            self._report_soon()
        return listener

    def leave(self, listener: Listener) -> None:
        self.listeners.discard(listener)
        self.last_used = monotonic()

    def dismiss(self, listener: Listener) -> None:
        """End its stream."""
        self.leave(listener)
        _end(listener)

    async def changed(self, paths: Sequence[str]) -> None:
        """One event for the batch at once, then the new findings for each paper that somebody looks at."""
        self._changes += 1
        self._reports.clear()
        self._report_soon()
        tabs: dict[str, list[Listener]] = {}
        for listener in self.listeners:
            tabs.setdefault(listener.page, []).append(listener)
        for page, those in tabs.items():
            file = those[0].file
            source = await self.source(page) if file in paths else None
            self._tell(_news(self.version, paths, file, source), those)

    def _report_soon(self) -> None:
        if self._reporting is not None:
            self._reporting.cancel()  # what it would say is out of date
        self._reporting = asyncio.create_task(self._report_all())

    async def _report_all(self) -> None:
        await asyncio.sleep(REPORT_AFTER_S)
        while waiting := [listener for listener in self.listeners if listener.judged != self.version]:
            directory, version = waiting[0].directory, self.version
            report = await self.report(directory)
            same = [listener for listener in self.listeners if listener.directory == directory]
            for listener in same:
                listener.judged = version
            if report is not None:
                self._tell(report, same)

    async def report(self, directory: str) -> bytes | None:
        """The overlay's content; None when there is no paper or it cannot be judged right now.

        Judged once for each version, however many tabs ask.
        """
        version, found = self._reports.get(directory, ("", None))
        if version != self.version:
            version, found = self.version, await self._judge(directory)
            if len(self._reports) >= MAX_REPORTS:
                self._reports.pop(next(iter(self._reports)))
            self._reports[directory] = (version, found)
        return found

    async def _judge(self, directory: str) -> bytes | None:
        try:
            gathered = await self._threads(self._site.gather, self._files, self._inside(directory))
            found = await self._compute(self._site.judge, gathered, timeout_s=REPORT_TIMEOUT_S)
        except (ToolgateError, TimeoutError):
            return None
        return event("report", dict(found))

    def _tell(self, news: bytes, to: Iterable[Listener]) -> None:
        for listener in list(to):
            if listener.events.full():
                self.dismiss(listener)  # the tab reconnects and sees the new version
            else:
                listener.events.put_nowait(news)

    def end(self) -> None:
        if self._reporting is not None:
            self._reporting.cancel()
        for listener in self.listeners:
            _end(listener)


def _end(listener: Listener) -> None:
    while not listener.events.empty():
        listener.events.get_nowait()
    listener.events.put_nowait(None)


def _news(version: str, paths: Sequence[str], page: str, source: PageSource | None) -> bytes:
    """What a tab needs to show the change: style sheets to swap, its own page's new source, or that it must reload."""
    rest = [path for path in paths if path != page]
    styles = [path for path in rest if path.endswith(".css")]
    must_reload = len(styles) < len(rest) or (page in paths and source is None)
    news: dict[str, Any] = {"version": version, "css": styles, "reload": must_reload}
    if source is not None and not must_reload:
        news |= {"html": source.text, "digest": source.digest}
    return event("change", news)


def digest(html: bytes) -> str:
    return sha256(html).hexdigest()


def event(name: str, value: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), strictjson.dumps(value))


def _type_of(name: str) -> str:
    leaf = name.rpartition("/")[2]
    if leaf in _TEXT_NAMES:
        return TYPES["txt"]
    return TYPES.get(leaf.rpartition(".")[2].lower(), "application/octet-stream")


def decoded_path(raw: bytes) -> str | None:
    """The path a request means, percent-decoded once; None for anything that could mean another place."""
    if not raw.startswith(b"/") or b"#" in raw or b"%2f" in raw.lower() or b"%5c" in raw.lower():
        return None
    try:
        path = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return None
    segments = path.split("/")[1:]
    strange = any(ord(char) < 0x20 or ord(char) == 0x7F or char in "\\%" for char in path)
    if strange or any(part in (".", "..") for part in segments) or "" in segments[:-1]:
        return None
    return path
