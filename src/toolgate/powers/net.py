"""Outgoing HTTP as to a stranger. The only place where a tool's call leaves this machine; eleven rules hold for each hop.

 1. One strict reading of the URL: http(s), no user, no odd characters, no numeric disguise; https unless opened.
 2. One resolution; every answer must be public unicast, whatever form it takes. Metadata services never.
 3. The connection goes to the checked address, under the name (SNI, certificate, Host), and the peer is confirmed.
 4. Nothing of ours travels: no proxy variables, cookies, netrc or authorisation. (`wire` knows none of them.)
 5. Redirects by hand, at most five, each through 1-3; never from https to http; the chain is kept.
 6. One deadline over everything, caps on body, headers and framing as they arrive (see `wire`), no compression, HTML for
    a page, ports 80 and 443.
 7. Parts of a page: same origin, at most 64, together at most 25 MiB.
 8. Bytes are returned, never run.
 9. An error names the rule that refused, never what the stranger said.
10. Loopback, private addresses, other ports and plain http only for `host:port` pairs that the settings name.
11. Only to hosts that the tool's pack declares. "Any public host" is a declaration, too.

Behind a proxy, rule 2 holds for hosts that a caller chose: they are resolved here, and the tunnel goes to the checked address. A
host that its pack names is left to the proxy to resolve: a company's own machines often cannot.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from hashlib import sha256
from time import monotonic
from typing import Final

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.model.powers import Fetched, Hop, Visit
from toolgate.model.threads import in_thread
from toolgate.model.tool import Hosts
from toolgate.powers import tcp, wire
from toolgate.powers.addresses import (
    DEFAULT_PORTS,
    Address,
    UrlTarget,
    is_host,
    is_metadata,
    is_public,
    join,
    parse_address,
    parse_target,
)
from toolgate.powers.proxy import Proxy, open_tunnel

MAX_REDIRECTS: Final = 5
"""Hops after the first: http to https, to www, to a trailing slash, and two to spare."""
MAX_BODY_BYTES: Final = 10 * 1024 * 1024
"""One answer, what redirects said on the way included: a very large page."""
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
WEB_PORTS: Final = frozenset(DEFAULT_PORTS.values())
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
USER_AGENT: Final = "toolgate"

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
Connector = Callable[[str, int], Awaitable[tcp.Stream]]


async def system_resolver(host: str, port: int) -> Sequence[str]:
    """The operating system's answer. Raises: OSError: no such name.

    On a thread of its own: a stranger's silent name server holds it for many seconds, and with it its caller's slot only.
    """
    answers = await in_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    return [str(answer[4][0]) for answer in answers]


class FetchLimits(Struct, frozen=True):
    max_redirects: int = MAX_REDIRECTS
    max_body_bytes: int = MAX_BODY_BYTES
    timeout_s: float = TIMEOUT_S
    max_parts: int = MAX_PARTS
    max_visit_bytes: int = MAX_VISIT_BYTES


class Reach(Struct, frozen=True):
    """`Hosts`, read once: rules 10 and 11."""

    private: frozenset[tuple[str, int]]
    named: frozenset[tuple[str, int]]
    any_public: bool

    @classmethod
    def of(cls, hosts: Hosts) -> Reach:
        """Raises: ValueError: an entry is not host:port."""
        named = (name if ":" in name else f"{name}:{DEFAULT_PORTS['https']}" for name in hosts.named)
        return cls(_pairs(hosts.private), _pairs(named), hosts.any_public)


class PackEgress:
    """The egress power of one pack: to the hosts that it declares, through the proxy if there is one."""

    def __init__(
        self,
        hosts: Hosts,
        *,
        proxy: Proxy | None = None,
        limits: FetchLimits | None = None,
        resolver: Resolver = system_resolver,
        connector: Connector = tcp.connect,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Raises: ValueError: an entry of `hosts` is not host:port."""
        self._reach = Reach.of(hosts)
        self._proxy = proxy
        self._limits = limits or FetchLimits()
        self._connector = connector
        self._resolver = resolver
        self._turns = wire.ReadTurns()
        self._tls = tls
        self._ca_files: set[str] = set()

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
        budget = _answer_budget(max_bytes or self._limits.max_body_bytes)
        request = _Request(method, dict(headers or {}), body, budget, origin)
        async with _deadline(seconds), self._line() as line:
            return await line.fetch(parse_target(url), request)

    @asynccontextmanager
    async def visit(self, *, ca_file: str = "") -> AsyncGenerator[Visit]:
        """One look at one site. The deadline counts the time spent on the network, not what the caller does between.

        Raises: ToolError TLS_FAILED: `ca_file` cannot be read.
        """
        async with self._line(ca_file) as line:
            yield _Visit(line, self._limits)

    @asynccontextmanager
    async def _line(self, ca_file: str = "") -> AsyncIterator[_Line]:
        # Made on first use and not at import: reading the system's certificates costs some 20 ms.
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        if ca_file and ca_file not in self._ca_files:
            trust_authorities(self._tls, ca_file)
            self._ca_files.add(ca_file)
        dialer = _Dialer(self._reach, self._proxy, self._resolver, self._connector)
        line = _Line(_Pool(dialer, self._turns, self._tls), self._reach, self._limits)
        try:
            yield line
        finally:
            line.close()


