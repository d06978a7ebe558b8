"""HTTP/1.1 messages out of a connection's bytes (RFC 9110, RFC 9112): strict, bounded from the first byte, and without I/O.

A head is read when it is whole, by two expressions that know the grammar and nothing more lenient. Whatever two readers
could frame differently is a fault: there is one length, or one `chunked`, or no body. `Upgrade` is ignored, so the body of
such a request is its own; trailers are counted and dropped. How the bytes were cut into pieces never matters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from toolgate.faces.reply import Headers

BLANK_BYTES: Final = 8
"""Empty lines before a request: RFC 9112 asks to ignore one, some clients send two."""
FRAME_BYTES: Final = 16
"""What a chunk or a trailer counts at least: a body in chunks of one byte is work without an end."""
FRAMES_A_STEP: Final = 64
"""Chunks and trailers read in one step; then it is another client's turn."""
LENGTH_DIGITS: Final = 15
"""A longer Content-Length is not a length: it would be a petabyte."""
KNOWN_HEADS: Final = 16
"""Heads remembered for one connection: they differ by tool and by length of the body."""
KNOWN_HEAD_BYTES: Final = 2048
"""Size of a head that is remembered: with the above, at most 32 KB a connection."""

_END: Final = b"\r\n\r\n"
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_VALUE: Final = rb"[\t\x20-\x7e\x80-\xff]*+"
_LINE: Final = re.compile(rb"([A-Z]{1,24}) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
_BEGINNING: Final = re.compile(rb"[A-Z]{1,24}(?: |\Z)")
_FIELDS: Final = re.compile(rb"(?:%b:%b\r\n)*+" % (_TOKEN, _VALUE))
_FIELD: Final = re.compile(rb"(%b):[ \t]*+(%b)\r\n" % (_TOKEN, _VALUE))
_TABBED: Final = re.compile(rb"transfer-encoding:[^\r]*\t *\r\n", re.IGNORECASE)
"""A tab behind the value. RFC 9110 5.5 allows it; a proxy in front may not see `chunked` in it, and frame the body otherwise."""
_BARE: Final = re.compile(rb"\r[^\n]|(?<!\r)\n")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)(.*)", re.IGNORECASE)
_QUOTED: Final = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*+"'
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;%b(?:=(?:%b|%b))?)*+" % (_TOKEN, _TOKEN, _QUOTED))


H = TypeVar("H")


class FramingLimits(Struct, frozen=True):
    """In bytes, except `max_headers`."""

    line_bytes: int
    header_bytes: int
    """All header lines of one message; also all that frames a chunked body: sizes, extensions, trailers."""
    max_headers: int
    body_bytes: int


