"""Bad upstreams through the whole gate: one real server that has adopted all of them, one row each.

For each row: the verdict that the caller hears, the record in the log, what the gate's memory grew by, and how a second caller
fared meanwhile with another upstream. Nothing of one row may reach the next.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.machine import cpu_seconds
from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, make_home
from tests.powers.net.world import server_tls
from tests.upstreams import test_hostile_http as bad
from tests.upstreams.homes import give, stub_table, toml_of
from tests.upstreams.stub import OTHER, TOOL
from tests.upstreams.support import alive, lines
from tests.upstreams.test_hostile_stdio import MEMORY_BYTES
from tests.upstreams.web import EVENTS, Asked, Web, echoed, http, listening
from tests.waiting import until
from toolgate.config import load_settings
from toolgate.kit.pins import Offer, pin_of
from toolgate.powers.mcp.program import peer_of_url
from toolgate.upstreams import peer_now, pin_path, read_tables

pytestmark = [
    pytest.mark.guard,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

DOWN, FAULT, DOUBT, DRIFT, OK = "upstream_down", "upstream_fault", "in_doubt", "upstream_drift", "ok"
SHORT_S = 3.0
"""A deadline for those that never answer."""
NEIGHBOUR_CPU_S = 2.0
"""What the gate may compute before a second caller is answered: its own time, in which the machine's load has no part."""


@dataclass(frozen=True)
class Row:
    verdict: str
    reason: str = ""
    deadline_s: float = PATIENCE_S


PIPES: dict[str, Row] = {
    "huge answer": Row(DOUBT, "answer_too_large"),
    "deep answer": Row(DOUBT, "malformed_json"),
    "duplicate keys": Row(DOUBT, "malformed_json"),
    "nan": Row(DOUBT, "malformed_json"),
    "wrong id": Row(DOUBT, "unasked_answer"),
    "two answers": Row(OK),
    "no answer": Row(DOUBT, "no_answer", SHORT_S),
    "does not read": Row(DOUBT, "no_answer", SHORT_S),
    "answer before the request": Row(DOWN, "unasked_answer"),
    "a million steps": Row(DOUBT, "too_many_notes"),
    "endless line": Row(DOUBT, "answer_too_large"),
    "not json": Row(DOUBT, "malformed_json"),
    "stderr flood": Row(OK),
    "exit": Row(DOWN, "connection_lost"),
    "die on call": Row(DOUBT, "connection_lost"),
    "ignore TERM": Row(OK),
    "fork and hold": Row(DOUBT, "connection_lost"),
    "many tools": Row(DOWN, "answer_too_large"),
    "endless pages": Row(DOWN, "endless_list"),
    "long description": Row(DRIFT, "changed_description"),
    "change flood": Row(DOWN, "too_many_notes"),
}


async def empty_fields(asked: Asked, _: Any) -> bytes:
    return http(b"data:\n\nid\n\nevent:\ndata: " + echoed(asked) + b"\n\n", kind=EVENTS)


async def elsewhere(asked: Asked, _: Any) -> bytes:
    return http(status="307 Temporary Redirect", Location="http://127.0.0.1:1/mcp")


WEB: dict[str, tuple[Web, Row]] = {
    "100 MB in chunks": (Web(on_call=bad.huge), Row(FAULT, "answer_too_large")),
    "an event without end": (Web(on_call=bad.endless_event), Row(FAULT, "answer_too_large")),
    "depth 10 000": (Web(on_call=bad.deep), Row(FAULT, "malformed_json")),
    "duplicate keys": (Web(on_call=bad.duplicate), Row(FAULT, "malformed_json")),
    "NaN": (Web(on_call=bad.not_a_number), Row(FAULT, "malformed_json")),
    "wrong id": (Web(on_call=bad.wrong_id), Row(FAULT, "wrong_id")),
    "two answers": (Web(on_call=bad.two_answers), Row(FAULT, "unasked_answer")),
    "a million steps": (Web(on_call=bad.million_steps), Row(FAULT, "too_many_notes")),
    "silent": (Web(on_call=bad.silent), Row(DOUBT, "no_answer", SHORT_S)),
    "compressed": (Web(on_call=bad.compressed), Row(FAULT, "bad_response")),
    "empty fields": (Web(on_call=empty_fields), Row(OK)),
    "redirects a call": (Web(on_call=bad.redirects), Row(FAULT, "redirected")),
    "redirects elsewhere": (Web(on_any=elsewhere), Row(DOWN, "redirected")),
    "expired certificate": (Web(), Row(DOWN, "tls_failed")),
    "turned private": (Web(), Row(DOWN, "address_refused")),
}


