"""The quick lane: whatever way the bytes of a request arrive, its answer is the same as by the long way."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, until_closed
from tests.servers.byhand import Later, connected
from toolgate.faces.reply import Reply
from toolgate.servers import lane as module
from toolgate.servers.heads import HeadReader
from toolgate.servers.outbox import Outbox


def request(
    home: Home, port: int, request_id: int, tool: str = "unruly_echo", *, more: bytes = b"", **input_: Any
) -> bytes:
    call = {"tool": f"mcp.tool:{tool.replace('_', '.', 1)}", "input": input_}
    body = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "mcp.tool.invoke", "params": call}).encode() + more
    return (
        b"POST /rpc HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nX-MCP-API-Key: %b\r\n"
        b"Content-Length: %d\r\n\r\n%b"
    ) % (port, home.keys["admin"].encode(), len(body), body)


class Talk:
    """One kept connection, answers read one by one."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._heard = self._socket.makefile("rb")

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._socket.sendall(piece)

    def answer(self) -> tuple[int, dict[bytes, bytes], Any]:
        status = int(self._heard.readline().split()[1])
        headers = {}
        while line := self._heard.readline().strip():
            name, _, value = line.partition(b": ")
            headers[name] = value
        return status, headers, json.loads(self._heard.read(int(headers[b"content-length"])) or b"null")

    def is_over(self) -> bool:
        return self._heard.read(1) == b""

    def close(self) -> None:
        self._heard.close()
        self._socket.close()


@pytest.fixture
def talk(server: Server) -> Iterator[Talk]:
    talk = Talk(server.port)
    yield talk
    talk.close()


def ids(talk: Talk, count: int) -> list[int]:
    answers = [talk.answer() for _ in range(count)]
    assert [status for status, _, _ in answers] == [200] * count
    return [body["id"] for _, _, body in answers]


def test_a_head_that_was_seen_before_carries_another_body(home: Home, server: Server, talk: Talk) -> None:
    for number, text in enumerate(["one", "two", "six", "ten"]):
        talk.send(request(home, server.port, number, text=text))
        _, _, body = talk.answer()
        assert (body["id"], body["result"]["data"]["text"]) == (number, text)


def test_a_request_cut_anywhere_is_the_same_request(home: Home, server: Server, talk: Talk) -> None:
    whole = request(home, server.port, 1, text="cut")
    talk.send(whole)
    talk.answer()
    for cut in range(1, len(whole), 7):
        talk.send(whole[:cut], whole[cut:])
        assert ids(talk, 1) == [1]


def test_requests_in_one_piece_are_answered_in_their_order(home: Home, server: Server, talk: Talk) -> None:
    quick = [request(home, server.port, number) for number in range(5)]
    talk.send(b"".join(quick))
    assert ids(talk, 5) == [0, 1, 2, 3, 4]


def test_a_quick_answer_does_not_overtake_one_that_waits(home: Home, server: Server, talk: Talk) -> None:
    (home.workspace / "release").unlink(missing_ok=True)
    waits = request(home, server.port, 1, "unruly_wait")
    quick = request(home, server.port, 2)
    talk.send(quick)
    assert ids(talk, 1) == [2], "its head is known from now on"
    talk.send(waits, quick, quick)
    (home.workspace / "release").touch()
    assert ids(talk, 3) == [1, 2, 2]


def test_blank_lines_before_a_request_do_not_become_a_head(home: Home, server: Server, talk: Talk) -> None:
    for number in range(3):
        talk.send(b"\r\n\r\n" + request(home, server.port, number))
        assert ids(talk, 1) == [number]


def test_a_body_may_look_like_the_end_of_a_head(home: Home, server: Server, talk: Talk) -> None:
    """JSON allows blanks behind a value; a second request hidden in them would be smuggling."""
    hidden = request(home, server.port, 99)
    for number in range(3):
        talk.send(request(home, server.port, number, more=b"\r\n\r\n \r\n\r\n"))
        assert ids(talk, 1) == [number]
    talk.send(request(home, server.port, 7, more=b"\r\n\r\n" + hidden))
    status, _, body = talk.answer()
    assert (status, body["error"]["code"]) == (400, -32700), "one request whose body is no JSON"


