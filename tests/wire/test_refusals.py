"""What the gate refuses, as an MCP client sees it. The SDK has no such answers to compare with: statuses, headers, codes."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.homes import PATIENCE_S, Home, make_home
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


@pytest.mark.parametrize("era", BOTH_ERAS)
def test_a_tool_of_another_role_is_403_and_says_so_with_the_requests_id(home: Home, ours: str, era: str) -> None:
    case = call(era, {"name": "wire_admin", "arguments": {"text": "hi"}})
    reply = post(ours, case.body, (*case.headers, ("X-MCP-API-Key", home.keys["builder"])))
    assert (reply.status, reply.json["error"]["code"], reply.json["id"]) == (403, 403, 7)


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
def test_a_caller_that_does_too_much_at_once_is_429_until_it_hangs_up(narrow: Home, narrow_url: str, era: str) -> None:
    key = ("X-MCP-API-Key", narrow.keys["builder"])

    def ask() -> Reply:
        case = call(era, ECHO)
        return post(narrow_url, case.body, (*case.headers, key))

    waiting = _hold(narrow_url, call(era, WAIT), key)
    try:
        refused = _until(ask, lambda reply: reply.status == 429)
        assert int(refused.headers["retry-after"]) >= 1
        assert (refused.json["error"]["code"], refused.json["id"]) == (429, 7)
    finally:
        waiting.close()
    _until(ask, lambda reply: reply.status == 200)


@pytest.mark.parametrize("era", BOTH_ERAS)
def test_on_a_pipe_the_same_refusals_come_without_statuses(narrow: Home, era: str) -> None:
    peer = our_stdio(narrow, "builder")
    try:
        peer.send(call(era, {"name": "wire_admin", "arguments": {"text": "hi"}}).body)
        assert peer.receive()["error"]["code"] == 403
        peer.send(call(era, WAIT, ident="slow").body)
        peer.send(call(era, ECHO).body)
        refused = peer.receive()
        assert (refused["id"], refused["error"]["code"]) == (7, 429)
        peer.send(json.dumps(note("notifications/cancelled", {"requestId": "slow"})).encode())
        answered = _until(lambda: _over(peer, call(era, ECHO)), lambda message: "result" in message)
        assert answered["id"] == 7, "a cancelled request is not answered"
    finally:
        assert peer.close() == 0


def test_on_a_pipe_a_client_that_leaves_takes_its_calls_along(home: Home) -> None:
    peer = our_stdio(home, "builder")
    for ident in (1, 1, "b"):  # two calls under one id, to its own confusion
        peer.send(call("modern", WAIT, ident=ident).body)
    assert peer.close() == 0, "well before the tool's own deadline, which is longer than our patience"


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
