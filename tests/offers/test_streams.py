"""Who hears of changes, over both transports and in both eras; what tools log; what calls ask of their client."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.homes import PATIENCE_S, Home, environment, make_home
from tests.offers.client import GREETING, Client
from tests.offers.conftest import World, write
from toolgate.gate.sessions.watch import MAX_STREAMS
from toolgate.model.mcpwire import META_CAPABILITIES, META_LOG_LEVEL, META_SUBSCRIPTION, META_VERSION

WATCHED = "test://watched-resource"
UPDATED = "notifications/resources/updated"
ENVELOPE = {META_VERSION: "2026-07-28", META_CAPABILITIES: {}}


def change(client: Client, what: str) -> None:
    assert not client.ask("tools/call", {"name": f"test_trigger_{what}_change"})["result"]["isError"]


def test_a_stream_of_the_modern_era_tells_what_was_asked_for_and_names_itself(world: World) -> None:
    client = world.client()
    with client.listening(toolsListChanged=True, resourceSubscriptions=[WATCHED, "test://nothing"]) as told:
        acknowledged = next(told)
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": [WATCHED]}
        for what in ("prompt", "tool", "resource"):
            change(client, what)
        heard = [next(told), next(told)]
    assert [each["method"] for each in heard] == ["notifications/tools/list_changed", UPDATED]
    assert heard[1]["params"]["uri"] == WATCHED
    assert {each["params"]["_meta"][META_SUBSCRIPTION] for each in [acknowledged, *heard]} == {1}


def test_a_stream_of_the_handshake_era_tells_of_lists_and_of_what_the_session_subscribed_to(world: World) -> None:
    client = world.client().greet()
    first = client.session
    with client.stream() as told:
        assert client.ask("resources/subscribe", {"uri": WATCHED}, session=first)["result"] == {}
        change(client, "resource")
        change(client, "prompt")
        heard = {next(told)["method"], next(told)["method"]}
    assert heard == {UPDATED, "notifications/prompts/list_changed"}
    assert client.session != first, "the new id carries the subscription"
    with client.stream() as told:
        change(client, "resource")
        assert next(told)["params"] == {"uri": WATCHED}
    client.ask("resources/unsubscribe", {"uri": WATCHED})
    with client.stream() as told:
        change(client, "resource")
        change(client, "prompt")
        assert next(told)["method"] == "notifications/prompts/list_changed"


def test_a_file_that_changes_is_told_to_its_subscribers_and_a_new_one_to_those_of_the_list(world: World) -> None:
    client = world.client("builder")
    paper = world.home.workspace / "watched" / "index.html"
    write(paper, "<title>One</title>")
    with (
        client.listening(resourceSubscriptions=["paper:///watched/index.html"]) as told,
        client.listening(resourcesListChanged=True) as listed,
    ):
        assert next(told)["params"]["notifications"] == {"resourceSubscriptions": ["paper:///watched/index.html"]}
        next(listed)
        write(paper, "<title>Two</title>")
        assert next(told)["params"]["uri"] == "paper:///watched/index.html"
        write(paper.with_name("second.html"), "<title>Second</title>")
        assert next(listed)["method"] == "notifications/resources/list_changed"


def test_one_key_holds_so_many_streams_and_a_closed_one_makes_room(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("governance",))
    with home.serving() as server:
        client = Client(server.port, home.keys["builder"])
        opened = [client.listening(toolsListChanged=True) for _ in range(MAX_STREAMS)]
        for stream in opened:
            next(stream.__enter__())
        refused = client.ask_modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        assert "streams of this key are open" in str(refused)
        other = Client(server.port, home.keys["admin"])
        with other.listening(toolsListChanged=True) as told:
            assert next(told)
        for stream in opened:
            stream.__exit__(None, None, None)


def test_a_revoked_key_hears_no_more(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("everything",))
    with home.serving() as server:
        key_id = home.keys["builder"].split("_")[1]
        with Client(server.port, home.keys["builder"]).listening(toolsListChanged=True) as told:
            next(told)
            home.ring().revoke(key_id)
            last = list(told)
    assert [each.get("result", {}).get("resultType") for each in last] == ["complete"], "it ends, and says so"


def test_a_server_that_stops_ends_its_streams_and_does_not_wait_for_them(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("governance",))
    with home.serving() as server, Client(server.port, home.keys["builder"]).listening(toolsListChanged=True) as told:
        next(told)
        server.process.terminate()
        assert [each["result"]["resultType"] for each in told] == ["complete"]
        assert server.process.wait(PATIENCE_S) == 0


@contextmanager
def piped(home: Home, role: str) -> Iterator[Any]:
    """say(message), and hear() -> the next message of the server."""
    process = subprocess.Popen(
        home.command("stdio"),
        env=environment(TOOLGATE_API_KEY=home.keys[role]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    source, sink, ids = process.stdout, process.stdin, count(1)

    class Pipe:
        def say(self, method: str, params: dict[str, Any] | None = None, *, silent: bool = False) -> int:
            number = next(ids)
            message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
            sink.write(json.dumps(message if silent else message | {"id": number}).encode() + b"\n")
            sink.flush()
            return number

        def respond(self, request_id: Any, result: dict[str, Any]) -> None:
            sink.write(json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}).encode() + b"\n")
            sink.flush()

        def hear(self) -> dict[str, Any]:
            return dict(json.loads(source.readline()))

    overdue = threading.Timer(PATIENCE_S, process.kill)
    overdue.start()
    try:
        yield Pipe()
    finally:
        overdue.cancel()
        process.communicate(timeout=PATIENCE_S)


def test_over_a_pipe_both_eras_hear_of_changes_and_a_stream_is_cancelled_by_its_id(world: World) -> None:
    with piped(world.home, "admin") as pipe:
        pipe.say("initialize", GREETING)
        assert pipe.hear()["result"]["capabilities"]["resources"] == {"subscribe": True, "listChanged": True}
        pipe.say("notifications/initialized", silent=True)
        pipe.say("resources/subscribe", {"uri": WATCHED})
        assert pipe.hear()["result"] == {}
        pipe.say("tools/call", {"name": "test_trigger_resource_change"})
        heard = [pipe.hear(), pipe.hear()]
        assert {each.get("method") for each in heard} == {UPDATED, None}
        listening = pipe.say("subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE})
        assert pipe.hear()["params"]["_meta"] == {META_SUBSCRIPTION: listening}
        pipe.say("tools/call", {"name": "test_trigger_tool_change"})
        tagged = [pipe.hear() for _ in range(3)]
        told = [each.get("params") for each in tagged if each.get("method") == "notifications/tools/list_changed"]
        assert {"_meta": {META_SUBSCRIPTION: listening}} in told
        pipe.say("notifications/cancelled", {"requestId": listening, "_meta": ENVELOPE}, silent=True)
        pipe.say("tools/call", {"name": "test_trigger_prompt_change"})
        assert listening not in [each.get("id") for each in (pipe.hear(), pipe.hear())]


def test_what_a_tool_logs_is_read_from_the_level_that_the_client_chose(world: World) -> None:
    client = world.client().greet()
    said = client.ask("tools/call", {"name": "test_logging_tool"})
    assert [note["params"]["data"] for note in said["notes"]] == ["test_logging_tool ran"]
    assert client.ask("logging/setLevel", {"level": "error"})["result"] == {}
    assert "notes" not in client.ask("tools/call", {"name": "test_logging_tool"})


def test_a_client_that_keeps_its_first_session_id_is_heard_while_its_stream_is_open(world: World) -> None:
    client = world.client().greet()
    first = client.session
    with client.stream(first):
        client.ask("logging/setLevel", {"level": "error"}, session=first)
        assert "notes" not in client.ask("tools/call", {"name": "test_logging_tool"}, session=first)


def test_in_the_modern_era_each_call_says_whether_it_reads_along(world: World) -> None:
    client = world.client()
    assert "notes" not in client.ask_modern("tools/call", {"name": "test_logging_tool"})
    asked = {"name": "test_logging_tool", "_meta": {META_LOG_LEVEL: "debug"}}
    assert len(client.ask_modern("tools/call", asked)["notes"]) == 1


ASKING = {"name": "test_input_required_result_elicitation", "arguments": {}}


def test_a_call_asks_and_goes_on_with_the_answer(world: World) -> None:
    client = world.client()
    asked = client.ask_modern("tools/call", dict(ASKING), elicitation={})["result"]
    assert asked["resultType"] == "input_required"
    state = asked["requestState"]
    answers = {"user_name": {"action": "accept", "content": {"name": "Ada"}}, "other": {"action": "accept"}}
    done = client.ask_modern("tools/call", ASKING | {"inputResponses": answers, "requestState": state}, elicitation={})
    assert done["result"]["structuredContent"]["data"] == {"said": "Hello, Ada!"}
    asked_records = [one["asked"] for one in world.home.calls() if "asked" in one]
    assert ["elicitation/create"] in asked_records


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"user_name": 5}, "invalid_input_response"),
        ({"user_name": {"action": "maybe"}}, "invalid_input_response"),
        ({"user_name": {"action": "accept", "content": {"name": 5}}}, "invalid_input_response"),
        ({"user_name": {"action": "accept"}}, "invalid_input_response"),
    ],
)
def test_answers_that_do_not_fit_what_was_asked_are_refused(world: World, answers: Any, reason: str) -> None:
    client = world.client()
    state = client.ask_modern("tools/call", dict(ASKING), elicitation={})["result"]["requestState"]
    refused = client.ask_modern(
        "tools/call", ASKING | {"inputResponses": answers, "requestState": state}, elicitation={}
    )
    assert refused["error"]["code"] == -32602
    assert refused["error"]["data"]["reason"] == reason


def test_a_state_of_another_caller_tool_or_call_is_refused_and_answers_without_one_are_not_heard(world: World) -> None:
    client, other = world.client("admin"), world.client("builder")
    state = client.ask_modern("tools/call", dict(ASKING), elicitation={})["result"]["requestState"]
    answers = {"user_name": {"action": "accept", "content": {"name": "Ada"}}}
    going_on = {"inputResponses": answers, "requestState": state}
    elsewhere = ASKING | {"name": "test_streaming_elicitation"}
    changed = going_on | {"requestState": state[:-2] + ("AA" if not state.endswith("AA") else "BB")}
    for who, what in ((other, ASKING | going_on), (client, elsewhere | going_on), (client, ASKING | changed)):
        assert who.ask_modern("tools/call", what, elicitation={})["error"]["code"] == -32602
    without = client.ask_modern("tools/call", ASKING | {"inputResponses": answers}, elicitation={})
    assert without["result"]["resultType"] == "input_required"


def test_a_client_that_cannot_be_asked_is_told_so_in_the_words_of_its_era(world: World) -> None:
    client = world.client()
    modern = client.ask_modern("tools/call", dict(ASKING))["error"]
    assert (modern["code"], modern["data"]["requiredCapabilities"]) == (-32021, {"elicitation": {}})
    handshake = client.ask("tools/call", dict(ASKING))["result"]
    assert handshake["isError"]
    assert "must declare elicitation" in handshake["content"][0]["text"]


def test_a_tool_asks_for_nothing_that_its_row_does_not_allow(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("everything",))
    policy = home.path / "policy" / "mcp-tools.policy.json"
    manifest = json.loads(policy.read_text())
    for row in manifest["tools"]:
        row.pop("x-asks", None)
    policy.write_text(json.dumps(manifest))
    subprocess.run(
        home.command("contract", "build"), env=environment(), check=True, capture_output=True, timeout=PATIENCE_S
    )
    with home.serving() as server:
        result = Client(server.port, home.keys["admin"]).ask_modern("tools/call", dict(ASKING), elicitation={})[
            "result"
        ]
    assert result["isError"]
    assert result["structuredContent"]["code"] == "INVALID_OUTPUT"
