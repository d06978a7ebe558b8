"""What happens to calls while the engine of shared limits is broken: seen on a real server, and written down by these tests.

`make fail-closed` writes what was seen into `docs/reference/fail-closed.md`; without it the page must say the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from socket import AF_UNIX, SHUT_RDWR, create_server, socket
from threading import Thread

import pytest

from tests.faces import speak
from tests.fail_closed.page import READY, Table, ended, readiness
from tests.homes import Home, Server, make_home
from tests.powers.limits.server import Redis
from tests.waiting import until
from toolgate.errors import VERDICTS, Ending

TABLE = Table("shared-limits")
SLOW_S = 0.5
"""What a slow way to the engine adds to each message: more than a server waits."""


class Way:
    """To a Redis, over TCP and through this process: it can be made slow."""

    def __init__(self, redis: Redis) -> None:
        self._to = redis.url.removeprefix("unix://")
        self._listener = create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self.is_slow = False
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket(AF_UNIX)
            try:
                far.connect(self._to)
            except OSError:
                near.close()
                far.close()
                continue
            for one, other in ((near, far), (far, near)):
                Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket, other: socket) -> None:
        try:
            while piece := one.recv(1 << 16):
                if self.is_slow:
                    time.sleep(SLOW_S)
                other.sendall(piece)
        except OSError:
            return
        finally:
            for end in (one, other):
                with suppress(OSError):
                    end.shutdown(SHUT_RDWR)
                end.close()


class Deployment:
    def __init__(self, folder: Path, redis: Redis, way: Way) -> None:
        self.redis, self.way = redis, way
        settings = f'[limits]\nurl = "{way.url}"\nlease_seconds = 3'
        self.home: Home = make_home(folder, packs=("unruly",), settings=settings)

    @contextmanager
    def down(self) -> Iterator[None]:
        self.redis.kill()
        try:
            yield
        finally:
            self.redis.start()

    @contextmanager
    def emptied(self) -> Iterator[None]:
        self.redis.empty()
        yield

    @contextmanager
    def slow(self) -> Iterator[None]:
        self.way.is_slow = True
        try:
            yield
        finally:
            self.way.is_slow = False

    def hanging(self) -> AbstractContextManager[None]:
        return self.redis.hanging()


FAULTS: dict[str, Callable[[Deployment], AbstractContextManager[None]]] = {
    "Redis is down, and is started again": Deployment.down,
    "Redis hangs": Deployment.hanging,
    "Redis answers slowly": Deployment.slow,
    "Redis is emptied": Deployment.emptied,
}


@pytest.fixture
def deployment(tmp_path: Path, shared_redis: Redis) -> Iterator[Deployment]:
    shared_redis.empty()
    shared_redis.grow_old()
    way = Way(shared_redis)
    yield Deployment(tmp_path / "home", shared_redis, way)
    way.close()


@pytest.mark.guard
@pytest.mark.parametrize("fault", FAULTS)
def test_while_the_engine_is_broken_nothing_runs_and_the_page_says_what_is_seen(
    fault: str, deployment: Deployment
) -> None:
    home = deployment.home
    with home.serving() as server:
        until(lambda: call(home, server) == "OK", "calls are let in")
        with FAULTS[fault](deployment):
            said = until(lambda: refusal(home, server), "calls are refused")
            ready = until(lambda: not is_ready(server) and readiness(server), "it is not ready")
        until(lambda: call(home, server) == "OK", "calls are let in again, without a restart")
        until(lambda: is_ready(server), "it is ready")
    assert not (home.workspace / "made").exists(), "nothing has run"
    assert not [record for record in home.calls() if record["event"] == "intent"]
    acts = [str(record["act"]) for record in home.records() if str(record.get("act")).startswith("limits.")]
    TABLE.hold(fault, f"{said}; nothing runs", ready, seen(acts), "by itself")


def is_ready(server: Server) -> bool:
    return readiness(server) == READY


def call(home: Home, server: Server) -> str:
    """How a call without an effect ended."""
    return ended(home, server, "unruly_echo", {})


def refusal(home: Home, server: Server) -> str | None:
    """What a client is told on two faces about a call with an effect. None: the fault has not been noticed yet."""
    told = call(home, server)
    if told == "OK":
        return None
    effect = speak.mrt(server.port, "unruly_write", {"name": "made"}, home.keys["admin"])
    mcp = speak.mcp_modern(server.port, "unruly_write", {"name": "made"}, home.keys["admin"])
    if effect.status != VERDICTS[Ending.UNAVAILABLE].mrt_status or mcp.envelope is None:
        return None
    return f"{told}, on MCP a result with `isError`" if mcp.envelope["isError"] else None


def seen(acts: list[str]) -> str:
    return "; ".join(f"`{act}`" for act in dict.fromkeys(acts)) + " in the audit log" if acts else "only that"


def test_the_page_has_a_row_for_each_fault_and_no_other() -> None:
    assert TABLE.faults() == sorted(FAULTS)
