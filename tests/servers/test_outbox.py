"""Answers of one turn leave together, and never before their records are in the log."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.faces import speak
from tests.homes import Home
from tests.ledger import world
from tests.servers.byhand import WAITS, Later, Wire, connected, door, feed
from toolgate.app import App
from toolgate.servers import door as door_module
from toolgate.servers.http import MOST_HELD, HttpApp

FACES = ("/mcp", "/rpc", "/mrt_dispatch")


def message(path: str, request_id: int, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    match path:
        case "/mcp":
            return speak.mcp_message(tool, arguments, modern=True) | {"id": request_id}
        case "/rpc":
            return speak.rpc_message(tool, arguments) | {"id": request_id}
        case _:
            return {"tool": tool, "args": arguments}


@dataclass
class Desk:
    """One server without sockets, and its connections."""

    app: App
    home: Home
    loop: Later = field(default_factory=Later)

    def __post_init__(self) -> None:
        app = self.app
        self.door = door(self.loop)
        self.http = HttpApp(app.road, app.faces(), body_bytes=1 << 20, ready=app.ready)
        self.http.heads.hosts = frozenset({b"here"})

    def connect(self) -> tuple[Any, Wire]:
        return connected(self.http, self.loop, self.door)

    def request(
        self, request_id: int, path: str = "/mcp", tool: str = "unruly_echo", key: str = "admin", **more: Any
    ) -> bytes:
        body = json.dumps(message(path, request_id, tool, more)).encode()
        return (
            b"POST %b HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\nx-mcp-api-key: %b\r\n"
            b"mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: %b\r\ncontent-length: %d\r\n\r\n%b"
        ) % (path.encode(), self.home.keys[key].encode(), tool.encode(), len(body), body)

    def logged(self) -> int:
        """Records of calls of this run, as a reader of the file finds them now."""
        return sum(record["run"] == self.app.ledger.run for record in self.home.calls())


@pytest.fixture
def desk(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(door_module.CallerTurns, "_has_time", lambda *_: True)  # turns are not measured here
    app = home.app()
    yield Desk(app, home)
    asyncio.run(app.close())


def answers(wire: Wire) -> list[tuple[int, Any]]:
    """(status, body) of each answer that was sent."""
    found, rest = [], wire.sent
    while rest:
        head, _, rest = rest.partition(b"\r\n\r\n")
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        found.append((int(head.split()[1]), json.loads(rest[:length])))
        rest = rest[length:]
    return found


@pytest.mark.parametrize("path", FACES)
def test_answers_of_one_turn_leave_together_after_all_their_records(
    desk: Desk, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: writes.append(data) or real(descriptor, data))
    seen: list[int] = []
    connections = [desk.connect() for _ in range(3)]
    for number, (protocol, wire) in enumerate(connections):
        wire.on_write = lambda: seen.append(desk.logged())
        feed(protocol, desk.request(number, path))
    assert (desk.logged(), [wire.sent for _, wire in connections]) == (0, [b"", b"", b""])
    desk.loop.end_turn()
    assert seen == [3, 3, 3], "each answer found every record written"
    assert len(writes) == 1
    assert [[status for status, _ in answers(wire)] for _, wire in connections] == [[200]] * 3


def test_a_full_outbox_does_not_wait_for_the_end_of_the_turn(desk: Desk) -> None:
    connections = [desk.connect() for _ in range(MOST_HELD + 1)]
    for number, (protocol, _) in enumerate(connections):
        feed(protocol, desk.request(number))
    assert [bool(wire.sent) for _, wire in connections] == [True] * MOST_HELD + [False]
    desk.loop.end_turn()
    assert all(wire.sent for _, wire in connections)


def test_the_only_connection_is_answered_at_once(desk: Desk) -> None:
    protocol, wire = desk.connect()
    wire.on_write = lambda: seen.append(desk.logged())
    seen: list[int] = []
    feed(protocol, desk.request(1))
    assert (seen, desk.loop.soon) == ([1], [])


@pytest.mark.parametrize("path", FACES)
def test_when_the_log_fails_every_held_answer_says_so_and_none_is_lost(
    desk: Desk, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = [desk.connect() for _ in range(3)]
    for number, (protocol, _) in enumerate(connections):
        feed(protocol, desk.request(number, path))
    monkeypatch.setattr(os, "write", world.no_space)
    desk.loop.end_turn()
    monkeypatch.undo()
    for number, (_, wire) in enumerate(connections):
        ((status, body),) = answers(wire)
        assert status == (200 if path == "/mcp" else 503)
        assert "audit log cannot be written" in json.dumps(body)
        assert "hello" not in wire.sent.decode()
        assert body.get("id", number) == number
    assert desk.logged() == 0
    for number, (protocol, _) in enumerate(connections):
        feed(protocol, desk.request(number + 10, path))
    desk.loop.end_turns()
    assert [answers(wire)[1][0] for _, wire in connections] == [200, 200, 200]
    assert desk.logged() == 3
    assert world.check(desk.app.ledger._directory, desk.app.ledger).good


def test_an_answer_without_a_record_does_not_suffer_from_the_log(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (calling, _), (asking, wire) = desk.connect(), desk.connect()
    feed(calling, desk.request(1))
    feed(asking, b"GET /healthz HTTP/1.1\r\nhost: here\r\n\r\n")
    monkeypatch.setattr(os, "write", world.no_space)
    desk.loop.end_turn()
    assert answers(wire) == [(200, {"status": "ok"})]


def test_a_refusal_is_held_for_its_record_too(desk: Desk) -> None:
    (first, wire), _ = desk.connect(), desk.connect()
    seen: list[int] = []
    wire.on_write = lambda: seen.append(desk.logged())
    feed(first, desk.request(1, tool="unruly_nothing"))
    assert (wire.sent, desk.logged()) == (b"", 0)
    desk.loop.end_turn()
    assert (seen, answers(wire)[0][0]) == ([1], 400)


def test_a_client_that_does_not_wait_for_its_answers_gets_them_in_order(desk: Desk) -> None:
    (first, wire), _ = desk.connect(), desk.connect()
    feed(first, desk.request(1))
    feed(first, desk.request(2) + desk.request(3))
    desk.loop.end_turns()
    assert [body["id"] for _, body in answers(wire)] == [1, 2, 3]


def test_a_client_that_left_is_not_answered_and_its_call_is_on_record(desk: Desk) -> None:
    (first, wire), (second, other) = desk.connect(), desk.connect()
    feed(first, desk.request(1))
    feed(second, desk.request(2))
    wire.closed = True
    desk.loop.end_turn()
    assert (wire.sent, len(answers(other)), desk.logged()) == (b"", 1, 2)


def test_an_answer_held_while_the_server_stops_is_sent(desk: Desk) -> None:
    (first, wire), _ = desk.connect(), desk.connect()
    feed(first, desk.request(1))
    first.shutdown()
    assert not wire.closed
    desk.loop.end_turn()
    assert answers(wire)[0][0] == 200
    assert b"connection: close\r\n" in wire.sent
    assert wire.closed


def test_a_connection_is_not_idle_while_its_answer_is_held(desk: Desk) -> None:
    (first, wire), _ = desk.connect(), desk.connect()
    feed(first, desk.request(1))
    desk.loop.end_turn()
    desk.loop.now = WAITS.idle_s * 2
    feed(first, desk.request(2))
    desk.loop.go_to(desk.loop.now)
    assert not wire.closed
    desk.loop.end_turn()
    assert [body["id"] for _, body in answers(wire)] == [1, 2]
