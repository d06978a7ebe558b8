"""Connections on which something may be asked: whose they are, and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.upstreams.relay.gates import ERAS, WHOLE, whole
from tests.upstreams.support import PATIENCE_S, alive, all_approved
from tests.waiting import eventually, soon
from toolgate.errors import UpstreamFailed
from toolgate.model.mcpwire import RelayedCall
from toolgate.powers.mcp.children import ChildTransport, Program, environment_for, open_child
from toolgate.powers.mcp.http import Dialer, Endpoint, HttpTransport
from toolgate.powers.mcp.relay import lanes
from toolgate.powers.mcp.upstream import Upstream, UpstreamEvent

YES = {"action": "accept", "content": {"name": "Ada"}}


class Watched:
    """An upstream of the handshake era, the events it caused, and the processes it started: the first is everybody's."""

    def __init__(self) -> None:
        self.events: list[UpstreamEvent] = []
        self.children: list[ChildTransport] = []
        command = (sys.executable, str(WHOLE), ERAS[0], "stdio")
        self._program = Program(command, environment_for({}, os.environ), grace_s=0.3)
        self.upstream = Upstream("up", self._connect, all_approved, on_event=self.events.append)

    async def _connect(self) -> ChildTransport:
        self.children.append(await open_child(self._program))
        return self.children[-1]

    async def ask(self, caller: str = "k1", tool: str = "elicit") -> Any:
        return await self.upstream.request(of(caller, tool), seconds=PATIENCE_S)

    async def answer(self, handle: str, caller: str = "k1", tool: str = "elicit") -> Any:
        return await self.upstream.go_on(of(caller, tool), handle, YES, seconds=PATIENCE_S)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def living(self) -> list[int]:
        return [index for index, child in enumerate(self.children) if alive(child.pid)]


def of(caller: str, tool: str) -> RelayedCall:
    params = {"name": tool, "arguments": {}}
    return RelayedCall(tool, "tools/call", params, capabilities={"elicitation": {}}, caller=caller)


def run(scenario: Callable[[Watched], Awaitable[None]]) -> None:
    async def go() -> None:
        world = Watched()
        try:
            await scenario(world)
        finally:
            await world.upstream.close()
        assert world.living() == []

    asyncio.run(go())


def test_nobody_answers_after_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: Watched) -> None:
        asked = await world.ask()
        assert asked.question.method == "elicitation/create"
        monkeypatch.setattr(lanes, "HELD_S", 0.05)
        late = await world.ask("k2")
        await soon(lambda: "question_unanswered" in world.kinds())
        assert world.events[-1].details == {"tool": "elicit", "method": "elicitation/create"}
        with pytest.raises(UpstreamFailed, match="does not wait") as failed:
            await world.answer(late.handle, "k2")
        assert (failed.value.ending.value, failed.value.reason) == ("in_doubt", "not_waiting")
        await soon(lambda: world.living() == [0, 1])  # its process has gone, the other's has not
        assert (await world.answer(asked.handle)).error is None

    run(scenario)


def test_a_handle_is_worth_nothing_to_another_caller_or_tool() -> None:
    async def scenario(world: Watched) -> None:
        asked = await world.ask()
        for caller, tool in (("k2", "elicit"), ("k1", "press")):
            with pytest.raises(UpstreamFailed, match="does not wait"):
                await world.answer(asked.handle, caller, tool)
        assert (await world.answer(asked.handle)).result["content"]

    run(scenario)


def test_an_answer_to_a_process_that_has_died_is_in_doubt() -> None:
    async def scenario(world: Watched) -> None:
        asked = await world.ask()
        os.kill(world.children[1].pid, signal.SIGKILL)
        await soon(lambda: not world.children[1].open)
        with pytest.raises(UpstreamFailed) as failed:
            await world.answer(asked.handle)
        assert (failed.value.ending.value, failed.value.reason) == ("in_doubt", "connection_lost")
        assert (await world.ask()).question is not None

    run(scenario)


def test_a_lane_is_used_again_by_its_caller_alone() -> None:
    async def scenario(world: Watched) -> None:
        for caller in ("k1", "k1", "k2", "k1"):
            asked = await world.ask(caller)
            await world.answer(asked.handle, caller)
        assert len(world.children) == 3  # everybody's, and one for each caller

    run(scenario)


def test_a_lane_that_nobody_uses_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "REST_S", 0.05)

    async def scenario(world: Watched) -> None:
        asked = await world.ask()
        await world.answer(asked.handle)
        await soon(lambda: world.living() == [0])
        assert (await world.ask()).question is not None

    run(scenario)


def test_a_call_that_is_cancelled_ends_its_lane() -> None:
    async def scenario(world: Watched) -> None:
        await world.ask()
        calling = asyncio.create_task(world.upstream.request(of("k1", "stall"), seconds=PATIENCE_S))
        await soon(lambda: len(world.living()) == 3)
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await soon(lambda: world.living() == [0, 1])

    run(scenario)


def test_a_call_asks_so_often_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MAX_QUESTIONS", 1)

    async def scenario(world: Watched) -> None:
        asked = await world.ask(tool="twice")
        answered = await world.answer(asked.handle, tool="twice")
        assert answered.question is None
        assert "null" in answered.result["content"][0]["text"]  # the second was refused

    run(scenario)


def test_whoever_makes_room_ends_what_rests_and_never_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MAX_LANES", 2)

    async def scenario(world: Watched) -> None:
        first = await world.ask("k1")
        second = await world.ask("k2")
        with pytest.raises(UpstreamFailed) as failed:
            await world.ask("k3")
        assert failed.value.reason == "busy"
        await world.answer(second.handle, "k2")
        assert (await world.ask("k3")).question is not None
        await soon(lambda: world.living() == [0, 1, 3])
        assert (await world.answer(first.handle)).error is None

    run(scenario)


def test_the_children_of_an_upstream_that_is_closed_end_with_it() -> None:
    async def scenario(world: Watched) -> None:
        await world.ask()
        await world.upstream.close()
        assert world.living() == []

    run(scenario)


def test_a_session_that_nobody_needs_is_not_left_at_the_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "REST_S", 0.05)
    with whole(ERAS[0]) as url:

        async def scenario() -> None:
            endpoint = Endpoint(url, private=True)

            async def connect() -> HttpTransport:
                return HttpTransport(endpoint, Dialer(endpoint))

            upstream = Upstream("up", connect, all_approved)

            async def sessions() -> bool:
                call = RelayedCall("sessions", "tools/call", {"name": "sessions", "arguments": {}})
                answered = await upstream.request(call, seconds=PATIENCE_S)
                return bool(answered.result["content"][0]["text"] == "1")

            asked = await upstream.request(of("k1", "elicit"), seconds=PATIENCE_S)
            assert not await sessions()
            await upstream.go_on(of("k1", "elicit"), asked.handle, YES, seconds=PATIENCE_S)
            await eventually(sessions)
            await upstream.close()

        asyncio.run(scenario())