def trust_authorities(context: ssl.SSLContext, ca_file: str) -> None:
    """Raises ToolError TLS_FAILED: the file cannot be read, or holds no certificate."""
    try:
        context.load_verify_locations(cafile=ca_file)
    except OSError:  # SSLError is one
        text = f"the file of authorities {ca_file} cannot be read, or holds no certificate in PEM form"
        raise ToolError("TLS_FAILED", text) from None


UNKNOWN_AUTHORITY: Final = "the target's certificate comes from an authority that is not known here"
_UNKNOWN_CODES: Final = frozenset({18, 19, 20, 21})
"""OpenSSL's X509_V_ERR_*: self-signed, self-signed in the chain, no issuer, no issuer of the leaf."""
_EXPIRED_CODE: Final = 10


def _why_no_tls(cause: BaseException | None) -> str:
    code = cause.verify_code if isinstance(cause, ssl.SSLCertVerificationError) else None
    if code in _UNKNOWN_CODES:
        return UNKNOWN_AUTHORITY
    if code == _EXPIRED_CODE:
        return "the target's certificate has expired"
    return "the target's certificate or TLS handshake is not valid for its name"


def _answer_budget(limit: int, whole: wire.Budget | None = None) -> wire.Budget:
    return wire.Budget(limit, f"the target's answer is larger than {limit} bytes", whole)


