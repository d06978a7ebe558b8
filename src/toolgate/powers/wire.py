"""HTTP/1.1 as it is spoken to a stranger: one connection, read in small pieces, and a bound on all that is not body.

Everything here runs on the event loop that also serves our callers, so a stranger must not be able to make it work:
- a piece is small, the parser is C, and one piece is handled in each turn of the loop, whoever it belongs to;
- bytes that bring no body (TLS records, chunk sizes and extensions, trailers, interim answers) use up an allowance;
- headers, interim answers and the body are counted while they arrive;
- bytes that come in drips are left to gather before they are looked at.
The deadline is the caller's.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import httptools
from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.powers.tcp import Stream, TcpStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    CheckHead = Callable[[Mapping[str, str]], None]

READ_BYTES: Final = 16_384
"""One piece: at most a millisecond of parsing, whatever it holds; a page of 10 MB still takes only 640 of them."""
MAX_HEAD_BYTES: Final = 65_536
"""Status lines and headers of one answer, interim answers included."""
MAX_HEADERS: Final = 256
"""Headers and trailers of one answer; sites send about thirty."""
MAX_INTERIM: Final = 8
"""Answers 1xx before the real one. Nothing we send asks for any."""
FREE_BYTES: Final = 131_072
"""What a handshake, or one answer, may cost on the wire beside its body: certificates, headers, framing."""
FRAMING_SHARE: Final = 4
"""And one byte more for every four of body. A page in chunks of one byte costs five for each."""
SHORT_READ_BYTES: Final = 1024
"""A piece smaller than this is a drip: less than a packet holds."""
FREE_SHORT_READS: Final = 16
"""Drips of one answer that are read as they come: the ends of headers, chunks and records."""
DRIP_PAUSE_S: Final = 0.01
"""Then we look this often: each look costs the same, whether it finds a byte or a page."""

MAX_KNOWN: Final = 16
MAX_KNOWN_BYTES: Final = 2048
"""Heads that one connection remembers, and how long such a one may be. Of a server that tells the time, a second's is one."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")


class ConnectionBroken(Exception):
    """The other side broke off or does not speak HTTP."""


def _excess() -> ToolError:
    return ToolError("BAD_RESPONSE", "the target wraps its answer in more headers and framing than an answer needs")


class HandshakeFailed(Exception):
    """No TLS connection came about."""


class Sink(Protocol):
    """Takes an answer as it arrives, in place of a body at the end: for streams of events."""

    enough: bool
    """Set when the rest of the answer is not wanted; the connection then serves no other."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Raises: ToolError, ConnectionBroken: the answer is not wanted."""
        ...

    def take(self, data: bytes) -> None:
        """Raises: ToolError, ConnectionBroken."""
        ...


