"""The client over pipes: a real child, well behaved."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.upstreams.support import PATIENCE_S, lines, program, say, stub
from tests.waiting import soon
from toolgate.errors import Ending, UpstreamFailed
from toolgate.powers.mcp.children import open_child
from toolgate.powers.mcp.messages import Progress
from toolgate.powers.mcp.session import greet


@pytest.mark.parametrize(("behaviour", "version"), [("good", "2025-11-25"), ("modern", "2026-07-28")])
def test_a_child_of_either_era_answers(behaviour: str, version: str) -> None:
    async def scenario() -> None:
        line = await open_child(program(behaviour))
        session = await greet(line, seconds=PATIENCE_S)
        assert session.version == version
        answer = await session.request("tools/call", {"name": "echo", "arguments": {"text": "hi"}}, seconds=PATIENCE_S)
        assert answer.raw == b'{"content": [{"type": "text", "text": "hi"}]}'  # with the blanks that the stub wrote
        await line.close()

    asyncio.run(scenario())


def test_two_hundred_calls_use_one_process(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def scenario() -> None:
        async with stub("good", log) as upstream:
            for batch in range(20):
                texts = [f"{batch}-{number}" for number in range(10)]
                assert await asyncio.gather(*(say(upstream, text) for text in texts)) == texts

    asyncio.run(scenario())
    assert len(lines(log, "pid")) == 1
    assert len(lines(log, "call")) == 200


def test_a_server_that_leaves_the_modern_greeting_unanswered_is_greeted_with_the_handshake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolgate.powers.mcp.session.PROBE_S", 0.2)

    async def scenario() -> None:
        async with stub("silent to greetings") as upstream:
            assert await say(upstream) == "hello"

    asyncio.run(scenario())


def test_a_modern_server_that_was_slow_to_start_is_still_found_to_be_modern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.powers.mcp.session.PROBE_S", 0.1)

    async def scenario() -> None:
        line = await open_child(program("slow modern"))
        session = await greet(line, seconds=PATIENCE_S)
        assert session.era == "modern"
        await line.close()

    asyncio.run(scenario())


def test_a_server_that_speaks_only_newer_versions_is_not_asked_in_an_older_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stub("newer", tmp_path / "log") as upstream:
            with pytest.raises(UpstreamFailed) as failed:
                await say(upstream)
        assert (failed.value.ending, failed.value.reason) == (Ending.UPSTREAM_DOWN, "incompatible")

    asyncio.run(scenario())


def test_steps_reach_whoever_asked_for_them() -> None:
    async def scenario() -> None:
        seen: list[Progress] = []
        async with stub("three steps") as upstream:
            await say(upstream, step=seen.append)
        assert [step.done for step in seen] == [1, 1, 1]

    asyncio.run(scenario())


def test_a_cancelled_call_is_cancelled_upstream_and_the_connection_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def scenario() -> None:
        async with stub("no answer", log) as upstream:
            call = asyncio.create_task(say(upstream))
            await soon(lambda: bool(lines(log, "call")))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await soon(lambda: "notifications/cancelled" in lines(log, "note"))
            assert upstream.state == "up"

    asyncio.run(scenario())
    assert len(lines(log, "pid")) == 1


def test_an_upstream_that_asks_us_something_is_told_that_we_offer_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def scenario() -> None:
        async with stub("asks", log) as upstream:
            assert await say(upstream) == "hello"

    asyncio.run(scenario())
    assert lines(log, "reply") == ["-32601"]


def test_the_environment_of_a_child_starts_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")

    async def scenario() -> dict[str, str]:
        async with stub("environment", environment={"TOKEN": "given"}) as upstream:
            found: dict[str, str] = json.loads(await say(upstream))
            return found

    seen = asyncio.run(scenario())
    assert seen["TOKEN"] == "given"
    assert "canary" not in seen.values()
    assert set(seen) <= {"TOKEN", "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"}


def test_more_calls_than_an_upstream_may_have_are_refused_at_once() -> None:
    async def scenario() -> None:
        async with stub("no answer", concurrency=1) as upstream:
            first = asyncio.create_task(say(upstream))
            await asyncio.sleep(0)
            with pytest.raises(UpstreamFailed) as failed:
                await say(upstream)
            assert (failed.value.ending, failed.value.reason) == (Ending.UPSTREAM_DOWN, "busy")
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

    asyncio.run(scenario())
