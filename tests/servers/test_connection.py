"""A connection: whatever way the bytes of a request arrive, its answer is the same; whatever a client does, it is bounded."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import signal
import socket
import weakref
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, until_closed
from tests.servers.byhand import FRAMING, WAITS, Later, Wire, connected, door, feed
from toolgate.faces.reply import Reply
from toolgate.servers import connection as connection_module
from toolgate.servers import door as door_module
from toolgate.servers import framing
from toolgate.servers.application import Client
from toolgate.servers.connection import SEND_BUFFER_BYTES
from toolgate.servers.door import LARGE_BODY_BYTES, READ_BYTES, SMALL_READ_BYTES, TURN_S, DoorLimits
from toolgate.servers.framing import Request
from toolgate.servers.server import Server as HttpServer


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
    assert (status, body["error"]["code"]) == (400, -32700), "one request whose body is not JSON"


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


# Without a server: the connection itself, fed by hand ---------------------------------------------------------------


class Echo:
    """An application that answers with what it was given; a path `/wait` keeps its answer back until `go_on`."""

    headers = ()

    def __init__(self, caller_id: str = "") -> None:
        self.held: list[tuple[Client, Reply]] = []
        self.asked: list[tuple[bytes, bytes | None]] = []
        self.caller_id = caller_id
        self.refuses = False

    def read_head(self, request: Request) -> Request:
        return request

    def before_body(self, head: Request, client: Client) -> Reply | None:
        self._know(client)
        return Reply(401, b"who?") if self.refuses else None

    async def respond(self, head: Request, body: bytes | None, client: Client) -> Reply:
        self._know(client)
        self.asked.append((head.path, body))
        return Reply(413) if body is None else Reply(200, body)

    def hold(self, client: Client, reply: Reply, loop: Any) -> None:
        self.held.append((client, reply))
        if loop is None:
            self.send_held()
        elif len(self.held) == 1:
            loop.call_soon(self.send_held)

    def send_held(self) -> None:
        while self.held:
            client, reply = self.held.pop(0)
            client.send_held(reply)

    def _know(self, client: Client) -> None:
        if self.caller_id:
            client.known_as(self.caller_id)

    @property
    def bodies(self) -> list[bytes | None]:
        return [body for _, body in self.asked]


def plain(body: bytes, path: bytes = b"/rpc", more: bytes = b"", method: bytes = b"POST") -> bytes:
    return b"%b %b HTTP/1.1\r\nhost: here\r\n%bcontent-length: %d\r\n\r\n%b" % (method, path, more, len(body), body)


def chunked(*pieces: bytes, trailers: bytes = b"", extension: bytes = b"") -> bytes:
    framed = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
    head = b"POST /rpc HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n"
    return b"%b%b0\r\n%b\r\n" % (head, framed, trailers)


def statuses(wire: Wire) -> list[int]:
    """Of the answers one after the other: a body may hold what looks like one."""
    found, rest = [], wire.sent
    while rest:
        head, _, rest = rest.partition(b"\r\n\r\n")
        found.append(int(head.split(b" ", 2)[1]))
        length = re.search(rb"\r\ncontent-length: ([0-9]+)", head)
        rest = rest[int(length[1]) if length else 0 :]
    return found


@cases(100, 500)
@given(
    st.lists(st.tuples(st.booleans(), st.binary(max_size=40)), min_size=1, max_size=8),
    st.lists(st.integers(1, 900), max_size=8),
)
def test_however_a_stream_is_cut_the_same_bodies_come_out(messages: list[tuple[bool, bytes]], cuts: list[int]) -> None:
    app, loop = Echo(), Later()
    connection, wire = connected(app, loop)
    stream = b"".join(
        plain(body) if by_length else chunked(body[:7] or b"x", body[7:] or b"y") for by_length, body in messages
    )
    start = 0
    for cut in [*sorted(cuts), len(stream)]:
        if stream[start:cut]:
            feed(connection, stream[start:cut])
            start = cut
    loop.end_turns()
    assert app.bodies == [
        body if by_length else (body[:7] or b"x") + (body[7:] or b"y") for by_length, body in messages
    ]
    assert statuses(wire) == [200] * len(messages)


def test_a_connection_remembers_few_heads_and_only_small_ones() -> None:
    app, loop = Echo(), Later()
    app.caller_id = "someone"
    connection, _ = connected(app, loop)
    for number in range(100):
        feed(connection, plain(b"", b"/%d" % number))
    assert len(app.asked) == 100
    known = connection._reader.known
    assert 0 < len(known) <= framing.KNOWN_HEADS
    known.clear()
    feed(connection, plain(b"", b"/" + b"x" * framing.KNOWN_HEAD_BYTES))
    assert not known


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    loop = Later()
    connection, wire = connected(Echo(), loop)
    feed(connection, plain(b""))
    loop.go_to(WAITS.idle_s * 0.9)
    feed(connection, plain(b""))
    loop.go_to(WAITS.idle_s * 1.5)
    assert not wire.closed, "the last answer was less than the idle time ago"
    loop.go_to(WAITS.idle_s * 2)
    assert wire.closed


def test_f1_one_connection_gets_one_answer_a_turn_however_much_it_sends() -> None:
    app, loop = Echo(), Later()
    connection, wire = connected(app, loop)
    feed(connection, plain(b"x") * 500)
    assert (len(app.asked), wire.reading) == (1, False)
    for _ in range(5):
        loop.end_turn()
    assert len(app.asked) == 6


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What turns are measured by. It stands still."""
    clock = Clock()
    monkeypatch.setattr(connection_module, "perf_counter", clock)
    monkeypatch.setattr(door_module, "perf_counter", clock)
    return clock


