"""What clients over HTTP rely on beside the protocol: browsers' questions, addresses with a slash, compression, cancelling."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
from typing import Any

import pytest

from tests.homes import PATIENCE_S, make_home
from tests.waiting import until
from tests.wire.messages import note, request
from tests.wire.world import Reply

PAGE = "https://app.example"
CALL = {"name": "wire_echo", "arguments": {"text": "hi"}}


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = make_home(
        tmp_path_factory.mktemp("manners") / "home",
        packs=("governance", "lra", "wiretest"),
        settings=f'[server]\nallowed_origins = ["{PAGE}"]\n[limits]\nconcurrency_per_caller = 3\n',
    )
    # Calls that nobody may cancel are left waiting by a test: nobody has to wait for them.
    with home.serving("--server-drain-seconds", "0.2") as server:
        yield home, server


def send(gate: Any, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
    """One request of any kind, with the builder's key unless a header says otherwise."""
    home, server = gate
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    given = {"Authorization": f"Bearer {home.keys['builder']}", "Content-Type": "application/json"} | given
    try:
        connection.request(method, path, body, {name: value for name, value in given.items() if value != "absent"})
        answer = connection.getresponse()
        return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def message(method: str, params: dict[str, Any] | None = None, ident: Any = 7) -> bytes:
    return json.dumps(request(method, params, ident=ident)).encode()


@pytest.mark.parametrize("path", ["/mcp", "/rpc", "/mrt_dispatch"])
def test_a_browser_may_ask_for_a_page_of_an_allowed_origin_without_a_key(gate: Any, path: str) -> None:
    asked = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization,mcp-method"}
    reply = send(gate, "OPTIONS", path, Origin=PAGE, Authorization="absent", **asked)
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert reply.headers["access-control-allow-methods"] == "POST"
    assert {"authorization", "mcp-method", "content-type"} <= set(
        reply.headers["access-control-allow-headers"].split(", ")
    )
    assert "access-control-allow-credentials" not in reply.headers
    assert reply.headers["vary"] == "Origin"


def test_a_page_may_read_its_answer_also_a_refusal(gate: Any) -> None:
    for key in ("", "absent"):
        given = {"Authorization": key} if key else {}
        reply = send(gate, "POST", "/mcp", message("tools/call", CALL), Origin=PAGE, **given)
        assert reply.status == (401 if key else 200)
        assert reply.headers["access-control-allow-origin"] == PAGE
        assert "x-request-id" in reply.headers["access-control-expose-headers"]


@pytest.mark.parametrize("method", ["OPTIONS", "POST"])
def test_a_page_of_another_origin_is_refused_whatever_it_asks(gate: Any, method: str) -> None:
    given = {"Origin": "https://evil.example", "Access_Control_Request_Method": "POST"}
    reply = send(gate, method, "/mcp", message("ping"), **given)
    assert reply.status == 403
    assert "access-control-allow-origin" not in reply.headers


def test_who_is_no_page_gets_no_headers_for_pages(gate: Any) -> None:
    reply = send(gate, "POST", "/mcp", message("ping"))
    assert not [name for name in reply.headers if name.startswith("access-control")]


def test_an_options_request_that_is_no_preflight_is_as_any_other(gate: Any) -> None:
    assert send(gate, "OPTIONS", "/mcp", Authorization="absent").status == 401
    assert send(gate, "OPTIONS", "/mcp", Origin=PAGE).status == 405


@pytest.mark.parametrize("path", ["/mcp/", "/rpc/", "/mrt_dispatch/"])
def test_an_address_may_end_with_a_slash(gate: Any, path: str) -> None:
    assert send(gate, "POST", path, message("ping")).status in (200, 400)
    assert send(gate, "POST", path + "/", message("ping")).status == 404


