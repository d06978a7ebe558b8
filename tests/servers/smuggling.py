"""Requests that two readers may frame differently: what is sent, what must be answered, and what becomes of the connection.

`SECRET` marks the trap. It is a whole request with an admin's key, hidden where a careless reader would find a second
message: behind a refused one, inside a body, in a trailer. Nobody may ever read it as a request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

GOOD: Final = b'{"tool":"unruly_echo","args":{}}'
SECRET: Final = b'{"tool":"unruly_write","args":{"name":"smuggled"}}'
DISPATCH: Final = b"POST /mrt_dispatch HTTP/1.1"
HEALTH: Final = b"GET /healthz HTTP/1.1"

Statuses = int | frozenset[int]
End = Literal["kept", "closed", "either", "waits"]
"""What follows the answers. `closed`: nothing behind them is read. `either`: kept or closed, as the server likes; nothing
else is answered. `waits`: the message is not over, and is dropped without an answer when the client goes."""

VERSION: Final = frozenset({400, 505})
METHOD: Final = frozenset({400, 405, 501})
FOREIGN: Final = frozenset({400, 403, 421})
TOO_MUCH: Final = frozenset({400, 413})
LONG: Final = frozenset({400, 414, 431})
SERVED_OR_NOT: Final = frozenset({200, 400})


@dataclass(frozen=True)
class Row:
    name: str
    data: bytes
    answers: tuple[Statuses, ...]
    end: End
    bodiless: frozenset[int] = field(default=frozenset())
    """Which answers end with their head: those to HEAD."""
    may_continue: bool = False
    """A `100 Continue` may come before an answer; else none may."""


@dataclass(frozen=True)
class Client:
    """Writes the requests of one caller."""

    host: bytes
    key: bytes

    def head(self, *more: bytes, line: bytes = DISPATCH, host: bytes | None = None, key: bool = True) -> bytes:
        lines = [line, b"Host: " + (self.host if host is None else host), b"Content-Type: application/json"]
        lines += [b"X-MCP-API-Key: " + self.key] if key else []
        return b"\r\n".join([*lines, *more, b"", b""])

    def post(self, *more: bytes, body: bytes = GOOD, line: bytes = DISPATCH, **parts: object) -> bytes:
        return self.head(*more, length(body), line=line, **parts) + body  # type: ignore[arg-type]

    def chunked(self, *more: bytes, body: bytes, **parts: object) -> bytes:
        """`body` as it is: chunks with their sizes, or what a client takes for them."""
        return self.head(*more, b"Transfer-Encoding: chunked", **parts) + body  # type: ignore[arg-type]

    def get(self, *more: bytes, line: bytes = HEALTH) -> bytes:
        return b"\r\n".join([line, b"Host: " + self.host, *more, b"", b""])

    @property
    def hidden(self) -> bytes:
        return self.post(body=SECRET)


def length(body: bytes) -> bytes:
    return b"Content-Length: %d" % len(body)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST: Final = b"0\r\n\r\n"
WHOLE: Final = chunk(GOOD) + LAST


def rows(client: Client) -> dict[str, Row]:
    families = (
        _length_and_encoding,
        _encodings,
        _lengths,
        _unread_bodies,
        _upgrades,
        _trailers,
        _line_ends,
        _names_and_values,
        _extensions,
        _chunk_sizes,
        _targets,
        _versions,
        _methods,
        _before_and_behind,
        _heads_only,
        _expectations,
        _too_long,
    )
    found = [row for family in families for row in family(client)]
    assert len({row.name for row in found}) == len(found)
    return {row.name: row for row in found}


def _refused(name: str, data: bytes, statuses: Statuses = 400) -> Row:
    return Row(name, data, (statuses,), "closed")


def _served(name: str, data: bytes, count: int = 1) -> Row:
    return Row(name, data, (200,) * count, "kept")


def _length_and_encoding(client: Client) -> Iterator[Row]:
    te, hidden = b"Transfer-Encoding: chunked", client.hidden
    in_chunk = chunk(hidden) + LAST
    yield _refused("CL.TE", client.head(length(LAST + hidden), te) + LAST + hidden)
    yield _refused("CL.TE, the length last", client.head(te, length(LAST + hidden)) + LAST + hidden)
    yield _refused("TE.CL", client.head(b"Content-Length: 5", te) + in_chunk)
    yield _refused("TE.CL, the length last", client.head(te, b"Content-Length: 5") + in_chunk)
    yield _refused("TE with a length of 0", client.head(b"Content-Length: 0", te) + WHOLE)
    for value in (b"identity", b"xchunked", b"chunked, identity", b"\x0bchunked", b"chunk"):
        name = f"a length beside Transfer-Encoding: {value!r}"
        yield _refused(name, client.head(length(WHOLE), b"Transfer-Encoding: " + value) + WHOLE)


def _encodings(client: Client) -> Iterator[Row]:
    for value in (b"Chunked", b"CHUNKED", b"\tchunked", b"  chunked", b"chunked ", b"cHuNkEd  "):
        yield _served(f"Transfer-Encoding:{value!r}", client.head(b"Transfer-Encoding:" + value) + WHOLE)
    yield _served("tRANSFER-eNCODING", client.head(b"tRANSFER-eNCODING: chunked") + WHOLE)
    odd = (
        *(b"chunked,", b",chunked", b", chunked", b"chunked, identity", b"identity, chunked", b"chunked;q=1"),
        *(b"chunked\x0b", b"\x0bchunked", b"chunked\x0c", b"\x0cchunked", b"chunked\x00", b"\x00chunked"),
        *(b"\xa0chunked", b"chunked\x85", b'"chunked"', b"chu nked", b"chunked chunked", b"chunkedx", b"chunk"),
        *(b"", b" ", b"chunked\t", b"cHuNkEd \t "),  # behind the value a tab is allowed, and read otherwise by llhttp
        *(b"deflate", b"chunked\x7f", b"chunked\x1f", b"chunked/1", b"\xef\xbb\xbfchunked"),
    )
    for value in odd:
        yield _refused(f"Transfer-Encoding: {value!r}", client.head(b"Transfer-Encoding: " + value) + WHOLE)
    pairs = {
        "chunked and identity": (b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"),
        "identity and chunked": (b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked"),
        "an unknown one and chunked": (b"Transfer-Encoding: x", b"transfer-encoding: chunked"),
        "one empty and chunked": (b"Transfer-Encoding:", b"Transfer-Encoding: chunked"),
    }
    for name, lines in pairs.items():
        yield _refused(f"two encodings, {name}", client.head(*lines) + WHOLE)
    disguises = {
        "a blank before the colon": b"Transfer-Encoding : chunked",
        "a tab before the colon": b"Transfer-Encoding\t: chunked",
        "a vertical tab before the colon": b"Transfer-Encoding\x0b: chunked",
        "NUL in the name": b"Transfer-Encoding\x00: chunked",
        "the value folded": b"Transfer-Encoding:\r\n chunked",
        "the name on a folded line": b"X: y\r\n Transfer-Encoding: chunked",
        "the name behind a bare CR": b"X: y\rTransfer-Encoding: chunked",
        "the name behind a bare LF": b"X: y\nTransfer-Encoding: chunked",
        "the colon on the next line": b"Transfer-Encoding\r\n: chunked",
        "no colon": b"Transfer-Encoding chunked",
    }
    for name, line in disguises.items():
        yield _refused(f"an encoding with {name}", client.head(line, length(WHOLE)) + WHOLE)
    yield _served("Transfer_Encoding is another header", client.post(b"Transfer_Encoding: chunked"))


def _lengths(client: Client) -> Iterator[Row]:
    size = b"%d" % len(GOOD)
    for value in (size + b" ", b"\t" + size, b"00" + size):
        yield _served(f"Content-Length:{value!r}", client.head(b"Content-Length:" + value) + GOOD)
    odd = (
        *(size + b", " + size, size + b"," + size, size + b", 0", b"0, " + size, size + b",", b"," + size),
        *(b"", b" ", b"+" + size, b"-" + size, b"-0", b"0x20", b"0o40", b"3_2", b"32.0", b"3.2e1", b"32;", b"'32'"),
        *(b"\x0b" + size, size + b"\x0c", size + b"\x00", b"\xb3\xb2", "３２".encode(), b"3 2", size + b"b", b"NaN"),
    )
    for value in odd:
        yield _refused(f"Content-Length: {value!r}", client.head(b"Content-Length: " + value) + GOOD)
    for power in (31, 32, 63, 64, 128):
        value = b"%d" % ((1 << power) + len(GOOD))
        yield _refused(f"a length that wraps at 2^{power}", client.head(b"Content-Length: " + value) + GOOD, TOO_MUCH)
    yield _refused("a length of 5000 digits", client.head(b"Content-Length: " + b"9" * 5000) + GOOD, TOO_MUCH)
    for count in (19, 5000):
        zeros = client.head(b"Content-Length: " + b"0" * count + size) + GOOD
        yield Row(f"a length behind {count} zeros", zeros, (SERVED_OR_NOT,), "either")
    pairs = {
        "the same twice": (size, size),
        "different ones": (size, b"0"),
        "different ones, the short one first": (b"0", size),
        "the same number, another spelling": (size, b"0" + size),
    }
    for name, (first, second) in pairs.items():
        lines = b"Content-Length: " + first, b"content-length: " + second
        yield _refused(f"two lengths, {name}", client.head(*lines) + GOOD)
    for name, line in {
        "a blank before the colon": b"Content-Length : " + size,
        "folded": b"Content-Length:\r\n " + size,
        "behind a bare CR": b"X: y\rContent-Length: " + size,
        "with NUL in the name": b"Content\x00-Length: " + size,
    }.items():
        yield _refused(f"a length {name}", client.head(line) + GOOD)
    short = client.head(b"Content-Length: 4") + GOOD
    yield Row("a length shorter than the body", short, (400, 400), "closed")
    yield Row("a length longer than the body", client.head(b"Content-Length: 99") + GOOD, (), "waits")
    yield Row("a POST without a length has no body", client.head() + client.get(), (400, 200), "kept")


def _unread_bodies(client: Client) -> Iterator[Row]:
    """CL.0: who answers without reading the body must not read it as a request."""
    hidden = client.hidden
    for name, line in {
        "on a route that wants none": b"POST /healthz HTTP/1.1",
        "on a route that is none": b"POST /nothing HTTP/1.1",
        "of a PUT": b"PUT /mrt_dispatch HTTP/1.1",
        "of a DELETE": b"DELETE /mrt_dispatch HTTP/1.1",
    }.items():
        answers: tuple[Statuses, ...] = (frozenset({200, 404, 405, 413}),)
        yield Row(f"CL.0, the body {name}", client.post(line=line, body=hidden), answers, "either")
        chunked = client.chunked(line=line, body=chunk(hidden) + LAST)
        yield Row(f"CL.0, the chunked body {name}", chunked, answers, "either")
    yield Row("CL.0, the body of a stranger", client.post(body=hidden, key=False), (401,), "either")
    chunked = client.chunked(body=chunk(hidden) + LAST, key=False)
    yield Row("CL.0, the chunked body of a stranger", chunked, (401,), "either")
    yield Row("CL.0, the body for another host", client.post(body=hidden, host=b"evil.test"), (403,), "either")
    wrong = client.post(b"Origin: http://evil.test", body=hidden)
    yield Row("CL.0, the body from another origin", wrong, (403,), "either")
    for line in (b"GET", b"OPTIONS", b"TRACE"):
        data = client.post(line=line + b" /healthz HTTP/1.1", body=hidden)
        yield Row(f"a {line.decode()} with a body", data, (frozenset({200, 400, 405, 413}),), "either")
        data = client.chunked(line=line + b" /healthz HTTP/1.1", body=chunk(hidden) + LAST)
        yield Row(f"a {line.decode()} with a chunked body", data, (frozenset({200, 400, 405, 413}),), "either")
    yield Row("a body that is a request", client.post(body=hidden), (400,), "kept")
    yield Row("a chunk that is a request", client.chunked(body=chunk(hidden) + LAST), (400,), "kept")
    blanks = client.post(body=GOOD + b"\r\n\r\n" + hidden)
    yield Row("a request behind blank lines in a body", blanks, (400,), "kept")


def _upgrades(client: Client) -> Iterator[Row]:
    """RFC 9110 7.8: a server may ignore Upgrade; the body then is this request's own."""
    hidden = client.hidden
    for token in (b"h2c", b"websocket", b"foo", b"TLS/1.2", b"h2c, websocket"):
        lines = b"Upgrade: " + token, b"Connection: Upgrade"
        name = f"Upgrade: {token.decode()}"
        yield _served(name, client.post(*lines))
        yield _served(f"{name}, twice on one connection", client.post(*lines) * 2, 2)
        yield _served(f"{name}, chunked", client.chunked(*lines, body=WHOLE))
        yield Row(f"{name}, the body is a request", client.post(*lines, body=hidden), (400,), "kept")
        yield Row(f"{name}, a chunk is a request", client.chunked(*lines, body=chunk(hidden) + LAST), (400,), "kept")
        yield _served(f"{name}, no body, and the next request", client.get(*lines) + client.post(), 2)
    java = b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk"
    yield _served("Upgrade as java.net.http sends it", client.post(*java))
    yield _served("Upgrade as java.net.http sends it, chunked", client.chunked(*java, body=WHOLE))
    yield _served("Upgrade without Connection", client.post(b"Upgrade: h2c"))
    yield _served("Connection: Upgrade without Upgrade", client.post(b"Connection: upgrade"))
    yield _served("Upgrade beside keep-alive", client.post(b"Connection: keep-alive, Upgrade", b"Upgrade: websocket"))
    yield _refused("Upgrade with both lengths", client.chunked(*java, length(WHOLE), body=WHOLE))
    stranger = client.post(*java, body=hidden, key=False)
    yield Row("Upgrade of a stranger, the body is a request", stranger, (401,), "either")


