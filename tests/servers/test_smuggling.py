"""The smuggling corpus over real sockets: however its bytes are cut, a row has one outcome, and nothing hidden in it runs."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from tests.homes import PATIENCE_S, Home, Server, make_home
from tests.servers.smuggling import Client, Row, rows

BYTEWISE = 400
"""Bytes at either end of a row that are sent one by one; what is between them is sent in one piece."""
HEALTHY = b'{"status":"ok"}'
NAMES = list(rows(Client(b"127.0.0.1:1", b"key")))


@dataclass
class World:
    home: Home
    server: Server
    seen: dict[Path, int] = field(default_factory=dict)

    @property
    def client(self) -> Client:
        return Client(b"127.0.0.1:%d" % self.server.port, self.home.keys["admin"].encode())

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def turn(self) -> None:
        """The server has had a turn: whatever was sent before is read by now."""
        with self.connect() as connection:
            connection.sendall(self.client.get())
            assert Reader(connection).answer(bodiless=False) == (200, HEALTHY)

    def news(self) -> list[str]:
        """The tools that ran since the last time, as the log has them."""
        tools: list[str] = []
        for path in sorted((self.home.path / "runs" / "mcp_server" / "envelope_validation").glob("*.jsonl")):
            if path.is_symlink():
                continue
            data = path.read_bytes()
            lines = data[self.seen.get(path, 0) : data.rfind(b"\n") + 1].splitlines()
            self.seen[path] = data.rfind(b"\n") + 1
            records = [json.loads(line) for line in lines]
            tools += [(one.get("metadata") or {}).get("toolId") or "" for one in records if one["event"] == "outcome"]
        return [tool for tool in tools if tool]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = make_home(tmp_path_factory.mktemp("smuggling") / "home", packs=("unruly",))
    with home.serving() as server:
        yield World(home, server)


class Reader:
    """Answers of one connection, read one by one."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._heard = b""
        self.continued = 0

    def answer(self, *, bodiless: bool) -> tuple[int, bytes] | None:
        """Status and body of the next final answer; None where the server has closed."""
        while True:
            while b"\r\n\r\n" not in self._heard:
                if not self._more():
                    assert self._heard == b"", f"closed in the midst of an answer: {self._heard[:200]!r}"
                    return None
            head, _, rest = self._heard.partition(b"\r\n\r\n")
            found = re.match(rb"HTTP/1\.1 ([0-9]{3}) [^\r\n]*(\r\n[a-z0-9-]+: [^\r\n]*)*\Z", head)
            assert found, f"no answer: {head[:200]!r}"
            self._heard = rest
            status = int(found[1])
            if status >= 200:
                break
            self.continued += 1
        length = re.search(rb"\r\ncontent-length: ([0-9]+)", head)
        assert length, head
        wanted = 0 if bodiless else int(length[1])
        while len(self._heard) < wanted:
            assert self._more(), "closed in the midst of a body"
        body, self._heard = self._heard[:wanted], self._heard[wanted:]
        return status, body

    def _more(self) -> bool:
        try:
            piece = self._connection.recv(65536)
        except ConnectionResetError:
            piece = b""
        self._heard += piece
        return bool(piece)


def whole(data: bytes) -> list[bytes]:
    return [data]


def byte_by_byte(data: bytes) -> list[bytes]:
    if len(data) <= 2 * BYTEWISE:
        return [data[at : at + 1] for at in range(len(data))]
    ends = byte_by_byte(data[:BYTEWISE]), byte_by_byte(data[-BYTEWISE:])
    return [*ends[0], data[BYTEWISE:-BYTEWISE], *ends[1]]


def head_and_rest(data: bytes) -> list[bytes]:
    end = data.find(b"\r\n\r\n") + 4
    return cut(data, end if end > 3 else len(data) // 2)


def in_the_line_end(data: bytes) -> list[bytes]:
    """Between CR and LF of the end of the head, and of the last line."""
    return cut(data, data.find(b"\r\n") + 1, data.find(b"\r\n\r\n") + 3, data.rfind(b"\r\n") + 1)


def in_thirds(data: bytes) -> list[bytes]:
    return cut(data, len(data) // 3, 2 * len(data) // 3)


def cut(data: bytes, *places: int) -> list[bytes]:
    marks = sorted({0, len(data), *places})
    return [data[a:b] for a, b in pairwise(marks) if data[a:b]]


WAYS = (whole, byte_by_byte, head_and_rest, in_the_line_end, in_thirds)


def send(world: World, connection: socket.socket, pieces: list[bytes]) -> None:
    """One after the other; few enough to wait for the server between them are sent so."""
    try:
        for number, piece in enumerate(pieces):
            if number > 0 and len(pieces) < 10:
                world.turn()
            connection.sendall(piece)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it was answered before it had arrived whole


def outcome(world: World, row: Row, pieces: list[bytes]) -> tuple[list[int], str, int]:
    """Statuses of the answers, what became of the connection, and how many of them came from a tool."""
    with world.connect() as connection:
        reader = Reader(connection)
        send(world, connection, pieces)
        heard: list[tuple[int, bytes]] = []
        for number in range(len(row.answers)):
            answer = reader.answer(bodiless=number in row.bodiless)
            if answer is None:
                return [status for status, _ in heard], "closed early", 0
            heard.append(answer)
        assert row.may_continue or not reader.continued, "nobody asked for a body"
        end = ending(world, row, connection, reader)
        return [status for status, _ in heard], end, sum(b'"envelope"' in body for _, body in heard)


def ending(world: World, row: Row, connection: socket.socket, reader: Reader) -> str:
    if row.end == "closed":
        more = reader.answer(bodiless=False)
        return "closed" if more is None else f"answered once more: {more}"
    if row.end == "waits":
        connection.shutdown(socket.SHUT_WR)
        more = reader.answer(bodiless=False)
        return "waits" if more is None else f"answered: {more}"
    try:
        connection.sendall(world.client.get())
        more = reader.answer(bodiless=False)
    except (BrokenPipeError, ConnectionResetError):
        more = None
    if more is None:
        return "closed"
    return "kept" if more == (200, HEALTHY) else f"answered once more: {more}"


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_read_in_one_way_however_it_is_cut(world: World, name: str) -> None:
    row = rows(world.client)[name]
    (world.home.workspace / "smuggled").unlink(missing_ok=True)
    data = row.data + (world.client.hidden if row.end == "closed" else b"")
    world.news()
    for way in WAYS:
        statuses, end, ran = outcome(world, row, way(data))
        wanted = [{one} if isinstance(one, int) else one for one in row.answers]
        assert len(statuses) == len(wanted), (way.__name__, statuses, end)
        assert all(got in may for got, may in zip(statuses, wanted, strict=True)), (way.__name__, statuses, end)
        assert end in (("kept", "closed") if row.end == "either" else (row.end,)), (way.__name__, statuses, end)
        assert world.news() == ["mcp.tool:unruly.echo"] * ran, (way.__name__, "what ran was answered, nothing else ran")
    assert not (world.home.workspace / "smuggled").exists()


def test_the_trap_works_where_it_is_not_hidden(world: World) -> None:
    """Else no row above could fail."""
    world.news()
    with world.connect() as connection:
        connection.sendall(world.client.hidden)
        answer = Reader(connection).answer(bodiless=False)
    assert answer is not None
    assert answer[0] == 200
    assert world.news() == ["mcp.tool:unruly.write"]
    assert (world.home.workspace / "smuggled").exists()