class ReadTurns:
    """One piece of strangers' bytes in each turn of the event loop: forty busy connections delay a caller like one."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def take(self) -> None:
        async with self._lock:
            await asyncio.sleep(0)


class Departures:
    """Small requests that leave together, at the end of a turn of the event loop: who is asked wakes up once for all of them,
    and to wake somebody costs as much as a send."""

    def __init__(self) -> None:
        self._held: list[tuple[TcpStream, bytes]] = []

    def hold(self, stream: TcpStream, request: bytes) -> None:
        if not self._held:
            asyncio.get_running_loop().call_soon(self._send)
        self._held.append((stream, request))

    def _send(self) -> None:
        held, self._held = self._held, []
        for stream, request in held:
            try:
                _send_whole(stream, request)
            except OSError as fault:
                stream.fail(fault)


def _send_whole(stream: TcpStream, request: bytes) -> None:
    """Raises: OSError."""
    if stream.send_now(request) < len(request):
        raise BlockingIOError  # a buffer that does not take a small request belongs to someone who does not read


class Budget:
    """How many bytes of body may still come, of one fetch and of the visit it belongs to."""

    def __init__(self, limit: int, text: str, whole: Budget | None = None) -> None:
        self.left = limit
        self._text = text
        self._whole = whole

    def spend(self, amount: int) -> None:
        """Raises: ToolError RESPONSE_TOO_LARGE."""
        self.require(amount)
        self.left -= amount
        if self._whole is not None:
            self._whole.spend(amount)

    def require(self, amount: int) -> None:
        """Raises: ToolError RESPONSE_TOO_LARGE: an answer of this size would not fit."""
        if amount > self.left:
            raise ToolError("RESPONSE_TOO_LARGE", self._text)
        if self._whole is not None:
            self._whole.require(amount)


class MeteredStream:
    """A stream that is read in small pieces, in turn, within an allowance."""

    def __init__(self, stream: Stream, turns: ReadTurns) -> None:
        self._stream = stream
        self._turns = turns
        self._allowance = 0
        self._short_reads = 0
        self.silent = True
        """Nothing has come since the last `begin`."""
        self.begin()

    def begin(self) -> None:
        """A handshake or an answer begins."""
        self._allowance = FREE_BYTES
        self._short_reads = 0
        self.silent = True

    def earn(self, body_bytes: int) -> None:
        """So many of the bytes were body."""
        self._allowance += body_bytes + body_bytes // FRAMING_SHARE

    async def receive(self) -> bytes:
        """Raises: OSError; ToolError BAD_RESPONSE: too much has come that is not body."""
        if self._short_reads > FREE_SHORT_READS:
            await asyncio.sleep(DRIP_PAUSE_S)
        data = await self._stream.receive(READ_BYTES)
        if data:
            self.silent = False
        self._short_reads += len(data) < SHORT_READ_BYTES
        self._allowance -= len(data)
        if self._allowance < 0:
            raise _excess()
        await self._turns.take()
        return data

    def ask(self, request: bytes, departures: Departures | None) -> asyncio.Future[bytes] | None:
        """Send a request, or let it leave with others, and get what will be the first piece of its answer. None: nothing was
        sent, because the request is large or the stream is none of our own. Raises: OSError."""
        stream = self._stream
        if not isinstance(stream, TcpStream) or len(request) > READ_BYTES:
            return None
        self.begin()
        if departures is None:
            _send_whole(stream, request)
        else:
            departures.hold(stream, request)
        return stream.next_piece(READ_BYTES)

    def heard(self, piece: bytes) -> None:
        """The piece that `ask` promised has come."""
        self.silent = not piece
        self._short_reads += len(piece) < SHORT_READ_BYTES
        self._allowance -= len(piece)

    async def send(self, data: bytes) -> None:
        await self._stream.send(data)

    def is_quiet(self) -> bool:
        return self._stream.is_quiet()

    def close(self) -> None:
        self._stream.close()


class TlsStream:
    """TLS over a metered stream. Records are opened here and not in the transport, so that their cost is seen."""

    def __init__(self, stream: MeteredStream, context: ssl.SSLContext, name: str) -> None:
        self._stream = stream
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=name)

    @property
    def certificate(self) -> bytes | None:
        return self._tls.getpeercert(binary_form=True)

    async def shake_hands(self) -> None:
        """Raises: HandshakeFailed; ToolError."""
        try:
            while not self._is_agreed():
                await self._flush()
                if not await self._fill():
                    raise HandshakeFailed
            await self._flush()
        except OSError as fault:  # SSLError is one
            raise HandshakeFailed from fault

    def _is_agreed(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    async def receive(self) -> bytes:
        """What the records that have come hold; empty at an end that the other side announced. Raises: OSError."""
        while True:
            opened, ended = self._open_records()
            await self._flush()
            if opened or ended:
                return opened
            if not await self._fill():
                self._in.write_eof()  # an end that nobody signed: the next look raises

    def _open_records(self) -> tuple[bytes, bool]:
        opened = bytearray()
        try:
            while data := self._tls.read(READ_BYTES):
                opened += data
        except ssl.SSLWantReadError:
            return bytes(opened), False
        except ssl.SSLZeroReturnError:
            pass
        return bytes(opened), True

    async def send(self, data: bytes) -> None:
        self._tls.write(data)
        await self._flush()

    async def _fill(self) -> int:
        return self._in.write(await self._stream.receive())

    async def _flush(self) -> None:
        if self._out.pending:
            await self._stream.send(self._out.read())


class HttpResponse(Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes


class _Reader:
    """The parser's callbacks: one answer, counted as it arrives. What they raise ends the parser at once."""

    def __init__(self, budget: Budget, meter: MeteredStream, check_head: CheckHead, sink: Sink | None) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._budget = budget
        self._meter = meter
        self._check_head = check_head
        self._sink = sink
        self._fields: list[tuple[bytes, bytes]] = []
        self.interim = 0
        self._head_bytes = 0
        self._in_body = False
        self._body = bytearray()
        self._fault: ToolError | ConnectionBroken | None = None
        self.headers: dict[str, str] = {}
        self.status = 0
        self.done = False
        self.reusable = False

    def feed(self, piece: bytes) -> None:
        """Raises: ToolError, ConnectionBroken."""
        try:
            self._parser.feed_data(piece)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as fault:
            if not self.done:
                raise self._fault or ConnectionBroken from fault
            # Bytes after the answer that nobody asked for: whose they are meant to be, only the stranger knows.
            self.reusable = False
        if not self._in_body:
            self._head_bytes += len(piece)
            if self._head_bytes > MAX_HEAD_BYTES:
                raise _excess()

    def end(self) -> None:
        """The connection ended. Raises: ConnectionBroken: before the answer did."""
        if not self._in_body or {"content-length", "transfer-encoding"} & self.headers.keys():
            raise ConnectionBroken
        self.done = True

    def reply(self) -> HttpResponse:
        return HttpResponse(self.status, self.headers, bytes(self._body))

    def forget(self) -> None:
        """Reader and parser hold each other until the collector comes; the body must not wait for it."""
        self._body.clear()

    # What the parser calls

    def on_message_begin(self) -> None:
        if self.done:
            self._stop(ConnectionBroken())

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))
        if len(self._fields) > MAX_HEADERS:
            self._stop(_excess())

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200:
            return
        self.headers = _read_headers(self._fields)
        self._in_body = True
        try:
            self._refuse_head()
            if self._sink is not None:
                self._sink.begin(self.status, self.headers)
        except (ToolError, ConnectionBroken) as fault:
            self._stop(fault)

    def _refuse_head(self) -> None:
        if self.headers.get("transfer-encoding", "chunked").lower() != "chunked":
            raise ConnectionBroken
        self._check_head(self.headers)
        announced = self.headers.get("content-length", "")
        if announced.isascii() and announced.isdigit():
            self._budget.require(int(announced[:20]))

    def on_body(self, data: bytes) -> None:
        try:
            self._budget.spend(len(data))
        except ToolError as fault:
            self._stop(fault)
        self._meter.earn(len(data))
        if self._sink is None:
            self._body += data
            return
        try:
            self._sink.take(data)
        except (ToolError, ConnectionBroken) as fault:
            self._stop(fault)

    def on_message_complete(self) -> None:
        if self._in_body:
            self.done = True
            self.reusable = self._parser.should_keep_alive()
            return
        self._fields.clear()
        self.interim += 1
        if self.interim > MAX_INTERIM:
            self._stop(_excess())

    def _stop(self, fault: ToolError | ConnectionBroken) -> None:
        self._fault = fault
        raise fault