def _trailers(client: Client) -> Iterator[Row]:
    """Trailers are read to their end, and never become headers."""

    def with_trailers(*lines: bytes) -> bytes:
        return chunk(GOOD) + b"\r\n".join([b"0", *lines, b"", b""])

    key, host = b"X-MCP-API-Key: " + client.key, b"Host: " + client.host
    for name, line in {
        "some field": b"X-Checksum: 1",
        "Host": b"Host: evil.test",
        "Authorization": b"Authorization: Bearer nobody",
        "Content-Type": b"Content-Type: text/plain",
        "Connection": b"Connection: close",
        "another key": b"X-MCP-API-Key: nobody",
    }.items():
        yield _served(f"a trailer: {name}", client.chunked(body=with_trailers(line, b"X-Last: 1")))
    bare = client.chunked(body=with_trailers(key, b"X-Last: 1"), key=False)
    yield Row("a key only in a trailer", bare, (401,), "either")
    bearer = client.chunked(body=with_trailers(b"Authorization: Bearer " + client.key), key=False)
    yield Row("a bearer token only in a trailer", bearer, (401,), "either")
    foreign = client.chunked(body=with_trailers(host), host=b"evil.test")
    yield Row("the right Host only in a trailer", foreign, (403,), "either")
    origin = client.chunked(b"Origin: http://evil.test", body=with_trailers(b"Origin: http://" + client.host))
    yield Row("the right Origin only in a trailer", origin, (403,), "either")
    kind = client.chunked(body=with_trailers(b"Content-Type: application/json"))
    kind = kind.replace(b"Content-Type: application/json", b"Content-Type: text/plain", 1)
    yield Row("the right Content-Type only in a trailer", kind, (415,), "either")
    for name, line in {
        "with a length": b"Content-Length: 500",
        "with an encoding": b"transfer-encoding: chunked",
        "without a colon": b"nonsense",
        "that is a request line": b"POST /mrt_dispatch HTTP/1.1",
        "with a blank before the colon": b"X : 1",
        "that is folded": b"X: 1\r\n 2",
        "behind a bare LF": b"X: 1\nY: 2",
        "behind a bare CR": b"X: 1\rY: 2",
        "with NUL": b"X: \x00",
        "without a name": b": 1",
    }.items():
        yield _refused(f"a trailer {name}", client.chunked(body=with_trailers(line)))
    yield Row("trailers that never end", client.chunked(body=chunk(GOOD) + b"0\r\nX: 1\r\n"), (), "waits")
    request = client.hidden.partition(b"\r\n")
    yield _refused("a request where trailers stand", client.chunked(body=chunk(GOOD) + b"0\r\n" + b"".join(request)))