def test_f1_strangers_together_get_no_more_of_a_turn_than_one_caller(clock: Clock) -> None:
    strangers, callers, loop = Echo(), Echo(), Later()
    callers.caller_id = "good"
    house = door(loop)
    crowd = [connected(strangers, loop, house)[0] for _ in range(50)]
    good, wire = connected(callers, loop, house)
    feed(good, plain(b"hello"))
    loop.end_turn()
    clock.step = TURN_S / 4
    for one in crowd:
        feed(one, plain(b"x") * 20)
    assert 1 <= len(strangers.asked) <= 5
    feed(good, plain(b"again"))
    loop.end_turn()
    assert statuses(wire) == [200, 200], "the good caller has a turn of its own"
    assert len(strangers.asked) <= 15, "newcomers and strangers have one each"


def test_f1_one_large_body_is_answered_in_a_turn_and_callers_take_turns_at_it(clock: Clock) -> None:
    loop, greedy, other = Later(), Echo("greedy"), Echo("other")
    house = door(loop)
    crowd = [connected(app, loop, house)[0] for app in (greedy, greedy, greedy, greedy, other, other)]
    for one in crowd:
        feed(one, plain(b"hello"))
    loop.end_turns()
    greedy.asked, other.asked = [], []
    for one in crowd:
        feed(one, plain(bytes(LARGE_BODY_BYTES + 1)))
    answered = [(0, 0)]
    while len(greedy.asked) < 4:
        loop.end_turn()
        answered.append((len(greedy.asked), len(other.asked)))
    assert answered == [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (4, 2)]


def test_f1_a_small_call_is_answered_before_a_large_body_that_came_first(clock: Clock) -> None:
    loop, greedy, good = Later(), Echo("greedy"), Echo("good")
    good.held, good.send_held = greedy.held, greedy.send_held  # type: ignore[method-assign] # one application
    house = door(loop)
    large, _ = connected(greedy, loop, house)
    small, wire = connected(good, loop, house)
    for one in (large, small):
        feed(one, plain(b"hello"))
    loop.end_turns()
    feed(large, plain(bytes(LARGE_BODY_BYTES + 1)))
    feed(small, plain(b"at once"))
    assert (greedy.bodies, good.bodies) == ([b"hello"], [b"hello", b"at once"])
    asked_before: list[int] = []
    wire.on_write = lambda: asked_before.append(len(greedy.asked))
    loop.end_turns()
    assert len(greedy.asked) == 2
    assert asked_before == [1], "what is ready does not wait for a large body"


