"""What the gate refuses, as an MCP client sees it. The SDK has no such answers to compare with: statuses, headers, codes."""

from __future__ import annotations

import http.client
import json
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.homes import PATIENCE_S, Home, environment, make_home
from tests.wire.messages import ECHO, Case, enveloped, new, note, old, request
from tests.wire.world import PACKS, Reply, our_stdio, post

BOTH_ERAS = ["handshake", "modern"]
WAIT: dict[str, Any] = {"name": "wire_wait", "arguments": {"text": "x"}}


def call(era: str, params: dict[str, Any], ident: Any = 7) -> Case:
    if era == "modern":
        return new("", enveloped("tools/call", params, ident=ident))
    return old("", request("tools/call", params, ident=ident))


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A deployment where a caller may do one thing at a time."""
    limits = "[limits]\nconcurrency_per_caller = 1\n"
    return make_home(tmp_path_factory.mktemp("narrow") / "home", packs=PACKS, settings=limits)


@pytest.fixture(scope="module")
def narrow_url(narrow: Home) -> Iterator[str]:
    with narrow.serving() as server:
        yield server.ready["url"]


@pytest.mark.parametrize("era", BOTH_ERAS)
@pytest.mark.parametrize(
    "key",
    [
        (),
        (("Authorization", "Bearer nonsense"),),
        (("Authorization", "Basic dXNlcjpwYXNz"),),
        (("X-MCP-API-Key", "tg_000000000000_" + "0" * 64),),
        (("X-MCP-API-Key", ""),),
        (("X-MCP-API-Key", "schlüssel"),),
    ],
    ids=["none", "no key", "another scheme", "unknown", "empty", "not ASCII"],
)
def test_without_a_good_key_every_message_is_401_with_a_challenge(ours: str, era: str, key: Any) -> None:
    for case in (call(era, ECHO), old("", request("ping")), old("", b"{"), old("", note("x"), {"Accept": "text/html"})):
        reply = post(ours, case.body, (*case.headers, *key))
        assert reply.status == 401
        assert reply.headers["www-authenticate"] == 'Bearer realm="toolgate"'
        assert reply.json["error"]["code"] == 401
        assert reply.json["id"] is None
        assert "wire_echo" not in reply.body.decode()


@pytest.mark.parametrize("header", ["X-MCP-API-Key", "Authorization"])
def test_either_key_header_will_do_with_blanks_around_it(home: Home, ours: str, header: str) -> None:
    value = f"{'Bearer ' if header == 'Authorization' else ''}{home.keys['builder']}"
    case = call("modern", ECHO)
    assert post(ours, case.body, (*case.headers, (header, f"  {value} "))).status == 200


def _refused(message: Any) -> str | None:
    """The code of a refusal, which is the result of one call."""
    result = message["result"]
    return result["structuredContent"]["code"] if result["isError"] else None


@pytest.mark.parametrize("era", BOTH_ERAS)
def test_a_tool_of_another_role_is_a_result_that_says_so_with_the_requests_id(home: Home, ours: str, era: str) -> None:
    case = call(era, {"name": "wire_admin", "arguments": {"text": "hi"}})
    reply = post(ours, case.body, (*case.headers, ("X-MCP-API-Key", home.keys["builder"])))
    assert (reply.status, _refused(reply.json), reply.json["id"]) == (200, "AUTH_INSUFFICIENT_ROLE", 7)
    assert reply.json["result"]["content"][0]["text"] == "API key role is not allowed: builder may not call wire_admin."


@pytest.mark.parametrize("path", ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"])
def test_no_client_is_led_into_oauth(ours: str, path: str) -> None:
    connection = http.client.HTTPConnection(ours.removeprefix("http://"), timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        assert (response.status, response.getheader("content-type")) == (404, "application/json")
        json.loads(response.read())
    finally:
        connection.close()


def test_a_body_above_the_limit_is_413(home: Home, ours: str) -> None:
    case = call("modern", {"name": "wire_echo", "arguments": {"text": "x" * (1 << 20)}})
    reply = post(ours, case.body, (*case.headers, ("X-MCP-API-Key", home.keys["builder"])))
    assert (reply.status, reply.json["error"]["code"]) == (413, -32600)


@pytest.mark.parametrize("era", BOTH_ERAS)
def test_a_caller_that_does_too_much_at_once_is_told_so_until_it_hangs_up(
    narrow: Home, narrow_url: str, era: str
) -> None:
    key = ("X-MCP-API-Key", narrow.keys["builder"])

    def ask() -> Reply:
        case = call(era, ECHO)
        return post(narrow_url, case.body, (*case.headers, key))

    waiting = _hold(narrow_url, call(era, WAIT), key)

    def ask_while_it_waits() -> Reply:
        nonlocal waiting
        if select.select([waiting], [], [], 0)[0]:  # answered: refused, because a question of ours came first
            waiting.close()
            waiting = _hold(narrow_url, call(era, WAIT), key)
        return ask()

    try:
        refused = _until(ask_while_it_waits, lambda reply: reply.json["result"]["isError"])
        assert (refused.status, refused.json["id"]) == (200, 7), "another status would end the client's connection"
        assert _refused(refused.json) == "LIMIT_CONCURRENCY_EXCEEDED"
    finally:
        waiting.close()
    _until(ask, lambda reply: not reply.json["result"]["isError"])


@pytest.mark.parametrize("era", BOTH_ERAS)
def test_on_a_pipe_the_same_refusals_come_without_statuses(narrow: Home, era: str) -> None:
    peer = our_stdio(narrow, "builder")
    try:
        peer.send(call(era, {"name": "wire_admin", "arguments": {"text": "hi"}}).body)
        assert _refused(peer.receive()) == "AUTH_INSUFFICIENT_ROLE"
        peer.send(call(era, WAIT, ident="slow").body)
        peer.send(call(era, ECHO).body)
        refused = peer.receive()
        assert (refused["id"], _refused(refused)) == (7, "LIMIT_CONCURRENCY_EXCEEDED")
        peer.send(json.dumps(note("notifications/cancelled", {"requestId": "slow"})).encode())
        answered = _until(lambda: _over(peer, call(era, ECHO)), lambda message: not message["result"]["isError"])
        assert answered["id"] == 7, "a cancelled request is not answered"
    finally:
        assert peer.close() == 0


def test_on_a_pipe_a_client_that_leaves_takes_its_calls_along(home: Home) -> None:
    env = environment(TOOLGATE_API_KEY=home.keys["builder"])
    with subprocess.Popen(
        home.command("stdio", "--server-drain-seconds", "60"), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        for ident in (1, 1, "b"):  # two calls under one id, to its own confusion
            peer.stdin.write(call("modern", WAIT, ident=ident).body + b"\n")
        peer.stdin.close()
        peer.stdout.close()
        try:
            assert peer.wait(PATIENCE_S) == 0, "well before the tool's own deadline and the drain time of a minute"
        finally:
            peer.kill()


def _over(peer: Any, case: Case) -> Any:
    peer.send(case.body)
    return peer.receive()


def _until(ask: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
    """The first answer that is as it should be; a slot is taken and given back a moment after the bytes."""
    deadline = time.monotonic() + PATIENCE_S
    while not good(answer := ask()):
        assert time.monotonic() < deadline, answer
    return answer


def _hold(url: str, case: Case, key: tuple[str, str]) -> socket.socket:
    """Send a request and do not wait for its answer."""
    host, _, port = url.removeprefix("http://").partition(":")
    lines = [f"{name}: {value}" for name, value in (*case.headers, key, ("Host", f"{host}:{port}"))]
    head = "\r\n".join(["POST /mcp HTTP/1.1", *lines, f"Content-Length: {len(case.body)}", "", ""])
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    connection.sendall(head.encode() + case.body)
    return connection


@pytest.mark.parametrize("era", BOTH_ERAS)
def test_f24_an_id_is_bounded_and_a_longer_one_is_not_sent_back(home: Home, ours: str, era: str) -> None:
    key = ("X-MCP-API-Key", home.keys["builder"])
    good = call(era, ECHO, "i" * 256)
    assert post(ours, good.body, (*good.headers, key)).json["id"] == "i" * 256
    for ident in ("i" * 257, "i" * 900_000):
        bad = call(era, ECHO, ident)
        reply = post(ours, bad.body, (*bad.headers, key))
        assert (reply.status, reply.json["id"]) == (400, None)
        assert reply.json["error"] == {
            "code": -32600,
            "message": "id must be an integer or a string of at most 256 characters",
        }


@pytest.mark.parametrize("era", BOTH_ERAS)
def test_f24_a_progress_token_is_bounded(home: Home, ours: str, era: str) -> None:
    key = ("X-MCP-API-Key", home.keys["builder"])
    for length, good in ((256, True), (257, False), (900_000, False)):
        asked = call(era, ECHO)
        message = json.loads(asked.body)
        message["params"].setdefault("_meta", {})["progressToken"] = "t" * length
        reply = post(ours, json.dumps(message).encode(), (*asked.headers, key))
        assert reply.json["id"] == 7
        assert ("result" in reply.json) is good
        assert len(reply.body) < 2000
        if not good:
            assert "progressToken must be" in reply.json["error"]["message"]


def test_f24_too_many_values_are_told_so_on_every_face(home: Home, ours: str) -> None:
    key = ("X-MCP-API-Key", home.keys["builder"])
    many = b"[" + b"{}," * 300_000 + b"{}]"
    bodies = {
        "/mcp": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wire_echo","arguments":{"text":%b}}}',
        "/rpc": b'{"jsonrpc":"2.0","id":1,"method":"mcp.tool.invoke","params":{"tool":"mcp.tool:wire.echo","input":{"text":%b}}}',
        "/mrt_dispatch": b'{"tool":"wire_echo","args":{"text":%b}}',
    }
    for path, body in bodies.items():
        headers = dict((*old("", b"").headers, key))
        connection = http.client.HTTPConnection(ours.removeprefix("http://"), timeout=PATIENCE_S)
        connection.request("POST", path, body % many, headers | {"Content-Type": "application/json"})
        reply = connection.getresponse()
        told = reply.read().decode()
        connection.close()
        assert reply.status == 400
        assert "too_many_values" in told
        assert "20000 values" in told or path != "/mcp"