def _line_ends(client: Client) -> Iterator[Row]:
    good = client.post()
    yield _refused("only bare LF", good.replace(b"\r\n", b"\n"))
    yield _refused("only bare CR", good.replace(b"\r\n", b"\r"))
    yield _refused("LF CR", good.replace(b"\r\n", b"\n\r"))
    yield _refused("a bare LF behind the request line", good.replace(b"\r\n", b"\n", 1))
    yield _refused("a bare CR behind the request line", good.replace(b"\r\n", b"\r", 1))
    yield _refused("CR CR LF behind the request line", good.replace(b"\r\n", b"\r\r\n", 1))
    yield _refused("a bare LF in the request line", good.replace(b"/mrt_dispatch", b"/mrt_\ndispatch", 1))
    yield _refused("a bare CR in the request line", good.replace(b"/mrt_dispatch", b"/mrt_\rdispatch", 1))
    yield _refused("the head ends with LF LF", good.replace(b"\r\n\r\n", b"\n\n"))
    yield _refused("the head ends with CR LF LF", good.replace(b"\r\n\r\n", b"\r\n\n"))
    yield _refused("the head ends with LF CR LF", good.replace(b"\r\n\r\n", b"\n\r\n"))
    yield _refused("the head ends with CR CR", good.replace(b"\r\n\r\n", b"\r\r"))
    yield _refused("the head ends with CR LF CR CR LF", good.replace(b"\r\n\r\n", b"\r\n\r\r\n"))
    for name, line in {
        "a bare LF in a value": b"X: a\nb",
        "a bare CR in a value": b"X: a\rb",
        "a bare CR before CR LF": b"X: a\r",
        "a folded value": b"X: a\r\n b",
        "a value folded by a tab": b"X: a\r\n\tb",
        "a line of blanks": b"  ",
        "a header behind a bare LF": b"X: a\nY: b",
    }.items():
        yield _refused(name, client.post(line))
    first = client.post().replace(b"\r\nHost", b"\r\n Host", 1)
    yield _refused("a blank before the first header", first)