def test_f1_reading_is_part_of_a_callers_turn(clock: Clock) -> None:
    app, loop = Echo("greedy"), Later()
    house = door(loop)
    first, _ = connected(app, loop, house)
    second, wire = connected(app, loop, house)
    for one in (first, second):
        feed(one, plain(b"hello"))
    loop.end_turns()
    assert len(second.get_buffer(-1)) == READ_BYTES
    clock.step = TURN_S
    feed(first, plain(bytes(READ_BYTES * 4))[:READ_BYTES])
    assert len(second.get_buffer(-1)) == SMALL_READ_BYTES, "its caller's turn is used up"
    feed(second, plain(bytes(READ_BYTES * 4))[:SMALL_READ_BYTES])
    assert not wire.reading
    clock.step = 0.0
    loop.end_turns()
    assert wire.reading


def test_f1_a_refused_clients_bytes_are_dropped_in_its_callers_turn(clock: Clock) -> None:
    app, loop = Echo("greedy"), Later()
    house = door(loop, waiting_bytes=1000)
    refused, wire = connected(app, loop, house)
    connected(app, loop, house)
    feed(refused, plain(bytes(100_000))[:5000])
    assert statuses(wire) == [429]
    clock.step = TURN_S
    feed(refused, bytes(READ_BYTES + 1))
    assert not wire.reading
    clock.step = 0.0
    loop.end_turns()
    assert wire.reading
    feed(refused, bytes(connection_module.LINGER_BYTES))
    assert wire.closed


@pytest.mark.parametrize(
    ("endless", "status"),
    [
        (b"GET /" + b"x" * 70_000, 414),
        (b"GET / HTTP/1.1\r\n" + b"x" * 70_000, 431),
        (b"GET / HTTP/1.1\r\nhost: " + b"x" * 70_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 10_000, 431),
        (b"GET / HTTP/1.1\r\nhost: here\r\n" + b"x: y\r\n" * 70 + b"\r\n", 431),
        (chunked(b"x", trailers=b"x: " + b"y" * 70_000 + b"\r\n"), 431),
        (chunked(b"x", trailers=b"x: y\r\n" * 10_000), 431),
        (chunked(b"x", extension=b";x=" + b"y" * 70_000), 431),
        (chunked(*[b"x"] * 10_000), 431),
    ],
)
@pytest.mark.parametrize("piece", [1, 1000, 1 << 20])
def test_f2_whatever_frames_a_message_is_counted_from_its_first_byte(endless: bytes, status: int, piece: int) -> None:
    app, loop = Echo(), Later()
    connection, wire = connected(app, loop)
    most = 0
    for start in range(0, len(endless), piece):
        feed(connection, endless[start : start + piece])
        most = max(most, len(connection._reader.arrived))
        loop.end_turns()
    assert (statuses(wire), app.asked, wire.ended) == ([status], [], True)
    assert most <= FRAMING.line_bytes + FRAMING.header_bytes + READ_BYTES


def test_f3_a_client_that_does_not_read_is_neither_answered_nor_read_on_and_on() -> None:
    app = Echo()

    async def drive() -> None:
        connection, wire = connected(app, asyncio.get_running_loop())
        feed(connection, plain(b"one"))
        connection.pause_writing()
        feed(connection, plain(b"two") * 200)
        assert app.bodies == [b"one"]
        assert not wire.reading
        connection.resume_writing()
        await asyncio.sleep(0)
        assert app.bodies[:2] == [b"one", b"two"]
        connection.connection_lost(None)

    asyncio.run(drive())


