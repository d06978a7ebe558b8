"""Outgoing HTTP as to a stranger. The only place where a tool's call leaves this machine; ten rules hold for each hop.

 1. One strict reading of the URL: http(s), no user, no odd characters, no numeric disguise; https unless opened.
 2. One resolution; every answer must be public unicast, whatever form it takes. Metadata services never.
 3. The connection goes to the checked address, under the name (SNI, certificate, Host), and the peer is confirmed.
 4. Nothing of ours travels: no proxy variables, cookies, netrc or authorisation. (`httpcore` has none of them.)
 5. Redirects by hand, at most five, each through 1-3; never from https to http; the chain is kept.
 6. One deadline over everything, a cap on the bytes as they arrive, no compression, HTML for a page, ports 80 and 443.
 7. Parts of a page: same origin, at most 64, together at most 25 MiB.
 8. Bytes are returned, never run.
 9. An error names the rule that refused, never what the stranger said.
10. Loopback, private addresses, other ports and plain http only for `host:port` pairs that the settings name.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache, partial
from hashlib import sha256
from time import monotonic
from typing import Final

import httpcore2
from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.model.powers import Fetched, Hop, Visit
from toolgate.powers.addresses import (
    DEFAULT_PORTS,
    Address,
    Target,
    is_host,
    is_metadata,
    is_public,
    join,
    parse_address,
    parse_target,
)

MAX_REDIRECTS: Final = 5
"""Hops after the first: http to https, to www, to a trailing slash, and two to spare."""
MAX_BODY_BYTES: Final = 10 * 1024 * 1024
"""One answer: LRA's own bound for a page."""
TIMEOUT_S: Final = 10.0
"""Seconds for everything together: names, connections, redirects, bodies. A trickle cannot stretch it."""
MAX_PARTS: Final = 64
"""Files fetched beside the page in one visit."""
MAX_VISIT_BYTES: Final = 25 * 1024 * 1024
"""All bodies of one visit together."""
MAX_ADDRESSES: Final = 4
"""Checked addresses tried for one name, in the resolver's order."""
MAX_CONNECTIONS: Final = 4
"""At one time to one site: polite to the stranger, enough to fetch 64 small files within the deadline."""
MAX_LOOKUPS: Final = 8
"""Names that are resolved at the same time."""
WEB_PORTS: Final = frozenset(DEFAULT_PORTS.values())
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
USER_AGENT: Final = "toolgate (+verification of published papers)"

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
Connector = Callable[[str, int], Awaitable[httpcore2.AsyncNetworkStream]]


@cache
def _resolver_threads() -> ThreadPoolExecutor:
    """Threads of their own: a stranger's silent name server holds one for many seconds, and nobody else's."""
    return ThreadPoolExecutor(MAX_LOOKUPS, thread_name_prefix="resolve")


async def system_resolver(host: str, port: int) -> Sequence[str]:
    """The operating system's answer. Raises: OSError: no such name."""
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    answers = await asyncio.get_running_loop().run_in_executor(_resolver_threads(), look_up)
    return [str(answer[4][0]) for answer in answers]


async def system_connector(address: str, port: int) -> httpcore2.AsyncNetworkStream:
    return await httpcore2.AnyIOBackend().connect_tcp(address, port)


class Limits(Struct, frozen=True):
    max_redirects: int = MAX_REDIRECTS
    max_body_bytes: int = MAX_BODY_BYTES
    timeout_s: float = TIMEOUT_S
    max_parts: int = MAX_PARTS
    max_visit_bytes: int = MAX_VISIT_BYTES


