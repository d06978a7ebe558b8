"""Every feature of the protocol, for clients of each era in front of upstreams of each era: it passes, or the answer says which
side lacks what. Prompts, resources, completion and subscriptions are in `test_offers.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.offers.client import GREETING, Client
from tests.upstreams.homes import adopting_home
from tests.upstreams.relay.gates import BOTH, ERAS, WAYS, Gate, upstream, whole
from tests.upstreams.relay.talking import ANSWERS, ASKING, EVERYTHING, METHODS, call, converse, refused_questions
from tests.waiting import until

HANDSHAKE, MODERN = ERAS
UPSTREAMS = [(era, way) for era in (*ERAS, BOTH) for way in WAYS]


class EraGate(Gate):
    upstream: str = ""
    way: str = ""


@pytest.fixture(scope="module", params=UPSTREAMS, ids=" ".join)
def gate(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EraGate]:
    asks = {f"up_{tool}": [capability] for tool, capability in ASKING.items()}
    asks |= {name: ["elicitation"] for name in ("up_pry", "up_press", "up_visit", "prompt:up_consult")}
    with upstream(*request.param) as table:
        home = adopting_home(tmp_path_factory.mktemp("eras") / "home", {"up": table}, asks=asks)
        with home.serving() as server:
            made = EraGate(home, server)
            made.upstream, made.way = request.param
            yield made


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
    notes = called(gate, era, "logs", **level).get("notes", [])
    assert [each["params"]["data"] for each in notes] == ["said info", "said error"]


def test_a_modern_client_that_does_not_ask_for_logs_gets_none(gate: EraGate) -> None:
    assert "notes" not in called(gate, MODERN, "logs")


@pytest.mark.parametrize("tool", ASKING)
@pytest.mark.parametrize("era", ERAS)
def test_a_question_of_an_upstream_reaches_the_client_and_its_answer_the_upstream(
    gate: EraGate, era: str, tool: str
) -> None:
    question, result = converse(gate.client(), era, call(tool), ANSWERS[tool])
    assert question["method"] == METHODS[tool]
    assert json.loads(result["content"][0]["text"]) == ANSWERS[tool]
    rounds = [each for each in gate.home.calls() if each["event"] == "outcome" and each.get("upstream") == "up"][-2:]
    assert [each.get("asked") for each in rounds] == [[question["method"]], None]


@pytest.mark.parametrize("tool", ASKING)
@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_lacks_what_is_asked_is_named(gate: EraGate, era: str, tool: str) -> None:
    if era == MODERN:
        answer = gate.client().ask_modern("tools/call", call(tool))
    else:
        answer = gate.client().greet().ask("tools/call", call(tool))
    words = [f"needs {ASKING[tool]}: the client must declare it", f"the client cannot do {ASKING[tool]}"]
    assert any(each in json.dumps(answer) for each in words)


@pytest.mark.parametrize("era", ERAS)
def test_an_upstream_of_both_eras_is_asked_in_that_of_the_caller(gate: EraGate, era: str) -> None:
    """The tool knows the way of the handshake era only."""
    if gate.upstream == MODERN or (gate.upstream == BOTH and era == MODERN):
        answer = called(gate, era, "press")
        assert "there is no back-channel" in json.dumps(answer)
    else:
        _, result = converse(gate.client(), era, call("press"), ANSWERS["elicit"])
        assert json.loads(result["content"][0]["text"]) == ANSWERS["elicit"]


@pytest.mark.parametrize("era", ERAS)
def test_a_call_that_its_client_gives_up_is_cancelled_at_the_upstream(gate: EraGate, era: str) -> None:
    """Each side in the words of its era: a connection that is closed, or a notification."""

    def stalled() -> list[bool]:
        found: list[bool] = json.loads(called(gate, MODERN, "stalled")["result"]["content"][0]["text"])
        return found

    before = len(stalled())
    client = gate.client()
    with client.giving_up(era, "tools/call", call("stall")):
        until(lambda: len(stalled()) > before, "the call has reached the upstream")
    until(lambda: stalled()[before], "the upstream has heard that it is cancelled")


modern_upstream = pytest.mark.parametrize("gate", [(MODERN, "http")], indirect=True, ids=["modern"])


@modern_upstream
def test_a_client_that_refuses_to_answer_ends_its_call(gate: EraGate) -> None:
    client = gate.client()
    client.ask("initialize", {**GREETING, "capabilities": EVERYTHING})
    with client.calling("tools/call", call("elicit")) as heard:
        client.respond(next(heard)["id"], None)
        assert "The client refused to answer" in json.dumps(next(heard))


def test_a_person_is_told_whose_question_it_is(gate: EraGate) -> None:
    asked, _ = converse(gate.client(), MODERN, call("elicit"), ANSWERS["elicit"])
    assert asked["params"]["message"] == "The server up asks: Your name?"
    sampled, _ = converse(gate.client(), MODERN, call("sample"), ANSWERS["sample"])
    assert "asked by the MCP server up, not by the user" in sampled["params"]["systemPrompt"]


@pytest.mark.parametrize("era", ERAS)
def test_a_prompt_may_ask_too(gate: EraGate, era: str) -> None:
    params = {"name": "up_consult", "arguments": {}}
    question, result = converse(gate.client(), era, params, ANSWERS["elicit"], "prompts/get")
    assert question["params"]["message"] == "The server up asks: Your name?"
    assert json.loads(result["messages"][0]["content"]["text"]) == ANSWERS["elicit"]


@pytest.mark.parametrize("era", ERAS)
def test_an_elicitation_by_url_is_refused_by_the_gate_which_says_so(gate: EraGate, era: str) -> None:
    client = gate.client()
    if era == MODERN:
        answer = client.ask_modern("tools/call", call("visit"), **EVERYTHING)
    else:
        client.ask("initialize", {**GREETING, "capabilities": EVERYTHING})
        answer = client.ask("tools/call", call("visit"))
    assert answer["result"]["isError"] is True
    assert "the gate relays questions that are forms, and no elicitation by URL" in json.dumps(answer)
    if gate.upstream == HANDSHAKE:
        assert refused_questions(gate.home)[-1] == ("visit", "elicitation/create", "not_relayed")


@pytest.mark.parametrize("name", ["tools", "prompts", "resources"])
@pytest.mark.parametrize("era", ERAS)
def test_a_list_that_changed_is_told_to_clients(gate: EraGate, era: str, name: str) -> None:
    called(gate, MODERN, "echo")  # it is connected, and heard
    client = gate.client()
    wanted = {f"{name}ListChanged": True}
    listening = client.listening(**wanted) if era == MODERN else client.greet().stream()
    with listening as heard:
        if era == MODERN:
            assert next(heard)["params"]["notifications"] == wanted
        called(gate, era, "alter")
        told = next(message["method"] for message in heard if era == MODERN or f"/{name}/" in message["method"])
        assert told == f"notifications/{name}/list_changed"


def test_a_form_never_asks_for_a_secret(gate: EraGate) -> None:
    """In the one era the call ends; in the other the upstream is told, and says it in its own words."""
    result = gate.client().ask_modern("tools/call", call("pry"), **EVERYTHING)["result"]
    assert result["isError"] is True
    assert "never for a secret" in result["content"][0]["text"]
    if gate.upstream == HANDSHAKE:
        assert refused_questions(gate.home)[-1] == ("pry", "elicitation/create", "secret_form")


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