def test_f3_a_client_that_never_reads_is_gone_when_its_time_is_over() -> None:
    loop = Later()
    connection, wire = connected(Echo(), loop)
    feed(connection, plain(b"one"))
    connection.pause_writing()
    loop.go_to(WAITS.write_s - 1)
    assert not wire.aborted
    loop.go_to(WAITS.write_s)
    assert wire.aborted


def test_f3_the_kernel_keeps_little_of_what_a_client_does_not_read() -> None:
    async def scenario() -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        served = HttpServer(Echo(), door=DoorLimits(8, 1 << 20), framing=FRAMING, waits=WAITS, drain_s=0.0)
        await served.start(listener)
        kept = listener.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        served.stop()
        await served.ended()
        return kept

    assert asyncio.run(scenario()) <= 2 * SEND_BUFFER_BYTES, "every connection inherits it; Linux tells twice of it"


def test_f3_answers_that_nobody_reads_are_bounded_for_each_caller() -> None:
    app, loop = Echo(), Later()
    house = door(loop, waiting_bytes=1 << 20)
    app.caller_id = "bad"
    lazy = [connected(app, loop, house) for _ in range(5)]
    for connection, wire in lazy:
        feed(connection, plain(b"x"))
        loop.end_turn()
        wire.unsent = 400_000
        connection.pause_writing()
    assert [wire.aborted for _, wire in lazy] == [False, False, True, True, True]
    app.caller_id = "good"
    good, wire = connected(app, loop, house)
    feed(good, plain(b"x"))
    wire.unsent = 400_000
    good.pause_writing()
    assert not wire.aborted


def test_f3_bodies_that_never_end_are_bounded_for_each_caller() -> None:
    app, loop = Echo(), Later()
    app.caller_id = "bad"
    house = door(loop, waiting_bytes=1 << 20)
    begun = plain(b"x" * 400_000)[:200]
    slow = [connected(app, loop, house) for _ in range(5)]
    for connection, _ in slow:
        feed(connection, begun)
        loop.end_turn()
    assert [statuses(wire) for _, wire in slow] == [[], [], [429], [429], [429]]
    slow[0][0].connection_lost(None)
    again, wire = connected(app, loop, house)
    feed(again, begun)
    assert statuses(wire) == [], "room that came back is room"


def test_f3_nothing_of_a_strangers_body_is_waited_for() -> None:
    app, loop = Echo(), Later()
    app.refuses = True
    connection, wire = connected(app, loop)
    feed(connection, plain(b"x" * 100_000)[:500])
    assert (statuses(wire), wire.ended) == ([401], True)
    feed(connection, b"x" * 60_000)
    assert len(connection._reader.arrived) == 0, "what still comes is read and dropped, so that the answer can be read"
    feed(connection, b"x" * 300_000)
    assert wire.closed


def test_a_refusal_of_a_whole_message_keeps_the_connection() -> None:
    app, loop = Echo(), Later()
    app.refuses = True
    connection, wire = connected(app, loop)
    feed(connection, plain(b"one"))
    app.refuses = False
    feed(connection, plain(b"two"))
    assert (statuses(wire), app.bodies, wire.ended) == ([401, 200], [b"two"], False)


@pytest.mark.parametrize("start", [b"", b"\r\n", b"\r\n\r\n", b"\r", b"POST ", b"POST / HTTP/1.1\r\nhost: x\r\n"])
def test_f4_only_a_whole_message_stops_the_clock(start: bytes) -> None:
    loop = Later()
    connection, wire = connected(Echo(), loop)
    feed(connection, start)
    loop.go_to(WAITS.head_s - 1)
    assert wire.sent == b""
    loop.go_to(WAITS.head_s)
    assert (statuses(wire), wire.ended) == ([408], True)