@asynccontextmanager
async def _deadline(seconds: float, shown: float | None = None) -> AsyncGenerator[None]:
    """Rule 6: one clock for names, connections, redirects and bodies. `shown` is the whole time, if some is spent."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise ToolError("TIMEOUT", f"Connection timeout ({shown or seconds:g}s)", elsewhere=True) from None


def _pairs(entries: Iterable[str]) -> frozenset[tuple[str, int]]:
    return frozenset(_pair(entry) for entry in entries)


def _pair(entry: str) -> tuple[str, int]:
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


def confirm_peer(stream: tcp.Stream, checked: Address) -> None:
    """Rule 3: the other end is who was checked. Raises ToolError ADDRESS_REFUSED."""
    if parse_address(stream.peer) != checked:
        raise ToolError("ADDRESS_REFUSED", "the connection did not reach the address that was checked")


class _Dialer:
    """Every connection is made here, so none is made unchecked."""

    def __init__(self, reach: Reach, proxy: Proxy | None, resolver: Resolver, connector: Connector) -> None:
        self._reach = reach
        self._proxy = proxy
        self._resolver = resolver
        self._connector = connector
        self._known: dict[tuple[str, int], list[Address]] = {}

    async def connect(self, host: str, port: int) -> tcp.Stream:
        if self._proxy is not None and (host, port) not in self._reach.private:
            return await self._through(self._proxy, await self._told(host, port))
        failure: Exception | None = None
        for address in (await self._checked_addresses(host, port))[:MAX_ADDRESSES]:
            try:
                stream = await self._connector(str(address), port)
            except OSError as fault:
                failure = fault
                continue
            try:
                confirm_peer(stream, address)
            except (ToolError, OSError):
                stream.close()
                raise
            return stream
        raise ToolError("TARGET_NOT_FOUND", "nothing answers at the target's address", missing=True) from failure

    async def _told(self, host: str, port: int) -> str:
        """What the proxy is asked for: a host that the pack names by its name, one that a caller chose by its checked address."""
        if (host, port) in self._reach.named:
            return f"{host}:{port}"
        address = (await self._checked_addresses(host, port))[0]
        return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"

    async def _through(self, proxy: Proxy, authority: str) -> tcp.Stream:
        for address in (await self._resolve(proxy.host, proxy.port, "the proxy's"))[:MAX_ADDRESSES]:
            try:
                stream = await self._connector(address, proxy.port)
            except OSError:
                continue
            with ExitStack() as undo:
                undo.callback(stream.close)
                try:
                    await open_tunnel(stream, proxy, authority)
                except OSError:
                    raise ToolError("BAD_RESPONSE", "the proxy broke off", elsewhere=True) from None
                undo.pop_all()
            return stream
        raise ToolError("TARGET_NOT_FOUND", "nothing answers at the proxy's address", elsewhere=True)

    async def _checked_addresses(self, host: str, port: int) -> list[Address]:
        """Rule 2: resolve once in a visit, and refuse the name if any of its answers is refused."""
        pair = (host, port)
        if pair not in self._known:
            addresses = [parse_address(text) for text in await self._resolve(*pair)]
            for address in addresses:
                refuse_address(address, explicitly_allowed=pair in self._reach.private)
            self._known[pair] = list(dict.fromkeys(addresses))
        return self._known[pair]

    async def _resolve(self, host: str, port: int, whose: str = "the target's") -> Sequence[str]:
        try:
            answers = await self._resolver(host, port)
        except (OSError, UnicodeError):
            answers = ()
        if not answers:
            raise ToolError("TARGET_NOT_FOUND", f"{whose} host name does not resolve", missing=True)
        return answers


# -- rules 4, 5, 6: one exchange -----------------------------------------------------------------------------


class _Request(Struct, frozen=True):
    method: str
    headers: dict[str, str]
    body: bytes | None
    budget: wire.Budget
    same_origin_as: str | None = None


def refuse_undeclared(target: UrlTarget, reach: Reach) -> None:
    """Rule 11. Raises ToolError ADDRESS_REFUSED."""
    pair = (target.host, target.port)
    if not (reach.any_public or pair in reach.private or pair in reach.named):
        raise ToolError("ADDRESS_REFUSED", "the tool's pack does not declare this host, so the tool may not reach it")


def refuse_scheme_and_port(target: UrlTarget, *, explicitly_allowed: bool, named: bool = False) -> None:
    """Rules 1 and 6. Raises ToolError."""
    if explicitly_allowed:
        return
    if target.scheme != "https":
        raise ToolError(
            "ADDRESS_REFUSED",
            "plain http is not fetched; use https, or allow this HOST:PORT (--allow, or the server's settings)",
        )
    if target.port not in WEB_PORTS and not named:
        raise ToolError(
            "ADDRESS_REFUSED", "only the ports 80 and 443 are fetched, unless the settings allow this host:port"
        )


def refuse_downgrade(before: UrlTarget, after: UrlTarget) -> None:
    """Rule 5. Raises ToolError ADDRESS_REFUSED."""
    if before.scheme == "https" and after.scheme != "https":
        raise ToolError("ADDRESS_REFUSED", "the target redirects from https to http")


def refuse_other_origin(target: UrlTarget, origin: str | None) -> None:
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


class _Pool:
    """The connections of one fetch or one visit. One that has served an answer well serves its origin's next."""

    def __init__(self, dialer: _Dialer, turns: wire.ReadTurns, tls: ssl.SSLContext) -> None:
        self._dialer = dialer
        self._turns = turns
        self._tls = tls
        self._places = asyncio.Semaphore(MAX_CONNECTIONS)
        self._idle: list[tuple[str, wire.OriginConnection]] = []

    @asynccontextmanager
    async def connection(self, target: UrlTarget, *, fresh: bool = False) -> AsyncGenerator[wire.OriginConnection]:
        async with self._places:
            used = (None if fresh else self._kept(target.origin)) or await self._open(target)
            try:
                yield used
            except BaseException:
                used.close()
                raise
            if used.reusable:
                self._idle.append((target.origin, used))
            else:
                used.close()

    def _kept(self, origin: str) -> wire.OriginConnection | None:
        for entry in self._idle:
            if entry[0] == origin:
                self._idle.remove(entry)
                return entry[1]
        return None

    async def _open(self, target: UrlTarget) -> wire.OriginConnection:
        self.close()  # idle ones, of other origins or left by their server: with these there would be too many
        stream = await self._dialer.connect(target.host, target.port)
        with ExitStack() as undo:
            undo.callback(stream.close)
            made = wire.OriginConnection(stream, self._turns)
            if target.scheme == "https":
                await made.secure(self._tls, target.host)
            undo.pop_all()
        return made

    def close(self) -> None:
        for _, connection in self._idle:
            connection.close()
        self._idle.clear()