def _names_and_values(client: Client) -> Iterator[Row]:
    for name in (b"X y", b"X\ty", b"X(y)", b"X@y", b"X/y", b"X[y]", b"X{y}", b'X"y', b"X;y", b"X,y", b"X=y", b"X\\y"):
        yield _refused(f"a header named {name!r}", client.post(name + b": 1"))
    for name in (
        b"X\x00y",
        b"X\x01",
        b"X\x7f",
        b"X\x80",
        b"\xc3\xa9",
        b"\xef\xbb\xbfX",
        b"",
        b"X\x0b",
        b"Content-Length\x00",
    ):
        yield _refused(f"a header named {name!r}", client.post(name + b": 1"))
    for value in (b"\x00", b"a\x00b", b"\x01", b"a\x08b", b"\x0b", b"\x0c", b"\x1b[2J", b"\x7f"):
        yield _refused(f"a header value {value!r}", client.post(b"X: " + value))
    for name in (b" ", b"\t", b"\x0b"):
        yield _refused(f"a colon behind {name!r}", client.post(b"X-Ok" + name + b": 1"))
        yield _refused(f"a Host colon behind {name!r}", client.post().replace(b"Host:", b"Host" + name + b":", 1))
    for value in (b"a\tb", b"caf\xc3\xa9", b"\xff\xfe", b'"quoted"', b":::", b""):
        yield _served(f"a header value {value!r}", client.post(b"X: " + value))
    yield _served("a header name of every token character", client.post(b"!#$%&'*+-.^_`|~09azAZ: 1"))
    yield _refused("a header line without a colon", client.post(b"nonsense"))