class Egress:
    """The egress power. `allow` names the `host:port` pairs of rule 10."""

    def __init__(
        self,
        *,
        allow: Collection[str] = (),
        limits: Limits | None = None,
        resolver: Resolver = system_resolver,
        connector: Connector = system_connector,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Raises: ValueError: an entry of `allow` is not host:port."""
        self._allow = frozenset(_allowed_pair(entry) for entry in allow)
        self._limits = limits or Limits()
        self._resolver = resolver
        self._connector = connector
        self._tls = tls

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        max_bytes: int | None = None,
        timeout_s: float | None = None,
        same_origin_as: str | None = None,
    ) -> Fetched:
        """One request, redirects included. Side effects: network. Raises: see `toolgate.model.powers.Egress.fetch`."""
        seconds = self._limits.timeout_s if timeout_s is None else timeout_s
        origin = parse_target(same_origin_as).origin if same_origin_as is not None else None
        request = _Request(method, dict(headers or {}), body, max_bytes or self._limits.max_body_bytes, origin)
        async with _deadline(seconds), self._line() as line:
            return await line.fetch(parse_target(url), request)

    @asynccontextmanager
    async def visit(self) -> AsyncGenerator[Visit]:
        """One look at one site. The deadline counts the time spent on the network, not what the caller does between."""
        async with self._line() as line:
            yield _Visit(line, self._limits)

    @asynccontextmanager
    async def _line(self) -> AsyncIterator[_Line]:
        # Made on first use and not at import: reading the system's certificates costs some 20 ms.
        if self._tls is None:
            self._tls = ssl.create_default_context()
        backend = _CheckedBackend(self._allow, self._resolver, self._connector)
        async with httpcore2.AsyncConnectionPool(
            ssl_context=self._tls, network_backend=backend, max_connections=MAX_CONNECTIONS
        ) as pool:
            yield _Line(pool, self._allow, self._limits)


@asynccontextmanager
async def _deadline(seconds: float, shown: float | None = None) -> AsyncGenerator[None]:
    """Rule 6: one clock for names, connections, redirects and bodies. `shown` is the whole time, if some is spent."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise ToolError("TIMEOUT", f"Connection timeout ({shown or seconds:g}s)") from None


def _allowed_pair(entry: str) -> tuple[str, int]:
    try:
        target = parse_target(f"http://{entry}/")
    except ToolError as fault:
        raise ValueError(f"{entry!r} is not host:port: {fault.text}") from None
    if not entry.endswith(f":{target.port}"):
        raise ValueError(f"{entry!r} is not host:port: the port must be named")
    return target.host, target.port


# -- rules 2, 3: where a connection may go -------------------------------------------------------------------


def refuse_address(address: Address, *, explicitly_allowed: bool) -> None:
    """Rule 2. Raises ToolError ADDRESS_REFUSED."""
    if is_metadata(address):
        raise ToolError("ADDRESS_REFUSED", "the address belongs to a metadata service or link-local network")
    if not is_host(address) or not (explicitly_allowed or is_public(address)):
        raise ToolError("ADDRESS_REFUSED", "the address is loopback, private or otherwise not public")


def confirm_peer(stream: httpcore2.AsyncNetworkStream, checked: Address) -> None:
    """Rule 3: the other end is who was checked. Raises ToolError ADDRESS_REFUSED."""
    peer = stream.get_extra_info("server_addr")
    if not peer or parse_address(str(peer[0])) != checked:
        raise ToolError("ADDRESS_REFUSED", "the connection did not reach the address that was checked")


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Every connection of the HTTP library is made here, so none is made unchecked."""

    def __init__(self, allow: frozenset[tuple[str, int]], resolver: Resolver, connector: Connector) -> None:
        self._allow = allow
        self._resolver = resolver
        self._connector = connector
        self._known: dict[tuple[str, int], list[Address]] = {}

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 (the library's shape; the deadline is over everything)
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore2.AsyncNetworkStream:
        failure: Exception | None = None
        for address in (await self._checked_addresses(host, port))[:MAX_ADDRESSES]:
            try:
                stream = await self._connector(str(address), port)
            except (httpcore2.NetworkError, httpcore2.TimeoutException, OSError) as fault:
                failure = fault
                continue
            try:
                confirm_peer(stream, address)
            except ToolError:
                await stream.aclose()
                raise
            return stream
        raise ToolError("TARGET_NOT_FOUND", "nothing answers at the target's address", missing=True) from failure

    async def _checked_addresses(self, host: str, port: int) -> list[Address]:
        """Rule 2: resolve once in a visit, and refuse the name if any of its answers is refused."""
        pair = (host.strip("[]"), port)
        if pair not in self._known:
            addresses = [parse_address(text) for text in await self._resolve(*pair)]
            for address in addresses:
                refuse_address(address, explicitly_allowed=pair in self._allow)
            self._known[pair] = list(dict.fromkeys(addresses))
        return self._known[pair]

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        try:
            answers = await self._resolver(host, port)
        except (OSError, UnicodeError):
            answers = ()
        if not answers:
            raise ToolError("TARGET_NOT_FOUND", "the target's host name does not resolve", missing=True)
        return answers


# -- rules 4, 5, 6: one exchange -----------------------------------------------------------------------------


class _Request(Struct, frozen=True):
    method: str
    headers: dict[str, str]
    body: bytes | None
    max_bytes: int
    same_origin_as: str | None = None


def refuse_scheme_and_port(target: Target, *, explicitly_allowed: bool) -> None:
    """Rules 1 and 6. Raises ToolError."""
    if explicitly_allowed:
        return
    if target.scheme != "https":
        raise ToolError(
            "ADDRESS_REFUSED", "plain http is not fetched; use https, or let the settings allow this host:port"
        )
    if target.port not in WEB_PORTS:
        raise ToolError(
            "ADDRESS_REFUSED", "only the ports 80 and 443 are fetched, unless the settings allow this host:port"
        )


def refuse_downgrade(before: Target, after: Target) -> None:
    """Rule 5. Raises ToolError ADDRESS_REFUSED."""
    if before.scheme == "https" and after.scheme != "https":
        raise ToolError("ADDRESS_REFUSED", "the target redirects from https to http")


def refuse_other_origin(target: Target, origin: str | None) -> None:
    """Rule 7. Raises ToolError ADDRESS_REFUSED."""
    if origin is not None and target.origin != origin:
        raise ToolError("ADDRESS_REFUSED", "a part of the page lies on another origin")


def refuse_encoding(headers: Mapping[str, str]) -> None:
    """Rule 6: what is hashed are the bytes that came; and a compressed answer may unpack without end."""
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise ToolError("BAD_RESPONSE", "the target sent a compressed body although it was asked not to")


def refuse_not_html(headers: Mapping[str, str]) -> None:
    """Rule 6. Raises ToolError BAD_RESPONSE."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() not in HTML_TYPES:
        raise ToolError("BAD_RESPONSE", "the target is not an HTML page")


class _Line:
    """The connections of one fetch or one visit."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool, allow: frozenset[tuple[str, int]], limits: Limits) -> None:
        self._pool = pool
        self._allow = allow
        self._limits = limits

    async def fetch(self, target: Target, request: _Request) -> Fetched:
        """Rule 5: redirects by hand, each hop through all rules."""
        chain: list[Hop] = []
        first, opened = target, False
        while True:
            refuse_other_origin(target, request.same_origin_as)
            allowed = (target.host, target.port) in self._allow
            refuse_scheme_and_port(target, explicitly_allowed=allowed)
            opened = opened or allowed
            own_headers = request.headers if target.origin == first.origin else {}
            hop, headers, body = await self._exchange(target, request, own_headers)
            chain.append(hop)
            location = headers.get("location") if hop.status in REDIRECTS else None
            if location is None:
                return Fetched(target.url, hop.status, headers, body, tuple(chain), opened)
            if request.method not in ("GET", "HEAD"):
                raise ToolError("BAD_RESPONSE", "the target redirects a request that must not be repeated elsewhere")
            if len(chain) > self._limits.max_redirects:
                raise ToolError("BAD_RESPONSE", f"the target redirects more than {self._limits.max_redirects} times")
            following = join(target, location)
            refuse_downgrade(target, following)
            target = following

    async def _exchange(
        self, target: Target, request: _Request, own_headers: Mapping[str, str]
    ) -> tuple[Hop, dict[str, str], bytes]:
        try:
            async with self._pool.stream(
                request.method, _library_url(target), headers=_headers(own_headers), content=request.body
            ) as response:
                headers = _read_headers(response.headers)
                refuse_encoding(headers)
                body = await _read_body(response, headers, request.max_bytes)
                return _hop(target, response), headers, body
        except httpcore2.ConnectError as fault:
            # The socket itself is connected in `_CheckedBackend`; what fails here is the TLS handshake.
            raise ToolError(
                "TLS_FAILED", "the target's certificate or TLS handshake is not valid for its name"
            ) from fault
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as fault:
            raise ToolError("BAD_RESPONSE", "the target broke off or did not speak HTTP") from fault


def _library_url(target: Target) -> httpcore2.URL:
    port = None if target.port == DEFAULT_PORTS[target.scheme] else target.port
    return httpcore2.URL(scheme=target.scheme, host=target.authority_host, port=port, target=target.path)


def _headers(own: Mapping[str, str]) -> list[tuple[str, str]]:
    fixed = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
    return [*fixed.items(), *own.items()]


def _read_headers(raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


async def _read_body(response: httpcore2.Response, headers: Mapping[str, str], max_bytes: int) -> bytes:
    """Rule 6: counted as it arrives; a length that is announced too large is not even begun."""
    too_large = ToolError("RESPONSE_TOO_LARGE", f"the target's answer is larger than {max_bytes} bytes")
    announced = headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:20]) > max_bytes:
        raise too_large
    body = bytearray()
    async for chunk in response.aiter_stream():
        body += chunk
        if len(body) > max_bytes:
            raise too_large
    return bytes(body)


def _hop(target: Target, response: httpcore2.Response) -> Hop:
    stream: httpcore2.AsyncNetworkStream = response.extensions["network_stream"]
    secured = stream.get_extra_info("ssl_object")
    certificate = secured.getpeercert(binary_form=True) if secured else None
    digest = sha256(certificate).hexdigest() if certificate else None
    return Hop(target.url, response.status, str(parse_address(str(stream.get_extra_info("server_addr")[0]))), digest)


# -- rule 7: a page and its parts ----------------------------------------------------------------------------


class _Visit:
    """See `toolgate.model.powers.Visit`."""

    def __init__(self, line: _Line, limits: Limits) -> None:
        self._line = line
        self._limits = limits
        self._page: Target | None = None
        self._parts = 0
        self._bytes = 0
        self._under_way = 0
        self._since = 0.0
        self._spent_s = 0.0

    async def page(self, url: str) -> Fetched:
        async with self._clock():
            fetched = await self._line.fetch(parse_target(url), self._request(None))
        if fetched.status == 200:
            refuse_not_html(fetched.headers)
        self._page = parse_target(fetched.url)
        self._bytes += len(fetched.body)
        return fetched

    async def part(self, reference: str) -> Fetched:
        if self._page is None:
            raise RuntimeError("a part is fetched after its page")
        self._parts += 1
        if self._parts > self._limits.max_parts:
            raise ToolError("RESPONSE_TOO_LARGE", f"the page has more than {self._limits.max_parts} parts")
        target = join(self._page, reference)
        async with self._clock():
            fetched = await self._line.fetch(target, self._request(self._page.origin))
        self._bytes += len(fetched.body)
        if self._bytes > self._limits.max_visit_bytes:
            raise ToolError("RESPONSE_TOO_LARGE", f"the page and its parts exceed {self._limits.max_visit_bytes} bytes")
        return fetched

    @asynccontextmanager
    async def _clock(self) -> AsyncGenerator[None]:
        """Counts while at least one fetch of the visit is under way; fetches side by side share the same seconds."""
        if not self._under_way:
            self._since = monotonic()
        self._under_way += 1
        left = self._limits.timeout_s - self._spent_s - (monotonic() - self._since)
        try:
            async with _deadline(left, self._limits.timeout_s):
                yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._spent_s += monotonic() - self._since

    def _request(self, origin: str | None) -> _Request:
        left = max(self._limits.max_visit_bytes - self._bytes, 1)
        return _Request("GET", {}, None, min(self._limits.max_body_bytes, left), origin)
