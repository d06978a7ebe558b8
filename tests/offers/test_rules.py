"""Rules of prompts and resources, and what a client of MCP hears while its call waits for a person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faces import speak
from tests.homes import Home, Server, make_home
from tests.offers.client import Client
from toolgate.gate.authority.stops import STOPS_FILE, Stops, new_stop

ROWS: dict[str, dict[str, Any]] = {
    "prompt:before_you_act": {
        "x-rules": [
            {"name": "never", "deny": "args.purpose == 'mischief'"},
            {"name": "ask", "require-approval": "args.purpose == 'release'"},
        ]
    },
    "resource:own_record": {"x-rules": [{"name": "never", "deny": "args.request_id.startsWith('0')"}]},
    "unruly_write": {"x-rules": [{"name": "ask", "require-approval": "args.name.startsWith('release')"}]},
}
PERSON = {"elicitation": {}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Server]]:
    home = make_home(tmp_path_factory.mktemp("rules") / "home", packs=("governance", "unruly"), rows=ROWS)
    with home.serving() as server:
        yield home, server


@pytest.fixture
def client(served: tuple[Home, Server]) -> Client:
    return Client(served[1].port, served[0].keys["builder"])


def answer(served: tuple[Home, Server], verb: str, approval: str) -> None:
    home, server = served
    key = {"x-mcp-api-key": home.keys["admin"]}
    assert speak.send(server.port, f"/approvals/{verb}", {"id": approval}, key)[0] == 200


def prompt(purpose: str) -> dict[str, Any]:
    return {"name": "before_you_act", "arguments": {"tool": "dummy_experimental", "purpose": purpose}}


def test_a_prompt_is_refused_by_its_rule_and_approved_by_a_person(served: tuple[Home, Server], client: Client) -> None:
    assert client.ask_modern("prompts/get", prompt("to learn"))["result"]["messages"]
    denied = client.ask_modern("prompts/get", prompt("mischief"))["error"]
    assert (denied["code"], denied["data"]["canonical_code"], denied["data"]["rule"]) == (403, "RULE_DENIED", "never")
    waits = client.ask_modern("prompts/get", prompt("release"))["error"]
    assert (waits["code"], waits["data"]["retry_after_s"]) == (202, 5)
    answer(served, "approve", waits["data"]["approval_id"])
    assert client.ask_modern("prompts/get", prompt("release"))["result"]["messages"]


def test_a_resource_is_refused_by_its_rule_and_so_is_a_subscription_to_it(
    served: tuple[Home, Server], client: Client
) -> None:
    uri = f"audit://mine/{'0' * 32}"
    denied = client.ask_modern("resources/read", {"uri": uri})["error"]
    assert (denied["code"], denied["data"]["canonical_code"]) == (403, "RULE_DENIED")
    assert client.ask_modern("resources/read", {"uri": f"audit://mine/{'1' * 32}"})["error"]["code"] == -32602
    denied = client.greet().ask("resources/subscribe", {"uri": uri})["error"]
    assert denied["data"]["canonical_code"] == "RULE_DENIED"
    assert "result" in client.ask("resources/subscribe", {"uri": f"audit://mine/{'1' * 32}"})


def call(client: Client, name: str, *, state: str | None = None, action: str = "accept", **can: Any) -> Any:
    said = {"action": action, **({"content": {}} if action == "accept" else {})}
    more = {} if state is None else {"requestState": state, "inputResponses": {"toolgate/approval": said}}
    return client.ask_modern("tools/call", {"name": "unruly_write", "arguments": {"name": name}, **more}, **can)


def test_a_client_that_can_ask_its_person_carries_a_sealed_state(served: tuple[Home, Server], client: Client) -> None:
    waits = call(client, "release-1", **PERSON)["result"]
    assert waits["resultType"] == "input_required"
    assert waits["inputRequests"]["toolgate/approval"]["method"] == "elicitation/create"
    said = waits["_meta"]["toolgate/envelope"]
    assert (said["code"], said["isError"]) == ("APPROVAL_REQUIRED", True)
    again = call(client, "release-1", state=waits["requestState"], **PERSON)["result"]
    assert again["resultType"] == "input_required", "accepting is not approving"
    answer(served, "approve", said["details"]["approval_id"])
    done = call(client, "release-1", state=again["requestState"], **PERSON)["result"]
    assert (done["resultType"], done["isError"]) == ("complete", False)
    assert (served[0].workspace / "release-1").exists()
    spent = call(client, "release-1", state=again["requestState"], **PERSON)["result"]
    assert spent["resultType"] == "input_required", "the state is no grant"


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_person_who_does_not_wait_ends_the_questions(client: Client, action: str) -> None:
    state = call(client, "release-2", **PERSON)["result"]["requestState"]
    ended = call(client, "release-2", state=state, action=action, **PERSON)["result"]
    assert (ended["isError"], ended["structuredContent"]["code"]) == (True, "APPROVAL_REQUIRED")
    assert ended["structuredContent"]["details"]["retry_after_s"] == 5


def test_a_state_of_other_arguments_or_another_caller_is_refused(served: tuple[Home, Server], client: Client) -> None:
    state = call(client, "release-3", **PERSON)["result"]["requestState"]
    other = Client(served[1].port, served[0].keys["committer"])
    for found in (call(client, "release-4", state=state, **PERSON), call(other, "release-3", state=state, **PERSON)):
        assert found["error"]["code"] == -32602


def test_a_refusal_is_heard_by_who_carries_a_state(served: tuple[Home, Server], client: Client) -> None:
    waits = call(client, "release-5", **PERSON)["result"]
    answer(served, "refuse", waits["_meta"]["toolgate/envelope"]["details"]["approval_id"])
    ended = call(client, "release-5", state=waits["requestState"], **PERSON)["result"]
    assert ended["structuredContent"]["code"] == "RULE_DENIED"


def test_a_client_that_cannot_hears_the_error(client: Client) -> None:
    assert call(client, "release-6")["result"]["structuredContent"]["code"] == "APPROVAL_REQUIRED"


def test_a_stopped_prompt_and_a_stopped_resource_say_so(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("governance",))
    for row in ("prompt:before_you_act", "resource:own_record"):
        stop = new_stop(tool=row, caller=None, upstream=None, reason="", since=0.0, until=None)
        Stops(home.path / "keys" / STOPS_FILE).add(stop)
    with home.serving() as server:
        client = Client(server.port, home.keys["builder"])
        asked = (("prompts/get", prompt("to learn")), ("resources/read", {"uri": f"audit://mine/{'1' * 32}"}))
        for method, params in asked:
            refused = client.ask_modern(method, params)["error"]
            assert (refused["code"], refused["data"]["canonical_code"]) == (503, "STOPPED")