def _extensions(client: Client) -> Iterator[Row]:
    size = b"%x" % len(GOOD)

    def with_extension(text: bytes) -> bytes:
        return client.chunked(body=size + text + b"\r\n" + GOOD + b"\r\n" + LAST)

    for text in (b";a", b";a=b", b';a="b c"', b";a=b;c=d"):
        yield _served(f"a chunk extension {text!r}", with_extension(text))
    yield _served("an extension of the last chunk", client.chunked(body=chunk(GOOD) + b"0;a=b\r\n\r\n"))
    for text in (b";a\nb", b";\n", b";a\rb", b";a\r", b";a\x00", b";\x0b", b" a", b"\ta", b",a", b"\x00", b"\n"):
        yield _refused(f"a chunk extension {text!r}", with_extension(text))
    last = chunk(GOOD) + b"0;a\n\r\n"
    yield _refused("a bare LF in the extension of the last chunk", client.chunked(body=last))
    hidden = client.chunked(body=size + b";\n" + GOOD + b"\r\n0\r\n\r\n" + client.hidden)
    yield _refused("a request behind an extension that ends with a bare LF", hidden)
    quoted = client.chunked(body=size + b';a="\r\n' + GOOD + b"\r\n" + LAST)
    yield Row("a chunk extension with a quote that is left open", quoted, (SERVED_OR_NOT,), "either")
    blank = with_extension(b" ;a=b")
    yield Row("a blank before a chunk extension", blank, (SERVED_OR_NOT,), "either")
    long = with_extension(b";a=" + b"x" * 80_000)
    yield Row("a chunk extension of 80 KB", long, (frozenset({400, 413, 431}),), "closed")


def _chunk_sizes(client: Client) -> Iterator[Row]:
    size = b"%x" % len(GOOD)

    def sized(text: bytes) -> bytes:
        return client.chunked(body=text + b"\r\n" + GOOD + b"\r\n" + LAST)

    for text in (b"0" + size, size.upper(), b"00000" + size):
        yield _served(f"a chunk size {text!r}", sized(text))
    body = b"".join(chunk(GOOD[at : at + 1]) for at in range(len(GOOD))) + LAST
    yield _served("chunks of one byte", client.chunked(body=body))
    yield _served("a last chunk of many zeros", client.chunked(body=chunk(GOOD) + b"0000\r\n\r\n"))
    odd = (
        *(b"", b" ", b"-" + size, b"+" + size, b"0x" + size, b"x", b"G", b" " + size, b"\t" + size, size + b" "),
        *(size + b"\t", b"2_0", b"2 0", b"2.0", size + b"h", b"\x00" + size, size + b"\x0b", "２０".encode()),
        *(b"-1", b"-0"),
    )
    for text in odd:
        yield _refused(f"a chunk size {text!r}", sized(text))
    for text in (b"100000000000000" + size, b"1" + b"0" * 30 + size, b"f" * 16, b"f" * 17, b"7" + b"f" * 15):
        yield _refused(f"a chunk size {text!r}", sized(text), TOO_MUCH)
    zeros = sized(b"0" * 500 + size)
    yield Row("a chunk size behind 500 zeros", zeros, (SERVED_OR_NOT,), "either")
    for name, body in {
        "no line end behind a chunk": size + b"\r\n" + GOOD + LAST,
        "a bare LF behind a chunk size": size + b"\n" + GOOD + b"\r\n" + LAST,
        "a bare LF behind a chunk": size + b"\r\n" + GOOD + b"\n" + LAST,
        "a bare CR behind a chunk size": size + b"\r" + GOOD + b"\r\n" + LAST,
        "a bare CR behind a chunk": size + b"\r\n" + GOOD + b"\r" + LAST,
        "two bytes more than the chunk size": b"%x\r\n%bXX\r\n" % (len(GOOD), GOOD) + LAST,
        "a blank line before the first chunk": b"\r\n" + WHOLE,
        "no chunk size": GOOD + b"\r\n" + LAST,
    }.items():
        yield _refused(name, client.chunked(body=body))
    yield _refused("a bare LF behind the last chunk", client.chunked(body=chunk(GOOD) + b"0\n\n"))
    yield Row("chunks that never end", client.chunked(body=chunk(GOOD)), (), "waits")
    yield Row("a last chunk without its blank line", client.chunked(body=chunk(GOOD) + b"0\r\n"), (), "waits")