def test_f4_empty_lines_do_not_keep_a_connection() -> None:
    loop = Later()
    connection, wire = connected(Echo(), loop)
    feed(connection, plain(b"one"))
    loop.go_to(5)
    for _ in range(3):
        feed(connection, b"\r\n")
    loop.go_to(5 + WAITS.head_s)
    assert statuses(wire) == [200, 408]


def test_f4_when_the_house_is_full_the_oldest_idle_stranger_goes_and_callers_stay() -> None:
    app, loop = Echo(), Later()
    house = door(loop, connections=8)
    app.caller_id = "good"
    kept, kept_wire = connected(app, loop, house)
    feed(kept, plain(b"x"))
    app.caller_id = ""
    strangers = [connected(app, loop, house) for _ in range(20)]
    assert not kept_wire.closed
    assert [wire.closed for _, wire in strangers] == [True] * 14 + [False] * 6
    assert len(house.guests) == 7


def test_f4_one_caller_holds_a_share_of_the_connections() -> None:
    app, loop = Echo(), Later()
    house = door(loop, connections=8)
    app.caller_id = "greedy"
    greedy = []
    for _ in range(8):
        connection, wire = connected(app, loop, house)
        feed(connection, plain(b"x"))
        loop.end_turn()
        greedy.append(wire)
    assert [wire.closed for wire in greedy] == [True] * 6 + [False] * 2


def test_f4_a_house_full_of_calls_under_way_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Later()
    house = door(loop, connections=4)
    app = Echo()
    monkeypatch.setattr("toolgate.servers.connection.Connection.is_idle", lambda _: False)
    for number in range(4):
        app.caller_id = f"caller {number}"
        connection, _ = connected(app, loop, house)
        feed(connection, plain(b"x"))
    _, wire = connected(app, loop, house)
    assert (statuses(wire), wire.closed, len(house.guests)) == ([503], True, 4)


UPGRADE = b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"


@pytest.mark.parametrize("cut", [0, 1, 5, 9])
def test_f5_an_upgrade_is_ignored_and_the_body_is_the_requests_own(cut: int) -> None:
    """In one piece, or with the body behind: it never becomes the next request."""
    app, loop = Echo(), Later()
    connection, wire = connected(app, loop)
    hidden = plain(b"hidden", b"/hidden")
    whole = plain(hidden, more=UPGRADE)
    at = len(whole) - len(hidden) + cut * 5
    feed(connection, whole[:at])
    feed(connection, whole[at:])
    loop.end_turns()
    assert (app.asked, statuses(wire)) == ([(b"/rpc", hidden)], [200])


def test_f6_trailers_never_become_headers() -> None:
    app, loop = Echo(), Later()
    heads: list[Request] = []
    app.read_head = lambda request: heads.append(request) or request  # type: ignore[func-returns-value]
    connection, wire = connected(app, loop)
    feed(connection, chunked(b"body", trailers=b"x-mcp-api-key: tg_secret\r\nhost: evil\r\n"))
    assert (app.bodies, statuses(wire)) == ([b"body"], [200])
    assert [name for name, _ in heads[0].headers] == [b"host", b"transfer-encoding"]


def test_f18_head_is_answered_without_a_body_and_the_next_answer_is_its_own() -> None:
    loop = Later()
    connection, wire = connected(Echo(), loop)
    for _ in range(2):
        feed(connection, plain(b"four", method=b"HEAD"))
        feed(connection, plain(b"five!"))
    assert (
        wire.sent
        == (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfive!") * 2
    )


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/rpc", b"/rpc"),
        (b"/rpc?x=1", b"/rpc"),
        (b"http://here/rpc", b"/rpc"),
        (b"HTTP://HERE/rpc?x", b"/rpc"),
        (b"http://here", b"/"),
        (b"http://here?x", b"/"),
        (b"http://elsewhere/rpc", None),
        (b"http://a@here/rpc", None),
        (b"/rpc#x", None),
        (b"here:80", None),
        (b"*", None),
        (b"rpc", None),
    ],
)
def test_f28_a_target_has_one_meaning(target: bytes, path: bytes | None) -> None:
    app, loop = Echo(), Later()
    connection, wire = connected(app, loop)
    for _ in range(2):
        feed(connection, plain(b"x", target))
    assert app.asked == ([] if path is None else [(path, b"x")] * 2)
    assert statuses(wire) == ([400] if path is None else [200, 200])


