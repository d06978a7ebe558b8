"""Questions to clients of the handshake era in the middle of their calls, over HTTP and over a pipe: answered, late or stolen."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.offers.client import GREETING
from tests.offers.conftest import World
from tests.offers.test_streams import piped
from tests.waiting import until
from toolgate.errors import Refusal
from toolgate.gate.sessions import back_channel
from toolgate.gate.sessions.back_channel import MAX_WAITING, BackChannel, give_up
from toolgate.model.call import Caller
from toolgate.model.clock import RandomIds

ALICE, MALLORY = Caller("alice", "builder"), Caller("mallory", "admin")
QUESTION = {"it": {"method": "roots/list", "params": {}}}
CALL = {"name": "test_elicitation", "arguments": {"message": "Who?"}}
CAN = {**GREETING, "capabilities": {"elicitation": {}}}
ANSWER = {"action": "accept", "content": {"username": "ada", "email": "a@b"}}


class Wire:
    """What was sent to the client, and what is waited for."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.waits: list[asyncio.Future[Any]] = []

    def ask(self, channel: BackChannel, caller: Caller = ALICE) -> Any:
        return channel.ask(
            caller,
            QUESTION,
            lambda number, request: json.dumps({"id": number, **request}).encode(),
            lambda data: self.sent.append(json.loads(data)),
            self.waits.append,
        )


def test_only_the_key_that_was_asked_can_answer_and_only_once() -> None:
    async def scenario() -> None:
        channel, wire = BackChannel(RandomIds()), Wire()
        asking = asyncio.ensure_future(wire.ask(channel))
        await asyncio.sleep(0)
        (number,) = [each["id"] for each in wire.sent]
        channel.deliver(MALLORY, {"id": number, "result": {"roots": ["stolen"]}})
        channel.deliver(ALICE, {"id": "another", "result": {}})
        assert not wire.waits[0].done()
        channel.deliver(ALICE, {"id": number, "result": {"roots": []}})
        channel.deliver(ALICE, {"id": number, "result": {"roots": ["again"]}})
        assert await asking == {"it": {"roots": []}}
        assert channel.waiting() == 0

    asyncio.run(scenario())


def test_who_leaves_or_takes_too_long_ends_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        channel, wire = BackChannel(RandomIds()), Wire()
        asking = asyncio.ensure_future(wire.ask(channel))
        await asyncio.sleep(0)
        give_up(wire.waits[0])
        with pytest.raises(Refusal, match="did not answer in time"):
            await asking
        monkeypatch.setattr(back_channel, "WAIT_S", 0.0)
        with pytest.raises(Refusal, match="did not answer in time"):
            await wire.ask(channel)
        assert channel.waiting() == 0

    asyncio.run(scenario())


def test_one_key_has_only_so_many_questions_open() -> None:
    async def scenario() -> None:
        channel, wire = BackChannel(RandomIds()), Wire()
        asking = [asyncio.ensure_future(wire.ask(channel)) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match=f"{MAX_WAITING} questions"):
            await wire.ask(channel)
        other = asyncio.ensure_future(wire.ask(channel, MALLORY))
        await asyncio.sleep(0)
        assert channel.waiting() == MAX_WAITING + 1
        for each in (*asking, other):
            each.cancel()
        await asyncio.gather(*asking, other, return_exceptions=True)
        assert channel.waiting() == 0

    asyncio.run(scenario())


def test_a_tool_of_ours_asks_over_a_pipe(world: World) -> None:
    with piped(world.home, "admin") as pipe:
        pipe.say("initialize", CAN)
        pipe.hear()
        pipe.say("tools/call", CALL)
        asked = pipe.hear()
        assert (asked["method"], asked["params"]["message"]) == ("elicitation/create", "Who?")
        pipe.respond(asked["id"], ANSWER)
        assert "action=accept" in pipe.hear()["result"]["content"][0]["text"]


def test_a_client_that_declares_nothing_is_not_asked(world: World) -> None:
    said = world.client().greet().ask("tools/call", CALL)["result"]
    assert said["isError"] is True
    assert "must declare elicitation" in said["content"][0]["text"]


def test_a_client_that_leaves_its_question_leaves_a_record(world: World) -> None:
    client = world.client()
    client.ask("initialize", CAN)
    with client.calling("tools/call", CALL) as heard:
        assert next(heard)["method"] == "elicitation/create"
    until(lambda: any((each["error"] or {}).get("reason") == "client_refused" for each in world.home.calls()))
