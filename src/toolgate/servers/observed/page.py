"""The page of numbers at /metrics: beside the gate for keys that may read it, or on a port of its own, where it needs none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.errors import StartRefused
from toolgate.faces.reply import Headers, Reply
from toolgate.model.call import Wire
from toolgate.model.threads import in_thread
from toolgate.servers.connection import WaitLimits
from toolgate.servers.door import DoorLimits
from toolgate.servers.framing import FramingLimits

if TYPE_CHECKING:
    from toolgate.servers.application import Client
    from toolgate.servers.framing import Request
    from toolgate.telemetry.families import Numbers

PATH: Final = b"/metrics"
"""Roles that may read the numbers: they tell what every caller does."""
WIRE: Final = Wire(face="metrics", transport="http", route="/metrics")
"""Where the log says a refused reader came in."""
FRESH_S: Final = 1.0
"""A page is made at most once in this time, however many ask for it."""
DOOR: Final = DoorLimits(connections=32, waiting_bytes_per_caller=64 * 1024 * 1024)
"""Of the port of its own: scrapers are few."""
FRAMING: Final = FramingLimits(line_bytes=1024, header_bytes=8192, max_headers=64, body_bytes=0)
WAITS: Final = WaitLimits(head_s=10.0, body_s=1.0, write_s=10.0, idle_s=120.0)
_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")


def require_client() -> None:
    """Raises: StartRefused: the extra is not installed."""
    if find_spec("prometheus_client") is None:
        raise StartRefused("Metrics need the package prometheus-client.\nInstall it: pip install 'toolgate[metrics]'")


class MetricsPage:
    """`collect`: the numbers of every process that serves this port."""

    def __init__(self, collect: Callable[[], Awaitable[Sequence[Numbers]]]) -> None:
        """Raises: StartRefused: the extra is not installed."""
        require_client()
        from toolgate.telemetry import exposition  # noqa: PLC0415 (an extra)

        self._render, self._kind = exposition.render, (b"content-type", exposition.CONTENT_TYPE.encode())
        self._collect = collect
        self._made: asyncio.Future[bytes] | None = None
        self._made_at = 0.0

    async def reply(self) -> Reply:
        now = asyncio.get_running_loop().time()
        if self._made is None or now - self._made_at >= FRESH_S:
            self._made_at, self._made = now, asyncio.ensure_future(self._make())
        # Who leaves does not take the page away from the others.
        return Reply(200, await asyncio.shield(self._made), (self._kind,))

    async def _make(self) -> bytes:
        """Thousands of series take a tenth of a second to write: not on the event loop."""
        return await in_thread(self._render, await self._collect())


class MetricsHead(Struct, frozen=True):
    path: bytes
    is_get: bool
    is_served: bool


class MetricsApp:
    """The port of its own. Implements `toolgate.servers.application.Application`."""

    headers: Headers = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))

    def __init__(self, page: MetricsPage, names: frozenset[bytes]) -> None:
        """`names`: hosts that are served besides addresses and `localhost`."""
        self._page, self._names = page, names

    def read_head(self, request: Request) -> MetricsHead:
        hosts = [value for name, value in request.headers if name == b"host"]
        is_served = len(hosts) == 1 and self._is_ours(hosts[0].lower())
        is_page = any(name == b"origin" for name, _ in request.headers)
        return MetricsHead(request.path, request.method in (b"GET", b"HEAD"), is_served and not is_page)

    def _is_ours(self, host: bytes) -> bool:
        """A name could be made to lead here by whoever owns it (DNS rebinding); an address could not."""
        if host in self._names:
            return True
        from ipaddress import ip_address  # noqa: PLC0415 (for the few servers that have such a port)

        name = host[1:].partition(b"]")[0] if host.startswith(b"[") else host.partition(b":")[0]
        try:
            ip_address(name.decode("ascii"))
        except ValueError:
            return name == b"localhost"
        return True

    def before_body(self, head: MetricsHead, client: Client) -> Reply | None:  # noqa: ARG002 (the protocol's)
        return self._refusal(head) or Reply(413, b"This address takes no body.\n", (_TEXT,))

    async def respond(self, head: MetricsHead, body: bytes | None, client: Client) -> Reply | None:  # noqa: ARG002 (likewise)
        return self._refusal(head) or await self._page.reply()

    def _refusal(self, head: MetricsHead) -> Reply | None:
        if not head.is_served:
            return Reply(403, b"This Host is not served.\n", (_TEXT,))
        if head.path != PATH:
            return Reply(404, b"The numbers are at /metrics.\n", (_TEXT,))
        return None if head.is_get else Reply(405, b"Use GET.\n", (_TEXT, (b"allow", b"GET")))

    def hold(self, client: Client, reply: Reply, loop: asyncio.AbstractEventLoop | None) -> None:  # noqa: ARG002 (likewise)
        client.send_held(reply)

    def send_held(self) -> None:
        """Nothing is held."""
