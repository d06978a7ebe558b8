"""Adopted tools through the whole gate: listed from the pin, called over every face, refused and recorded as any other."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import subprocess
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.cli.support import Commands
from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, environment
from tests.upstreams.homes import FACES, Swapping, adopting_home, ask
from tests.upstreams.support import lines
from tests.waiting import until

ECHO = ("stub", "echo")


class Served:
    def __init__(self, home: Home, server: Server, log: Path) -> None:
        self.home, self.server, self.log = home, server, log

    def list(self, role: str, *, modern: bool = True) -> dict[str, Any]:
        message = speak.mcp_message("", {}, modern=modern)
        message["method"] = "tools/list"
        message["params"] = {key: value for key, value in message["params"].items() if key == "_meta"}
        headers = {"authorization": f"Bearer {self.home.keys[role]}", "accept": "application/json, text/event-stream"}
        headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"} if modern else {}
        _, _, body = speak.send(self.server.port, "/mcp", message, headers)
        return {tool["name"]: tool for tool in body["result"]["tools"]}

    def ask(self, face: str, arguments: Any, role: str = "admin") -> tuple[int, dict[str, Any]]:
        return ask(face, self.server.port, ECHO, arguments, self.home.keys[role])

    def result(self, arguments: Any) -> dict[str, Any]:
        _, body = self.ask("mcp modern", arguments)
        found: dict[str, Any] = body["result"]
        return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("adopting")
    swapping = Swapping(path)
    home = adopting_home(path / "home", {"stub": swapping.table()}, roles=("committer", "admin"))
    swapping.log.unlink()  # adopting asked it, too
    with home.serving() as server:
        yield Served(home, server, swapping.log)


def test_a_pinned_tool_is_listed_and_refused_while_its_upstream_was_never_started(served: Served) -> None:
    before = lines(served.log, "pid")  # none, unless another test of this module came first
    for modern in (True, False):
        assert "stub_echo" in served.list("admin", modern=modern)
        assert "stub_echo" not in served.list("builder", modern=modern)
    for face in FACES:
        assert "role" in json.dumps(served.ask(face, {"text": "x"}, "builder")[1]).lower() or face == "rpc"
        assert served.ask(face, {"text": 7})[0] in (200, 400)
    assert lines(served.log, "pid") == before


def test_a_tool_is_listed_as_it_was_approved(served: Served) -> None:
    listed = served.list("admin")["stub_echo"]
    assert listed["description"] == "Says what it was told."
    assert listed["inputSchema"]["required"] == ["text"]
    assert "outputSchema" not in listed
    assert listed["_meta"]["toolgate/upstream"] == "stub"


@pytest.mark.parametrize("face", FACES)
def test_a_call_over_every_face_is_answered_by_the_upstream_and_recorded_with_its_pin(
    served: Served, face: str
) -> None:
    said = f"hello over {face}"
    status, body = served.ask(face, {"text": said})
    assert status == 200
    assert said in json.dumps(body)
    records = [one for one in served.home.calls() if one.get("upstream") == "stub"][-2:]
    assert [one["event"] for one in records] == ["intent", "outcome"]
    pin = json.loads((served.home.path / "policy/upstreams/stub.pin.json").read_bytes())["digest"]
    assert {one["pin"] for one in records} == {pin}


def test_the_answer_is_relayed_with_the_envelope_beside_it(served: Served) -> None:
    result = served.result({"text": "x"})
    assert result["content"] == [{"type": "text", "text": "x"}]
    assert "structuredContent" not in result
    envelope = result["_meta"]["toolgate/envelope"]
    assert (envelope["tier"], envelope["success"]) == ("experimental", True)
    assert "data" not in envelope
    assert "audit" in envelope


def test_errors_of_the_gate_about_an_adopted_tool_carry_no_structured_content(served: Served) -> None:
    result = served.result({})
    assert result["isError"] is True
    assert "structuredContent" not in result
    assert "is missing" in result["content"][0]["text"]


def test_the_callers_trace_context_reaches_the_upstream_and_the_log(served: Served) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"authorization": f"Bearer {served.home.keys['admin']}", "traceparent": parent}
    body = {"tool": "stub_echo", "args": {"text": "traced"}}
    assert speak.send(served.server.port, "/mrt_dispatch", body, headers)[0] == 200
    message = speak.mcp_message("stub_echo", {"text": "traced"}, modern=False)
    message["params"]["_meta"] = {"traceparent": parent}
    key = {"authorization": f"Bearer {served.home.keys['admin']}", "mcp-protocol-version": "2025-11-25"}
    assert speak.send(served.server.port, "/mcp", message, key)[0] == 200
    assert lines(served.log, "trace")[-2:] == [parent, parent]
    assert [one.get("traceparent") for one in served.home.calls() if one["event"] == "outcome"][-2:] == [parent, parent]


def test_a_call_from_the_command_line_reaches_it_too(served: Served) -> None:
    made = subprocess.run(
        served.home.command("call", "stub_echo", "text=typed"),
        env=environment(TOOLGATE_API_KEY=served.home.keys["admin"]),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert made.returncode == 0, made.stderr
    assert "typed" in made.stdout


def test_a_tool_with_a_hyphen_in_its_name_is_called_over_every_face(tmp_path: Path) -> None:
    swapping = Swapping(tmp_path)
    swapping.behave("hyphenated")
    home = adopting_home(tmp_path / "home", {"stub": swapping.table()})
    with home.serving() as server:
        for face in FACES:
            status, body = ask(face, server.port, ("stub", "get-sum"), {"text": face}, home.keys["admin"])
            assert (status, face in json.dumps(body)) == (200, True), body
        for key, where in ((home.keys["admin"], server), (home.keys["admin"], None)):  # at the server, and by itself
            heard = speak.command_line(home, "stub_get-sum", {"text": "typed"}, key, where)
            assert (heard.status, heard.code) == (0, None), heard
    assert lines(swapping.log, "call") == ["get-sum"] * 6
    named = {one["metadata"]["toolId"] for one in home.calls()}
    assert named == {"mcp.tool:upstream.stub.get-sum"}


def test_all_calls_of_one_server_share_one_child(served: Served) -> None:
    for _ in range(5):
        served.result({"text": "x"})
    assert len(lines(served.log, "pid")) <= 2  # the server's, and that of the command above


def test_stdio_clients_reach_it_too(tmp_path: Path) -> None:
    home = adopting_home(tmp_path / "home", {"stub": Swapping(tmp_path).table()})
    with speak.stdio(home) as client:
        for modern in (True, False):
            client.send(speak.mcp_message("stub_echo", {"text": "a"}, modern=modern))
            assert client.receive()["result"]["content"][0]["text"] == "a"


VERDICTS = {
    "die on call": ("in_doubt", 504, 10),
    "no answer": ("in_doubt", 504, 10),
    "exit": ("upstream_down", 503, 9),
    "changes": ("upstream_drift", 409, 3),
    "described otherwise": ("upstream_drift", 409, 3),
    "wants input": ("upstream_fault", 502, 1),
}


@pytest.mark.parametrize("behaviour", VERDICTS)
def test_one_verdict_over_every_face(behaviour: str, tmp_path: Path) -> None:
    code, status, _ = VERDICTS[behaviour]
    swapping = Swapping(tmp_path)
    deadline_s = 0.5 if behaviour == "no answer" else PATIENCE_S  # only silence has to be waited out
    home = adopting_home(tmp_path / "home", {"stub": swapping.table(deadline_s=deadline_s)})
    swapping.log.unlink()
    swapping.behave(behaviour)
    key = home.keys["admin"]
    with home.serving() as server:
        if behaviour == "changes":  # the first list is as approved; the change is told after the first call
            ask("mcp modern", server.port, ECHO, {"text": "x"}, key)
            until(lambda: len(lines(swapping.log, "list")) >= 2)  # from here on calls wait for what comes of it
        elif behaviour == "no answer":  # a program that is still starting is down, not silent
            until(lambda: ask("mrt", server.port, ECHO, {"text": "x"}, key)[0] == status)
        before = len(failures(home))
        for face in FACES:
            found, body = ask(face, server.port, ECHO, {"text": "x"}, key)
            if face == "mrt":
                assert (found, body["error_code"]) == (status, code)
            elif face == "rpc":
                assert (found, body["error"]["data"]["canonical_code"]) == (status, code.upper())
            else:
                assert (found, body["result"]["isError"]) == (200, True)
                assert body["result"]["_meta"]["toolgate/envelope"]["code"] == code.upper()
                assert "structuredContent" not in body["result"]
    assert [one["error"]["happening"] for one in failures(home)[before:]] == [code] * len(FACES)


def failures(home: Home) -> list[dict[str, Any]]:
    return [one for one in home.calls() if one["event"] == "outcome" and one["error"]]


@pytest.mark.parametrize(
    "behaviour",
    [
        "die on call",
        *(pytest.param(each, marks=pytest.mark.guard) for each in ("exit", "wants input", "described otherwise")),
    ],
)
def test_the_same_verdict_over_a_pipe(behaviour: str, tmp_path: Path) -> None:
    code, status, _ = VERDICTS[behaviour]
    swapping = Swapping(tmp_path)
    home = adopting_home(tmp_path / "home", {"stub": swapping.table()})
    swapping.behave(behaviour)
    params = {"tool": "mcp.tool:upstream.stub.echo", "input": {"text": "x"}}
    rpc = {"id": "1", "jsonrpc": "2.0", "method": "mcp.tool.invoke", "params": params}
    with speak.stdio(home) as client:
        for modern in (True, False):
            client.send(speak.mcp_message("stub_echo", {"text": "x"}, modern=modern))
            result = client.receive()["result"]
            assert (result["isError"], result["_meta"]["toolgate/envelope"]["code"]) == (True, code.upper())
        client.send(rpc)
        error = client.receive()["error"]
        assert (error["code"], error["data"]["canonical_code"]) == (status, code.upper())


@pytest.mark.parametrize("behaviour", ["exit", "die on call", "described otherwise"])
def test_the_command_line_ends_with_the_verdicts_exit_code(
    behaviour: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    swapping = Swapping(tmp_path)
    home = adopting_home(tmp_path / "home", {"stub": swapping.table()})
    swapping.behave(behaviour)
    heard = speak.called_here(Commands(capfd), home, "stub_echo", {"text": "x"}, home.keys["admin"])
    assert (heard.code, heard.status) == (VERDICTS[behaviour][0], VERDICTS[behaviour][2])


def test_an_upstream_that_is_down_says_when_to_come_back_and_the_gate_stays_ready(tmp_path: Path) -> None:
    swapping = Swapping(tmp_path)
    home = adopting_home(tmp_path / "home", {"stub": swapping.table()})
    swapping.behave("exit")
    with home.serving() as server:
        headers = {"authorization": f"Bearer {home.keys['admin']}"}
        body = {"tool": "stub_echo", "args": {"text": "x"}}
        status, answered, _ = speak.send(server.port, "/mrt_dispatch", body, headers)
        assert status == 503
        assert int({name.lower(): value for name, value in answered.items()}["retry-after"]) >= 1
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/readyz", timeout=PATIENCE_S) as reply:
            ready = json.load(reply)
    assert ready["status"] == "ready"
    assert ready["upstreams"] == [{"name": "stub", "state": "down", "reason": "connection_lost"}]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_progress_reaches_the_caller(tmp_path: Path, mode: str) -> None:
    swapping = Swapping(tmp_path)
    home = adopting_home(tmp_path / "home", {"stub": swapping.table()})
    swapping.behave("three steps")
    steps: list[float] = []

    async def on_step(done: float, _total: float | None, _message: str | None) -> None:
        steps.append(done)

    async def scenario(port: int) -> None:
        headers = {"Authorization": f"Bearer {home.keys['admin']}"}
        async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http_client:
            transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http_client)
            async with Client(transport, mode=mode, read_timeout_seconds=PATIENCE_S) as client:
                result = await client.call_tool("stub_echo", {"text": "x"}, progress_callback=on_step)
                assert not result.is_error

    with home.serving() as server:
        asyncio.run(scenario(server.port))
    assert steps == [1, 1, 1]


def test_a_caller_that_leaves_cancels_the_call_upstream(tmp_path: Path) -> None:
    swapping = Swapping(tmp_path)
    home = adopting_home(tmp_path / "home", {"stub": swapping.table()})
    swapping.behave("no answer")
    swapping.log.unlink()
    with home.serving() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        headers = {"authorization": f"Bearer {home.keys['admin']}", "content-type": "application/json"}
        body = json.dumps({"tool": "stub_echo", "args": {"text": "x"}})
        connection.request("POST", "/mrt_dispatch", body, headers)
        until(lambda: lines(swapping.log, "call"))
        connection.close()
        until(lambda: "notifications/cancelled" in lines(swapping.log, "note"))


def live_and_die(folder: Path, kills: int) -> int:
    """A server under load is killed again and again, and started again; its upstream tells what reached it. Each call is known by
    its trace, at the upstream and in the log.

    Returns how many calls were recovered as in doubt.
    """
    swapping = Swapping(folder)
    home = adopting_home(folder / "home", {"stub": swapping.table()})
    swapping.log.unlink()
    answered: list[str] = []
    numbers = itertools.count()
    key = {"authorization": f"Bearer {home.keys['admin']}"}
    for _ in range(kills):
        with home.serving() as server:

            def ask_on(port: int = server.port) -> None:
                with suppress(OSError, http.client.HTTPException, ValueError):
                    while True:
                        parent = f"00-{next(numbers) + 1:032x}-{1:016x}-01"
                        body = {"tool": "stub_echo", "args": {"text": "x"}}
                        if speak.send(port, "/mrt_dispatch", body, {**key, "traceparent": parent})[0] == 200:
                            answered.append(parent)

            before = len(lines(swapping.log, "trace"))
            threads = [threading.Thread(target=ask_on, daemon=True) for _ in range(6)]
            for thread in threads:
                thread.start()
            until(lambda before=before: len(lines(swapping.log, "trace")) >= before + 40)
            server.process.kill()
            for thread in threads:
                thread.join(PATIENCE_S)
    effects = lines(swapping.log, "trace")
    assert len(effects) == len(set(effects)), "something was sent twice"
    assert set(answered) <= set(effects)
    with home.serving():
        pass  # the next start writes down what the last kill left open, and takes away the half of a record
    calls = home.calls()
    asked = Counter(one["traceparent"] for one in calls if one["event"] == "intent")
    assert set(effects) <= asked.keys(), "an effect without its own intent"
    assert set(asked.values()) == {1}
    ended = {one["traceparent"] for one in calls if one["event"] == "outcome" and one["status"] == "ok"}
    assert set(answered) <= ended, "an answer without its own outcome"
    intents = {one["requestId"] for one in calls if one["event"] == "intent"}
    outcomes = {one["requestId"] for one in calls if one["event"] == "outcome"}
    recovered = {
        each["requestId"]: each["outcome"]
        for one in home.records()
        if one["event"] == "recovered"
        for each in one["recovered"].get("unfinished", ())
    }
    assert recovered == dict.fromkeys(intents - outcomes, "in_doubt")
    return len(recovered)


@pytest.mark.timeout(180)
def test_two_kills_leave_no_effect_without_a_record(tmp_path: Path) -> None:
    live_and_die(tmp_path, 2)


@pytest.mark.guard
@pytest.mark.timeout(600)
def test_twenty_kills_leave_no_effect_without_a_record(tmp_path: Path) -> None:
    assert live_and_die(tmp_path, 20) > 0, "at full load some call is under way when a kill comes"
