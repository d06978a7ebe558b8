"""MCP over streamable HTTP: each message is one POST, answered with JSON or with a stream of events.

Connections are made as to a stranger (`powers.net`, `powers.wire`): resolved and checked, to the upstream's own host and port
only, every byte counted. A connection that rested is used again only while nothing has come on it, so that a request is not
written to someone who has already left.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from toolgate import __version__
from toolgate.errors import ToolError
from toolgate.model.mcpwire import (
    METHOD_HEADER,
    NAME_HEADER,
    NOTHING,
    SESSION_HEADER,
    TRACE_KEYS,
    VERSION_HEADER,
    era_of,
    header_value,
)
from toolgate.model.work import within
from toolgate.powers import tcp, wire
from toolgate.powers.addresses import UrlTarget, is_public, join, parse_address, parse_target
from toolgate.powers.mcp import messages
from toolgate.powers.mcp.bounds import STANDARD, Bounds
from toolgate.powers.mcp.failures import Lost, NotSent, RefusedByStatus, SessionGone, Unusable
from toolgate.powers.mcp.messages import MalformedMessage, Notification, Response, UpstreamRequest
from toolgate.powers.mcp.sse import Catch
from toolgate.powers.mcp.transport import Deadlines, Inbox, LogHeard, Step, ignore, nothing, with_token
from toolgate.powers.net import (
    MAX_ADDRESSES,
    REDIRECTS,
    Connector,
    Resolver,
    confirm_peer,
    refuse_address,
    refuse_encoding,
    system_resolver,
)
from toolgate.powers.oauth.exchange import UNAUTHORIZED, OAuthFailed, TokenSource

IDLE_S: Final = 4.0
"""How long a connection may rest: the servers of the field close theirs after five seconds."""
MOST_IDLE: Final = 8
MAX_ERRANDS: Final = 8
"""Notifications and replies of ours to one upstream that are under way at once."""
MAX_HEADS: Final = 1024
"""Heads of requests that are kept made: one for each tool."""
NOTE_S: Final = 10.0
"""For a message that wants no answer."""
FAREWELL_S: Final = 1.0
"""For what is still to be said when a connection ends: that a call was given up."""
MAX_REDIRECTS: Final = 3
MAX_SESSION_ID: Final = 1024
"""Characters of a session id; it is sent back with each request."""
MessageHeard = Callable[[Notification | UpstreamRequest], None]
_GREETINGS: Final = ("server/discover", "initialize")
_NAME_OF: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Endpoint(Struct, frozen=True):
    """Where an upstream is."""

    url: str
    private: bool
    """It was at a private address when it was adopted. One that was not may not turn private."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The upstream's own, with secrets: an API key, a token. Never anything of the caller's."""


class Kind(NamedTuple):
    """What the head of a request depends on, beside the connection."""

    verb: str
    method: str = ""
    name: str = ""


