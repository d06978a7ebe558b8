"""Bad upstreams over pipes, one row each: a real process, its verdict, the gate's memory and a neighbour's waiting time."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path

import pytest

from tests.upstreams.support import PATIENCE_S, all_approved, lines, memory_bytes, say, stub
from tests.waiting import PAUSE_S, soon
from toolgate.errors import Ending, UpstreamFailed
from toolgate.kit.pins import Offer
from toolgate.model.mcpwire import RelayedCall
from toolgate.powers.mcp.upstream import UpstreamEvent

DOWN, FAULT, DOUBT = Ending.UPSTREAM_DOWN, Ending.UPSTREAM_FAULT, Ending.IN_DOUBT
MEMORY_BYTES = 64 * 1024 * 1024
"""What the worst of them may add to the gate's own; an answer of 100 MB that was kept would show."""
NEIGHBOUR_CPU_S = 1.0
"""What the gate may compute before a call to another upstream is answered meanwhile. Its own time, in which nobody else on the
machine has a part: alone it takes milliseconds."""

ON_A_CALL: dict[str, tuple[Ending, str]] = {
    "huge answer": (DOUBT, "answer_too_large"),
    "deep answer": (DOUBT, "malformed_json"),
    "duplicate keys": (DOUBT, "malformed_json"),
    "nan": (DOUBT, "malformed_json"),
    "wrong id": (DOUBT, "unasked_answer"),
    "a million steps": (DOUBT, "too_many_notes"),
    "endless line": (DOUBT, "answer_too_large"),
    "not json": (DOUBT, "malformed_json"),
    "die on call": (DOUBT, "connection_lost"),
    "fork and hold": (DOUBT, "connection_lost"),
    "no answer": (DOUBT, "no_answer"),
    "does not read": (DOUBT, "no_answer"),
}
ON_CONNECTING: dict[str, str] = {
    "exit": "connection_lost",
    "answer before the request": "unasked_answer",
    "many tools": "answer_too_large",
    "endless pages": "endless_list",
    "same page": "endless_list",
    "two of one name": "bad_list",
}


async def fails(behaviour: str, log: Path, seconds: float = PATIENCE_S) -> UpstreamFailed:
    """The verdict on the hostile one, while a neighbour is asked a hundred times a second."""
    most_s = 0.0
    gc.collect()
    before = most = memory_bytes()
    async with stub("good") as neighbour, stub(behaviour, log) as upstream:
        await say(neighbour)
        if seconds < PATIENCE_S:
            await upstream._ready(PATIENCE_S)  # only the answer is to be late, not the start of the program
        call = asyncio.create_task(say(upstream, seconds=seconds))
        while not call.done():
            began = time.thread_time()
            await say(neighbour)
            most_s = max(most_s, time.thread_time() - began)
            most = max(most, memory_bytes())
            await asyncio.wait([call], timeout=PAUSE_S)
        with pytest.raises(UpstreamFailed) as failed:
            await call
        if failed.value.ending is DOUBT:
            await soon(lambda: lines(log, "call"), "what was sent arrives")
    assert most_s < NEIGHBOUR_CPU_S
    assert most - before < MEMORY_BYTES
    return failed.value


@pytest.mark.parametrize("behaviour", ON_A_CALL)
def test_a_call_to_a_bad_upstream_ends_in_its_verdict_and_is_sent_once(behaviour: str, tmp_path: Path) -> None:
    ending, reason = ON_A_CALL[behaviour]
    failed = asyncio.run(fails(behaviour, tmp_path / "log", 0.3 if reason == "no_answer" else PATIENCE_S))
    assert (failed.ending, failed.reason) == (ending, reason)
    assert lines(tmp_path / "log", "call") == ["echo"]


@pytest.mark.parametrize("behaviour", ON_CONNECTING)
def test_an_upstream_that_is_bad_before_any_call_gets_none(behaviour: str, tmp_path: Path) -> None:
    failed = asyncio.run(fails(behaviour, tmp_path / "log"))
    assert (failed.ending, failed.reason) == (DOWN, ON_CONNECTING[behaviour])
    assert lines(tmp_path / "log", "call") == []


def test_a_second_answer_ends_the_connection_and_the_first_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stub("two answers", tmp_path / "log") as upstream:
            assert await say(upstream) == "hello"
            await soon(lambda: upstream._session is None or not upstream._session.transport.open)

    asyncio.run(scenario())


def test_a_flood_on_standard_error_is_read_and_kept_to_its_end() -> None:
    async def scenario() -> None:
        async with stub("stderr flood") as upstream:
            before = memory_bytes()
            assert await say(upstream, seconds=PATIENCE_S) == "hello"
            assert memory_bytes() - before < MEMORY_BYTES

    asyncio.run(scenario())


def test_a_program_that_ends_before_it_answers_is_described_with_code_and_last_words() -> None:
    async def scenario() -> str:
        async with stub("exit") as upstream:
            with pytest.raises(UpstreamFailed) as failed:
                await upstream.describe()
            return failed.value.text

    text = asyncio.run(scenario())
    assert "exit code 0" in text
    assert "cannot find its settings" in text


def test_a_tool_that_changes_between_list_and_call_is_refused_after_one_list(tmp_path: Path) -> None:
    log = tmp_path / "log"
    events: list[UpstreamEvent] = []

    def judge(offer: Offer) -> dict[str, str]:
        return {} if offer.tools["echo"]["description"] == "Says what it was told." else {"echo": "description"}

    async def scenario() -> None:
        async with stub("changes", log, judge=judge, events=events) as upstream:
            assert await say(upstream) == "hello"
            await soon(lambda: len(lines(log, "list")) == 2)  # asked, perhaps not yet answered: the call waits
            with pytest.raises(UpstreamFailed) as failed:
                await say(upstream)
            assert (failed.value.ending, failed.value.reason) == (Ending.UPSTREAM_DRIFT, "description")
            other = RelayedCall("other", "tools/call", {"name": "other", "arguments": {}})
            await upstream.request(other, seconds=PATIENCE_S)  # the others go on

    asyncio.run(scenario())
    assert lines(log, "call") == ["echo", "other"]
    assert [event.kind for event in events] == ["up", "drifted"]


def test_a_thousand_changes_a_second_cost_one_list_a_second_or_the_connection(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def scenario() -> None:
        async with stub("change flood", log, judge=all_approved) as upstream:
            answers = [await asyncio.gather(say(upstream), return_exceptions=True) for _ in range(3)]
            assert any(isinstance(answer, UpstreamFailed) for (answer,) in answers)

    asyncio.run(scenario())
    assert len(lines(log, "list")) <= 4