def test_a_known_head_does_not_overtake_an_answer_that_waits() -> None:
    async def drive() -> None:
        loop = asyncio.get_running_loop()
        app, release = Echo(), loop.create_future()

        async def respond(head: Request, body: bytes | None, client: Client) -> Reply:
            if body == b"wait":
                await release
            return Reply(200, body or b"")

        app.respond = respond  # type: ignore[method-assign]
        connection, wire = connected(app, loop)
        feed(connection, plain(b"know"))
        feed(connection, plain(b"wait"))
        feed(connection, plain(b"soon"))
        assert wire.sent.endswith(b"know")
        release.set_result(None)
        async with asyncio.timeout(PATIENCE_S):
            while not wire.sent.endswith(b"soon"):
                await asyncio.sleep(0)
        assert [wire.sent.find(body) for body in (b"know", b"wait", b"soon")] == sorted(
            [wire.sent.find(body) for body in (b"know", b"wait", b"soon")]
        )
        wire.closed = True
        connection.connection_lost(None)

    asyncio.run(drive())


def test_a_body_that_waits_for_leave_gets_it_once_its_head_is_good() -> None:
    app, loop = Echo(), Later()
    connection, wire = connected(app, loop)
    whole = plain(b"body", more=b"Expect: 100-continue\r\n")
    feed(connection, whole[:-4])
    assert wire.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
    feed(connection, whole[-4:])
    assert app.bodies == [b"body"]


def test_a_chunked_body_that_grows_too_large_is_one_message_to_the_application() -> None:
    app, loop = Echo(), Later()
    connection, wire = connected(app, loop)
    feed(connection, chunked(*[b"x" * 60_000] * 20))
    assert (app.bodies, statuses(wire), wire.ended) == ([None], [413], True)


def test_a_client_that_closes_its_side_gets_the_answers_to_what_it_sent() -> None:
    app, loop = Echo(), Later()
    house = door(loop)
    connection, wire = connected(app, loop, house)
    connected(app, loop, house)
    feed(connection, plain(b"one") + plain(b"two"))
    assert connection.eof_received(), "the connection stays open for what is to be said"
    loop.end_turns()
    assert (statuses(wire), wire.closed) == ([200, 200], True)


@pytest.mark.parametrize("fault", [None, ConnectionResetError()])
def test_f3_nothing_is_left_of_a_connection_that_is_gone(fault: Exception | None) -> None:
    async def drive() -> None:
        loop = asyncio.get_running_loop()
        house = door(loop)
        connection, wire = connected(Echo(), loop, house)
        feed(connection, plain(b"one") + plain(b"two"))
        wire.closed = True
        connection.connection_lost(fault)
        await asyncio.sleep(0)
        left = weakref.ref(connection)
        del connection
        gc.collect()
        assert left() is None
        assert not house.guests

    asyncio.run(drive())


def test_f3_an_idle_connection_keeps_nothing_of_its_last_call() -> None:
    app, loop = Echo(), Later()
    kept: list[weakref.ref[Kept]] = []

    async def respond(head: Request, body: bytes | None, client: Client) -> Reply:
        call = Kept()
        kept.append(weakref.ref(call))
        client.gone.append(call.cancel)
        return Reply(200)

    app.respond = respond  # type: ignore[method-assign]
    connection, _ = connected(app, loop)
    feed(connection, plain(b"one"))
    assert (len(kept), kept[0]()) == (1, None)
    assert connection.is_idle()


class Kept:
    def cancel(self) -> None: ...


class Clock:
    """Each look at it takes a while."""

    def __init__(self) -> None:
        self.now = self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now
