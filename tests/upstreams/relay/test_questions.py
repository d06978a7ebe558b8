"""An upstream of the handshake era asks in the middle of a call: only who made the call can answer, once, and in time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.offers.client import GREETING, Client
from tests.upstreams.homes import adopting_home
from tests.upstreams.relay.gates import ERAS, WAYS, Gate, upstream
from tests.upstreams.relay.talking import ANSWERS, EVERYTHING, answering, call, converse, refused_questions
from toolgate.powers.mcp.relay.lanes import MAX_LANES_OF_CALLER

HANDSHAKE = ERAS[0]
ROWS = {
    "up_aside": ["elicitation"],
    "up_elicit": ["elicitation"],
    "up_overreach": ["elicitation", "sampling"],
    "up_press": ["elicitation"],
    "up_twice": ["elicitation", "roots"],
}


@pytest.fixture(scope="module", params=WAYS)
def gate(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with upstream(HANDSHAKE, request.param) as table:
        home = adopting_home(tmp_path_factory.mktemp("questions") / "home", {"up": table}, asks=ROWS)
        with home.serving() as server:
            yield Gate(home, server)


def begin(client: Client, params: dict[str, Any], **can: Any) -> dict[str, Any]:
    """What a modern client is asked."""
    asked: dict[str, Any] = client.ask_modern("tools/call", dict(params), **(can or EVERYTHING))["result"]
    assert asked["resultType"] == "input_required"
    return asked


def go_on(client: Client, params: dict[str, Any], asked: dict[str, Any], answer: Any) -> dict[str, Any]:
    return client.ask_modern("tools/call", answering(params, asked, answer), **EVERYTHING)


def text_of(answer: dict[str, Any]) -> str:
    return str(answer["result"]["content"][0]["text"])


def named(name: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


def finish(gate: Gate, asked: dict[str, Any], role: str = "admin") -> None:
    """So that nothing waits for the next test."""
    assert "result" in go_on(gate.client(role), call("elicit"), asked, named("done"))


@pytest.mark.parametrize("spoilt", ["a byte", "caller", "tool", "arguments"])
def test_only_the_call_that_was_asked_can_answer(gate: Gate, spoilt: str) -> None:
    asked = begin(gate.client(), call("elicit"))
    state, middle = asked["requestState"], len(asked["requestState"]) // 2
    changed = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
    stolen = {**asked, "requestState": changed} if spoilt == "a byte" else asked
    params = {"tool": call("press"), "arguments": call("elicit", more=1)}.get(spoilt, call("elicit"))
    client = gate.client("builder" if spoilt == "caller" else "admin")
    error = go_on(client, params, stolen, named("Mallory"))["error"]
    assert (error["code"], error["data"]["reason"]) == (-32602, "invalid_request_state")
    assert json.loads(text_of(go_on(gate.client(), call("elicit"), asked, named("Ada")))) == named("Ada")


def test_a_second_answer_is_nobodys(gate: Gate) -> None:
    asked = begin(gate.client(), call("elicit"))
    assert json.loads(text_of(go_on(gate.client(), call("elicit"), asked, named("Ada")))) == named("Ada")
    again = go_on(gate.client(), call("elicit"), asked, named("Eve"))["result"]
    assert again["isError"] is True
    assert "does not wait for an answer" in again["content"][0]["text"]
    error = [each for each in gate.home.calls() if each["event"] == "outcome"][-1]["error"]
    assert (error["happening"], error["reason"]) == ("in_doubt", "not_waiting")


def test_what_is_no_answer_is_refused_and_a_better_one_is_taken(gate: Gate) -> None:
    asked = begin(gate.client(), call("elicit"))
    error = go_on(gate.client(), call("elicit"), asked, {"action": "perhaps"})["error"]
    assert error["data"]["reason"] == "invalid_input_response"
    finish(gate, asked)


def test_whether_a_form_is_filled_in_well_is_judged_by_who_asked(gate: Gate) -> None:
    asked = begin(gate.client(), call("elicit"))
    odd = {"action": "accept", "content": {"name": 7}}
    assert json.loads(text_of(go_on(gate.client(), call("elicit"), asked, odd))) == odd


def test_who_brings_no_answer_makes_the_upstream_go_on_without(gate: Gate) -> None:
    asked = begin(gate.client(), call("elicit"))
    empty = {**call("elicit"), "inputResponses": {}, "requestState": asked["requestState"]}
    result = gate.client().ask_modern("tools/call", empty, **EVERYTHING)["result"]
    assert result["isError"] is True
    assert "refused: The caller's client did not answer" in result["content"][0]["text"]
    assert refused_questions(gate.home)[-1] == ("elicit", "elicitation/create", "client_refused")


def test_an_answer_of_another_key_to_a_client_of_the_handshake_era_is_nobodys(gate: Gate) -> None:
    client = gate.client()
    client.ask("initialize", {**GREETING, "capabilities": EVERYTHING})
    with client.calling("tools/call", call("elicit")) as heard:
        question = next(heard)
        gate.client("builder").respond(question["id"], named("Mallory"))
        client.respond(question["id"], named("Ada"))
        assert json.loads(text_of(next(heard))) == named("Ada")
    client.respond(question["id"], named("late"))  # after the end: taken by nobody, and told so to nobody


def test_a_client_that_refuses_is_told_to_the_upstream_whose_words_come_back(gate: Gate) -> None:
    client = gate.client()
    client.ask("initialize", {**GREETING, "capabilities": EVERYTHING})
    with client.calling("tools/call", call("elicit")) as heard:
        client.respond(next(heard)["id"], None)
        answer = next(heard)
    assert answer["result"]["isError"] is True
    assert "refused: The caller's client did not answer" in text_of(answer)


def test_a_client_that_answers_nonsense_is_told_so_and_the_upstream_goes_on_without(gate: Gate) -> None:
    client = gate.client()
    client.ask("initialize", {**GREETING, "capabilities": EVERYTHING})
    before = len(refused_questions(gate.home))
    with client.calling("tools/call", call("elicit")) as heard:
        client.respond(next(heard)["id"], {"action": "perhaps"})
        assert next(heard)["error"]["data"]["reason"] == "invalid_input_response"
    assert refused_questions(gate.home)[before:] == [("elicit", "elicitation/create", "client_refused")]


def test_callers_who_are_asked_at_the_same_time_each_hear_their_own_question(gate: Gate) -> None:
    first, second = begin(gate.client("builder"), call("elicit")), begin(gate.client(), call("elicit"))
    assert json.loads(text_of(go_on(gate.client(), call("elicit"), second, named("Ada")))) == named("Ada")
    answer = go_on(gate.client("builder"), call("elicit"), first, named("Bob"))
    assert json.loads(text_of(answer)) == named("Bob")


def test_so_many_calls_of_one_caller_are_held_and_others_are_not_kept_waiting(gate: Gate) -> None:
    held = [begin(gate.client(), call("elicit")) for _ in range(MAX_LANES_OF_CALLER)]
    refused = gate.client().ask_modern("tools/call", call("elicit"), **EVERYTHING)["result"]
    assert refused["isError"] is True
    assert "are under way" in refused["content"][0]["text"]
    finish(gate, begin(gate.client("builder"), call("elicit")), "builder")
    assert text_of(gate.client().ask_modern("tools/call", call("echo", text="on"), **EVERYTHING)) == "on"
    for asked in held:
        finish(gate, asked)
    finish(gate, begin(gate.client(), call("elicit")))


@pytest.mark.parametrize("era", ERAS)
def test_a_question_apart_from_the_stream_of_its_call_is_heard_too(gate: Gate, era: str) -> None:
    _, result = converse(gate.client(), era, call("aside"), named("Ada"))
    assert json.loads(result["content"][0]["text"]) == named("Ada")


def test_two_questions_at_once_are_asked_one_after_the_other(gate: Gate) -> None:
    first = begin(gate.client(), call("twice"))
    second = go_on(gate.client(), call("twice"), first, named("Ada"))["result"]
    assert [each["method"] for each in second["inputRequests"].values()] == ["roots/list"]
    answer = go_on(gate.client(), call("twice"), second, ANSWERS["roots"])
    assert json.loads(text_of(answer)) == [named("Ada"), ANSWERS["roots"]]


def test_an_upstream_that_asks_for_more_is_told_that_the_client_lacks_it(gate: Gate) -> None:
    result = gate.client().ask_modern("tools/call", call("overreach"), elicitation={})["result"]
    assert result["content"][0]["text"] == "refused: The caller's client does not declare sampling."
    assert refused_questions(gate.home)[-1] == ("overreach", "sampling/createMessage", "not_declared")


def test_an_upstream_that_asks_where_nobody_can_be_asked_is_told_what_it_takes(gate: Gate) -> None:
    text = text_of(gate.client().ask_modern("tools/call", call("overreach")))
    assert "it takes a caller whose client declares sampling" in text
    assert "x-asks" in text
    assert ("", "sampling/createMessage", "not_declared") in refused_questions(gate.home)


def test_a_row_that_does_not_allow_it_is_named(tmp_path: Any) -> None:
    with upstream(HANDSHAKE, "stdio") as table:
        home = adopting_home(tmp_path / "home", {"up": table}, asks={"up_overreach": ["elicitation"]})
        with home.serving() as server:
            client = Client(server.port, home.keys["admin"])
            result = client.ask_modern("tools/call", call("overreach"), **EVERYTHING)["result"]
            silent = client.ask_modern("tools/call", call("elicit"), **EVERYTHING)["result"]
    assert "row in the gate's policy does not allow sampling (x-asks)" in result["content"][0]["text"]
    assert silent["content"][0]["text"] == "the client cannot do elicitation"
    assert refused_questions(home) == [("overreach", "sampling/createMessage", "not_allowed")]


def test_a_call_under_an_idempotency_key_keeps_it_while_it_is_held(gate: Gate) -> None:
    params = {**call("elicit"), "_meta": {"toolgate/idempotency-key": f"once-{gate.server.port}"}}
    asked = begin(gate.client(), params)
    meanwhile = gate.client().ask_modern("tools/call", dict(params), **EVERYTHING)
    assert "still under way" in json.dumps(meanwhile)
    answer = go_on(gate.client(), params, asked, named("Ada"))["result"]
    again = gate.client().ask_modern("tools/call", dict(params), **EVERYTHING)["result"]
    assert again["content"] == answer["content"] == [{"type": "text", "text": json.dumps(named("Ada"))}]


@pytest.mark.guard
def test_a_question_is_answered_through_any_process_of_the_server(tmp_path: Any) -> None:
    with upstream(HANDSHAKE, "http") as table:
        home = adopting_home(tmp_path / "home", {"up": table}, asks=ROWS)
        with home.serving("--workers", "2") as server:
            for era in (*ERAS, *ERAS, *ERAS):
                client = Client(server.port, home.keys["admin"])
                _, result = converse(client, era, call("elicit"), named(era))
                assert json.loads(result["content"][0]["text"]) == named(era)


def test_a_client_without_a_stream_is_not_waited_for(gate: Gate) -> None:
    client = gate.client()
    client.ask("initialize", {**GREETING, "capabilities": EVERYTHING})
    answer = client.ask_plainly("tools/call", call("elicit"))
    assert "takes no stream of events" in json.dumps(answer)


def test_what_is_asked_in_the_handshake_era_is_labelled_and_on_the_record(gate: Gate) -> None:
    asked = begin(gate.client(), call("elicit"))
    record = [each for each in gate.home.calls() if each["event"] == "outcome"][-1]
    (question,) = asked["inputRequests"].values()
    assert question["params"]["message"] == "The server up asks: Your name?"
    assert (record["asked"], record["upstream"], record["status"]) == (["elicitation/create"], "up", "ok")
    finish(gate, asked)