def test_a_revoked_key_is_dead_on_a_connection_that_was_let_in(home: Home, server: Server, talk: Talk) -> None:
    key, text = home.ring().create("admin")
    whole = request(home, server.port, 1).replace(home.keys["admin"].encode(), text.encode())
    for _ in range(3):
        talk.send(whole)
        assert ids(talk, 1) == [1]
    home.ring().revoke(key.id)
    talk.send(whole)
    assert talk.answer()[0] == 401


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_half_arrived_when_the_server_stops_is_answered(home: Home, number: signal.Signals) -> None:
    with home.serving() as server, closing(Talk(server.port)) as talk:
        whole = request(home, server.port, 5)
        talk.send(whole)
        assert ids(talk, 1) == [5]
        talk.send(whole[:-10])
        assert speak.mrt(server.port, "unruly_echo", {}, home.keys["admin"]).status == 200, "the piece has arrived"
        server.process.send_signal(number)
        until_closed(server.port)
        talk.send(whole[-10:])
        status, headers, body = talk.answer()
        assert (status, headers[b"connection"], body["id"]) == (200, b"close", 5)
        assert talk.is_over()
        assert server.process.wait(PATIENCE_S) == 0


# Without a server: the protocol itself, fed by hand -----------------------------------------------------------------


class Unwritten:
    """A ledger for an application that has nothing to record."""

    gathering = False

    def append(self, entry: Any) -> Any:
        raise NotImplementedError

    async def durable(self, place: Any) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        """Nothing was gathered."""


class Echo:
    """An application that answers with what it was given."""

    def __init__(self) -> None:
        self.heads = HeadReader(1 << 20)
        self.outbox = Outbox(Unwritten(), lambda reply, head, body: reply)
        self.asked: list[tuple[bytes, bytes]] = []

    async def respond(self, head: Any, body: Any, client: Any) -> Reply:
        self.asked.append((head.path, body))
        return Reply(200, body)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Uvicorn looks for this."""


def plain(body: bytes, path: bytes = b"/rpc") -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n%b" % (path, len(body), body)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=8), st.lists(st.integers(1, 400), max_size=8))
def test_however_a_stream_is_cut_the_same_bodies_come_out(bodies: list[bytes], cuts: list[int]) -> None:
    app = Echo()
    protocol, wire = connected(app, Later())
    stream = b"".join(plain(body) for body in bodies)
    start = 0
    for cut in [*sorted(cuts), len(stream)]:
        if stream[start:cut]:
            protocol.data_received(stream[start:cut])
            start = cut
    assert [body for _, body in app.asked] == bodies
    assert wire.sent.count(b"HTTP/1.1 200 OK\r\n") >= len(bodies)


def test_a_connection_remembers_few_heads_and_only_small_ones() -> None:
    app = Echo()
    protocol, _ = connected(app, Later())
    for number in range(100):
        protocol.data_received(plain(b"", b"/%d" % number))
    assert len(app.asked) == 100
    assert 0 < len(protocol._known) <= module.KNOWN_HEADS
    protocol._known.clear()
    protocol.data_received(plain(b"", b"/" + b"x" * module.KNOWN_HEAD_BYTES))
    assert not protocol._known


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    loop = Later()
    protocol, wire = connected(Echo(), loop)
    idle = protocol.timeout_keep_alive
    protocol.data_received(plain(b""))
    loop.go_to(idle * 0.9)
    protocol.data_received(plain(b""))
    loop.go_to(idle * 1.5)
    assert not wire.closed, "the last answer was less than the idle time ago"
    loop.go_to(idle * 2)
    assert wire.closed


def test_a_client_that_does_not_read_is_not_answered_on_and_on() -> None:
    app = Echo()

    async def drive() -> None:
        protocol, wire = connected(app, asyncio.get_running_loop())
        wire.pause_reading = wire.resume_reading = lambda: None  # type: ignore[attr-defined]
        protocol.data_received(plain(b"one"))
        protocol.pause_writing()
        protocol.data_received(plain(b"two"))
        assert [body for _, body in app.asked] == [b"one"]
        protocol.connection_lost(None)

    asyncio.run(drive())