class Webs:
    """All servers of the table over HTTP, on a loop of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stack = AsyncExitStack()
        self.forgetful = Web("handshake", session="s-1")

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def port(self, web: Web, *, expired: bool = False) -> int:
        tls = server_tls("localhost", expired=True) if expired else None
        found: int = self.run(self._stack.enter_async_context(listening(web, tls)))
        return found

    def close(self) -> None:
        self.run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


@dataclass(frozen=True)
class World:
    home: Home
    server: Server
    folder: Path
    webs: Webs
    names: dict[str, str]
    """Row -> upstream."""
    told: list[str]


OFFER = Offer("2025-11-25", {"name": "stub", "version": "1"}, None, {"echo": TOOL, "other": OTHER})


def adopt(home: Home, names: dict[str, str]) -> None:
    """Pinned by what every one of them offers when it is good: none is asked."""
    tables = read_tables(load_settings(home.path, {}, {}))
    (home.path / "policy" / "upstreams").mkdir()
    for row, name in names.items():
        table = tables[name]
        peer = (
            asyncio.run(peer_now(table))
            if table.command
            else peer_of_url(table.url, private=row != "web: turned private")
        )
        pin_path(home.path / "policy", name).write_bytes(pin_of(name, peer, OFFER).as_bytes())
        give(home, name, ("builder", "admin"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder, webs = tmp_path_factory.mktemp("hostile"), Webs()
    tables: dict[str, Any] = {"calm": stub_table("good", folder / "calm.log")}
    names = {"calm": "calm"}
    for number, (row, found) in enumerate({**PIPES, "changes": Row(DRIFT)}.items()):
        names[row] = f"p{number}"
        tables[names[row]] = stub_table(row, folder / f"p{number}.log", deadline_s=found.deadline_s)
    every = {**WEB, "forgotten session": (webs.forgetful, Row(DOUBT))}
    for number, (row, (web, found)) in enumerate(every.items()):
        names[f"web: {row}"] = f"w{number}"
        port, scheme = webs.port(web, expired="certificate" in row), "https" if "certificate" in row else "http"
        host = "localhost" if row == "turned private" else "127.0.0.1"
        tables[f"w{number}"] = {"url": f"{scheme}://{host}:{port}/mcp", "deadline_s": found.deadline_s}
    home = make_home(folder / "home", settings="".join(toml_of(name, table) for name, table in tables.items()))
    adopt(home, names)
    told: list[str] = []
    try:
        with home.serving() as server:
            yield World(home, server, folder, webs, names, told)
    finally:
        webs.close()
        print("\n".join(["", "row | verdict | memory MB | second caller: slowest ms, gate's CPU ms", *told]))
    pids = [int(pid) for log in folder.glob("*.log") for pid in lines(log, "pid")]
    until(lambda: not any(alive(pid) for pid in pids), "the end of every child")


def call(world: World, upstream: str, role: str = "admin") -> tuple[int, dict[str, Any]]:
    headers = {"authorization": f"Bearer {world.home.keys[role]}"}
    body = {"tool": f"{upstream}_echo", "args": {"text": "hello"}}
    status, _, answer = speak.send(world.server.port, "/mrt_dispatch", body, headers)
    return status, answer


def memory(world: World) -> int:
    status = Path(f"/proc/{world.server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


class Second:
    """A second caller, who asks another upstream again and again."""

    def __init__(self, world: World) -> None:
        self._world, self._over = world, threading.Event()
        self.slowest = self.cpu = 0.0
        self.wrong = self.asked = 0
        self.memory = memory(world)
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        pid = self._world.server.process.pid
        while not self._over.is_set() or not self.asked:
            began, computed = time.monotonic(), cpu_seconds(pid)
            self.wrong += call(self._world, "calm", "builder")[0] != 200
            self.asked += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.cpu = max(self.cpu, cpu_seconds(pid) - computed)
            self.memory = max(self.memory, memory(self._world))

    def __enter__(self) -> Second:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(2 * PATIENCE_S)


def outcome(world: World, request: str) -> dict[str, Any]:
    return next(one for one in world.home.calls() if one["event"] == "outcome" and one["requestId"] == request)


def judge(world: World, row: str, expected: Row, ask: Callable[[], tuple[int, dict[str, Any]]]) -> None:
    assert call(world, "calm", "builder")[0] == 200
    before = memory(world)
    with Second(world) as second:
        status, body = ask()
    verdict = OK if status == 200 else body["error_code"]
    request = body["request_id"] if verdict != OK else body["envelope"]["requestId"]
    grown = (second.memory - before) / 1e6
    world.told.append(f"{row} | {verdict} | {grown:.1f} | {second.slowest * 1e3:.0f}, {second.cpu * 1e3:.0f}")
    assert verdict == expected.verdict, body
    record = outcome(world, request)
    assert record["upstream"] == world.names[row]
    if verdict == OK:
        assert record["error"] is None
    else:
        found = record["error"]["happening"], record["error"]["reason"]
        assert found == (expected.verdict, expected.reason or found[1]), json.dumps(record)
    assert second.wrong == 0
    assert second.cpu < NEIGHBOUR_CPU_S
    assert second.memory - before < MEMORY_BYTES


@pytest.mark.parametrize("row", PIPES)
def test_a_bad_program_gets_its_verdict_and_its_record_and_nobody_else_notices(world: World, row: str) -> None:
    judge(world, row, PIPES[row], lambda: until(lambda: started(world, row), "the program has started"))


def started(world: World, row: str) -> tuple[int, dict[str, Any]] | None:
    """None: it was still starting when the call's time was up. Nothing was sent, and how soon it starts is not judged here."""
    status, body = call(world, world.names[row])
    reason = body["error"].get("details", {}).get("reason") if status != 200 else None
    return None if reason == "not_ready" else (status, body)


@pytest.mark.parametrize("row", WEB)
def test_a_bad_server_gets_its_verdict_and_its_record_and_nobody_else_notices(world: World, row: str) -> None:
    judge(world, f"web: {row}", WEB[row][1], lambda: call(world, world.names[f"web: {row}"]))


def test_a_tool_that_changes_between_list_and_call_is_refused(world: World) -> None:
    name = world.names["changes"]
    assert call(world, name)[0] == 200
    until(lambda: len(lines(world.folder / f"{name}.log", "list")) >= 2, "the list that the change asks for")
    until(lambda: call(world, name)[0] != 200, "the verdict of the comparison")
    judge(world, "changes", Row(DRIFT, "changed_description"), lambda: call(world, name))


def test_a_session_that_the_server_forgot_is_in_doubt_for_an_effect_and_renewed_once(world: World) -> None:
    row = "web: forgotten session"
    name = world.names[row]
    assert call(world, name)[0] == 200
    world.webs.forgetful.session = "s-2"
    judge(world, row, Row(DOUBT, "session_gone"), lambda: call(world, name))
    assert call(world, name)[0] == 200
    assert world.webs.forgetful.names().count("initialize") == 2