class Dialer:
    """Every connection to an upstream is made here, so none is made unchecked."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        resolver: Resolver = system_resolver,
        connector: Connector = tcp.connect,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._private = endpoint.private
        self._resolver = resolver
        self._connector = connector
        self._tls = tls
        self._turns = wire.ReadTurns()

    async def connect(self, target: UrlTarget) -> wire.OriginConnection:
        """Raises: NotSent."""
        try:
            stream = await self._stream(target)
        except ToolError as fault:
            reason = "address_refused" if fault.code == "ADDRESS_REFUSED" else "not_reachable"
            raise NotSent(reason, fault.text) from None
        made = wire.OriginConnection(stream, self._turns)
        try:
            if target.scheme == "https":
                await made.secure(self._context(), target.host)
        except (wire.HandshakeFailed, ToolError):
            made.close()
            raise NotSent(
                "tls_failed", "no secure connection came about: the certificate is not valid for it"
            ) from None
        except BaseException:
            made.close()
            raise
        return made

    async def _stream(self, target: UrlTarget) -> tcp.Stream:
        """Raises: ToolError."""
        for address in (await self._addresses(target))[:MAX_ADDRESSES]:
            try:
                stream = await self._connector(address, target.port)
            except OSError:
                continue
            try:
                confirm_peer(stream, parse_address(address))
            except (ToolError, OSError):
                stream.close()
                raise
            return stream
        raise ToolError("TARGET_NOT_FOUND", "nothing answers at the upstream's address", missing=True)

    async def _addresses(self, target: UrlTarget) -> list[str]:
        """Resolved anew for each connection, and refused if any of the answers is. Raises: ToolError."""
        try:
            answers = await self._resolver(target.host, target.port)
        except (OSError, UnicodeError):
            answers = ()
        if not answers:
            raise ToolError("TARGET_NOT_FOUND", "the upstream's host name does not resolve", missing=True)
        for text in answers:
            address = parse_address(text)
            refuse_address(address, explicitly_allowed=self._private)
            if target.scheme == "http" and is_public(address):
                raise ToolError("ADDRESS_REFUSED", "plain http is not spoken to a public address; use https")
        return list(dict.fromkeys(answers))

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


class HttpTransport:
    """See `transport.Transport`."""

    may_ignore_probe = False
    names_calls = True

    def __init__(
        self,
        endpoint: Endpoint,
        dialer: Dialer,
        bounds: Bounds = STANDARD,
        *,
        most_idle: int = MOST_IDLE,
        login: TokenSource | None = None,
    ) -> None:
        """`most_idle`: connections that are kept while they rest. Raises: ToolError: the URL is none."""
        self._login = login
        self._target = parse_target(endpoint.url)
        self._own_headers = dict(endpoint.headers)
        self._dialer = dialer
        self._bounds = bounds
        self._inbox = Inbox(bounds)
        self._numbers = count(1)
        self._idle: list[tuple[float, wire.OriginConnection]] = []
        self._version: str | None = None
        self._is_modern = False
        self._session: str | None = None
        self._heads: dict[Kind, bytes] = {}
        self._most_idle = most_idle
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop)
        self._departures = wire.Departures()
        """Of requests that are made while others wait for answers."""
        self._errands: set[asyncio.Task[None]] = set()
        self._closed = False
        self.on_note: Callable[[Notification], None] = ignore
        self.on_ask: Callable[[UpstreamRequest], bytes | None] = messages.reply

    @property
    def open(self) -> bool:
        return not self._closed

    def speak(self, version: str | None) -> None:
        self._version = version
        self._is_modern = version is not None and era_of(version) == "modern"
        self._heads.clear()

    def request(
        self,
        method: str,
        params: dict[str, object],
        *,
        seconds: float,
        step: Step | None = None,
        mirrored: Mapping[str, str] = NOTHING,
        log: LogHeard | None = None,
    ) -> Coroutine[Any, Any, Response]:
        """See `transport.Transport`."""
        once = self._request if self._login is None else self._request_with_token
        return once(method, params, step, mirrored, log, seconds)

    async def _request_with_token(
        self,
        method: str,
        params: dict[str, object],
        step: Step | None,
        mirrored: Mapping[str, str],
        log: LogHeard | None,
        seconds: float,
    ) -> Response:
        """Who refuses a token has not looked at the request: it is sent once more with a new one."""
        once = partial(self._request, method, params, step, mirrored, log)
        due = self._loop.time() + seconds
        used = await self._authorise(seconds)
        try:
            return await once(due - self._loop.time())
        except RefusedByStatus as refused:
            if refused.status != UNAUTHORIZED:
                raise
            await self._authorise(due - self._loop.time(), used)
        return await once(due - self._loop.time())

    async def _authorise(self, seconds: float, refused: str | None = None) -> str | None:
        """The token that is used from now on. Raises: NotSent."""
        if self._login is None:
            return None
        try:
            token = await within(seconds, self._login.token(refused))
        except (OAuthFailed, TimeoutError) as fault:
            raise NotSent(getattr(fault, "reason", "login_slow"), str(fault) or "no token came in time") from None
        bearer = f"Bearer {token}"
        if self._own_headers.get("Authorization") != bearer:
            self._own_headers["Authorization"] = bearer
            self._heads.clear()
        return token

    def _request(
        self,
        method: str,
        params: dict[str, object],
        step: Step | None,
        mirrored: Mapping[str, str],
        log: LogHeard | None,
        seconds: float,
    ) -> Coroutine[Any, Any, Response]:
        """To be awaited at once."""
        number = next(self._numbers)
        if step is not None:
            params = with_token(params, number)
            self._inbox.steps[number] = step
        name = params.get(_NAME_OF.get(method, ""))
        kind = Kind("POST", method, name if isinstance(name, str) else "")
        data, more = messages.request(number, method, params), self._more(params, mirrored)
        hears = self._message if log is None else partial(self._of_call, log)
        return self._ask(kind, data, more, number, hears, seconds)

    async def note(self, method: str) -> None:
        await self._deliver(messages.note(method), Kind("POST", method))

    def send_reply(self, data: bytes) -> None:
        self._errand(data, Kind("POST"))

    async def watch(self, seconds: float, opened: Callable[[], None] = nothing) -> None:
        """The stream of events that a GET opens; a server without one says 405."""
        await self._authorise(NOTE_S)
        catch = Catch(0, self._inbox, self._message, self._bounds, opened)
        try:
            await within(seconds, self._exchange(self._head(Kind("GET")), None, catch))
        except TimeoutError:
            raise Lost("no_answer", "the stream of events was open for long enough") from None
        if catch.status >= 400:
            raise RefusedByStatus(catch.status)

    async def why(self) -> str:
        return ""

    def leave(self) -> None:
        if self._session is not None:
            self._errand(None, Kind("DELETE"))

    async def close(self) -> None:
        self._closed = True
        if self._errands:
            await asyncio.wait(self._errands, timeout=FAREWELL_S)
        for errand in list(self._errands):
            errand.cancel()
        for _, connection in self._idle:
            connection.close()
        self._idle.clear()

    def _judge(self, catch: Catch, method: str, *, named_session: bool) -> Response:
        """Raises: RefusedByStatus, SessionGone, Lost."""
        if catch.status == 404 and named_session:
            raise SessionGone
        if catch.status == UNAUTHORIZED and self._login is not None:
            raise RefusedByStatus(catch.status)
        answer = catch.answer
        if answer is None and catch.status >= 400:
            raise RefusedByStatus(catch.status)
        if answer is None:
            raise Lost("connection_lost", "the upstream ended its answer before it had answered")
        if method == "initialize" and answer.error is None:
            self._session = _session_of(catch.headers)
            self._heads.clear()
        return answer

    def _abandon(self, number: int) -> None:
        """In the modern era the closed connection says it; before, a message does."""
        if self._version is not None and not self._is_modern:
            said = messages.note("notifications/cancelled", {"requestId": number})
            self._errand(said, Kind("POST", "notifications/cancelled"))

    def _message(self, message: Notification | UpstreamRequest) -> None:
        if isinstance(message, Notification):
            self.on_note(message)
        elif self._version is not None and not self._is_modern:
            replied = self.on_ask(message)
            if replied is not None:
                self.send_reply(replied)

    def _of_call(self, log: LogHeard, message: Notification | UpstreamRequest) -> None:
        if isinstance(message, Notification) and message.method == "notifications/message":
            log(message.params.get("level"), message.params.get("data"))
        else:
            self._message(message)

    def _errand(self, data: bytes | None, kind: Kind) -> None:
        async def go() -> None:
            with suppress(NotSent, Lost, Unusable, RefusedByStatus):
                await self._deliver(data, kind)

        if len(self._errands) < MAX_ERRANDS:  # who asks for more is not answered
            task = asyncio.get_running_loop().create_task(go())
            self._errands.add(task)
            task.add_done_callback(self._errands.discard)

    async def _deliver(self, data: bytes | None, kind: Kind) -> None:
        """Raises: NotSent, Lost, Unusable, RefusedByStatus."""
        await self._authorise(NOTE_S)
        catch = Catch(0, self._inbox, self._message, self._bounds)
        try:
            await within(NOTE_S, self._send(kind, data, catch))
        except TimeoutError:
            raise Lost("no_answer", "a notification was not accepted in time") from None
        if catch.status >= 400:
            raise RefusedByStatus(catch.status)

    # One exchange

    async def _ask(
        self, kind: Kind, data: bytes, more: bytes, number: int, hears: MessageHeard, seconds: float
    ) -> Response:
        """The quick way where there is one: over a connection that rested, to an answer in one piece.

        Raises: as `_send` and `_judge`.
        """
        catch, has_session = None, self._session is not None
        try:
            request = wire.with_body(self._head(kind) + more, data)
            connection = None if kind.method in _GREETINGS else self._rested()
            first = None if connection is None else self._sent(connection, request)
            if connection is None or first is None:
                catch = Catch(number, self._inbox, hears, self._bounds)
                await within(seconds, self._send(kind, data, catch, more))
                return self._judge(catch, kind.method, named_session=has_session)
            due = self._deadlines.begin(first, seconds)
            try:
                piece = await first
                found = connection.whole(piece)
                message = self._inbox.read(found[1]) if found is not None and found[0].is_json else None
                if type(message) is Response and message.id == number:
                    self._rest(connection)
                    return message
                catch = Catch(number, self._inbox, hears, self._bounds)
                await self._read_on(connection, piece, found, message, catch, due)
            except BaseException as fault:  # noqa: BLE001 (raised again, as what it means)
                connection.close()
                raise _meaning(fault, catch) from None
            finally:
                self._deadlines.end(first)
            self._answered(connection, catch)
            if catch.status in REDIRECTS and "location" in catch.headers:
                raise Unusable("redirected", "the upstream redirects a call")
            return self._judge(catch, kind.method, named_session=has_session)
        except TimeoutError:
            self._abandon(number)
            raise Lost("no_answer", f"no answer came within {seconds:g} s") from None
        except asyncio.CancelledError:
            self._abandon(number)
            raise
        finally:
            self._inbox.steps.pop(number, None)

    async def _read_on(
        self,
        connection: wire.OriginConnection,
        piece: bytes,
        found: tuple[wire.KnownHead, bytes] | None,
        message: Response | Notification | UpstreamRequest | None,
        catch: Catch,
        due: float,
    ) -> None:
        """An answer that is not all in its first piece, or is no plain answer. Raises: as `go_on`; TimeoutError."""
        if found is None:
            left = due - self._loop.time()
            await within(left, connection.go_on(piece, self._budget(), refuse_encoding, catch))
        else:
            _hand_over(catch, *found, message)

    def _sent(self, connection: wire.OriginConnection, request: bytes) -> asyncio.Future[bytes] | None:
        """What will be the first piece of its answer. None: it has to go another way. Raises: Lost."""
        try:
            first = connection.ask(request, self._departures if self._deadlines else None)
        except OSError:
            connection.close()
            raise Lost("connection_lost", "the upstream does not take what it is sent") from None
        if first is None:
            self._rest(connection)
        return first

    async def _send(self, kind: Kind, data: bytes | None, catch: Catch, more: bytes = b"") -> None:
        """Raises: NotSent, Lost, Unusable. A redirect is followed only when nothing is asked for but a greeting."""
        for _ in range(MAX_REDIRECTS + 1):
            await self._exchange(self._head(kind) + more, data, catch)
            location = catch.headers.get("location") if catch.status in REDIRECTS else None
            if location is None:
                return
            if kind.method not in _GREETINGS:
                raise Unusable("redirected", "the upstream redirects a call")
            self._target = self._same_origin(location)
            self._heads.clear()
            catch.again()
        raise Unusable("redirected", f"the upstream redirects more than {MAX_REDIRECTS} times")

    def _same_origin(self, location: str) -> UrlTarget:
        try:
            following = join(self._target, location)
        except ToolError as fault:
            raise Unusable("redirected", fault.text) from None
        if following.origin != self._target.origin:
            raise Unusable("redirected", "the upstream redirects to another origin")
        return following

    async def _exchange(self, head: bytes, data: bytes | None, catch: Catch) -> None:
        """Raises: NotSent, Lost, Unusable."""
        request = wire.with_body(head, data)
        connection = self._rested() or await self._dialer.connect(self._target)
        try:
            await connection.exchange(request, self._budget(), refuse_encoding, catch)
        except BaseException as fault:  # noqa: BLE001 (raised again, as what it means)
            connection.close()
            raise _meaning(fault, catch) from None
        self._answered(connection, catch)

    def _budget(self) -> wire.Budget:
        return wire.Budget(self._bounds.list_bytes, "the upstream's answer is too large")

    def _answered(self, connection: wire.OriginConnection, catch: Catch) -> None:
        """All of an answer has come. Raises: Unusable."""
        catch.end()
        if catch.fault is not None:
            connection.close()
            raise Unusable(catch.fault.reason, str(catch.fault))
        self._rest(connection)

    def _rested(self) -> wire.OriginConnection | None:
        now = monotonic()
        while self._idle:
            since, connection = self._idle.pop()
            if now - since < IDLE_S and connection.is_quiet():
                return connection
            connection.close()
        return None

    def _rest(self, connection: wire.OriginConnection) -> None:
        if connection.reusable and len(self._idle) < self._most_idle and not self._closed:
            self._idle.append((monotonic(), connection))
        else:
            connection.close()

    def _head(self, kind: Kind) -> bytes:
        """The head of a request, the same for all of its kind. Raises: NotSent."""
        head = self._heads.get(kind)
        if head is None:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            host = self._target.origin.partition("://")[2]
            try:
                head = wire.write_head(kind.verb, self._target.path, host, self._headers(kind))
            except ToolError as fault:
                raise NotSent("bad_header", fault.text) from None
            self._heads[kind] = head
        return head

    def _headers(self, kind: Kind) -> dict[str, str]:
        headers = {
            "User-Agent": f"toolgate/{__version__}",
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            **self._own_headers,
        }
        if self._version is not None:
            headers[VERSION_HEADER] = self._version
            if self._is_modern and kind.method:
                headers[METHOD_HEADER] = kind.method
                if kind.name:
                    headers[NAME_HEADER] = header_value(kind.name)
        if self._session is not None:
            headers[SESSION_HEADER] = self._session
        return headers

    def _more(self, params: Mapping[str, Any], mirrored: Mapping[str, str]) -> bytes:
        """Headers of this one request. Raises: NotSent."""
        meta: Any = params.get("_meta", NOTHING)
        if not (mirrored and self._is_modern) and "traceparent" not in meta:
            return b""
        trace = {key: meta[key] for key in TRACE_KEYS if key in meta}
        try:
            return wire.write_fields({**(mirrored if self._is_modern else NOTHING), **trace})
        except ToolError as fault:
            raise NotSent("bad_header", fault.text) from None


def _hand_over(
    catch: Catch, head: wire.KnownHead, body: bytes, message: Response | Notification | UpstreamRequest | None
) -> None:
    """An answer that is whole; `message`: what was read of it, if it is JSON. Raises: ConnectionBroken, MalformedMessage."""
    catch.begin(head.status, head.headers)
    if head.is_json:
        catch.hear(message)
    else:
        catch.take(body)


def _meaning(fault: BaseException, catch: Catch | None) -> BaseException:
    """What it means that reading an answer failed so: Lost, Unusable, or itself."""
    if isinstance(fault, MalformedMessage):
        return Unusable(fault.reason, str(fault))
    if isinstance(fault, ToolError):
        reason = "answer_too_large" if fault.code == "RESPONSE_TOO_LARGE" else "bad_response"
        return Unusable(reason, fault.text)
    if not isinstance(fault, wire.ConnectionBroken | OSError) or isinstance(
        fault, TimeoutError
    ):  # our own, though an OSError
        return fault
    if catch is not None and catch.fault is not None:
        return Unusable(catch.fault.reason, str(catch.fault))
    return Lost("connection_lost", "the upstream broke off or does not speak HTTP")


def _session_of(headers: Mapping[str, str]) -> str | None:
    session = headers.get(SESSION_HEADER)
    if session is None or not session.isascii() or not session.isprintable() or len(session) > MAX_SESSION_ID:
        return None
    return session
