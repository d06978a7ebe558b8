"""The engine of shared limits, on a real Redis: each `RedisEngine` here stands for a process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from copy import copy
from typing import Any

import pytest

from tests.homes import PATIENCE_S
from tests.powers.limits.server import Redis
from tests.waiting import eventually
from toolgate.errors import StartRefused, StoreUnavailable
from toolgate.model.limits import LimitClaim, Ruling
from toolgate.powers.limits.redis import PREFIX, RedisEngine

CALLER = "k7hq2m4x"
LONG_S, SHORT_S = 60.0, 0.1
STATE = PREFIX + "state"


_made: list[RedisEngine] = []


def engine(
    redis: Redis, *, per_caller: int = 3, per_minute: int = 0, lease_s: float = LONG_S, more: str = ""
) -> RedisEngine:
    _made.append(RedisEngine(redis.url + more, per_caller=per_caller, per_minute=per_minute, lease_s=lease_s))
    return _made[-1]


async def joined(redis: Redis, **more: Any) -> RedisEngine:
    made = engine(redis, **more)
    assert (await made.join([], again=False)).refuse_s == 0
    return made


async def claim(one: RedisEngine, running: int, to_hold: int = 0, to_pass: int = 0, caller: str = CALLER) -> Ruling:
    standing, rulings = await one.ask([LimitClaim(caller, running, to_hold, to_pass)])
    assert standing.is_known
    return rulings[0]


def run(work: Coroutine[Any, Any, None]) -> None:
    async def walk() -> None:
        try:
            await asyncio.wait_for(work, 2 * PATIENCE_S)
        finally:
            while _made:
                await _made.pop().close()

    asyncio.run(walk())


def test_processes_together_get_no_more_than_the_limit(redis: Redis) -> None:
    async def walk() -> None:
        one, two = await joined(redis), await joined(redis)
        assert (await claim(one, 0, 2)).held == 2
        assert (await claim(two, 0, 5)).held == 1, "three in all"
        assert (await claim(two, 1, 1)).held == 0
        assert not (await claim(two, 1, to_pass=1)).has_room
        await claim(one, 1)  # one of its calls has ended
        assert (await claim(two, 1, to_pass=1)).has_room, "and who passes takes nothing"
        assert (await claim(two, 1, 2)).held == 1
        assert (await claim(two, 2, 1, caller="another")).held == 1, "each caller has its own"

    run(walk())


def test_a_caller_with_limits_of_its_own_goes_by_them(redis: Redis) -> None:
    async def own(one: RedisEngine, running: int, to_hold: int, slots: int, per_minute: int) -> Ruling:
        _, rulings = await one.ask([LimitClaim("own", running, to_hold, 0, slots, per_minute)])
        return rulings[0]

    async def walk() -> None:
        one, two = await joined(redis, per_minute=60), await joined(redis, per_minute=60)
        assert (await own(one, 0, 5, 1, 60)).held == 1
        assert (await own(two, 0, 5, 1, 60)).held == 0, "over both"
        assert (await own(one, 0, 0, 1, 60)).held == 0
        assert (await own(two, 0, 9, 9, 60)).held == 9, "also above that of all, if it is told so"
        assert (await claim(one, 0, 9)).held == 3, "others have what all have"
        assert (await claim(one, 3, to_pass=99, caller="fast")).in_time == 60
        assert (await own(one, 0, 99, 99, 0)).in_time == 99, "no rate"

    run(walk())


@pytest.mark.parametrize("per_minute", [0, 60])
def test_a_caller_with_a_rate_of_its_own_waits_by_it(redis: Redis, per_minute: int) -> None:
    async def walk() -> None:
        one, two = await joined(redis, per_minute=per_minute), await joined(redis, per_minute=per_minute)
        for each, in_time in ((one, 2), (two, 0)):
            _, rulings = await each.ask([LimitClaim("own", 0, 0, 2, None, 2)])
            assert rulings[0].in_time == in_time
        assert 1 < rulings[0].wait_s <= 30

    run(walk())


def test_the_slots_of_a_process_that_is_gone_come_back_when_its_lease_is_over(redis: Redis) -> None:
    async def walk() -> None:
        gone, left = await joined(redis, lease_s=SHORT_S), await joined(redis)
        assert (await claim(gone, 0, 3)).held == 3

        async def comes_back() -> bool:
            return (await claim(left, 0, 1)).held == 1

        await eventually(comes_back, "a slot")

    run(walk())


def test_a_process_that_leaves_gives_back_at_once(redis: Redis) -> None:
    async def walk() -> None:
        one, two = await joined(redis), await joined(redis)
        assert (await claim(one, 0, 3)).held == 3
        await one.leave()
        assert (await claim(two, 0, 3)).held == 3

    run(walk())


def test_the_first_on_an_empty_engine_waits_for_one_lease(redis: Redis) -> None:
    async def walk() -> None:
        redis.empty()
        one = engine(redis, lease_s=LONG_S)
        assert (await one.join([], again=False)).refuse_s == pytest.approx(LONG_S, abs=1)
        standing, rulings = await one.ask([LimitClaim(CALLER, 0, 1, 1)])
        assert standing.refuse_s > 0
        assert rulings[0] == Ruling(0, 0, has_room=False, wait_s=0.0)
        brief = engine(redis, lease_s=SHORT_S)
        await brief.join([], again=False)

        async def is_over() -> bool:
            return (await brief.ask([]))[0].refuse_s == 0

        await eventually(is_over, "the wait is over")

    run(walk())


def test_an_emptied_engine_lets_nobody_in_before_each_has_said_what_it_runs(redis: Redis) -> None:
    async def walk() -> None:
        one, two = await joined(redis), await joined(redis)
        assert (await claim(one, 0, 3)).held == 3
        redis.empty()
        standing, rulings = await two.ask([LimitClaim(CALLER, 0, 1)])
        assert (standing.is_known, rulings) == (False, [])
        newcomer = engine(redis)
        assert (await newcomer.join([], again=False)).refuse_s > 0
        assert not (await claim(newcomer, 0, 1)).held
        assert (await two.join([], again=True)).refuse_s > 0
        assert (await one.join([LimitClaim(CALLER, 3)], again=True)).refuse_s > 0
        redis.grow_old()  # a lease later
        assert (await claim(two, 0, 1)).held == 0

    run(walk())


def test_an_engine_that_was_started_again_is_not_believed_for_one_lease(redis: Redis) -> None:
    async def walk() -> None:
        one = await joined(redis)
        assert (await claim(one, 0, 1)).held == 1
        redis.command("SAVE")  # what it finds again may be older than this
        redis.kill()
        redis.start()
        try:
            assert any(key.startswith(PREFIX + "s:") for key in redis.names()), "it kept its data"
            assert (await one.join([LimitClaim(CALLER, 1)], again=True)).refuse_s > 0
        finally:
            redis.forget()

    run(walk())


def test_a_process_that_was_away_for_longer_than_its_lease_is_refused_for_one(redis: Redis) -> None:
    async def walk() -> None:
        away, there = await joined(redis, lease_s=SHORT_S), await joined(redis)

        async def is_gone() -> bool:
            return (await there.ask([]))[0].processes == 1

        await eventually(is_gone, "the lease is over")
        assert not (await away.ask([LimitClaim(CALLER, 0, 1)]))[0].is_known
        assert (await away.join([LimitClaim(CALLER, 2)], again=True)).refuse_s == SHORT_S
        assert (await claim(there, 0, 3)).held == 1, "what it still runs counts"

    run(walk())


def test_an_engine_that_stood_still_is_used_again_at_once(redis: Redis) -> None:
    """Longer than a lease: each question that it does not answer takes two."""

    async def walk() -> None:
        one = await joined(redis, lease_s=SHORT_S)
        assert (await claim(one, 0, 3)).held == 3
        with redis.hanging():
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await one.ask([])
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await one.join([LimitClaim(CALLER, 3)], again=True)
        standing = await one.join([LimitClaim(CALLER, 3)], again=True)
        assert (standing.is_known, standing.processes, standing.refuse_s) == (True, 1, 0)

    run(walk())


def test_what_was_asked_on_a_connection_that_was_given_up_changes_nothing(redis: Redis) -> None:
    """All of it arrives when the engine goes on, in whatever order."""

    async def walk() -> None:
        one, two = await joined(redis), await joined(redis)
        assert (await claim(one, 0, 2)).held == 2
        with redis.hanging():
            with pytest.raises(StoreUnavailable):
                await one.ask([LimitClaim(CALLER, 0, 0)])  # would say that nothing runs
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await one.join([LimitClaim(CALLER, 0)], again=True)
        await one.join([LimitClaim(CALLER, 2)], again=True)
        assert (await claim(two, 0, 3)).held == 1
        assert (await two.ask([]))[0].processes == 2

    run(walk())


def test_of_two_connections_of_a_process_only_the_newer_is_heard(redis: Redis) -> None:
    async def walk() -> None:
        one, two = await joined(redis), await joined(redis)
        assert (await claim(one, 0, 3)).held == 3
        before = copy(one)  # as if what it says had been under way all the time
        one._connection = None
        await one.join([LimitClaim(CALLER, 3)], again=True)
        assert not (await before.ask([LimitClaim(CALLER, 0)]))[0].is_known
        await before.leave()
        assert (await claim(two, 0, 1)).held == 0
        assert (await two.ask([]))[0].processes == 2

    run(walk())


def test_after_a_question_without_an_answer_only_joining_helps(redis: Redis) -> None:
    async def walk() -> None:
        one = await joined(redis)
        with redis.hanging(), pytest.raises(StoreUnavailable):
            await one.ask([])
        with pytest.raises(StoreUnavailable, match="not connected"):
            await one.ask([])

    run(walk())


def test_the_rate_is_one_for_all_processes_and_its_burst_is_a_minutes(redis: Redis) -> None:
    async def walk() -> None:
        one, two = [await joined(redis, per_caller=9, per_minute=6) for _ in range(2)]
        assert (await claim(one, 0, 4)).in_time == 4
        told = await claim(two, 0, 1, 3)
        assert (told.in_time, told.held) == (2, 1), "those that want a slot come first"
        assert 0 < told.wait_s <= 10
        assert (await claim(one, 0, to_pass=1)).in_time == 0
        assert (await claim(one, 0, to_pass=1, caller="another")).in_time == 1

    run(walk())


def test_a_rate_does_not_wait_for_longer_than_a_minute_if_the_engines_clock_was_set_back(redis: Redis) -> None:
    async def walk() -> None:
        one = await joined(redis, per_minute=6)
        await claim(one, 0, to_pass=1)
        [key] = [key for key in redis.names() if key.startswith(PREFIX + "r:")]
        redis.command("SET", key, "9e15", "PX", "60000")  # due in a century
        assert 0 < (await claim(one, 0, to_pass=1)).wait_s <= 10

    run(walk())


def test_a_clock_that_was_set_ends_no_lease_and_makes_nobody_wait_for_longer(redis: Redis) -> None:
    async def walk() -> None:
        one, two = await joined(redis), await joined(redis)
        assert (await claim(one, 0, 3)).held == 3
        redis.command("HSET", STATE, "last", "9000000000000000", "since", "9000000000000000")  # it was a century later
        for line in redis.command("HGETALL", STATE).decode().split("\r\n"):
            if line.startswith("p:"):
                redis.command("HSET", STATE, line, "1 9000000000000001")
        standing, _ = await two.ask([])
        assert (standing.is_known, standing.processes) == (True, 2)
        assert 0 < standing.refuse_s <= LONG_S

    run(walk())


def test_everything_in_the_engine_expires_and_names_nobody(redis: Redis) -> None:
    async def walk() -> None:
        one = await joined(redis, per_minute=60)
        await claim(one, 0, 1)
        assert len(redis.names()) == 3
        for key in redis.names():
            assert int(redis.command("PTTL", key)[1:]) > 0, key
            assert CALLER.encode() not in key.encode() + redis.command("DUMP", key)

    run(walk())


@pytest.mark.parametrize("lost", ["SCRIPT FLUSH", "CONFIG SET maxmemory 1"])
def test_an_engine_that_cannot_do_what_it_is_asked_counts_as_gone(redis: Redis, lost: str) -> None:
    async def walk() -> None:
        one = await joined(redis)
        redis.command(*lost.split())
        try:
            with pytest.raises(StoreUnavailable, match="refuses the question"):
                await one.ask([LimitClaim(CALLER, 0, 1)])
        finally:
            redis.command("CONFIG", "SET", "maxmemory", "0")
        await one.join([], again=True)
        assert (await claim(one, 0, 1)).held == 1

    run(walk())


def test_a_refused_password_is_said_and_not_shown(redis: Redis) -> None:
    async def walk() -> None:
        stranger = engine(redis, more="?password=hunter2")
        with pytest.raises(StoreUnavailable, match="password") as said:
            await stranger.join([], again=False)
        assert "hunter2" not in str(said.value)

    run(walk())


@pytest.mark.parametrize("url", ["http://hunter2@h", "hunter2", "redis://h:hunter2/0", "redis://h/0?hunter2=1"])
def test_what_is_no_address_of_an_engine_stops_the_start_and_is_not_repeated(url: str) -> None:
    with pytest.raises(StartRefused, match=r"limits\.url") as said:
        RedisEngine(url, per_caller=1, per_minute=0, lease_s=1)
    assert "hunter2" not in str(said.value)
