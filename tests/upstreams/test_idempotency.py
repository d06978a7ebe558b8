"""A repeated call of an adopted tool reaches its upstream once: after a dropped answer, from another process, after a kill."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server
from tests.powers.sql.postgres import shared_postgres
from tests.upstreams.homes import FACES, Swapping, adopting_home, ask
from tests.upstreams.support import lines
from tests.waiting import until

pytestmark = pytest.mark.guard


class World:
    """One home, two servers of it, and an upstream that counts."""

    def __init__(self, path: Path, settings: str) -> None:
        self.swapping = Swapping(path)
        self.home: Home = adopting_home(path / "home", {"stub": self.swapping.table()}, settings=settings)
        self.swapping.log.unlink()
        self._release = Path(f"{self.swapping.log}.release")
        self.swapping.behave("held")

    def release(self) -> None:
        self._release.touch()

    def hold(self) -> None:
        self._release.unlink(missing_ok=True)

    def reached(self) -> int:
        return len(lines(self.swapping.log, "call"))

    def headers(self, once: str) -> dict[str, str]:
        key = self.home.keys["admin"]
        return {"content-type": "application/json", "authorization": f"Bearer {key}", "Idempotency-Key": once}

    def ask(self, server: Server, once: str, text: str = "x") -> tuple[int, dict[str, Any]]:
        message = {"tool": "stub_echo", "args": {"text": text}}
        status, _, body = speak.send(server.port, "/mrt_dispatch", message, self.headers(once))
        return status, body

    def drop(self, server: Server, once: str, before: int) -> None:
        """Send a call, and go away once it has reached the upstream."""
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        body = json.dumps({"tool": "stub_echo", "args": {"text": "x"}})
        connection.request("POST", "/mrt_dispatch", body, self.headers(once))
        until(lambda: self.reached() == before + 1, "the call reaches the upstream")
        connection.close()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    url = shared_postgres().new_database() if request.param == "postgres" else ""
    settings = f"[idempotency]\nurl = {json.dumps(url)}\n" if url else ""
    return World(tmp_path_factory.mktemp("once"), settings)


@pytest.fixture(scope="module")
def servers(world: World) -> Iterator[tuple[Server, Server]]:
    with ExitStack() as stack:
        yield stack.enter_context(world.home.serving()), stack.enter_context(world.home.serving())


def answered(world: World, server: Server, once: str) -> dict[str, Any]:
    """The answer, as soon as the first call is no longer under way."""

    def asked() -> dict[str, Any] | None:
        status, body = world.ask(server, once)
        return None if (status, body.get("error_code")) == (409, "idempotency_key_busy") else body

    found = until(asked, "the first call ends")
    assert found is not None
    return found


def test_after_a_dropped_answer_the_retry_gets_it_from_either_process(
    world: World, servers: tuple[Server, Server]
) -> None:
    before = world.reached()
    world.hold()
    world.drop(servers[0], "dropped", before)
    status, body = world.ask(servers[1], "dropped")
    assert (status, body["error_code"]) == (409, "idempotency_key_busy"), "the other process knows that it is under way"
    world.release()
    for server in servers:
        body = answered(world, server, "dropped")
        assert body["envelope"]["data"]["content"] == [{"type": "text", "text": "x"}]
        assert body["audit"]["repeats"]
    assert world.reached() == before + 1
    assert world.ask(servers[1], "dropped", "y")[1]["error_code"] == "idempotency_key_reused"
    assert world.reached() == before + 1


def test_of_calls_at_once_to_both_processes_one_reaches_the_upstream(
    world: World, servers: tuple[Server, Server]
) -> None:
    before = world.reached()
    world.release()
    heard: list[tuple[int, dict[str, Any]]] = []
    threads = [
        threading.Thread(target=lambda server=server: heard.append(world.ask(server, "at-once")))
        for server in servers * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(heard) == len(threads)
    assert {status for status, _ in heard} <= {200, 409}
    assert "envelope" in answered(world, servers[0], "at-once")
    assert world.reached() == before + 1


def test_after_a_kill_the_retry_says_that_the_call_is_in_doubt(world: World, servers: tuple[Server, Server]) -> None:
    before = world.reached()
    world.hold()
    with world.home.serving() as killed:
        connection = http.client.HTTPConnection("127.0.0.1", killed.port, timeout=PATIENCE_S)
        body = json.dumps({"tool": "stub_echo", "args": {"text": "x"}})
        connection.request("POST", "/mrt_dispatch", body, world.headers("killed"))
        until(lambda: world.reached() == before + 1, "the call reaches the upstream")
        killed.process.kill()
        killed.process.wait(PATIENCE_S)
        connection.close()
    world.release()
    for server in servers:
        status, told = world.ask(server, "killed")
        assert (status, told["error_code"], told["details"]["reason"]) == (504, "in_doubt", "first_call_in_doubt")
    with world.home.serving() as restarted:
        assert world.ask(restarted, "killed")[0] == 504
    assert world.reached() == before + 1


def test_each_repeat_is_in_the_log_and_names_the_first(world: World, servers: tuple[Server, Server]) -> None:
    world.release()
    _, first = world.ask(servers[0], "recorded")
    _, again = world.ask(servers[1], "recorded")
    request_id = first["envelope"]["requestId"]
    assert again["audit"]["repeats"] == request_id
    records = {record["seq"]: record for record in world.home.calls() if record["run"] == again["audit"]["run"]}
    record = records[again["audit"]["seq"]]
    assert (record["repeats"], record["status"]) == (request_id, "ok")
    assert record["requestId"] == again["envelope"]["requestId"] != request_id


SPELT = {
    "mrt": (lambda body: body["error_code"], str.lower),
    "rpc": (lambda body: body["error"]["data"]["canonical_code"], str),
    "mcp modern": (lambda body: body["result"]["_meta"]["toolgate/envelope"]["code"], str),
    "mcp handshake": (lambda body: body["result"]["_meta"]["toolgate/envelope"]["code"], str),
}


def test_both_refusals_are_spelt_on_every_face(world: World, servers: tuple[Server, Server]) -> None:
    before = world.reached()
    world.hold()
    world.drop(servers[0], "spelt", before)
    for verdict, status, text in (("IDEMPOTENCY_KEY_BUSY", 409, "x"), ("IDEMPOTENCY_KEY_REUSED", 422, "y")):
        for face in FACES:
            key = world.home.keys["admin"]
            found, body = ask(face, servers[1].port, ("stub", "echo"), {"text": text}, key, "spelt")
            code_of, spell = SPELT[face]
            assert (found, code_of(body)) == (200 if "mcp" in face else status, spell(verdict))
    world.release()
    assert "envelope" in answered(world, servers[1], "spelt")
    assert world.reached() == before + 1