def _targets(client: Client) -> Iterator[Row]:
    def to(target: bytes, method: bytes = b"POST", host: bytes | None = None) -> bytes:
        return client.post(line=method + b" " + target + b" HTTP/1.1", host=host)

    host, port = client.host, client.host.rpartition(b":")[2]
    yield _served("the absolute form", to(b"http://" + host + b"/mrt_dispatch"))
    yield _served("the absolute form, its scheme in capitals", to(b"HTTP://" + host + b"/mrt_dispatch"))
    other = b"http://localhost:" + port + b"/mrt_dispatch"
    yield Row("the absolute form, by another name of ours", to(other), (SERVED_OR_NOT,), "either")
    for name, target in {
        "of another host": b"http://evil.test/mrt_dispatch",
        "of another port": b"http://127.0.0.1:1/mrt_dispatch",
        "with a user": b"http://user@" + host + b"/mrt_dispatch",
        "whose host is behind a user": b"http://" + host + b"@evil.test/mrt_dispatch",
        "of another scheme": b"ftp://" + host + b"/mrt_dispatch",
        "without an authority": b"http:///mrt_dispatch",
        "with half a scheme": b"http:/mrt_dispatch",
    }.items():
        yield Row(f"the absolute form {name}", to(target), (FOREIGN,), "either")
    absolute = to(b"http://" + host + b"/mrt_dispatch", host=b"evil.test")
    yield Row("the absolute form beside a foreign Host", absolute, (FOREIGN,), "either")
    yield Row("the authority form", to(host), (frozenset({400, 404, 405}),), "either")
    yield Row("CONNECT", to(host, b"CONNECT"), (METHOD,), "either")
    yield Row("CONNECT to a path", to(b"/mrt_dispatch", b"CONNECT"), (METHOD,), "either")
    connect = client.post(line=b"CONNECT " + host + b" HTTP/1.1", body=client.hidden)
    yield Row("CONNECT, the body is a request", connect, (METHOD,), "either")
    for method in (b"POST", b"OPTIONS", b"GET"):
        yield Row(f"{method.decode()} *", to(b"*", method), (frozenset({400, 404, 405}),), "either")
    for target in (b"/mrt_dispatch#x", b"/mrt_dispatch?x#y", b"#", b"/#/../mrt_dispatch"):
        yield Row(f"a target with a fragment: {target!r}", to(target), (400,), "either")
    yield Row("the absolute form with a fragment", to(b"http://" + host + b"/#x"), (400,), "either")
    for target in (
        b"/mrt_dispatch\x00",
        b"/mrt_\x01dispatch",
        b"/mrt_dispatch\x7f",
        b"/mrt\tdispatch",
        b"/mrt dispatch",
    ):
        yield _refused(f"a target {target!r}", to(target))
    for target in (b"mrt_dispatch", b"", b"\\mrt_dispatch", b"?"):
        yield Row(f"a target {target!r}", to(target), (frozenset({400, 404}),), "either")
    for target in (
        b"//mrt_dispatch",
        b"/./mrt_dispatch",
        b"/x/../mrt_dispatch",
        b"/mrt_dispatch//",
        b"/mrt%5fdispatch",
    ):
        yield Row(f"a target {target!r}", to(target), (404,), "either")
    yield Row("a target that is not ASCII", to(b"/mrt_\xc3\xa9"), (frozenset({400, 404}),), "either")


