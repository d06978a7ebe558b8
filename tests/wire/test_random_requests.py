"""Requests that nobody thought of: random methods, parameters, envelopes and routing headers, to both servers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given
from hypothesis import strategies as st

from tests.cases import cases
from tests.homes import Home
from tests.wire import compare
from tests.wire.messages import CAPABILITIES, CLIENT, HANDSHAKE, JSON_HEADERS, MODERN, VERSION, b64
from tests.wire.world import post

ABSENT = object()
NAMES = ["dummy_experimental", "wire_admin", "wire_echo", "wire_fail", "wire_progress", "wire_steps"]
METHODS = st.sampled_from(["tools/call"] * 6 + ["tools/list", "server/discover", "initialize", "ping", "nope"])


def mostly(good: list[Any], *odd: Any) -> st.SearchStrategy[Any]:
    """A good value nine times out of ten. (Repeated in one list: `one_of` would drop repeated branches.)"""
    strange = [*odd, None, True, 5, "x", [], {}]
    return st.sampled_from(good * (9 * len(strange)) + strange * len(good))


GREETING_PARTS = {
    "protocolVersion": mostly([*HANDSHAKE, MODERN]),
    "capabilities": mostly([{}]),
    "clientInfo": mostly([{"name": "n", "version": "1"}], {"name": "n"}),
}
CALL_PARTS = {
    "name": mostly(NAMES, "nobody", "", "Wire_Echo"),
    "arguments": mostly([{"text": "hi"}, {"text": "hi", "times": 2}], {"text": 5}),
}
META_PARTS = {
    VERSION: mostly([MODERN, MODERN, HANDSHAKE[-1]], "2099-01-01", ""),
    CAPABILITIES: mostly([{}, {"sampling": {}}]),
    CLIENT: mostly([{"name": "n", "version": "1"}], {"version": "1"}),
}


@st.composite
def part_of(draw: st.DrawFn, parts: dict[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    """All of them, or all but one."""
    missing = draw(st.sampled_from([None] * (9 * len(parts) or 1) + list(parts)))
    return {name: draw(values) for name, values in parts.items() if name != missing}


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[bytes, list[tuple[str, str]]]:
    """A request with an id, and headers that mirror it, or nearly."""
    method = draw(METHODS)
    params = draw(part_of(CALL_PARTS if method == "tools/call" else GREETING_PARTS if method == "initialize" else {}))
    meta = draw(st.sampled_from([{}] * 36 + [ABSENT, None, [], "x"]))
    if meta == {}:
        meta = draw(part_of(META_PARTS))
    if meta is not ABSENT:
        params["_meta"] = meta
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": draw(st.sampled_from([1, "a"])), "method": method, "params": params}
    version = meta.get(VERSION) if isinstance(meta, dict) else None
    name = params.get("name")
    mirrored = {
        "MCP-Protocol-Version": version if isinstance(version, str) else MODERN,
        "Mcp-Method": method,
        "Mcp-Name": name if isinstance(name, str) else None,
    }
    headers = list(JSON_HEADERS)
    for header, value in mirrored.items():
        odd = draw(st.sampled_from([value] * 95 + [None, "x", " ", MODERN, HANDSHAKE[-1]]))
        if odd is not None:
            headers.append((header, draw(st.sampled_from([odd] * 18 + [f" {odd}\t", b64(odd)]))))
    return json.dumps(body).encode(), headers


def _mixes_eras(body: bytes, headers: dict[str, str]) -> bool:
    """The one intended difference that these can meet (`eras` in the corpus)."""
    version = headers.get("MCP-Protocol-Version", "").strip()
    meta = json.loads(body)["params"].get("_meta")
    return version in HANDSHAKE and isinstance(meta, dict) and VERSION in meta and meta[VERSION] != version


@pytest.mark.guard
@cases(400, 800, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(exchange=exchanges())
def test_a_request_nobody_thought_of_is_answered_as_the_sdk_answers_it(
    exchange: tuple[bytes, list[tuple[str, str]]], home: Home, ours: str, reference: str
) -> None:
    body, headers = exchange
    if _mixes_eras(body, dict(headers)):
        got = post(ours, body, [*headers, ("X-MCP-API-Key", home.keys["admin"])])
        assert (got.status, got.json["error"]["code"]) == (400, -32020)
        return
    expected = compare.http(post(reference, body, headers))
    got = compare.http(post(ours, body, [*headers, ("X-MCP-API-Key", home.keys["admin"])]))
    event(f"{expected['status']} {'error' in str(expected['body'])}")
    assert got == expected