def _read_headers(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in fields:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip(" \t")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def media_type(headers: Mapping[str, str]) -> str:
    """Of an answer, without its parameters; empty if it has none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


class KnownHead(Struct, frozen=True):
    """What the parser made of a head. The same bytes always say the same."""

    status: int
    headers: dict[str, str]
    length: int
    is_json: bool
    """Its body is an answer in JSON, and nothing is wrong."""


class OriginConnection:
    """One connection to one origin, over which answers are fetched one after another."""

    def __init__(self, stream: Stream, turns: ReadTurns) -> None:
        self._meter = MeteredStream(stream, turns)
        self._secured: TlsStream | None = None
        self.address = stream.peer
        self.used = False
        self.reusable = False
        self._known: dict[bytes, KnownHead] = {}

    @property
    def certificate(self) -> bytes | None:
        """The peer's, as it was sent; None without TLS."""
        return self._secured.certificate if self._secured else None

    @property
    def was_left(self) -> bool:
        """It had served before, and this time not one byte came: the other side had closed it meanwhile."""
        return self.used and self._meter.silent

    async def secure(self, context: ssl.SSLContext, name: str) -> None:
        """Raises: HandshakeFailed, ToolError."""
        self._secured = TlsStream(self._meter, context, name)
        await self._secured.shake_hands()

    async def exchange(
        self, request: bytes, budget: Budget, check_head: CheckHead, sink: Sink | None = None
    ) -> HttpResponse:
        """One request and its answer; with a sink, the reply has no body.

        Raises: ConnectionBroken; ToolError RESPONSE_TOO_LARGE, BAD_RESPONSE, what `check_head` and the sink raise.
        """
        self.reusable = False
        self._meter.begin()
        wire = self._secured or self._meter
        try:
            with suppress(OSError):  # who does not read all of it may have answered already
                await wire.send(request)
            piece = await wire.receive()
        except OSError as fault:
            raise ConnectionBroken from fault
        if (whole := self._found(piece)) is not None:
            return self._take_whole(*whole, budget, check_head, sink)
        return await self.go_on(piece, budget, check_head, sink)

    def ask(self, request: bytes, departures: Departures | None = None) -> asyncio.Future[bytes] | None:
        """The quick way, without a coroutine: send a request, or let it leave with others, and get what will be the first piece
        of its answer. Tell it to `whole`, and if that is not all of it, to `go_on`. None: nothing was sent; use `exchange`.
        Raises: OSError: also what is awaited, if it cannot leave."""
        if self._secured is not None:
            return None
        self.reusable = False
        return self._meter.ask(request, departures)

    def whole(self, piece: bytes) -> tuple[KnownHead, bytes] | None:
        """The head and the body, if `piece` is all of an answer whose head is known."""
        self._meter.heard(piece)
        found = self._found(piece)
        if found is not None:
            self.used = self.reusable = True
        return found

    async def go_on(
        self, piece: bytes, budget: Budget, check_head: CheckHead, sink: Sink | None = None
    ) -> HttpResponse:
        """The answer that begins with this piece. Raises: as `exchange`."""
        wire = self._secured or self._meter
        reader = _Reader(budget, self._meter, check_head, sink)
        first = piece
        try:
            while True:
                if piece:
                    reader.feed(piece)
                else:
                    reader.end()
                if reader.done or (sink is not None and sink.enough):
                    break
                piece = await wire.receive()
            self.used, self.reusable = True, reader.reusable
            if piece is first and reader.reusable:
                self._know(first, reader)
            return reader.reply()
        except OSError as fault:
            raise ConnectionBroken from fault
        finally:
            reader.forget()

    def _found(self, piece: bytes) -> tuple[KnownHead, bytes] | None:
        """A head that came before, byte for byte, and all of its body: what the parser would say is known."""
        end = piece.find(b"\r\n\r\n", 0, MAX_KNOWN_BYTES)
        known = self._known.get(piece[:end]) if end >= 0 else None
        if known is None or len(piece) != end + 4 + known.length:
            return None
        return known, piece[end + 4 :]

    def _take_whole(
        self, known: KnownHead, body: bytes, budget: Budget, check_head: CheckHead, sink: Sink | None
    ) -> HttpResponse:
        """Raises: as `exchange`."""
        check_head(known.headers)
        budget.spend(known.length)
        if sink is not None:
            sink.begin(known.status, known.headers)
            sink.take(body)
            body = b""
        self.used = self.reusable = True
        return HttpResponse(known.status, known.headers, body)

    def _know(self, piece: bytes, reader: _Reader) -> None:
        """Remember the head of an answer that came in one piece, if its length is told and nothing else stood before it."""
        end, length = piece.find(b"\r\n\r\n", 0, MAX_KNOWN_BYTES), reader.headers.get("content-length", "")
        told = int(length) if length.isascii() and length.isdigit() else -1
        if reader.interim or "transfer-encoding" in reader.headers or end < 0 or len(piece) != end + 4 + told:
            return
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        is_json = reader.status == 200 and media_type(reader.headers) == "application/json"
        self._known[piece[:end]] = KnownHead(reader.status, reader.headers, told, is_json)

    def is_quiet(self) -> bool:
        """Resting, and nothing has come meanwhile: the other side is still there."""
        return self._meter.is_quiet()

    def close(self) -> None:
        self._meter.close()


def write_request(method: str, path: str, host: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Raises: ToolError INVALID_INPUT: a header would be read as something else."""
    return with_body(write_head(method, path, host, headers), body)


def write_head(method: str, path: str, host: str, headers: Mapping[str, str]) -> bytes:
    """All but the length of the body: the same for every request of its kind. Raises: as `write_request`."""
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n".encode("ascii") + write_fields(headers)


def write_fields(headers: Mapping[str, str]) -> bytes:
    """Raises: as `write_request`."""
    if not all(_TOKEN.fullmatch(name) and _VALUE.fullmatch(value) for name, value in headers.items()):
        raise ToolError("INVALID_INPUT", "a header of the request holds a character that headers cannot carry")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("ascii")


def with_body(head: bytes, body: bytes | None) -> bytes:
    return b"%b\r\n" % head if body is None else b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