def _versions(client: Client) -> Iterator[Row]:
    def with_line(line: bytes, *more: bytes) -> bytes:
        return client.post(*more, line=line)

    old = b"POST /mrt_dispatch HTTP/1.0"
    yield Row("HTTP/1.0", with_line(old), (200,), "closed")
    yield Row("HTTP/1.0 with keep-alive", with_line(old, b"Connection: keep-alive"), (200,), "either")
    yield _refused("HTTP/1.0 with chunks", client.head(b"Transfer-Encoding: chunked", line=old) + WHOLE)
    both = client.head(b"Transfer-Encoding: chunked", b"Connection: keep-alive", line=old) + WHOLE
    yield _refused("HTTP/1.0 with chunks and keep-alive", both)
    bare = b"POST /mrt_dispatch HTTP/1.0\r\n" + length(GOOD) + b"\r\n\r\n" + GOOD
    yield Row("HTTP/1.0 without Host", bare, (400,), "closed")
    yield _refused("HTTP/0.9", b"GET /healthz\r\n")
    yield _refused("HTTP/0.9 with a bare LF", b"GET /healthz\n")
    yield _refused("HTTP/0.9 and headers", b"GET /healthz\r\nHost: " + client.host + b"\r\n\r\n")
    yield _refused("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", VERSION)
    yield _refused("the preface of HTTP/2 and frames", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", VERSION)
    yield _refused("a TLS hello", bytes.fromhex("16030100c8010000c40303") + bytes(range(128)))
    for version in (b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/3.0", b"HTTP/9.9", b"HTTP/0.0"):
        yield _refused(f"version {version!r}", with_line(b"POST /mrt_dispatch " + version), VERSION)
    odd = (
        *(b"HTTP/1", b"HTTP/1.", b"HTTP/.1", b"HTTP/1.10", b"HTTP/01.1", b"HTTP/1.1.1", b"HTTP/1,1"),
        *(b"HTTP/-1.1", b"HTTP"),
        *(b"http/1.1", b"HTTPS/1.1", b"HTTP /1.1", b"HTTP/ 1.1", b"HTTP/1. 1", b"HTTP/1.1x", b"HTTP/1.1 x"),
        *(b"HTTP/\xb9.1",),
        *(b"ICE/1.0", b"RTSP/1.0", b"HTTP/1.1\x00", b"HTTP/1.1\t", b"HTTP/1.1 "),
    )
    for version in odd:
        yield _refused(f"version {version!r}", with_line(b"POST /mrt_dispatch " + version), VERSION)


def _methods(client: Client) -> Iterator[Row]:
    for method in (b"post", b"Post", b"POSTX", b"BREW", b"POS", b"M-SEARCH", b"PURGE", b"SOURCE", b"QUERY"):
        data = client.post(line=method + b" /mrt_dispatch HTTP/1.1", body=client.hidden)
        yield Row(f"method {method!r}", data, (METHOD,), "either")
    for line in (
        *(b"P\x00ST /mrt_dispatch HTTP/1.1", b"PO ST /mrt_dispatch HTTP/1.1", b"POST\t/mrt_dispatch HTTP/1.1"),
        *(b"POST\x0b/mrt_dispatch HTTP/1.1", b"POST  /mrt_dispatch HTTP/1.1", b"POST /mrt_dispatch  HTTP/1.1"),
        *(b"POST /mrt_dispatch\tHTTP/1.1", b" POST /mrt_dispatch HTTP/1.1", b"\tPOST /mrt_dispatch HTTP/1.1"),
        *(b"POST/mrt_dispatch HTTP/1.1", b"POST /mrt_dispatchHTTP/1.1", b"(POST) /mrt_dispatch HTTP/1.1"),
        *(b"\xef\xbb\xbfPOST /mrt_dispatch HTTP/1.1", b"POST: /mrt_dispatch HTTP/1.1", b"/mrt_dispatch HTTP/1.1"),
        *(b"POST", b"POST ", b" ", b"HTTP/1.1 200 OK", b"\x00"),
    ):
        yield _refused(f"request line {line!r}", client.post(line=line), METHOD)


def _before_and_behind(client: Client) -> Iterator[Row]:
    good, hidden = client.post(), client.hidden
    yield _served("a blank line before a request", b"\r\n" + good)
    yield _served("a blank line between requests", good + b"\r\n" + good, 2)
    yield _served("two requests in one piece", good + good, 2)
    yield Row("5000 blank lines before a request", b"\r\n" * 5000 + good, (frozenset({200, 400, 414, 431}),), "either")
    yield Row("a bare LF before a request", b"\n" + good, (SERVED_OR_NOT,), "either")
    yield Row("a bare CR before a request", b"\r" + good, (SERVED_OR_NOT,), "either")
    yield _refused("a blank before a request", b" " + good)
    yield _refused("NUL before a request", b"\x00" + good)
    yield _refused("a blank line of a blank before a request", b" \r\n" + good)
    for value in (b"close", b"Close", b"close, keep-alive", b"keep-alive, close", b"x,close", b" , close"):
        yield Row(f"Connection: {value.decode()}", client.post(b"Connection: " + value), (200,), "closed")
    two = client.post(b"Connection: keep-alive", b"Connection: close")
    yield Row("two Connection headers, one says close", two, (200,), "closed")
    for value in (b"keep-alive", b"Keep-Alive, x", b"x-mcp-api-key", b"host", b"content-length", b"transfer-encoding"):
        yield _served(f"Connection: {value.decode()}", client.post(b"Connection: " + value))
    yield Row("rubbish behind a request", good + b"rubbish\r\n\r\n", (200, 400), "closed")
    yield Row("a refused request behind a good one", good + client.post(b"X : 1"), (200, 400), "closed")
    yield Row("no Host", good.replace(b"Host:", b"X-Host:", 1), (400,), "closed")
    yield Row("a request that stops in its head", good[:60], (), "waits")
    yield Row("a request that stops in its body", good[:-3], (), "waits")
    yield Row(
        "a request behind a body one byte short",
        client.head(length(GOOD + b" ")) + GOOD + hidden,
        (400, METHOD),
        "either",
    )


def _heads_only(client: Client) -> Iterator[Row]:
    def heads(count: int) -> frozenset[int]:
        return frozenset(range(count))

    hidden = client.hidden
    head = client.get(line=b"HEAD /healthz HTTP/1.1")
    yield Row("HEAD", head, (frozenset({200, 405}),), "kept", heads(1))
    yield Row("HEAD, HEAD, GET", head + head + client.get(), (frozenset({200, 405}),) * 2 + (200,), "kept", heads(2))
    missing = client.get(line=b"HEAD /nothing HTTP/1.1")
    yield Row("HEAD of nothing, then GET", missing + client.get(), (404, 200), "kept", heads(1))
    stranger = client.get(line=b"HEAD /mrt_dispatch HTTP/1.1")
    yield Row("HEAD of a stranger, then GET", stranger + client.get(), (401, 200), "kept", heads(1))
    ours = client.head(line=b"HEAD /mrt_dispatch HTTP/1.1")
    yield Row("HEAD of a route for POST, then GET", ours + client.get(), (405, 200), "kept", heads(1))
    body = client.post(line=b"HEAD /healthz HTTP/1.1", body=hidden)
    yield Row("HEAD with a body", body, (frozenset({200, 400, 405, 413}),), "either", heads(1))
    chunks = client.chunked(line=b"HEAD /healthz HTTP/1.1", body=chunk(hidden) + LAST)
    yield Row("HEAD with a chunked body", chunks, (frozenset({200, 400, 405, 413}),), "either", heads(1))


def _expectations(client: Client) -> Iterator[Row]:
    for value in (b"100-continue", b"100-Continue"):
        name, line = f"Expect: {value.decode()}", b"Expect: " + value
        yield Row(name, client.post(line), (200,), "kept", may_continue=True)
        yield Row(f"{name}, chunked", client.chunked(line, body=WHOLE), (200,), "kept", may_continue=True)
    expect = b"Expect: 100-continue"
    yield Row("Expect without a body", client.get(expect), (200,), "kept", may_continue=True)
    yield Row(
        "Expect, then a second request", client.post(expect) + client.post(), (200, 200), "kept", may_continue=True
    )
    hidden = client.post(expect, body=client.hidden)
    yield Row("Expect, the body is a request", hidden, (400,), "kept", may_continue=True)
    stranger = client.post(expect, body=client.hidden, key=False)
    yield Row("Expect of a stranger is no reason to ask for the body", stranger, (401,), "either")
    for value in (b"200-ok", b"100-continue, x", b"x", b""):
        data = client.post(b"Expect: " + value)
        yield Row(f"Expect: {value!r}", data, (frozenset({200, 417}),), "either", may_continue=True)
    old = client.post(expect, line=b"POST /mrt_dispatch HTTP/1.0")
    yield Row("Expect in HTTP/1.0 is ignored", old, (200,), "closed")


def _too_long(client: Client) -> Iterator[Row]:
    """All raw bytes count, from the first of a message."""
    many = b"\r\n".join(b"X-%d: 1" % number for number in range(200))
    yield _refused("a request line of 80 KB", client.post(line=b"POST /" + b"x" * 80_000 + b" HTTP/1.1"), 414)
    yield _refused("a request line without an end", b"POST /" + b"x" * 80_000, 414)
    yield _refused("a method of 80 KB", b"X" * 80_000 + b" / HTTP/1.1\r\n\r\n", LONG)
    yield _refused("a header name of 80 KB", client.post(b"X" * 80_000 + b": 1"), 431)
    yield _refused("a header value of 80 KB", client.post(b"X: " + b"x" * 80_000), 431)
    yield _refused("a header name without an end", client.head()[:-2] + b"X" * 80_000, 431)
    yield _refused("a header value without an end", client.head()[:-2] + b"X: " + b"x" * 80_000, 431)
    yield _refused("a header value of 80 KB of blanks", client.post(b"X:" + b" " * 80_000 + b"x"), 431)
    yield _refused("200 headers", client.post(many), 431)
    trailers = chunk(GOOD) + b"0\r\n" + (many + b"\r\n") * 50 + b"\r\n"
    yield _refused("10000 trailers", client.chunked(body=trailers), 431)
    long = chunk(GOOD) + b"0\r\nX: " + b"x" * 80_000
    yield _refused("a trailer without an end", client.chunked(body=long), 431)
    yield _refused("a trailer name without an end", client.chunked(body=chunk(GOOD) + b"0\r\n" + b"X" * 80_000), 431)
