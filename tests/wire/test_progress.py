"""Progress over HTTP: a stream of events, only for a call that asked for it, and never at the price of its status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.homes import Home
from tests.site_packages.wiretest import STEPS
from tests.wire.messages import META, Case, enveloped, new, old, request
from tests.wire.world import Reply, our_stdio, post

PROGRESS: dict[str, Any] = {"name": "wire_progress", "arguments": {"text": "done"}}
AT_ONCE = PROGRESS | {"name": "wire_steps"}
TOKENS: tuple[str | int, ...] = ("p-1", 7, 0, "")


def call(era: str, params: dict[str, Any], token: Any, accept: str = "application/json, text/event-stream") -> Case:
    if era == "modern":
        return new("", enveloped("tools/call", params, META | {"progressToken": token}), {"Accept": accept})
    return old("", request("tools/call", params | {"_meta": {"progressToken": token}}), {"Accept": accept})


@pytest.fixture
def ask(home: Home, ours: str) -> Any:
    def send(case: Case) -> Reply:
        return post(ours, case.body, (*case.headers, ("X-MCP-API-Key", home.keys["builder"])))

    return send


def events(reply: Reply) -> list[Any]:
    frames = reply.body.decode().split("\r\n\r\n")
    assert frames.pop() == ""
    assert all(frame.startswith("event: message\r\ndata: ") for frame in frames)
    return [json.loads(frame.partition("data: ")[2]) for frame in frames]


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("params", [PROGRESS, AT_ONCE], ids=["in a thread", "on the loop"])
def test_every_note_arrives_in_order_and_the_answer_last(ask: Any, era: str, token: str | int, params: Any) -> None:
    for _ in range(5):  # a quick tool may end before its first note is on the way
        reply = ask(call(era, params, token))
        assert (reply.status, reply.media_type) == (200, "text/event-stream")
        *notes, answer = events(reply)
        assert [note["method"] for note in notes] == ["notifications/progress"] * STEPS
        assert [note["params"] for note in notes] == [
            {"progressToken": token, "progress": step, "total": STEPS, "message": f"step {step}"}
            for step in range(1, STEPS + 1)
        ]
        assert answer["id"] == 7
        assert answer["result"]["structuredContent"]["data"] == {"text": "done"}


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_a_client_that_takes_no_stream_gets_the_answer_alone(ask: Any, era: str) -> None:
    reply = ask(call(era, PROGRESS, "p", accept="application/json"))
    assert (reply.status, reply.media_type) == (200, "application/json")
    assert reply.json["result"]["structuredContent"]["data"] == {"text": "done"}


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_a_tool_without_progress_answers_plainly(ask: Any, era: str) -> None:
    reply = ask(call(era, {"name": "wire_echo", "arguments": {"text": "hi"}}, "p"))
    assert (reply.status, reply.media_type) == (200, "application/json")


@pytest.mark.parametrize(
    ("params", "status", "code"),
    [
        ({"name": "nobody", "arguments": {}}, 400, -32602),
        ({"name": "wire_echo", "arguments": []}, 400, -32602),
    ],
)
def test_a_refusal_keeps_its_status(ask: Any, params: dict[str, Any], status: int, code: int) -> None:
    reply = ask(call("modern", params, "p"))
    assert (reply.status, reply.json["error"]["code"]) == (status, code)


@pytest.mark.parametrize("token", [None, True, 1.5, {}, []])
def test_what_is_no_token_asks_for_no_stream(ask: Any, token: Any) -> None:
    reply = ask(call("handshake", PROGRESS, token))
    assert reply.media_type == "application/json"


@pytest.mark.parametrize("params", [PROGRESS, AT_ONCE], ids=["in a thread", "on the loop"])
def test_on_a_pipe_too_the_notes_come_before_the_answer(home: Home, params: Any) -> None:
    peer = our_stdio(home)
    try:
        for token in TOKENS:
            peer.send(call("modern", params, token).body)
            heard = [peer.receive() for _ in range(STEPS + 1)]
            assert [note["params"]["progress"] for note in heard[:STEPS]] == list(range(1, STEPS + 1))
            assert {note["params"]["progressToken"] for note in heard[:STEPS]} == {token}
            assert heard[STEPS]["result"]["structuredContent"]["data"] == {"text": "done"}
    finally:
        assert peer.close() == 0
