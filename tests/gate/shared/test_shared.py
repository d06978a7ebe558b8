"""Shared limits on the road: whole compositions that ask one real Redis, each as good as a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.gate.conftest import Gate
from tests.homes import PATIENCE_S, Home, make_home
from tests.powers.limits.server import Redis
from tests.waiting import eventually, soon
from toolgate.errors import Ending, SettingsError, StartRefused
from toolgate.model.call import CallerBounds
from toolgate.model.envelope import Answer
from toolgate.powers.limits.redis import PREFIX

LIMIT = 4
HOLD = "unruly_hold"
"""Runs until there is a file `release`."""
INLINE = "unruly_echo"
OTHER = "unruly_powers_read"


class Servers:
    """Compositions of one home in this process; `settings` are those of `[limits]`."""

    def __init__(self, path: Path, redis: Redis, settings: str) -> None:
        limits = f'[limits]\nurl = "{redis.url}"\nconcurrency_per_caller = {LIMIT}\n{settings}'
        self.home = make_home(path, packs=("unruly",), settings=limits)
        self.gates: list[Gate] = []

    async def start(self, *, is_ready: bool = True) -> Gate:
        gate = Gate(self.home, self.home.app(), asyncio.get_running_loop())
        self.gates.append(gate)
        await gate.app.start_services()
        if is_ready:
            await soon(lambda: gate.app.limits_fault() is None, "calls are let in")
        return gate

    def release(self) -> None:
        (self.home.workspace / "release").touch()


Walk = Callable[[Servers], Coroutine[Any, Any, None]]


@pytest.fixture
def walk(tmp_path: Path, redis: Redis) -> Callable[[Walk, str], None]:
    def run(work: Walk, settings: str = "", *, lease_s: int = 60) -> None:
        servers = Servers(tmp_path / "home", redis, f"{settings}\nlease_seconds = {lease_s}")

        async def bounded() -> None:
            try:
                async with asyncio.timeout(2 * PATIENCE_S):
                    await work(servers)
            finally:
                servers.release()
                for gate in servers.gates:
                    await gate.app.close()

        asyncio.run(bounded())

    return run


def holding(gate: Gate, count: int) -> list[asyncio.Task[Answer]]:
    return [asyncio.create_task(gate.acall(HOLD)) for _ in range(count)]


def inside(*gates: Gate) -> int:
    """Calls whose handler has been started."""
    return sum(ticket.execution is not None for gate in gates for ticket in gate.app.road.under_way)


async def hold(gate: Gate, count: int) -> list[asyncio.Task[Answer]]:
    before = inside(gate)
    tasks = holding(gate, count)
    await soon(lambda: inside(gate) == before + count, "they run")
    return tasks


async def gone(gate: Gate) -> None:
    await soon(lambda: gate.app.limits_fault() is not None, "the engine counts as gone")


async def back(*gates: Gate) -> None:
    await soon(lambda: not any(gate.app.limits_fault() for gate in gates), "calls are let in")


def said(answer: Answer) -> tuple[Ending, str | None]:
    return answer.ending, (answer.details or {}).get("reason")


UNREACHABLE = (Ending.UNAVAILABLE, "limits_unreachable")
RECOUNTED = (Ending.UNAVAILABLE, "limits_recounted")
TOO_MANY = (Ending.TOO_MANY, None)
OK = (Ending.OK, None)


def test_two_servers_run_no_more_calls_of_a_key_than_one(walk: Any, redis: Redis) -> None:
    async def work(servers: Servers) -> None:
        one, two = await servers.start(), await servers.start()
        held = await hold(one, LIMIT - 1) + await hold(two, 1)
        assert {said(answer) for answer in await asyncio.gather(*holding(one, 3), *holding(two, 3))} == {TOO_MANY}
        assert said(await two.acall(INLINE)) == TOO_MANY, "also a call that would hold none"
        assert said(await two.acall(OTHER, key="builder")) == OK, "another key has its own"
        servers.release()
        assert {said(answer) for answer in await asyncio.gather(*held)} == {OK}
        assert one.app.road.admission.slots.held() == two.app.road.admission.slots.held() == 0
        await soon(lambda: redis.names() == [PREFIX + "state"], "every slot is given back")
        assert said(await two.acall(INLINE)) == OK

    walk(work)


def test_two_servers_let_calls_through_no_faster_than_one(walk: Any) -> None:
    async def work(servers: Servers) -> None:
        one, two = await servers.start(), await servers.start()
        answers = await asyncio.gather(*[gate.acall(INLINE) for gate in (one, two) for _ in range(5)])
        assert [answer.ending for answer in answers].count(Ending.OK) == 6
        refused = [answer for answer in answers if answer.ending is Ending.TOO_FAST]
        assert len(refused) == 4
        assert all(1 <= (answer.retry_after_s or 0) <= 11 for answer in refused)

    walk(work, "rate_per_minute = 6")


def test_two_servers_go_by_a_keys_own_limits(walk: Any) -> None:
    async def work(servers: Servers) -> None:
        one, two = await servers.start(), await servers.start()
        ring = servers.home.ring()
        _, few = ring.create("admin", bounds=CallerBounds(concurrency=1))
        _, slow = ring.create("admin", bounds=CallerBounds(per_minute=3))
        task = asyncio.create_task(one.acall(HOLD, key=few))
        await soon(lambda: inside(one) == 1, "it runs")
        refused = await two.acall(OTHER, key=few)
        assert said(refused) == TOO_MANY
        assert refused.text is not None
        assert refused.text.startswith("1 calls of this key")
        answers = await asyncio.gather(*[gate.acall(INLINE, key=slow) for gate in (one, two) for _ in range(4)])
        assert [answer.ending for answer in answers].count(Ending.OK) == 3
        assert {answer.ending for answer in answers} == {Ending.OK, Ending.TOO_FAST}
        assert said(await two.acall(OTHER)) == OK, "others have what all have"
        servers.release()
        assert said(await task) == OK

    walk(work)


def test_a_share_of_a_keys_own_limit_is_a_share_of_that(walk: Any, redis: Redis) -> None:
    async def work(servers: Servers) -> None:
        one, two = await servers.start(), await servers.start()
        await until_seen(one, two)
        _, few = servers.home.ring().create("admin", bounds=CallerBounds(concurrency=1))
        with redis.hanging():
            await gone_by_asking(one)
            assert said(await one.acall(OTHER, key=few)) == UNREACHABLE, "one divided by two is none"
            assert said(await one.acall(OTHER)) == OK

    walk(work, 'concurrency_when_unreachable = "share"')


async def gone_by_asking(gate: Gate) -> None:
    await gate.acall(OTHER)
    await gone(gate)


def test_calls_of_one_moment_travel_together(walk: Any, redis: Redis) -> None:
    async def work(servers: Servers) -> None:
        one = await servers.start()
        redis.command("CONFIG", "RESETSTAT")
        answers = await asyncio.gather(*[one.acall(INLINE) for _ in range(200)])
        assert {said(answer) for answer in answers} == {OK}
        asked = int(redis.command("INFO", "commandstats").decode().split("cmdstat_evalsha:calls=")[1].split(",")[0])
        assert asked <= 20

    walk(work)


@pytest.mark.parametrize("tool", [INLINE, OTHER])
def test_an_engine_that_hangs_lets_nobody_in_and_is_used_again_when_it_goes_on(
    walk: Any, redis: Redis, tool: str
) -> None:
    async def work(servers: Servers) -> None:
        one = await servers.start()
        await hold(one, 1)
        with redis.hanging():
            answers = await asyncio.gather(*[one.acall(tool) for _ in range(LIMIT - 1)])
            assert {said(answer) for answer in answers} == {UNREACHABLE}
            assert {answer.retry_after_s for answer in answers} == {1}
            await gone(one)
            assert said(await one.acall(tool)) == UNREACHABLE
            assert (await one.app.ready())["limits"] is False
            assert one.app.road.admission.slots.held() == 1
        await back(one)
        assert said(await one.acall(tool)) == OK
        assert (await one.app.ready())["limits"] is True

    walk(work)


def test_calls_that_run_while_the_engine_is_gone_count_when_it_is_back(walk: Any, redis: Redis) -> None:
    async def work(servers: Servers) -> None:
        one, two = await servers.start(), await servers.start()
        await hold(one, LIMIT)
        with redis.hanging():
            assert said(await two.acall(OTHER)) == UNREACHABLE
            await gone(two)
        await back(one, two)
        assert said(await two.acall(OTHER)) == TOO_MANY

    walk(work)


def test_an_emptied_engine_lets_nobody_in_until_every_running_call_is_counted_again(walk: Any, redis: Redis) -> None:
    async def work(servers: Servers) -> None:
        one, two = await servers.start(), await servers.start()
        await hold(one, LIMIT)
        redis.empty()
        assert said(await two.acall(OTHER)) == RECOUNTED
        await gone(one)
        await back(one, two)
        assert said(await two.acall(OTHER)) == TOO_MANY
        servers.release()
        await soon(lambda: not inside(one), "they end")
        await eventually(lambda: is_let_in(two), "a slot")

    walk(work, lease_s=1)


async def is_let_in(gate: Gate) -> bool:
    return (await gate.acall(OTHER)).ending is Ending.OK


def test_a_server_that_starts_without_its_engine_says_so_and_refuses(walk: Any, redis: Redis) -> None:
    async def work(servers: Servers) -> None:
        redis.kill()
        try:
            one = await servers.start(is_ready=False)
            assert "cannot be reached" in (one.app.limits_fault() or "")
            assert said(await one.acall(INLINE)) == UNREACHABLE, "nobody was seen to share with"
        finally:
            redis.start()
        await soon(lambda: one.app.limits_fault() is None, "it is found")
        assert said(await one.acall(INLINE)) == OK

    walk(work, 'concurrency_when_unreachable = "share"', lease_s=1)


def test_a_share_is_the_limit_divided_among_those_who_were_there(walk: Any, redis: Redis) -> None:
    async def work(servers: Servers) -> None:
        one, two = await servers.start(), await servers.start()
        await until_seen(one, two)
        with redis.hanging():
            for gate in (one, two):
                await hold(gate, LIMIT // 2)
                await gone(gate)
                assert said(await gate.acall(OTHER)) == TOO_MANY
        await back(one, two)
        assert said(await one.acall(OTHER)) == TOO_MANY, "what ran on a share counts"

    walk(work, 'concurrency_when_unreachable = "share"')


async def until_seen(*gates: Gate) -> None:
    """Each has asked since the last one came."""
    for gate in gates:
        assert said(await gate.acall(INLINE)) == OK


def test_a_share_of_the_rate_has_no_burst(walk: Any, redis: Redis) -> None:
    async def work(servers: Servers) -> None:
        one = await servers.start()
        with redis.hanging():
            answers = await asyncio.gather(*[one.acall(INLINE) for _ in range(3)])
        assert sorted(answer.ending for answer in answers) == [Ending.OK, Ending.TOO_FAST, Ending.TOO_FAST]

    share = 'concurrency_when_unreachable = "share"\nrate_when_unreachable = "share"'
    walk(work, f"{share}\nrate_per_minute = 60")


def test_one_limit_that_refuses_is_enough(walk: Any, redis: Redis) -> None:
    async def work(servers: Servers) -> None:
        one = await servers.start()
        with redis.hanging():
            assert said(await one.acall(INLINE)) == UNREACHABLE

    walk(work, 'concurrency_when_unreachable = "share"\nrate_per_minute = 60')


def test_a_caller_that_leaves_while_it_waits_takes_no_slot(walk: Any, redis: Redis) -> None:
    async def work(servers: Servers) -> None:
        one = await servers.start()
        with redis.hanging():
            waiting = holding(one, LIMIT)
            await soon(lambda: len(one.app.road.under_way) == LIMIT, "they wait")
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert one.app.road.admission.slots.held() == 0
            await gone(one)
        await back(one)
        await hold(one, LIMIT)

    walk(work)


def test_what_was_refused_has_its_record_and_so_has_the_engines_absence(walk: Any, redis: Redis) -> None:
    async def work(servers: Servers) -> None:
        one = await servers.start()
        with redis.hanging():
            await one.acall(OTHER)
            await gone(one)
        await back(one)
        records = servers.home.records()
        [refusal] = [record for record in records if (record.get("error") or {}).get("reason") == "limits_unreachable"]
        assert (refusal["event"], refusal["error"]["happening"]) == ("outcome", "unavailable")
        assert [record["act"] for record in records if str(record.get("act")).startswith("limits.")] == [
            "limits.lost",
            "limits.back",
        ]

    walk(work)


def test_nothing_runs_and_no_argument_is_looked_at_while_nobody_is_let_in(walk: Any, redis: Redis) -> None:
    async def work(servers: Servers) -> None:
        one = await servers.start()
        with redis.hanging():
            assert said(await one.acall("unruly_write", {"name": "made"})) == UNREACHABLE
            assert said(await one.acall("unruly_write", {"wrong": 1})) == UNREACHABLE
        assert not (servers.home.workspace / "made").exists()
        assert not [record for record in servers.home.calls() if record["event"] == "intent"]

    walk(work)


def test_without_the_setting_no_engine_is_asked(unshared: Home) -> None:
    app = unshared.app()
    assert app.shared_limits is app.road.admission.shared is None
    assert asyncio.run(app.ready())["limits"] is True
    asyncio.run(app.close())


@pytest.fixture
def unshared(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home", packs=("unruly",))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ('url = "http://hunter2"', "Give redis://"),
        ('url = "redis://h/0?hunter2=1"', "Give redis://"),
        ("lease_seconds = 0.5", "lease_seconds"),
        ('rate_when_unreachable = "allow"', "rate_when_unreachable"),
    ],
)
def test_a_wrong_setting_stops_the_start_and_a_password_is_not_repeated(
    tmp_path: Path, settings: str, fault: str
) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    (home.path / "toolgate.toml").write_text(f'[limits]\n{settings}\n[packs]\nenabled = ["unruly"]\n')
    with pytest.raises((SettingsError, StartRefused), match=fault) as refused:
        home.app()
    assert "hunter2" not in str(refused.value)
