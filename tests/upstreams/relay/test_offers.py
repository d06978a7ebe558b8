"""Prompts, resources, completion and subscriptions of an adopted server, of either era, through the gate in either era."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.offers.client import Client
from tests.upstreams.homes import adopting_home
from tests.upstreams.relay.gates import ERAS, WAYS, Gate, upstream, whole
from toolgate.kit.pins import pinned, read_pin
from toolgate.upstreams import pin_path


@pytest.fixture(scope="module", params=[(era, way) for era in ERAS for way in WAYS], ids=" ".join)
def gate(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with upstream(*request.param) as table:
        home = adopting_home(tmp_path_factory.mktemp("whole") / "home", {"up": table}, roles=("admin",))
        with home.serving() as server:
            yield Gate(home, server)


both_clients = pytest.mark.parametrize("era", ERAS)


@both_clients
def test_what_was_pinned_is_listed_with_rewritten_addresses(gate: Gate, era: str) -> None:
    ask = gate.ask(era)
    (prompt,) = [each for each in ask("prompts/list", {})["result"]["prompts"] if each["name"] == "up_greet"]
    assert (prompt["description"], prompt["_meta"]["toolgate/upstream"]) == ("Greets.", "up")
    resources = {each["uri"]: each for each in ask("resources/list", {})["result"]["resources"]}
    assert resources["up+note://one"]["name"] == "one"
    assert "ui://up/panel" in resources
    templates = ask("resources/templates/list", {})["result"]["resourceTemplates"]
    assert "up+note://{+path}" in {each["uriTemplate"] for each in templates}
    (tool,) = [each for each in ask("tools/list", {})["result"]["tools"] if each["name"] == "up_echo"]
    assert tool["_meta"]["ui"] == {"resourceUri": "ui://up/panel"}


@both_clients
def test_a_prompt_is_a_call_of_the_upstream_with_a_record(gate: Gate, era: str) -> None:
    result = gate.ask(era)("prompts/get", {"name": "up_greet", "arguments": {"name": "Ada"}})["result"]
    assert result["description"] == "A greeting."
    assert result["messages"][0]["content"]["resource"]["text"] == "For Ada."
    assert result["messages"][0]["content"]["resource"]["uri"] == "up+note://one"
    assert result["_meta"]["toolgate/envelope"]["tier"] == "experimental"
    record = gate.home.calls()[-1]
    pin = json.loads(pin_path(gate.home.path / "policy", "up").read_bytes())["digest"]
    assert (record["metadata"]["toolId"], record["upstream"], record["pin"]) == (
        "mcp.prompt:upstream.up.greet",
        "up",
        pin,
    )


@both_clients
@pytest.mark.parametrize("uri", ["note://one", "note://a/b/c", "ui://panel"])
def test_a_resource_is_read_at_the_address_that_the_upstream_knows(gate: Gate, era: str, uri: str) -> None:
    here = uri.replace("ui://", "ui://up/") if uri.startswith("ui:") else f"up+{uri}"
    result = gate.ask(era)("resources/read", {"uri": here})["result"]
    assert result["contents"] == [{"uri": here, "text": f"At {uri}."}]
    assert result.get("cacheScope", "private") == "private"


@both_clients
def test_what_is_not_there_is_not_found_in_both_eras(gate: Gate, era: str) -> None:
    ask = gate.ask(era)
    assert ask("resources/read", {"uri": "up+note://missing"})["error"]["code"] == -32602
    assert ask("resources/read", {"uri": "note://one"})["error"]["message"] == "Resource not found"
    assert ask("prompts/get", {"name": "greet", "arguments": {}})["error"]["message"] == "Unknown prompt"


@both_clients
def test_arguments_are_completed_by_the_upstream(gate: Gate, era: str) -> None:
    ask = gate.ask(era)
    argument = {"name": "name", "value": "A"}
    context = {"arguments": {"other": "x"}}
    prompt = {"ref": {"type": "ref/prompt", "name": "up_greet"}, "argument": argument, "context": context}
    assert ask("completion/complete", prompt)["result"]["completion"]["values"] == ["greet:A", "x"]
    template = {"ref": {"type": "ref/resource", "uri": "up+note://{+path}"}, "argument": argument}
    assert ask("completion/complete", template)["result"]["completion"]["values"] == ["note://{+path}:A"]


@both_clients
def test_addresses_in_the_answer_of_a_tool_can_be_read_here(gate: Gate, era: str) -> None:
    content = gate.ask(era)("tools/call", {"name": "up_link", "arguments": {}})["result"]["content"]
    assert [each.get("uri") for each in content] == ["up+note://one", "https://example.com/page", None]
    assert content[2]["resource"] == {"uri": "up+note://one", "text": "note://one"}


@both_clients
def test_who_does_not_hold_it_neither_sees_nor_gets_it(gate: Gate, era: str) -> None:
    ask = gate.ask(era, "builder")
    assert "up_greet" not in str(ask("prompts/list", {}))
    assert "up+note" not in str(ask("resources/list", {}))
    assert ask("resources/read", {"uri": "up+note://one"})["error"]["code"] == 403
    assert ask("prompts/get", {"name": "up_greet", "arguments": {"name": "x"}})["error"]["code"] == 403
    argument = {"ref": {"type": "ref/prompt", "name": "up_greet"}, "argument": {"name": "name", "value": ""}}
    assert ask("completion/complete", argument)["error"]["code"] == 403


@both_clients
def test_a_prompts_arguments_are_checked_before_anything_is_sent(gate: Gate, era: str) -> None:
    said = gate.ask(era)("prompts/get", {"name": "up_greet", "arguments": {"nobody": "x"}})["error"]
    assert (said["code"], said["data"]["canonical_code"]) == (-32602, "INVALID_INPUT")


def test_who_subscribes_over_a_stream_hears_of_a_change_at_the_upstream(gate: Gate) -> None:
    client = gate.client()
    with client.listening(resourceSubscriptions=["up+note://one", "up+note://else"]) as heard:
        honoured = next(heard)["params"]["notifications"]
        assert honoured == {"resourceSubscriptions": ["up+note://one", "up+note://else"]}
        client.ask_modern("tools/call", {"name": "up_touch", "arguments": {"uri": "note://one"}})
        told = next(heard)
    assert (told["method"], told["params"]["uri"]) == ("notifications/resources/updated", "up+note://one")


def test_a_session_of_the_handshake_era_hears_of_it_too(gate: Gate) -> None:
    client = gate.client().greet()
    assert client.ask("resources/subscribe", {"uri": "up+note://two"})["result"] == {}
    with client.stream() as heard:
        client.ask("tools/call", {"name": "up_touch", "arguments": {"uri": "note://two"}})
        assert next(heard)["params"] == {"uri": "up+note://two"}


def test_what_is_not_as_it_was_approved_is_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    with whole("2026-07-28") as url:
        home = adopting_home(tmp_path / "home", {"up": {"url": url}}, roles=("admin",))
        file = pin_path(home.path / "policy", "up")
        pin = read_pin(file.read_bytes())
        other = pinned({**pin.prompts["greet"].definition, "description": "Greets otherwise."})
        file.write_bytes(replace(pin, prompts={"greet": other}).as_bytes())
        with home.serving() as server:
            ask = Client(server.port, home.keys["admin"]).ask_modern
            (listed,) = [each for each in ask("prompts/list", {})["result"]["prompts"] if each["name"] == "up_greet"]
            assert listed["description"] == "Greets otherwise."
            said = ask("prompts/get", {"name": "up_greet", "arguments": {"name": "x"}})["error"]
            assert said["data"]["code"] == "UPSTREAM_DRIFT"
            assert said["data"]["reason"] == "changed_description"
            assert "contents" in ask("resources/read", {"uri": "up+note://one"})["result"]
    drifted = [each for each in home.records() if each.get("act") == "upstream.drifted"]
    assert drifted[0]["about"]["tools"] == {"prompt:greet": "changed_description"}