class FramingFault(Exception):
    """The message cannot be parsed; the connection sends this status and closes."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class TooLarge(Exception):
    """The body is larger than allowed."""


class Request(Struct, frozen=True):
    """One message before its body."""

    method: bytes
    path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    """Names in lower case, values without the blanks around them."""
    length: int | None
    """None for a chunked body."""
    keep_alive: bool
    expects: bool
    """It waits for `100 Continue`."""
    chunks_read: bool
    """The client reads chunks: it speaks HTTP/1.1."""


def read_head(raw: bytes) -> Request:
    """A head with the empty line that ends it. Raises: FramingFault."""
    first = raw.find(b"\r\n")
    line = _LINE.fullmatch(raw, 0, first)
    if line is None:
        raise FramingFault(400, "malformed_request")
    method, target, major, minor = line.groups()
    if major != b"1" or minor not in (b"0", b"1"):
        raise FramingFault(505, "unsupported_http_version")
    block = raw[first + 2 : -2]
    if not _FIELDS.fullmatch(block):
        raise FramingFault(400, "malformed_header")
    headers = tuple([(name.lower(), value.rstrip(b" \t")) for name, value in _FIELD.findall(block)])
    fields = dict(headers)
    if len(fields) != len(headers):
        _refuse_repeated([name for name, _ in headers])
    host = fields.get(b"host")
    if host is None:
        raise FramingFault(400, "one_host_header_needed")
    path, query = _place(method, target, host)
    expects = fields.get(b"expect", b"").lower()
    if expects not in (b"", b"100-continue"):
        raise FramingFault(417, "unknown_expectation")
    options = {word.strip() for name, value in headers if name == b"connection" for word in value.lower().split(b",")}
    is_11 = minor == b"1"
    return Request(
        method,
        path,
        query,
        headers,
        _length(fields, block, is_11=is_11),
        keep_alive=b"close" not in options and (is_11 or b"keep-alive" in options),
        expects=is_11 and expects != b"",
        chunks_read=is_11,
    )


def _refuse_repeated(names: list[bytes]) -> None:
    """Headers that frame or address a message come once. Raises: FramingFault."""
    for name, reason in (
        (b"host", "one_host_header_needed"),
        (b"content-length", "two_lengths"),
        (b"transfer-encoding", "unsupported_transfer_encoding"),
        (b"expect", "unknown_expectation"),
    ):
        if names.count(name) > 1:
            raise FramingFault(400, reason)


def _place(method: bytes, target: bytes, host: bytes) -> tuple[bytes, bytes]:
    """Path and query. An absolute target is its own path if it names the same host. Raises: FramingFault."""
    if not target.startswith(b"/"):
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is None or method == b"CONNECT":
            raise FramingFault(400, "bad_target")
        if absolute[1].lower() != host.lower():
            raise FramingFault(400, "target_and_host_differ")
        target = absolute[2] if absolute[2].startswith(b"/") else b"/" + absolute[2]
    if b"#" in target:
        raise FramingFault(400, "bad_target")
    path, _, query = target.partition(b"?")
    return path, query


def _length(fields: dict[bytes, bytes], block: bytes, *, is_11: bool) -> int | None:
    """Raises: FramingFault."""
    length, encoding = fields.get(b"content-length"), fields.get(b"transfer-encoding")
    if encoding is not None:
        if length is not None:
            raise FramingFault(400, "length_beside_transfer_encoding")
        if encoding.lower() != b"chunked" or not is_11 or _TABBED.search(block):
            raise FramingFault(400, "unsupported_transfer_encoding")
        return None
    if length is None:
        return 0
    if not length.isdigit() or len(length) > LENGTH_DIGITS:
        raise FramingFault(400, "bad_length")
    return int(length)


class Reader(Generic[H]):
    """What has arrived on one connection and is not yet taken: `take_head`, then `take_body`, then the next head."""

    def __init__(self, limits: FramingLimits, make: Callable[[Request], H]) -> None:
        """`make`: what the application wants to know of a request, remembered with it."""
        self._limits = limits
        self._make = make
        self.arrived = bytearray()
        self.known: dict[bytes, tuple[Request, H]] = {}
        """A client that keeps its connection sends nearly the same head each time: known by its bytes, never read anew."""
        self.blank = 0
        """Bytes of empty lines before a request that has not begun."""
        self._seen = 0
        """How much of `arrived` has been searched for the end of a head."""
        self._length: int | None = 0
        self._chunks: _Chunks | None = None

    def take_head(self) -> tuple[Request, H] | None:
        """None while it is not whole. Raises: FramingFault, as soon as what is there can become no good head."""
        arrived = self.arrived
        while arrived.startswith(b"\r\n") and self.blank < BLANK_BYTES:
            del arrived[:2]
            self.blank += 2
        most = self._limits.line_bytes + self._limits.header_bytes
        end = arrived.find(_END, max(self._seen - 3, 0), most + len(_END))
        if end < 0:
            self._check_beginning()
            return None
        raw = bytes(arrived[: end + 4])
        found = self.known.get(raw)
        if found is None:
            self._check_size(raw)
            request = read_head(raw)
            found = request, self._make(request)
            self._remember(raw, found)
        del arrived[: end + 4]
        self.blank = self._seen = 0
        self._length = found[0].length
        self._chunks = _Chunks(self._limits) if self._length is None else None
        return found

    def take_body(self) -> bytes | None:
        """None while it is not whole. Raises: FramingFault, TooLarge."""
        if self._chunks is not None:
            return self._chunks.take(self.arrived)
        length = self._length or 0
        if length > self._limits.body_bytes:
            raise TooLarge
        if len(self.arrived) < length:
            return None
        body = bytes(self.arrived[:length])
        del self.arrived[:length]
        return body

    def skip_body(self) -> bool:
        """Drop the body, if it is all here and nobody has to look at it to know that."""
        if self._length is None or len(self.arrived) < self._length:
            return False
        del self.arrived[: self._length]
        return True

    def has_more(self) -> bool:
        """`take_body` stopped although not all that has arrived was read: ask again in the next turn."""
        return self._chunks is not None and not self._chunks.is_waiting

    def _remember(self, raw: bytes, found: tuple[Request, H]) -> None:
        request = found[0]
        if len(raw) <= KNOWN_HEAD_BYTES and request.keep_alive and request.length is not None and not request.expects:
            if len(self.known) >= KNOWN_HEADS:
                self.known.clear()
            self.known[raw] = found

    def _check_beginning(self) -> None:
        """Raises: FramingFault."""
        arrived = self.arrived
        if arrived and not _BEGINNING.match(arrived) and arrived != b"\r":
            raise FramingFault(400, "malformed_request")
        self._check_size(arrived)
        if _BARE.search(arrived, max(self._seen - 1, 0)):
            raise FramingFault(400, "bare_line_end")
        self._seen = len(arrived)

    def _check_size(self, head: bytes | bytearray) -> None:
        """Raises: FramingFault."""
        limits = self._limits
        if len(head) > limits.line_bytes:
            line = head.find(b"\r\n", 0, limits.line_bytes + 2)
            if line < 0:
                raise FramingFault(414, "request_line_too_long")
            if len(head) - line > limits.header_bytes:
                raise FramingFault(431, "headers_too_large")
        if head.count(b"\n", 0, limits.line_bytes + limits.header_bytes) > limits.max_headers + 2:
            raise FramingFault(431, "headers_too_large")


def _check_trailer(line: bytes) -> None:
    """It is dropped all the same; but what speaks of length behind a body is meant for another reader. Raises: FramingFault."""
    field = _FIELD.fullmatch(line + b"\r\n")
    if field is None or field[1].lower() in (b"content-length", b"transfer-encoding"):
        raise FramingFault(400, "malformed_trailer")


class _Chunks:
    """A chunked body under way (RFC 9112 7.1). Extensions and trailers mean nothing here; their bytes count."""

    def __init__(self, limits: FramingLimits) -> None:
        self._limits = limits
        self._body = bytearray()
        self._frame_bytes = 0
        self._left = 0
        """Bytes of the present chunk still to come, its line end included."""
        self._in_trailers = False
        self.is_waiting = False
        """More must arrive before there is more to read."""
        self._seen = 0
        """How much of the line that has begun was searched for its end."""

    def take(self, arrived: bytearray) -> bytes | None:
        """As much as one step may. Raises: FramingFault, TooLarge."""
        at = 0
        self.is_waiting = False
        try:
            for _ in range(FRAMES_A_STEP):
                if self._left:
                    piece = arrived[at : at + self._left]
                    self._data(piece)
                    at += len(piece)
                if self._left or (end := self._line_end(arrived, at)) < 0:
                    self.is_waiting = True
                    return None
                line = bytes(arrived[at:end])
                at = end + 2
                if not self._in_trailers:
                    self._size(line)
                elif not line:
                    return bytes(self._body)
                else:
                    _check_trailer(line)
            return None
        finally:
            del arrived[:at]

    def _line_end(self, arrived: bytearray, at: int) -> int:
        """Where the line ends that begins there; -1 while it does not. Raises: FramingFault."""
        end = arrived.find(b"\r\n", at + self._seen)
        self._count(max((len(arrived) if end < 0 else end + 2) - at, FRAME_BYTES), whole=end >= 0)
        if end >= 0:
            self._seen = 0
        elif _BARE.search(arrived, at + self._seen):
            raise FramingFault(400, "bare_line_end")
        else:
            self._seen = max(len(arrived) - at - 1, 0)
        return end

    def _size(self, line: bytes) -> None:
        size = _CHUNK.fullmatch(line)
        if size is None:
            raise FramingFault(400, "malformed_chunk")
        number = int(size[1], 16)
        if number == 0:
            self._in_trailers = True
        elif len(self._body) + number > self._limits.body_bytes:
            raise TooLarge
        else:
            self._left = number + 2

    def _data(self, piece: bytearray) -> None:
        """Raises: FramingFault: the chunk is longer or shorter than it said."""
        ending = max(len(piece) - max(self._left - 2, 0), 0)
        end = b"\r\n"[2 - min(self._left, 2) :][:ending]
        if piece[len(piece) - ending :] != end:
            raise FramingFault(400, "malformed_chunk")
        self._body += piece[: len(piece) - ending]
        self._left -= len(piece)

    def _count(self, size: int, *, whole: bool) -> None:
        """Raises: FramingFault."""
        if self._frame_bytes + size > self._limits.header_bytes:
            raise FramingFault(431, "chunks_too_small_or_trailers_too_large")
        if whole:
            self._frame_bytes += size


@lru_cache(maxsize=256)
def beginning_of(status: int, own: Headers, common: Headers, last: bool) -> bytes:  # noqa: FBT001 (the key of a cache)
    """An answer as far as it is like many others: its status and its headers, but for those of this one."""
    lines = [b"HTTP/1.1 %d %b" % (status, HTTPStatus(status).phrase.encode())]
    lines += [name + b": " + value for name, value in (*own, *common)]
    if last:
        lines.append(b"connection: close")
    return b"\r\n".join([*lines, b""])