class _Line:
    """The way to the sites of one fetch or one visit."""

    def __init__(self, pool: _Pool, reach: Reach, limits: FetchLimits) -> None:
        self._pool = pool
        self._reach = reach
        self._limits = limits

    def close(self) -> None:
        self._pool.close()

    async def fetch(self, target: UrlTarget, request: _Request) -> Fetched:
        """Rule 5: redirects by hand, each hop through all rules."""
        chain: list[Hop] = []
        first, opened = target, False
        while True:
            refuse_other_origin(target, request.same_origin_as)
            pair = (target.host, target.port)
            allowed = pair in self._reach.private
            refuse_undeclared(target, self._reach)
            refuse_scheme_and_port(target, explicitly_allowed=allowed, named=pair in self._reach.named)
            opened = opened or allowed
            own_headers = request.headers if target.origin == first.origin else {}
            hop, reply = await self._exchange(target, request, own_headers)
            chain.append(hop)
            location = reply.headers.get("location") if hop.status in REDIRECTS else None
            if location is None:
                return Fetched(target.url, hop.status, reply.headers, reply.body, tuple(chain), opened)
            if request.method != "GET":
                raise ToolError("BAD_RESPONSE", "the target redirects a request that must not be repeated elsewhere")
            if len(chain) > self._limits.max_redirects:
                raise ToolError("BAD_RESPONSE", f"the target redirects more than {self._limits.max_redirects} times")
            following = join(target, location)
            refuse_downgrade(target, following)
            target = following

    async def _exchange(
        self, target: UrlTarget, request: _Request, own_headers: Mapping[str, str]
    ) -> tuple[Hop, wire.HttpResponse]:
        written = _write(target, request, own_headers)
        try:
            try:
                return await self._ask(target, written, request.budget)
            except _ClosedByPeer:
                return await self._ask(target, written, request.budget, fresh=True)
        except wire.HandshakeFailed as fault:
            raise ToolError("TLS_FAILED", _why_no_tls(fault.__cause__), elsewhere=True) from fault
        except wire.ConnectionBroken as fault:
            raise ToolError("BAD_RESPONSE", "the target broke off or did not speak HTTP", elsewhere=True) from fault

    async def _ask(
        self, target: UrlTarget, written: bytes, budget: wire.Budget, *, fresh: bool = False
    ) -> tuple[Hop, wire.HttpResponse]:
        async with self._pool.connection(target, fresh=fresh) as connection:
            try:
                reply = await connection.exchange(written, budget, refuse_encoding)
            except wire.ConnectionBroken:
                if connection.was_left:
                    raise _ClosedByPeer from None
                raise
            return _hop(target, connection, reply.status), reply


class _ClosedByPeer(Exception):
    """The kept connection was closed by the other side before it saw our request: a new one may be tried."""


def _write(target: UrlTarget, request: _Request, own_headers: Mapping[str, str]) -> bytes:
    host = target.origin.partition("://")[2]
    fixed = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
    return wire.write_request(request.method, target.path, host, {**fixed, **own_headers}, request.body)


def _hop(target: UrlTarget, connection: wire.OriginConnection, status: int) -> Hop:
    certificate = connection.certificate
    digest = sha256(certificate).hexdigest() if certificate else None
    return Hop(target.url, status, str(parse_address(connection.address)), digest)


# -- rule 7: a page and its parts ----------------------------------------------------------------------------


class _Visit:
    """See `toolgate.model.powers.Visit`."""

    def __init__(self, line: _Line, limits: FetchLimits) -> None:
        self._line = line
        self._limits = limits
        self._page: UrlTarget | None = None
        self._parts = 0
        # Counted as it arrives: files that come side by side must not fill the memory before the first is complete.
        text = f"the page and its parts exceed {limits.max_visit_bytes} bytes"
        self._budget = wire.Budget(limits.max_visit_bytes, text)
        self._under_way = 0
        self._since = 0.0
        self._spent_s = 0.0

    async def page(self, url: str) -> Fetched:
        async with self._clock():
            fetched = await self._line.fetch(parse_target(url), self._request(None))
        if fetched.status == 200:
            refuse_not_html(fetched.headers)
        self._page = parse_target(fetched.url)
        return fetched

    async def part(self, reference: str) -> Fetched:
        if self._page is None:
            raise RuntimeError("a part is fetched after its page")
        self._parts += 1
        if self._parts > self._limits.max_parts:
            raise ToolError("RESPONSE_TOO_LARGE", f"the page has more than {self._limits.max_parts} parts")
        target = join(self._page, reference)
        async with self._clock():
            return await self._line.fetch(target, self._request(self._page.origin))

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
        return _Request("GET", {}, None, _answer_budget(self._limits.max_body_bytes, self._budget), origin)
