"""Prompts and resources of a real server: what they say, to whom, and that each of them is a call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.homes import Home, make_home, speaking
from tests.offers.client import Client
from tests.offers.conftest import PAPER, RECORD, World
from toolgate.policy.manifest import MANIFEST_FILE

READABLE = {
    "paper:///drift/index.html": PAPER,
    "adr:///docs/adr/ADR-0001-drift.md": RECORD,
    "receipt:///drift/verification-receipt.json": '{"version": "1"}',
}


def text_of(answer: dict[str, Any]) -> str:
    (message,) = answer["result"]["messages"]
    return str(message["content"]["text"])


def records_of(world: World, tool_id: str) -> list[dict[str, Any]]:
    return [record for record in world.home.calls() if record["metadata"]["toolId"] == tool_id]


@pytest.mark.parametrize(("uri", "text"), READABLE.items())
def test_papers_records_and_receipts_are_read_at_their_addresses_in_both_eras(
    world: World, uri: str, text: str
) -> None:
    client = world.client("builder")
    for answer in (client.ask("resources/read", {"uri": uri}), client.ask_modern("resources/read", {"uri": uri})):
        (content,) = answer["result"]["contents"]
        assert (content["uri"], content["text"]) == (uri, text)
        assert answer["result"]["_meta"]["toolgate/envelope"]["tier"] == "experimental"
        assert "data" not in answer["result"]["_meta"]["toolgate/envelope"]


def test_a_list_shows_every_address_that_can_be_read(world: World) -> None:
    client = world.client("builder")
    listed = {each["uri"] for each in client.ask("resources/list")["result"]["resources"]}
    assert {*READABLE, "toolgate://contract", "audit://mine"} <= listed
    assert not any("private" in uri for uri in listed)
    templates = {each["uriTemplate"] for each in client.ask("resources/templates/list")["result"]["resourceTemplates"]}
    assert {"paper:///{+path}", "adr:///{+path}", "receipt:///{+path}", "round:///{round_id}"} <= templates


@pytest.mark.parametrize(
    "uri",
    [
        "paper:///drift/nowhere.html",
        "paper:///drift/private.key",
        "paper:///docs/adr/ADR-0001-drift.md",
        "receipt:///drift/index.html",
        "paper:///../home/toolgate.toml",
        "paper:///%2e%2e/toolgate.toml",
        "paper:///%ff.html",
        "round:///999999",
        "audit://mine/nothing",
        "nothing://at-all",
        "toolgate://contract/x",
        "paper://",
        "",
        "x" * 5000,
    ],
)
def test_what_is_not_there_is_an_error_that_names_the_address_and_is_on_the_record(world: World, uri: str) -> None:
    before = world.home.calls()
    answer = world.client("builder").ask("resources/read", {"uri": uri})
    assert answer["error"]["code"] == -32602
    assert answer["error"]["data"]["uri"] == uri
    assert "canary" not in json.dumps(answer)
    (record,) = [each for each in world.home.calls() if each not in before]
    assert record["status"] == "error"
    assert record["caller"]["role"] == "builder"


def test_a_read_and_a_prompt_are_calls_with_a_record(world: World) -> None:
    client = world.client("committer")
    read = client.ask("resources/read", {"uri": "toolgate://contract"})
    got = client.ask("prompts/get", {"name": "governance_guide"})
    for answer, tool_id in ((read, "mcp.resource:governance.contract"), (got, "mcp.prompt:governance.guide")):
        envelope = answer["result"]["_meta"]["toolgate/envelope"]
        (record,) = [one for one in records_of(world, tool_id) if one["requestId"] == envelope["requestId"]]
        assert (record["caller"]["role"], record["status"]) == ("committer", "ok")


def test_the_guide_names_what_the_caller_holds_with_its_tier_and_nothing_else(world: World) -> None:
    builders, admins = (
        text_of(world.client(role).ask("prompts/get", {"name": "governance_guide"})) for role in ("builder", "admin")
    )
    assert "lra_sign" in admins
    assert "lra_sign" not in builders, "a builder does not hold it"
    binding, advice = builders.split("Experimental:")
    assert "- validate_l0_invariants (write): L0 foundation checks" in binding
    assert "- dummy_experimental" in advice
    assert "local environment now" in builders


def test_the_guide_is_made_of_the_manifest_in_force(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("governance",))
    manifest = json.loads((home.path / "policy" / MANIFEST_FILE).read_text())
    for row in manifest["tools"]:
        if row["name"] == "validate_l0_invariants":
            row.pop("x-adr")
            row |= {"x-tier": "experimental", "x-visibilityHint": "Held to advice here"}
    rebuilt(home, manifest)
    with speaking(home, "builder") as ask:
        (message,) = ask("prompts/get", {"name": "governance_guide"})["messages"]
    assert (
        "- validate_l0_invariants (write): Held to advice here" in message["content"]["text"].split("Experimental:")[1]
    )


def rebuilt(home: Home, manifest: dict[str, Any]) -> None:
    from tests.homes import _locked
    from toolgate.packs.loader import load_packs
    from toolgate.policy import contract
    from toolgate.policy.manifest import LOCK_FILE

    policy = home.path / "policy"
    (policy / MANIFEST_FILE).write_text(json.dumps(manifest))
    (policy / LOCK_FILE).write_bytes(contract.render(_locked(load_packs(["governance"]), policy)))


def test_who_does_not_hold_a_prompt_or_resource_neither_sees_nor_gets_it(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("governance",))
    manifest = json.loads((home.path / "policy" / MANIFEST_FILE).read_text())
    for row in manifest["tools"]:
        if row["name"] in ("resource:contract", "prompt:before_you_act"):
            row["x-roles"] = ["admin"]
    rebuilt(home, manifest)
    with home.serving() as server:
        client = Client(server.port, home.keys["builder"])
        assert "toolgate://contract" not in str(client.ask("resources/list"))
        assert "before_you_act" not in str(client.ask("prompts/list"))
        refused = [
            client.ask("resources/read", {"uri": "toolgate://contract"}),
            client.ask("prompts/get", {"name": "before_you_act", "arguments": {"tool": "dummy_experimental"}}),
            complete(client, {"type": "ref/prompt", "name": "before_you_act"}, "tool", ""),
            client.greet().ask("resources/subscribe", {"uri": "toolgate://contract"}),
        ]
        assert [each["error"]["code"] for each in refused] == [403] * 4
        with client.listening(resourceSubscriptions=["toolgate://contract"]) as told:
            assert next(told)["params"]["notifications"] == {}
        allowed = Client(server.port, home.keys["admin"]).ask("resources/read", {"uri": "toolgate://contract"})
    assert "result" in allowed
    denied = [one for one in home.calls() if (one.get("error") or {}).get("happening") == "insufficient_role"]
    assert len(denied) == 5, "each refusal is on the record"


def test_limits_hold_for_prompts_and_resources_too(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("governance",), settings="[limits]\nrate_per_minute = 1\n")
    with home.serving() as server:
        client = Client(server.port, home.keys["builder"])
        assert "result" in client.ask("prompts/get", {"name": "governance_guide"})
        refused = client.ask("resources/read", {"uri": "toolgate://contract"})
    assert refused["error"]["code"] == 429
    assert refused["status"] == 200, "one call is refused, not the connection"


def test_arguments_of_prompts_are_validated_by_their_schema(world: World) -> None:
    client = world.client()
    missing = client.ask("prompts/get", {"name": "before_you_act"})
    assert missing["error"]["code"] == -32602
    assert missing["error"]["data"]["reason"] == "missing_tool"
    wrong = client.ask("prompts/get", {"name": "before_you_act", "arguments": {"tool": 5}})
    assert wrong["error"]["code"] == -32602
    unknown = client.ask("prompts/get", {"name": "before_you_act", "arguments": {"tool": "lra_sing"}})
    assert "lra_sign" in unknown["error"]["message"]


def test_a_prompt_is_no_tool_and_a_tool_is_no_prompt(world: World) -> None:
    client = world.client()
    assert client.ask("tools/call", {"name": "prompt:governance_guide"})["error"]["code"] == -32602
    assert client.ask("prompts/get", {"name": "dummy_experimental"})["error"]["code"] == -32602
    assert not {"governance_guide", "prompt:governance_guide"} & {
        each["name"] for each in client.ask("tools/list")["result"]["tools"]
    }


def test_the_contract_tells_a_caller_only_what_it_holds(world: World) -> None:
    def names(role: str) -> set[str]:
        read = world.client(role).ask("resources/read", {"uri": "toolgate://contract"})
        return {tool["name"] for tool in json.loads(read["result"]["contents"][0]["text"])["tools"]}

    assert names("admin") - names("builder") >= {"lra_sign", "consensus_vote"}
    assert {"library_search", "prompt:governance_guide", "resource:paper"} <= names("builder")


def test_own_records_are_the_callers_own_and_one_call_of_them_can_be_read(world: World) -> None:
    client, other = world.client("builder"), world.client("admin")
    called = client.ask("tools/call", {"name": "dummy_experimental"})["result"]["structuredContent"]["requestId"]
    other.ask("tools/call", {"name": "dummy_experimental"})
    read = client.ask("resources/read", {"uri": "audit://mine"})
    own = json.loads(read["result"]["contents"][0]["text"])["records"]
    assert {record["caller"]["role"] for record in own} == {"builder"}
    assert called in {record["requestId"] for record in own}
    one = client.ask("resources/read", {"uri": f"audit://mine/{called}"})
    assert [each["requestId"] for each in json.loads(one["result"]["contents"][0]["text"])["records"]] == [called]
    assert "error" in other.ask("resources/read", {"uri": f"audit://mine/{called}"}), "nobody else's"


def complete(client: Client, ref: dict[str, str], name: str, value: str) -> dict[str, Any]:
    return client.ask("completion/complete", {"ref": ref, "argument": {"name": name, "value": value}})


def test_arguments_are_completed_from_what_is_there(world: World) -> None:
    client = world.client("builder")
    tools = complete(client, {"type": "ref/prompt", "name": "before_you_act"}, "tool", "lra_")
    assert tools["result"]["completion"]["values"] == ["lra_check", "lra_serve", "lra_validate", "lra_verify"]
    papers = complete(client, {"type": "ref/resource", "uri": "paper:///{+path}"}, "path", "dri")
    assert papers["result"]["completion"]["values"] == ["drift/index.html"]
    nothing = complete(client, {"type": "ref/prompt", "name": "governance_guide"}, "nothing", "x")
    assert nothing["result"]["completion"]["values"] == []
    unknown = complete(client, {"type": "ref/prompt", "name": "nobody"}, "tool", "x")
    assert unknown["error"]["code"] == -32602


def test_rounds_are_completed_and_read_once_there_are_some(world: World) -> None:
    client = world.client()
    event = {"merkle_root_hex": "11" * 32, "rule_version_hash_hex": "22" * 32}
    opened = client.ask("tools/call", {"name": "consensus_propose", "arguments": {"event": event}})["result"]
    assert not opened["isError"], opened
    number = opened["structuredContent"]["data"]["round_id"]
    found = complete(client, {"type": "ref/resource", "uri": "round:///{round_id}"}, "round_id", number[:1])
    assert number in found["result"]["completion"]["values"]
    read = client.ask("resources/read", {"uri": f"round:///{number}"})
    assert json.loads(read["result"]["contents"][0]["text"])["round_id"] == number


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": 5}),
        ("prompts/get", {"name": "x", "arguments": []}),
        ("prompts/get", {"name": "x", "arguments": {"a": 1}}),
        ("resources/read", {}),
        ("resources/read", {"uri": {"a": 1}}),
        ("completion/complete", {}),
        ("completion/complete", {"ref": {"type": "ref/other"}, "argument": {"name": "a", "value": ""}}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a"}}),
        ("resources/list", {"cursor": "x"}),
        ("prompts/list", {"cursor": "x"}),
        ("logging/setLevel", {"level": "loud"}),
        ("resources/subscribe", {"uri": 5}),
    ],
)
def test_parameters_that_are_none_are_told_so(world: World, method: str, params: dict[str, Any]) -> None:
    answer = world.client().greet().ask(method, params)
    assert answer["error"]["code"] == -32602
    assert answer["status"] == 200


def test_the_same_is_offered_over_a_pipe(world: World) -> None:
    with speaking(world.home, "builder") as ask:
        listed = {each["uri"] for each in ask("resources/list", {})["resources"]}
        (content,) = ask("resources/read", {"uri": "paper:///drift/index.html"})["contents"]
        names = {each["name"] for each in ask("prompts/list", {})["prompts"]}
    assert listed >= READABLE.keys()
    assert content["text"] == PAPER
    assert {"governance_guide", "before_you_act"} <= names
