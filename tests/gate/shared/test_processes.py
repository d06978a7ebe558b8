"""Shared limits among real server processes, which are killed and stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faces import speak
from tests.gate.shared import storm
from tests.homes import PATIENCE_S, Home, Server, environment, make_home
from tests.powers.limits.server import Redis
from tests.waiting import until
from toolgate.errors import ExitCode
from toolgate.powers.limits.redis import PREFIX

LIMIT = 2


@pytest.fixture
def home(tmp_path: Path, redis: Redis) -> Home:
    limits = f'[limits]\nurl = "{redis.url}"\nconcurrency_per_caller = {LIMIT}\nlease_seconds = 1'
    return make_home(tmp_path / "home", packs=("unruly",), settings=limits)


@pytest.fixture
def redis(shared_redis: Redis) -> Redis:
    """Not new, and no more patient than a server is."""
    shared_redis.empty()
    shared_redis.grow_old()
    return shared_redis


class Calls:
    """Calls of one key that run until there is a file `release`, each in a thread of its own."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._threads: list[threading.Thread] = []

    def hold(self, server: Server, count: int, redis: Redis) -> None:
        before = slots(redis)
        for _ in range(count):
            self._threads.append(threading.Thread(target=self._call, args=(server,)))
            self._threads[-1].start()
        until(lambda: slots(redis) == before + count, "they run")

    def _call(self, server: Server) -> None:
        try:
            speak.mrt(server.port, "unruly_hold", {}, self._home.keys["admin"])
        except OSError:
            return  # its server was killed

    def end(self) -> None:
        (self._home.workspace / "release").touch()
        for thread in self._threads:
            thread.join(PATIENCE_S)


def slots(redis: Redis) -> int:
    """Those that some process says it holds, dead or alive."""
    held = [
        redis.command("HVALS", key).decode().split("\r\n") for key in redis.names() if key.startswith(PREFIX + "s:")
    ]
    return sum(int(word) for words in held for word in words if word.isdecimal())


@pytest.fixture
def calls(home: Home) -> Iterator[Calls]:
    made = Calls(home)
    yield made
    made.end()


def status(home: Home, server: Server, role: str = "admin") -> tuple[int | None, str | None]:
    heard = speak.mrt(server.port, "unruly_echo", {}, home.keys[role])
    return heard.status, (heard.body.get("details") or {}).get("reason")


@pytest.mark.guard
def test_answers_to_requests_for_approval_take_slots_and_turns_of_all_servers(tmp_path: Path, redis: Redis) -> None:
    limits = f'[limits]\nurl = "{redis.url}"\nrate_per_minute = 3'
    home = make_home(tmp_path / "home", packs=("unruly",), settings=limits)
    with home.serving() as one, home.serving() as two:
        asked = [
            speak.send(server.port, "/approvals/list", {}, {"x-mcp-api-key": home.keys["admin"]})[0]
            for server in (one, two, one, two)
        ]
    assert asked == [200, 200, 200, 429]


@pytest.mark.guard
def test_the_slots_of_a_killed_server_are_free_when_its_lease_is_over(home: Home, redis: Redis, calls: Calls) -> None:
    with home.serving() as one, home.serving() as two:
        calls.hold(one, LIMIT, redis)
        assert status(home, two)[0] == 429
        one.process.send_signal(signal.SIGKILL)
        one.process.wait(PATIENCE_S)
        until(lambda: status(home, two)[0] == 200, "a slot")


@pytest.mark.guard
def test_a_server_that_stood_still_for_longer_than_its_lease_refuses_for_one(
    home: Home, redis: Redis, calls: Calls
) -> None:
    with home.serving() as one, home.serving() as two:
        calls.hold(one, LIMIT, redis)
        os.kill(one.process.pid, signal.SIGSTOP)
        try:
            until(lambda: status(home, two)[0] == 200, "its slots are free")
        finally:
            os.kill(one.process.pid, signal.SIGCONT)
        until(lambda: status(home, one, "builder") == (503, "limits_recounted"), "it refuses everyone")
        until(lambda: status(home, two)[0] == 429, "what it still runs counts again")
        calls.end()
        until(lambda: status(home, one)[0] == 200, "it lets in again")


@pytest.mark.guard
def test_a_client_is_told_when_to_come_again_on_every_face(home: Home, redis: Redis) -> None:
    with home.serving() as server, redis.hanging():
        until(lambda: status(home, server) == (503, "limits_unreachable"))
        assert speak.mrt(server.port, "unruly_echo", {}, home.keys["admin"]).headers["retry-after"] == "1"
        assert speak.rpc(server.port, "unruly_echo", {}, home.keys["admin"]).status == 503
        assert speak.mcp_modern(server.port, "unruly_echo", {}, home.keys["admin"]).status == 200, "a result (ADR-0022)"


@pytest.mark.guard
def test_the_command_line_shares_the_limits_too(home: Home, redis: Redis, calls: Calls) -> None:
    def exit_code() -> int | None:
        return speak.command_line(home, "unruly_echo", {}, home.keys["admin"]).status

    with home.serving() as server:
        until(lambda: exit_code() == ExitCode.OK, "it is let in")
        calls.hold(server, LIMIT, redis)
        until(lambda: exit_code() == ExitCode.LIMITED, "it is not")


@pytest.mark.guard
def test_a_doctor_says_whether_the_engine_answers(home: Home, redis: Redis) -> None:
    def said() -> bytes:
        command = home.command("doctor", "--port", "0")
        return subprocess.run(command, env=environment(), capture_output=True, timeout=PATIENCE_S, check=False).stdout

    assert b"which answers; 0 processes use it now" in said()
    with redis.hanging():
        assert b"does not answer" in said()


@pytest.mark.guard
def test_never_more_than_the_limit_runs_in_a_storm_and_no_slot_is_lost(tmp_path: Path) -> None:
    seen, trace, slots_left = asyncio.run(storm.run(3, 400, 7, tmp_path))
    assert trace.most <= storm.LIMIT, seen.blows
    assert slots_left == [200] * storm.LIMIT
    assert trace.calls >= 400
