"""Every feature of the protocol, for clients of each era in front of upstreams of each era: it passes, or the answer says which
side lacks what. Prompts, resources, completion and subscriptions are in `test_offers.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.offers.client import GREETING, Client
from tests.upstreams.homes import adopting_home
from tests.upstreams.relay.gates import ERAS, Gate, whole

HANDSHAKE, MODERN = ERAS
ASKING = {"sample": "sampling", "elicit": "elicitation", "roots": "roots"}
ANSWERS: dict[str, Any] = {
    "sample": {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"},
    "elicit": {"action": "accept", "content": {"name": "Ada"}},
    "roots": {"roots": [{"uri": "file:///home"}]},
}
EVERYTHING = {"sampling": {}, "elicitation": {}, "roots": {}}


class EraGate(Gate):
    upstream: str = ""


@pytest.fixture(scope="module", params=ERAS)
def gate(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EraGate]:
    asks = {f"up_{tool}": [capability] for tool, capability in ASKING.items()} | {"up_pry": ["elicitation"]}
    with whole(request.param) as url:
        home = adopting_home(tmp_path_factory.mktemp("eras") / "home", {"up": {"url": url}}, asks=asks)
        with home.serving() as server:
            made = EraGate(home, server)
            made.upstream = request.param
            yield made


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": f"up_{tool}", "arguments": arguments}


def called(gate: EraGate, era: str, tool: str, **meta: Any) -> dict[str, Any]:
    """The answer, with `notes`: what came before it."""
    params = {**call(tool), "_meta": meta}
    return (
        gate.client().ask_modern("tools/call", params)
        if era == MODERN
        else gate.client().greet().ask("tools/call", params)
    )


@pytest.mark.parametrize("era", ERAS)
def test_steps_of_a_call_reach_its_client(gate: EraGate, era: str) -> None:
    answer = called(gate, era, "steps", progressToken="t")
    steps = [each["params"] for each in answer["notes"]]
    assert [(each["progressToken"], each["progress"]) for each in steps] == [("t", 1), ("t", 2)]
    assert answer["result"]["content"][0]["text"] == "stepped"


@pytest.mark.parametrize("era", ERAS)
def test_what_is_logged_on_the_way_reaches_who_wants_to_read_it(gate: EraGate, era: str) -> None:
    level = {"io.modelcontextprotocol/logLevel": "info"} if era == MODERN else {}
    notes = called(gate, era, "logs", **level)["notes"]
    assert [each["params"]["data"] for each in notes] == ["said info", "said error"]


def test_a_modern_client_that_does_not_ask_for_logs_gets_none(gate: EraGate) -> None:
    assert "notes" not in called(gate, MODERN, "logs")


@pytest.mark.parametrize("tool", ASKING)
@pytest.mark.parametrize("era", ERAS)
def test_a_question_to_the_client_is_relayed_or_refused_by_name(gate: EraGate, era: str, tool: str) -> None:
    if era == MODERN and gate.upstream == MODERN:
        asked = gate.client().ask_modern("tools/call", call(tool), **EVERYTHING)["result"]
        assert asked["resultType"] == "input_required"
        record = gate.home.calls()[-1]
        assert (record["asked"], record["upstream"]) == ([asked["inputRequests"]["it"]["method"]], "up")
        again = {**call(tool), "inputResponses": {"it": ANSWERS[tool]}, "requestState": asked["requestState"]}
        answer = gate.client().ask_modern("tools/call", again, **EVERYTHING)["result"]
        assert json.loads(answer["content"][0]["text"]) == ANSWERS[tool]
        return
    if era == MODERN:
        result = gate.client().ask_modern("tools/call", call(tool), **EVERYTHING)["result"]
        said = (
            f"the client cannot do {ASKING[tool]}"  # of that era no connection declares what one caller of many can do
        )
    else:
        result = gate.client().greet().ask("tools/call", call(tool))["result"]
        said = (
            f"needs {ASKING[tool]}: the client must declare it" if gate.upstream == MODERN else "the client cannot do"
        )
    assert result["isError"] is True
    assert said in result["content"][0]["text"]


modern_upstream = pytest.mark.parametrize("gate", [MODERN], indirect=True)


@modern_upstream
@pytest.mark.parametrize("tool", ASKING)
def test_a_client_of_the_handshake_era_is_asked_on_the_stream_of_its_call(gate: EraGate, tool: str) -> None:
    client = gate.client()
    client.ask("initialize", {**GREETING, "capabilities": EVERYTHING})
    with client.calling("tools/call", call(tool)) as heard:
        asked = next(heard)
        assert asked["method"] == {"sampling": "sampling/createMessage", "elicitation": "elicitation/create"}.get(
            ASKING[tool], "roots/list"
        )
        stranger = gate.client("builder")
        stranger.respond(asked["id"], {"action": "accept", "content": {"name": "Mallory"}})
        client.respond(asked["id"], ANSWERS[tool])
        answer = next(heard)
    assert json.loads(answer["result"]["content"][0]["text"]) == ANSWERS[tool]
    rounds = [each for each in gate.home.calls() if each["event"] == "outcome"][-2:]
    assert [each.get("asked") for each in rounds] == [[asked["method"]], None]


@modern_upstream
def test_a_client_that_refuses_to_answer_ends_its_call(gate: EraGate) -> None:
    client = gate.client()
    client.ask("initialize", {**GREETING, "capabilities": EVERYTHING})
    with client.calling("tools/call", call("elicit")) as heard:
        client.respond(next(heard)["id"], None)
        assert "The client refused to answer" in json.dumps(next(heard))


@modern_upstream
def test_a_person_is_told_whose_question_it_is(gate: EraGate) -> None:
    asked = gate.client().ask_modern("tools/call", call("elicit"), **EVERYTHING)["result"]["inputRequests"]["it"]
    assert asked["params"]["message"] == "The server up asks: Your name?"
    sampled = gate.client().ask_modern("tools/call", call("sample"), **EVERYTHING)["result"]["inputRequests"]["it"]
    assert "asked by the MCP server up, not by the user" in sampled["params"]["systemPrompt"]


@modern_upstream
def test_a_form_never_asks_for_a_secret(gate: EraGate) -> None:
    result = gate.client().ask_modern("tools/call", call("pry"), **EVERYTHING)["result"]
    assert result["isError"] is True
    assert "never for a secret" in result["content"][0]["text"]


@modern_upstream
def test_an_upstream_is_told_what_the_client_declares_and_no_more(gate: EraGate) -> None:
    error = gate.client().ask_modern("tools/call", call("sample"), elicitation={})["error"]
    assert error["code"] == -32021
    assert error["data"]["requiredCapabilities"] == {"sampling": {}}


def test_without_a_word_in_its_row_a_tool_asks_nothing(tmp_path: Any) -> None:
    with whole(MODERN) as url:
        home = adopting_home(tmp_path / "home", {"up": {"url": url}})
        with home.serving() as server:
            client = Client(server.port, home.keys["admin"])
            error = client.ask_modern("tools/call", call("sample"), **EVERYTHING)["error"]
    assert error["code"] == -32021
    assert "row in the policy must allow it (x-asks)" in error["message"]


@modern_upstream
@pytest.mark.parametrize("spoilt", ["a byte", "caller", "tool", "arguments"])
def test_a_state_opens_for_the_call_that_it_was_given_to_alone(gate: EraGate, spoilt: str) -> None:
    state = gate.client().ask_modern("tools/call", call("elicit"), **EVERYTHING)["result"]["requestState"]
    middle = len(state) // 2
    changed = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
    asked = {**call("elicit"), "inputResponses": {"it": ANSWERS["elicit"]}, "requestState": state}
    client = gate.client("builder" if spoilt == "caller" else "admin")
    asked |= {"a byte": {"requestState": changed}, "tool": call("pry"), "arguments": call("elicit", more=1)}.get(
        spoilt, {}
    )
    error = client.ask_modern("tools/call", asked, **EVERYTHING)["error"]
    assert (error["code"], error["data"]["reason"]) == (-32602, "invalid_request_state")
