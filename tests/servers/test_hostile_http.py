"""Hostile bytes over real sockets: a stable refusal, nothing run, and the next good call works."""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, make_home
from tests.waiting import until

GOOD_BODY = b'{"tool":"unruly_write","args":{"name":"hostile"}}'
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD_BODY), GOOD_BODY)


def raw(port: int, *pieces: bytes) -> bytes:
    """Everything the server says until it closes, or has said one whole answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        with suppress(OSError):  # it may have been refused, and closed, before all of it was sent
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
        heard = b""
        try:
            while chunk := connection.recv(65536):
                heard += chunk
        except ConnectionResetError:
            pass
        return heard


def status_of(heard: bytes) -> int:
    return int(heard.split(b" ", 2)[1]) if heard else 0


class Spoken:
    """A request written byte by byte, good until changed."""

    def __init__(self, home: Home, port: int, way: str = "close") -> None:
        self.port = port
        self.way = way
        self.line = b"POST /mrt_dispatch HTTP/1.1"
        self.headers: list[tuple[bytes, bytes]] = [
            (b"Host", b"127.0.0.1:%d" % port),
            (b"X-MCP-API-Key", home.keys["admin"].encode()),
            (b"Content-Type", b"application/json"),
            (b"Connection", b"close" if way == "close" else b"keep-alive"),
        ]
        self.body = GOOD_BODY
        self.length = True

    def without(self, name: bytes) -> Spoken:
        self.headers = [(key, value) for key, value in self.headers if key.lower() != name.lower()]
        return self

    def with_(self, name: bytes, value: bytes) -> Spoken:
        self.headers.append((name, value))
        return self

    def bytes(self) -> bytes:
        headers = list(self.headers)
        if self.length:
            headers.append((b"Content-Length", str(len(self.body)).encode()))
        return (
            self.line
            + b"\r\n"
            + b"".join(key + b": " + value + b"\r\n" for key, value in headers)
            + b"\r\n"
            + self.body
        )

    def send(self) -> bytes:
        """What is answered; sent twice on one connection, what is answered last."""
        return raw(self.port, self.bytes()) if self.way != "again" else self._send_again()

    def _send_again(self) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
            connection.sendall(self.bytes())
            heard = b""
            while not _is_whole(heard) and (piece := connection.recv(65536)):
                heard += piece
            if b"connection: close" in heard.partition(b"\r\n\r\n")[0]:
                return heard
            connection.sendall(self.bytes())
            again = b""
            while not _is_whole(again) and (piece := connection.recv(65536)):
                again += piece
            return again


@pytest.fixture(params=["close", "keep", "again"])
def spoken(request: pytest.FixtureRequest, home: Home, server: Server) -> Iterator[Spoken]:
    """On a connection that closes (uvicorn's way), on one that is kept (the lane), and with a head that may be known."""
    yield Spoken(home, server.port, request.param)
    assert not (home.workspace / "hostile").exists(), "nothing ran"
    assert speak.mrt(server.port, "unruly_echo", {}, home.keys["admin"]).status == 200, "the next good call works"


def _is_whole(heard: bytes) -> bool:
    head, end, body = heard.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: ([0-9]+)", head)
    return bool(end and length and len(body) >= int(length[1]))


def refused(heard: bytes, *statuses: int) -> None:
    assert status_of(heard) in statuses, heard[:300]
    body = heard.partition(b"\r\n\r\n")[2]
    assert b"Traceback" not in body
    assert json.loads(body)["ok"] is False


def test_a_wrong_host_is_refused_on_loopback_too(spoken: Spoken) -> None:
    for host in (
        b"evil.test",
        b"127.0.0.1",
        b"127.0.0.1:1",
        b"localhost.evil.test:80",
        b"",
        b"127.0.0.1:%d/x" % spoken.port,
    ):
        refused(spoken.without(b"host").with_(b"Host", host).send(), 403, 400)


def test_a_wrong_origin_is_refused(spoken: Spoken) -> None:
    for origin in (b"http://evil.test", b"null", b"https://127.0.0.1:%d" % spoken.port, b"http://127.0.0.1"):
        refused(spoken.without(b"origin").with_(b"Origin", origin).send(), 403)


def test_our_own_loopback_origin_is_served(home: Home, server: Server) -> None:
    status, _, _ = speak.send(
        server.port,
        "/mrt_dispatch",
        {"tool": "unruly_echo"},
        {**speak.key_header(home.keys["admin"]), "origin": f"http://localhost:{server.port}"},
    )
    assert status == 200


def test_two_hosts_are_refused(spoken: Spoken) -> None:
    refused(spoken.with_(b"Host", b"127.0.0.1:%d" % spoken.port).send(), 400)


def test_no_host_is_refused(spoken: Spoken) -> None:
    refused(spoken.without(b"host").send(), 400)


def test_a_length_beside_a_transfer_encoding_is_refused(spoken: Spoken) -> None:
    spoken.body = CHUNKED
    refused(spoken.with_(b"Transfer-Encoding", b"chunked").send(), 400)


@pytest.mark.parametrize("encoding", [b"gzip, chunked", b"identity", b"chunked, chunked", b"xchunked"])
def test_other_transfer_encodings_are_refused(spoken: Spoken, encoding: bytes) -> None:
    spoken.length, spoken.body = False, CHUNKED
    refused(spoken.with_(b"Transfer-Encoding", encoding).send(), 400)


def test_two_lengths_are_refused(spoken: Spoken) -> None:
    refused(spoken.with_(b"Content-Length", b"%d" % len(spoken.body)).send(), 400)


@pytest.mark.parametrize("length", [b"-1", b"+5", b"0x10", b"5 5", b"99999999999999999999"])
def test_an_odd_length_is_refused(spoken: Spoken, length: bytes) -> None:
    spoken.length = False
    refused(spoken.with_(b"Content-Length", length).send(), 400, 413)


def test_three_hundred_headers_are_refused(spoken: Spoken) -> None:
    for number in range(300):
        spoken.with_(b"X-%d" % number, b"x")
    refused(spoken.send(), 431)


def test_headers_of_seventy_kilobytes_are_refused(spoken: Spoken) -> None:
    refused(spoken.with_(b"X-Long", b"x" * 70_000).send(), 431)


def test_a_body_of_two_megabytes_is_refused_before_it_is_read(spoken: Spoken) -> None:
    spoken.body = b'{"tool":"' + b"x" * 2_000_000 + b'"}'
    refused(raw_tolerant(spoken.port, spoken.bytes()), 413)


def test_a_declared_length_is_refused_before_the_body_comes(spoken: Spoken) -> None:
    spoken.length, spoken.body = False, b""
    refused(raw_tolerant(spoken.port, spoken.with_(b"Content-Length", b"99999999").bytes()), 413)


def test_two_transfer_encodings_are_refused(spoken: Spoken) -> None:
    spoken.length, spoken.body = False, CHUNKED
    refused(spoken.with_(b"Transfer-Encoding", b"chunked").with_(b"Transfer-Encoding", b"chunked").send(), 400)


def test_a_chunked_body_of_two_megabytes_is_refused(spoken: Spoken) -> None:
    spoken.length, spoken.body = False, b""
    spoken.with_(b"Transfer-Encoding", b"chunked")
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    heard = raw_tolerant(spoken.port, spoken.bytes(), piece * 31)
    refused(heard, 413)


def raw_tolerant(port: int, *pieces: bytes) -> bytes:
    """Like `raw`, for a server that may answer and close before it has read everything."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        heard = b""
        try:
            while b"\r\n\r\n" not in heard or not heard.partition(b"\r\n\r\n")[2]:
                chunk = connection.recv(65536)
                if not chunk:
                    break
                heard += chunk
        except ConnectionResetError:
            pass
        return heard


@pytest.mark.parametrize(
    "kind", [b"text/plain", b"application/jsonx", b"application/x-www-form-urlencoded", b"", b"text/json"]
)
def test_a_wrong_content_type_is_refused(spoken: Spoken, kind: bytes) -> None:
    refused(spoken.without(b"content-type").with_(b"Content-Type", kind).send(), 415)


def test_a_content_type_with_parameters_is_fine(home: Home, server: Server) -> None:
    headers = {**speak.key_header(home.keys["admin"]), "content-type": "Application/JSON; charset=utf-8"}
    assert speak.send(server.port, "/mrt_dispatch", {"tool": "unruly_echo"}, headers)[0] == 200


KEYS = {
    "not ASCII": b"tg_\xe9\xe9",
    "not a key": b"hello",
    "too long": b"tg_" + b"a" * 5000,
    "a wrong secret": b"tg_000000000000_" + b"0" * 64,
    "a variable": b"${TOOLGATE_KEY}",
}


def test_an_empty_key_header_counts_as_missing(spoken: Spoken) -> None:
    """What a client sends whose variable is not set."""
    refused(spoken.without(b"x-mcp-api-key").with_(b"X-MCP-API-Key", b"").send(), 401)


@pytest.mark.req("000-D-01")
@pytest.mark.parametrize("name", KEYS)
def test_a_key_that_is_none_is_403_and_never_500(spoken: Spoken, name: str) -> None:
    heard = spoken.without(b"x-mcp-api-key").with_(b"X-MCP-API-Key", KEYS[name]).send()
    refused(heard, 403)
    body = json.loads(heard.partition(b"\r\n\r\n")[2])
    assert body["error_code"] == "auth_invalid_api_key"
    if name == "a variable":
        assert "not expanded" in body["details"]["hint"]


def test_two_key_headers_are_refused_even_if_both_are_good(spoken: Spoken) -> None:
    key = dict(spoken.headers)[b"X-MCP-API-Key"]
    refused(spoken.with_(b"X-MCP-API-Key", key).send(), 403)


def test_two_different_keys_are_refused(spoken: Spoken, home: Home) -> None:
    refused(spoken.with_(b"Authorization", b"Bearer " + home.keys["builder"].encode()).send(), 403)


def test_the_same_key_in_both_headers_is_one_key(home: Home, server: Server) -> None:
    headers = {"x-mcp-api-key": home.keys["admin"], "authorization": f"bearer {home.keys['admin']}"}
    assert speak.send(server.port, "/mrt_dispatch", {"tool": "unruly_echo"}, headers)[0] == 200


def test_revoked_and_expired_keys_are_refused(home: Home, server: Server) -> None:
    ring = home.ring()
    revoked, text = ring.create("admin")
    ring.revoke(revoked.id)
    assert speak.mrt(server.port, "unruly_echo", {}, text).code == "auth_invalid_api_key"
    _, expired = ring.create("admin", expires=time.time() - 1)
    assert speak.mrt(server.port, "unruly_echo", {}, expired).code == "auth_invalid_api_key"


ANONYMOUS = {
    "GET": b"GET /mcp HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
    "a huge body": b"POST /rpc HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: 99999999\r\n\r\n",
    "no content type": b"POST /mrt_dispatch HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{]",
    "bad JSON": b"POST /mcp HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1\r\n\r\n{",
}


@pytest.mark.parametrize("name", ANONYMOUS)
def test_an_anonymous_caller_gets_401_whatever_else_is_wrong(server: Server, name: str) -> None:
    assert status_of(raw(server.port, ANONYMOUS[name] % b"127.0.0.1:%d" % server.port)) == 401


BAD_JSON = {
    "duplicate keys": b'{"tool":"unruly_write","args":{"name":"hostile"},"tool":"unruly_echo"}',
    "NaN": b'{"tool":"unruly_write","args":{"name":NaN}}',
    "10^400": b'{"tool":"unruly_write","args":{"name":1e400}}',
    "2^60": b'{"tool":"unruly_write","args":{"name":1152921504606846976}}',
    "depth 10000": b'{"tool":"unruly_write","args":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
    "lone surrogate": b'{"tool":"unruly_write","args":{"name":"\\ud800"}}',
    "NUL": b'{"tool":"unruly_write","args":{"name":"a\\u0000"}}',
    "UTF-16": '{"tool":"unruly_write"}'.encode("utf-16"),
    "BOM": b"\xef\xbb\xbf" + GOOD_BODY,
    "two values": GOOD_BODY + GOOD_BODY,
}


@pytest.mark.parametrize("name", BAD_JSON)
@pytest.mark.parametrize("path", ["/mrt_dispatch", "/rpc", "/mcp"])
def test_json_that_readers_read_differently_is_refused_on_every_face(
    home: Home, server: Server, path: str, name: str
) -> None:
    status, _, body = speak.send(server.port, path, BAD_JSON[name], speak.key_header(home.keys["admin"]))
    assert status == 400
    if path == "/mrt_dispatch":
        assert body["details"] == {"reason": "malformed_json"}
    else:
        assert (body["error"]["code"], body["id"]) == (-32700, None)
    assert not (home.workspace / "hostile").exists()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"args": {}}, "missing_tool"),
        ({"tool": "", "args": {}}, "missing_tool"),
        ({"tool": 5}, "invalid_tool"),
        ({"tool": "x" * 200}, "tool_too_long"),
        ({"tool": "unruly_echo", "args": []}, "invalid_args"),
        ({"tool": "unruly_echo", "args": {}, "more": 1}, "unknown_argument"),
        ([], "invalid_arguments"),
        ("text", "invalid_arguments"),
        (None, "invalid_arguments"),
    ],
)
def test_a_dispatch_body_of_another_shape_has_a_stable_reason(
    home: Home, server: Server, body: Any, reason: str
) -> None:
    status, _, answer = speak.send(server.port, "/mrt_dispatch", body, speak.key_header(home.keys["admin"]))
    assert (status, answer["error_code"], answer["details"]) == (400, "validation_failed", {"reason": reason})


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/mcp//",
        "/MCP",
        "/mrt_dispatch?x=1/../",
        "/.well-known/oauth-protected-resource",
        "/%6dcp",
        "/metrics",
        "/docs",
    ],
)
def test_nothing_else_is_served(server: Server, path: str) -> None:
    heard = raw(
        server.port,
        b"GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % (path.encode(), server.port),
    )
    assert status_of(heard) in (404, 401)
    assert json.loads(heard.partition(b"\r\n\r\n")[2])["ok"] is False


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD"])
def test_other_methods_are_405_for_a_caller_with_a_key(home: Home, server: Server, method: str) -> None:
    line = b"%s /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-MCP-API-Key: %s\r\nConnection: close\r\n\r\n"
    heard = raw(server.port, line % (method.encode(), server.port, home.keys["admin"].encode()))
    assert status_of(heard) == 405
    assert b"allow: POST" in heard


def test_a_client_that_never_ends_its_headers_is_closed(tmp_path: Path) -> None:
    home = make_home(
        tmp_path / "home", packs=("unruly",), settings="[server]\nheader_read_seconds = 0.3\nbody_read_seconds = 0.3\n"
    )
    with home.serving() as server:
        begun = [b"", b"POST /mcp HTTP/1.1\r\n", b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "]
        begun.append(
            b"POST /mrt_dispatch HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-MCP-API-Key: %s\r\n"
            b"Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
            % (server.port, home.keys["admin"].encode())
        )
        for start in begun:
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as connection:
                connection.sendall(start)
                assert b" 408 " in connection.recv(65536).split(b"\r\n")[0] + b" "
                assert connection.recv(65536) == b"", "and then it is closed"
        assert speak.mrt(server.port, "unruly_echo", {}, home.keys["admin"]).status == 200


def test_one_connection_serves_many_requests(home: Home, server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    headers = {"content-type": "application/json", **speak.key_header(home.keys["admin"])}
    for _ in range(3):
        connection.request("POST", "/mrt_dispatch", b'{"tool":"unruly_echo"}', headers)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("connection")) == (200, None)
        answer.read()
    connection.close()


def test_a_client_that_goes_away_frees_its_slot(home: Home, server: Server) -> None:
    (home.workspace / "release").unlink(missing_ok=True)
    request = Spoken(home, server.port)
    request.body = b'{"tool":"unruly_hold","args":{}}'
    connections = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) for _ in range(10)]
    try:
        for connection in connections:
            connection.sendall(request.bytes())
        until(lambda: speak.mrt(server.port, "unruly_echo", {}, home.keys["admin"]).status == 429)
    finally:
        for connection in connections:
            connection.close()
    until(lambda: speak.mrt(server.port, "unruly_echo", {}, home.keys["admin"]).status == 200, "the slots come back")


@pytest.mark.parametrize(
    ("path", "status"), [("/healthz", 200), ("/readyz", 403), ("/mcp", 403), ("/healthz/", 403), ("/", 403)]
)
def test_p19_health_alone_answers_whatever_host_it_is_asked_by(server: Server, path: str, status: int) -> None:
    heard = raw(server.port, b"GET %s HTTP/1.1\r\nHost: 10.1.2.3:8000\r\nConnection: close\r\n\r\n" % path.encode())
    assert status_of(heard) == status
    if status == 200:
        assert heard.endswith(b'\r\n\r\n{"status":"ok"}'), "and it tells nothing else"


def test_health_and_readiness_need_no_key_and_tell_nothing(server: Server) -> None:
    for path, word in (("/healthz", b"ok"), ("/readyz", b"ready")):
        heard = raw(
            server.port,
            b"GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % (path.encode(), server.port),
        )
        assert status_of(heard) == 200
        assert word in heard
        assert b"unruly" not in heard
