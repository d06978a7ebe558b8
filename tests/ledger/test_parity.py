"""The same calls over HTTP and over a pipe leave the same records; the golden log is what they leave."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from deepdiff import DeepDiff

from tests.homes import Home
from tests.ledger import replay
from toolgate.errors import Ending
from toolgate.ledger.reading import parity

VOLATILE_PATHS = [f"root['{name}']" for name in sorted(parity.VOLATILE)]
Records = list[dict[str, Any]]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Records, Records]:
    return replay.both(tmp_path_factory.mktemp("replayed"))


@pytest.mark.guard
@pytest.mark.timeout(180)
@pytest.mark.req("002-L3")
def test_http_and_stdio_leave_the_same_records(replayed: tuple[Records, Records]) -> None:
    http, stdio = replayed
    assert len(http) == len(stdio) > 100
    for number, (one, other) in enumerate(zip(http, stdio, strict=True)):
        assert not DeepDiff(one, other, exclude_paths=VOLATILE_PATHS), f"record {number}"
        assert (one["transport"], other["transport"]) == ("http", "stdio")
    assert parity.differences(iter(http), iter(stdio)) == []


@pytest.mark.guard
@pytest.mark.timeout(180)
def test_the_corpus_has_every_tool_and_every_row_of_the_verdict_table(replayed: tuple[Records, Records]) -> None:
    assert replay.covers_every_tool()
    happened = {record["error"]["happening"] if record["error"] else "ok" for record in replayed[0]}
    not_calls = {"malformed", "too_large", "wrong_media_type", "unknown_route", "wrong_method", "wrong_host"}
    unrecorded = {
        "missing_key",
        "unavailable",
    }  # a pipe without a key is not served; what cannot be written is not here
    limited = {"too_many", "too_fast"}  # one row of the table
    elsewhere = {"target_failed"}  # needs a site that fails: tests/faces has one, and asks on every face
    upstream = {"upstream_down", "upstream_drift", "upstream_fault", "in_doubt"}  # over every face: tests/upstreams
    sessions = {"no_session", "state_refused", "client_cannot"}  # on the MCP face alone: tests/offers
    authority = {"stopped", "rule_denied", "approval_required"}  # over every face: tests/gate/authority, tests/faces
    repeated = {"key_reused", "key_busy"}  # on every face that has a place for a key: tests/gate/test_idempotency.py
    named = not_calls | unrecorded | limited | elsewhere | upstream | sessions | authority | repeated
    assert happened >= {one.value for one in Ending} - named
    assert happened & limited
    assert {record["face"] for record in replayed[0]} == {"mcp", "rpc"}


@pytest.mark.guard
@pytest.mark.timeout(180)
@pytest.mark.req("002-L4", "002-L6")
def test_the_golden_log_is_regenerated_byte_for_byte(replayed: tuple[Records, Records]) -> None:
    """Differs: look at the difference; if it is meant, run `make golden`."""
    http, stdio = replayed
    assert replay.golden(http) == replay.golden(stdio)
    assert replay.golden(http).decode().splitlines() == replay.GOLDEN.read_text().splitlines()


def two_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: replay.Part) -> tuple[Records, Records]:
    monkeypatch.setattr(replay, "WITH_UNRULY", ("unruly",))
    monkeypatch.setattr(replay, "PARTS", (part,))
    replay._canonical_ids.cache_clear()
    try:
        return replay.both(tmp_path)
    finally:
        replay._canonical_ids.cache_clear()


@pytest.mark.req("002-L3", "002-L6")
def test_every_verdict_leaves_the_same_record_on_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    http, stdio = two_servers(tmp_path, monkeypatch, replay.Part("committer", replay.VERDICTS))
    assert len(http) == len(replay.FACES) * (len(replay.VERDICTS) + 1)  # one of them has an intent
    assert parity.differences(iter(http), iter(stdio)) == []
    for one, other in zip(http, stdio, strict=True):
        assert one["requestId"] == other["requestId"], "ids follow from the call, not from the transport"
    check_ids(http)


def check_ids(records: Records) -> None:
    """Decision 93, recomputed by hand: the first call, and the same call again."""
    namespace = uuid.UUID("c1fd1c20-77b7-4f73-b39c-8ed2dd2f2d8c")
    call = '{"method":"mcp.tool.invoke","payload":{"arguments":{"text":"fine"},"toolId":"mcp.tool:unruly.echo"},"route":"tool"}'
    echoes = [record for record in records if record["metadata"]["toolId"] == "mcp.tool:unruly.echo"]
    for number, record in enumerate(echoes, start=1):
        text = call if number == 1 else f"{call}#{number}"
        expected = [str(uuid.uuid5(namespace, f"{kind}:{text}")) for kind in ("req", "trace", "span")]
        assert [record["requestId"], record["traceId"], record["spanId"]] == expected
        assert record["metadata"]["deterministic"] is True


def test_every_answer_tells_where_it_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.faces import speak

    monkeypatch.setattr(replay, "WITH_UNRULY", ("unruly",))
    home = replay.fixed_home(tmp_path / "home")
    with home.serving() as server:
        for face, ask in speak.HTTP_FACES.items():
            for tool in ("unruly_echo", "unruly_nothing"):
                heard = ask(server.port, tool, {}, home.keys["admin"])
                assert set(_audit(heard.body)) == {"run", "seq", "leaf"}, (face, tool)
    found = {record["seq"]: record for record in home.calls()}
    assert len(found) == 2 * len(speak.HTTP_FACES)


def _audit(body: Any) -> dict[str, Any]:
    """Wherever the face puts it."""
    if isinstance(body, dict):
        if isinstance(body.get("audit"), dict):
            return dict(body["audit"])
        for value in body.values():
            if found := _audit(value):
                return found
    return {}


def test_the_golden_holds_no_volatile_field_and_the_ids_of_the_calls() -> None:
    lines = [json.loads(line) for line in replay.GOLDEN.read_text().splitlines()]
    assert len(lines) > 100
    for line in lines:
        assert not parity.UNREPEATABLE & line.keys()
        assert line["agentId"] == "mcp_server"
        assert line["metadata"]["deterministic"] is True
        assert uuid.UUID(line["requestId"]).version == 5


def test_copied_homes_have_the_same_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "WITH_UNRULY", ("unruly",))
    home = replay.fixed_home(tmp_path / "one")
    shutil.copytree(home.path, tmp_path / "two")
    assert {key.id for key in Home(tmp_path / "two", home.keys).ring().all()} == {
        key.split("_")[1] for key in home.keys.values()
    }
