"""What is kept of a message for the next one under the same head never changes how that one is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import asdict

from toolgate.errors import OK
from toolgate.faces.mcp import McpFace, Routing
from toolgate.faces.mcp_results import McpRequest, _passed_on, _put_together
from toolgate.model.envelope import Answer, Envelope

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
FIRST: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "echo", "arguments": {"text": "first"}, "_meta": META},
}
HEAD = {
    b"mcp-protocol-version": b"2026-07-28",
    b"mcp-method": b"tools/call",
    b"mcp-name": b"echo",
    b"content-length": b"300",
}


def _with(**changes: Any) -> dict[str, Any]:
    return {**FIRST, **changes}


def _with_params(**changes: Any) -> dict[str, Any]:
    return _with(params={**FIRST["params"], **changes})


def _without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in FIRST.items() if name not in names}


OTHERS: dict[str, Any] = {
    "another id": _with(id=2),
    "a text as id": _with(id="two"),
    "a long text as id": _with(id="x" * 257),
    "no id": _without("id"),
    "null as id": _with(id=None),
    "true as id": _with(id=True),
    "a fraction as id": _with(id=1.5),
    "other arguments": _with_params(arguments={"text": "second", "more": [1]}),
    "no arguments": _with(params={"name": "echo", "_meta": META}),
    "null as arguments": _with_params(arguments=None),
    "a list of arguments": _with_params(arguments=["text"]),
    "another name": _with_params(name="other"),
    "a name that is no text": _with_params(name=7),
    "another method": _with(method="tools/list"),
    "another protocol": _with(jsonrpc="1.0"),
    "one member more": _with(extra=1),
    "one parameter more": _with_params(extra=1),
    "answers to a question": _with_params(inputResponses={}, requestState="state"),
    "a token for progress": _with_params(_meta={**META, "progressToken": 7}),
    "an idempotency key": _with_params(_meta={**META, "toolgate/idempotency-key": "key"}),
    "a trace": _with_params(_meta={**META, "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}),
    "a level": _with_params(_meta={**META, "io.modelcontextprotocol/logLevel": "debug"}),
    "another version": _with_params(_meta={**META, "io.modelcontextprotocol/protocolVersion": "2027-01-01"}),
    "what the client can": _with_params(
        _meta={**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    ),
    "no meta": _with(params={"name": "echo", "arguments": {}}),
    "a list of parameters": _with(params=["name", "arguments", "_meta"]),
    "no parameters": _without("params"),
    "a list of messages": [FIRST, FIRST, FIRST, FIRST],
    "a text": "four",
    "nothing": None,
}


def _hints(head: dict[bytes, bytes] = HEAD) -> Routing:
    return McpFace().hints(head, frozenset())


def _read(message: Any, hints: Routing) -> dict[str, Any]:
    read = asdict(McpFace().read(message, "http", hints))
    return read | {"note": read["note"] and read["note"](1, 2, "step")}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_a_message_is_read_as_if_none_had_come_before_it(other: Any) -> None:
    hints = _hints()
    _read(FIRST, hints)
    assert hints.pattern is not None
    assert _read(other, hints) == _read(other, _hints())
    assert _read(FIRST, hints) == _read(FIRST, _hints())
    assert _read(other, hints) == _read(other, _hints())


@pytest.mark.parametrize("name", ["prompt:echo", "resource:echo"])
def test_a_name_that_is_another_on_the_road_must_still_be_that_of_the_head(name: str) -> None:
    hints = _hints({**HEAD, b"mcp-name": name.encode()})
    _read(_with_params(name=name), hints)
    other = _with_params(name=f"tool:{name}")
    assert _read(other, hints)["reply"].status == 400
    assert hints.pattern is None


def _answer(result: dict[str, Any], raw: bytes) -> Answer:
    envelope = Envelope(
        success=True, tier="experimental", environment="local", request_id="r", timestamp="t", data=result
    )
    encoded = b'{"success":true,"data":%b,"audit":{"seq":1}}' % raw
    return Answer(OK, "up_echo", "r", "t", envelope=envelope, envelope_json=encoded, adopted=True, relayed=raw)


RESULTS: dict[str, bytes] = {
    "of this era": b'{"content":[],"resultType":"complete"}',
    "of the other era": b'{"content":[{"type":"text","text":"50 % } \\u0025b"}]}',
    "with blanks": b'{ "content" : [ ] , "resultType" : "complete" }',
    "with a meta of its own": b'{"content":[],"_meta":{"a":1,"toolgate/x":2},"resultType":"complete"}',
    "of an odd kind": b'{"content":[],"resultType":"odd"}',
}


@pytest.mark.parametrize("modern", [True, False], ids=["modern", "handshake"])
@pytest.mark.parametrize("raw", RESULTS.values(), ids=RESULTS.keys())
def test_a_result_that_is_passed_on_says_what_one_that_is_put_together_says(raw: bytes, *, modern: bool) -> None:
    request, answer = McpRequest(7, modern=modern), _answer(json.loads(raw), raw)
    passed_on, put_together = _passed_on(request, answer), _put_together(request, answer)
    is_of_its_era = json.loads(raw).get("resultType") == ("complete" if modern else None)
    assert (passed_on is not None) == (is_of_its_era and b"_meta" not in raw)
    if passed_on is not None:
        assert json.loads(passed_on) == json.loads(put_together)
        assert raw[:-1] in passed_on
