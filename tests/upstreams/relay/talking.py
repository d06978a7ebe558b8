"""Calls of the whole server's tools that ask something, by clients of either era."""

from __future__ import annotations

from typing import Any

from tests.homes import Home
from tests.offers.client import GREETING, MODERN, Client

ASKING = {"sample": "sampling", "elicit": "elicitation", "roots": "roots"}
METHODS = {"sample": "sampling/createMessage", "elicit": "elicitation/create", "roots": "roots/list"}
ANSWERS: dict[str, Any] = {
    "sample": {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"},
    "elicit": {"action": "accept", "content": {"name": "Ada"}},
    "roots": {"roots": [{"uri": "file:///home"}]},
}
EVERYTHING: dict[str, Any] = {"sampling": {}, "elicitation": {}, "roots": {}}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": f"up_{tool}", "arguments": arguments}


def answering(params: dict[str, Any], asked: dict[str, Any], answer: Any) -> dict[str, Any]:
    """The call that goes on: a client of the modern era makes it itself."""
    (name,) = asked["inputRequests"]
    return {**params, "inputResponses": {name: answer}, "requestState": asked["requestState"]}


def converse(
    client: Client, era: str, params: dict[str, Any], answer: Any, method: str = "tools/call"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what was asked, the result) of a call that asks one thing."""
    if era == MODERN:
        asked = client.ask_modern(method, dict(params), **EVERYTHING)["result"]
        assert asked.get("resultType") == "input_required", asked
        (question,) = asked["inputRequests"].values()
        return question, client.ask_modern(method, answering(params, asked, answer), **EVERYTHING)["result"]
    client.ask("initialize", {**GREETING, "capabilities": EVERYTHING})
    with client.calling(method, params) as heard:
        question = next(heard)
        client.respond(question["id"], answer)
        return question, next(heard)["result"]


def refused_questions(home: Home) -> list[tuple[str, str, str]]:
    """(tool, method, reason) of each that the log has."""
    acts = [each["about"] for each in home.records() if each.get("act") == "upstream.question_refused"]
    return [(about["tool"], about["method"], about["reason"]) for about in acts]
