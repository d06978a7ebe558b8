"""An upstream that fails is left alone, then tried out by one call; and its list is believed for as long as it says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.upstreams.stub import OTHER, TOOL
from tests.upstreams.support import lines, say, stub
from tests.upstreams.web import Asked, Web, http, result, web_upstream
from tests.waiting import soon
from toolgate.errors import Ending, UpstreamFailed
from toolgate.kit.pins import Offer
from toolgate.powers.mcp.health import FAILURES, FIRST_PAUSE_S, LONGEST_PAUSE_S, Health
from toolgate.powers.mcp.upstream import Upstream


class Now:
    def __init__(self) -> None:
        self.moment = 0.0

    def __call__(self) -> float:
        return self.moment


def opened(now: Now) -> Health:
    """After as many failed calls as it takes, and their pause: half open."""
    health = Health(now)
    for _ in range(FAILURES):
        assert health.wait_s() == 0
        health.call_failed()
    assert health.wait_s() == FIRST_PAUSE_S
    now.moment += FIRST_PAUSE_S
    return health


def test_while_one_call_tries_it_out_all_others_wait() -> None:
    health = opened(Now())
    with health.attempt():
        assert health.wait_s() == health.wait_s() == FIRST_PAUSE_S
        health.succeeded()
    assert (health.wait_s(), health.failing) == (0, False)


def test_a_call_that_fails_again_makes_the_pause_longer_and_no_longer_than_a_minute() -> None:
    now = Now()
    health, pauses = opened(now), []
    for _ in range(10):
        with health.attempt():
            health.call_failed()
        pauses.append(health.wait_s())
        now.moment += health.wait_s()
    assert pauses[:3] == [2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S, 8 * FIRST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S


def test_a_caller_who_leaves_while_trying_it_out_makes_way_for_the_next() -> None:
    health = opened(Now())
    with pytest.raises(asyncio.CancelledError), health.attempt():
        raise asyncio.CancelledError
    assert (health.wait_s(), health.failing) == (0, True)


def test_calls_that_fail_at_the_same_moment_make_one_pause() -> None:
    health = Health(Now())
    for _ in range(4 * FAILURES):
        health.call_failed()
    assert health.wait_s() == FIRST_PAUSE_S


def test_a_connection_says_that_it_is_there_again_and_not_that_calls_succeed() -> None:
    now = Now()
    unreachable, silent = Health(now), opened(now)
    unreachable.connect_failed()
    now.moment += FIRST_PAUSE_S
    for health in (unreachable, silent):
        health.connected()
    assert (unreachable.failing, silent.failing) == (False, True)


async def refused(upstream: Upstream) -> tuple[Ending, str, int | None]:
    with pytest.raises(UpstreamFailed) as failed:
        await say(upstream)
    return failed.value.ending, failed.value.reason, failed.value.retry_after_s


def test_an_upstream_that_failed_several_times_is_tried_out_by_one_call_at_a_time(tmp_path: Path) -> None:
    now, log = Now(), tmp_path / "log"

    async def scenario() -> None:
        async with stub("by text", log, clock=now) as upstream:
            for _ in range(FAILURES):
                with pytest.raises(UpstreamFailed):
                    await say(upstream, "die")
            assert (await refused(upstream))[:2] == (Ending.UPSTREAM_DOWN, "connection_lost")
            now.moment += 2 * FIRST_PAUSE_S
            first = asyncio.create_task(say(upstream, "hold"))
            await soon(lambda: lines(log, "held"))
            for _ in range(3):  # refusing one does not let the next through
                assert await refused(upstream) == (Ending.UPSTREAM_DOWN, "failing", 1)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            assert await say(upstream, "x") == "x"
            assert await asyncio.gather(*(say(upstream, each) for each in "abc")) == ["a", "b", "c"]

    asyncio.run(scenario())
    assert len(lines(log, "call")) == FAILURES + 1 + 4


def test_callers_who_waited_for_one_that_is_back_are_all_served(tmp_path: Path) -> None:
    behaviour = tmp_path / "behaviour"
    behaviour.write_text("exit")
    now = Now()

    async def scenario() -> None:
        async with stub(f"@{behaviour}", tmp_path / "log", clock=now) as upstream:
            assert (await refused(upstream))[0] is Ending.UPSTREAM_DOWN
            behaviour.write_text("good")
            now.moment += 2 * FIRST_PAUSE_S
            assert await asyncio.gather(*(say(upstream, each) for each in "abc")) == ["a", "b", "c"]

    asyncio.run(scenario())


def believing(**said: Any) -> Web:
    """A server that says how long its list may be believed."""

    async def listed(asked: Asked, _: Any) -> bytes | None:
        if asked.name != "tools/list":
            return None
        return http(result(asked, {"tools": web.tools, **said}))

    web = Web(on_any=listed)
    return web


@pytest.mark.parametrize(
    ("said", "believed_s"),
    [(60_000, 60), (0, 5), (-1, 5), (10**12, 3600), (None, 300), ("soon", 300), (True, 300)],
)
def test_a_list_is_believed_for_as_long_as_its_upstream_says_within_bounds(said: Any, believed_s: float) -> None:
    now, web = Now(), believing(ttlMs=said)

    async def scenario() -> None:
        async with web_upstream(web, clock=now) as upstream:
            await say(upstream)
            now.moment += believed_s - 1
            await say(upstream)
            assert web.names().count("tools/list") == 1
            now.moment += 1
            await say(upstream)
            assert web.names().count("tools/list") == 2

    asyncio.run(scenario())


def test_what_changed_without_a_word_is_refused_when_the_lists_time_is_up() -> None:
    now, web = Now(), believing(ttlMs=10_000)

    def judge(offer: Offer) -> Mapping[str, str]:
        return {} if offer.tools["echo"] == TOOL else {"echo": "changed_description"}

    async def scenario() -> None:
        async with web_upstream(web, clock=now, judge=judge) as upstream:
            await say(upstream)
            web.tools = [{**TOOL, "description": "Sends it elsewhere."}, OTHER]
            now.moment += 10
            assert (await refused(upstream))[:2] == (Ending.UPSTREAM_DRIFT, "changed_description")

    asyncio.run(scenario())
    assert web.names().count("tools/call") == 1