def test_a_large_list_is_compressed_for_who_takes_that_and_nothing_else_is(gate: Any) -> None:
    plain = send(gate, "POST", "/mcp", message("tools/list"))
    small = send(gate, "POST", "/mcp", message("tools/list"), Accept_Encoding="br, gzip")
    assert "content-encoding" not in plain.headers
    assert small.headers["content-encoding"] == "gzip"
    assert gzip.decompress(small.body) == plain.body
    assert len(small.body) < len(plain.body) / 3
    long = message("tools/call", {"name": "wire_echo", "arguments": {"text": "x" * 200, "times": 5}})
    assert "content-encoding" not in send(gate, "POST", "/mcp", long, Accept_Encoding="gzip").headers


def test_a_look_for_a_stream_is_405_and_not_recorded_but_a_wrong_key_is(gate: Any) -> None:
    home, _ = gate
    before = len(home.calls())
    reply = send(gate, "GET", "/mcp", Accept="text/event-stream")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert len(home.calls()) == before
    assert send(gate, "GET", "/mcp", Authorization="Bearer nonsense").status == 401
    assert len(home.calls()) == before + 1


@pytest.mark.parametrize("headers", [{"Authorization": "Bearer "}, {"Authorization": "absent", "X_MCP_API_Key": ""}])
def test_an_empty_key_header_is_a_missing_key(gate: Any, headers: dict[str, str]) -> None:
    reply = send(gate, "POST", "/mrt_dispatch", b'{"tool":"wire_echo","args":{"text":"x"}}', **headers)
    assert reply.status == 401
    assert json.loads(reply.body)["error_code"] == "auth_missing_api_key"


class Waiting:
    """A call that waits until somebody cancels it; its answer, once it has one."""

    def __init__(self, gate: Any, ident: Any, role: str = "builder") -> None:
        self.answer: dict[str, Any] | None = None
        home, _ = gate
        body = message("tools/call", {"name": "wire_wait", "arguments": {"text": "x"}}, ident)

        def wait() -> None:
            answer = send(gate, "POST", "/mcp", body, Authorization=f"Bearer {home.keys[role]}").json
            if "are running" in answer["result"]["content"][0]["text"]:  # a look at the slots held this one's
                wait()
            else:
                self.answer = answer

        self.thread = threading.Thread(target=wait, daemon=True)
        self.thread.start()

    def ends(self) -> bool:
        self.thread.join(PATIENCE_S)
        return self.answer is not None and "cancelled" in self.answer["result"]["content"][0]["text"]


def until_all_slots_are_taken(gate: Any, role: str = "builder") -> None:
    key = f"Bearer {gate[0].keys[role]}"
    echo = message("tools/call", CALL)
    until(
        lambda: send(gate, "POST", "/mcp", echo, Authorization=key).json["result"]["isError"], "the calls are under way"
    )


def cancel(gate: Any, ident: Any, role: str = "builder") -> None:
    home, _ = gate
    body = json.dumps(note("notifications/cancelled", {"requestId": ident})).encode()
    assert send(gate, "POST", "/mcp", body, Authorization=f"Bearer {home.keys[role]}").status == 202


def test_a_caller_cancels_its_own_call_by_its_id_and_no_other(gate: Any) -> None:
    calls = [Waiting(gate, "one"), Waiting(gate, 2), Waiting(gate, "three")]
    until_all_slots_are_taken(gate)
    cancel(gate, "one", role="admin")  # another key's id
    cancel(gate, "2")  # the text is not the number
    cancel(gate, "four")
    until_all_slots_are_taken(gate)
    assert [call.answer for call in calls] == [None, None, None]
    for call, ident in zip(calls, ("one", 2, "three"), strict=True):
        cancel(gate, ident)
        assert call.ends()


def test_an_id_that_two_clients_of_one_key_use_cancels_neither(gate: Any) -> None:
    calls = [
        Waiting(gate, "same", "committer"),
        Waiting(gate, "same", "committer"),
        Waiting(gate, "other", "committer"),
    ]
    until_all_slots_are_taken(gate, "committer")
    cancel(gate, "same", "committer")
    cancel(gate, "other", "committer")
    assert calls[2].ends()
    assert [call.answer for call in calls[:2]] == [None, None]
