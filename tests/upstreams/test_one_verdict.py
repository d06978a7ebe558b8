"""One call, one verdict, for adopted tools: every refusal over both eras, both transports and all faces. And the ways in which
other gateways let a refused call through, one row each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Commands
from tests.faces import speak
from tests.faces.test_one_verdict import ROWS as OWN
from tests.faces.test_one_verdict import WRONG_KEY
from tests.homes import PATIENCE_S, Home, Server, environment
from tests.upstreams.homes import FACES, Swapping, adopting_home, ask, stub_table
from tests.upstreams.support import lines
from tests.waiting import until
from toolgate.gate.authority.stops import STOPS_FILE, Stops, new_stop

Mrt, Rpc = tuple[int, str | None], tuple[int, int | None, str | None]


@dataclass(frozen=True)
class Row:
    """What was done, and how each face spells what happened: `mcp` is the envelope's code, or JSON-RPC's."""

    tool: str
    arguments: Any
    key: str | None
    mrt: Mrt
    rpc: Rpc
    mcp: tuple[int, int, Any]
    exit: int


def as_own(name: str, tool: str, arguments: Any) -> Row:
    """The same as for a tool of our own."""
    own = OWN[name]
    return Row(tool, arguments, own.key, own.mrt[:2], own.rpc, own.mcp, own.exit)


def of_upstream(tool: str, text: str, code: str, status: int, exit_code: int) -> Row:
    spelt = code.upper()
    return Row(tool, {"text": text}, "admin", (status, code), (status, status, spelt), (200, 200, spelt), exit_code)


SAID_NO = (200, 200, "UPSTREAM_ERROR")
ROWS = {
    "good": as_own("good", "echo", {"text": "x"}),
    "no key": as_own("no key", "echo", {"text": "x"}),
    "bad key": as_own("bad key", "echo", {"text": "x"}),
    "role": Row("echo", {"text": "x"}, "committer", OWN["role"].mrt[:2], OWN["role"].rpc, OWN["role"].mcp, 5),
    "unknown tool": as_own("unknown tool", "no_such", {"text": "x"}),
    "stopped": as_own("stopped", "other", {"text": "x"}),
    "bad arguments": as_own("bad arguments", "echo", {}),
    "rule denied": as_own("rule denied", "echo", {"text": "ruled"}),
    "approval required": as_own("approval required", "echo", {"text": "asked"}),
    "says no": Row(
        "echo",
        {"text": "error"},
        "admin",
        (400, "validation_mrt_exec_failed"),
        (400, -32602, "INVALID_INPUT"),
        SAID_NO,
        1,
    ),
    "says no without a word": Row(
        "echo",
        {"text": "bare error"},
        "admin",
        (400, "validation_mrt_exec_failed"),
        (400, -32602, "INVALID_INPUT"),
        SAID_NO,
        1,
    ),
    "answers with an error": Row(
        "echo",
        {"text": "rpc error"},
        "admin",
        (400, "validation_mrt_exec_failed"),
        (500, -32603, "INTERNAL_ERROR"),
        SAID_NO,
        1,
    ),
    "nonsense": as_own("nonsense", "typed", {"text": "nonsense"}),
    "fault": of_upstream("echo", "input", "upstream_fault", 502, 1),
    "in doubt": of_upstream("echo", "die", "in_doubt", 504, 10),
}


UNREACHED = ("role", "stopped", "bad arguments", "rule denied", "approval required")
"""Of these the upstream hears nothing."""


@dataclass(frozen=True)
class World:
    home: Home
    server: Server
    log: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The builder and the administrator hold the tools; the committer does not. One of them is stopped, one has rules."""
    path = tmp_path_factory.mktemp("verdicts")
    table = stub_table("by text", path / "log")
    rules = [
        {"name": "no", "deny": "args.text == 'ruled' && upstream == 'stub'"},
        {"name": "ask", "require-approval": "args.text == 'asked'"},
    ]
    home = adopting_home(path / "home", {"stub": table}, roles=("builder", "admin"), rules={"stub_echo": rules})
    stop = new_stop(tool="stub_other", caller=None, upstream=None, reason="", since=0.0, until=None)
    Stops(home.path / "keys" / STOPS_FILE).add(stop)
    (path / "log").unlink()
    with home.serving() as server:
        yield World(home, server, path / "log")


def key_of(world: World, row: Row) -> str | None:
    return WRONG_KEY if row.key == WRONG_KEY else world.home.keys.get(row.key or "", row.key)


def code_of(body: dict[str, Any]) -> Any:
    """Of an answer on MCP."""
    if "error" in body:
        return body["error"]["code"]
    result = body["result"]
    code = result["_meta"]["toolgate/envelope"].get("code")
    assert bool(result.get("isError")) is (code is not None)
    assert code in (None, "UPSTREAM_ERROR") or "structuredContent" not in result
    return code


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("face", FACES)
def test_over_http(world: World, face: str, name: str) -> None:
    row, before = ROWS[name], len(lines(world.log, "call"))
    status, body = ask(face, world.server.port, ("stub", row.tool), row.arguments, key_of(world, row))
    assert name not in UNREACHED or len(lines(world.log, "call")) == before
    if face == "mrt":
        assert (status, body.get("error_code")) == row.mrt
    elif face == "rpc":
        error = body.get("error", {"code": None, "data": {"canonical_code": None}})
        assert (status, error["code"], error["data"]["canonical_code"]) == row.rpc
    else:
        assert (status, code_of(body)) == (row.mcp[0 if face == "mcp modern" else 1], row.mcp[2])


@pytest.mark.guard
@pytest.mark.parametrize("role", ["builder", "admin", "committer"])
def test_over_stdio(world: World, role: str) -> None:
    with speak.stdio(world.home, role) as peer:
        for row in (row for row in ROWS.values() if row.key == role):
            params = {"tool": f"mcp.tool:upstream.stub.{row.tool}", "input": row.arguments}
            body = peer.ask({"id": "1", "jsonrpc": "2.0", "method": "mcp.tool.invoke", "params": params})
            error = body.get("error", {"code": None, "data": {"canonical_code": None}})
            assert (error["code"], error["data"]["canonical_code"]) == row.rpc[1:]
            for modern in (True, False):
                message = speak.mcp_message(f"stub_{row.tool}", row.arguments, modern=modern)
                assert code_of(peer.ask(message)) == row.mcp[2]


@pytest.mark.guard
@pytest.mark.parametrize("name", ROWS)
def test_on_the_command_line(world: World, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    row = ROWS[name]
    heard = speak.called_here(Commands(capfd), world.home, f"stub_{row.tool}", row.arguments, key_of(world, row))
    assert (heard.status, heard.code) == (row.exit, row.mrt[1])


@pytest.mark.guard
def test_too_many_at_once_over_each_face(tmp_path: Path) -> None:
    table = stub_table("by text", tmp_path / "log")
    home = adopting_home(tmp_path / "home", {"stub": table}, settings="[limits]\nconcurrency_per_caller = 1\n")
    with home.serving() as server, ThreadPoolExecutor(1) as caller:

        def call(face: str, text: str, role: str = "admin") -> tuple[int, dict[str, Any]]:
            return ask(face, server.port, ("stub", "echo"), {"text": text}, home.keys[role])

        held = caller.submit(call, "mrt", "hold")
        until(lambda: lines(tmp_path / "log", "held") or held.done(), "the only place is taken")
        try:
            for face in FACES:
                status, body = call(face, "x")
                if face == "mrt":
                    assert (status, body["error_code"]) == (429, "limit_concurrency_exceeded")
                elif face == "rpc":
                    assert (status, body["error"]["data"]["canonical_code"]) == (429, "LIMIT_EXCEEDED")
                else:
                    assert (status, code_of(body)) == (200, "LIMIT_CONCURRENCY_EXCEEDED")
        finally:
            released = call("mrt", "release", "builder")
        assert (released[0], held.result(PATIENCE_S)[0]) == (200, 200)
        until(lambda: call("mrt", "x")[0] == 200, "the place came back")


@pytest.mark.guard
def test_too_fast_over_each_face(tmp_path: Path) -> None:
    table = Swapping(tmp_path).table()
    home = adopting_home(tmp_path / "home", {"stub": table}, settings="[limits]\nrate_per_minute = 1\n")
    with home.serving() as server:
        assert ask("mrt", server.port, ("stub", "echo"), {"text": "x"}, home.keys["admin"])[0] == 200
        for face in FACES:
            status, body = ask(face, server.port, ("stub", "echo"), {"text": "x"}, home.keys["admin"])
            if face == "mrt":
                assert (status, body["error_code"]) == (429, "limit_rate_exceeded")
            elif face == "rpc":
                assert (status, body["error"]["data"]["canonical_code"]) == (429, "LIMIT_EXCEEDED")
            else:
                assert (status, code_of(body)) == (200, "LIMIT_RATE_EXCEEDED")


@pytest.mark.guard
def test_a_log_that_cannot_be_written_is_told_on_every_face_and_nothing_is_sent(tmp_path: Path) -> None:
    """A real limit on a real process, as for tools of our own."""
    swapping = Swapping(tmp_path)
    home = adopting_home(tmp_path / "home", {"stub": swapping.table()})
    command = ["sh", "-c", 'ulimit -f 24; exec "$@"', "sh", *home.command("serve", "--port", "0", "--json")]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        key, echo = home.keys["admin"], ("stub", "echo")
        for _ in range(100):
            if ask("mrt", port, echo, {"text": "x"}, key)[0] == 503:
                break
        reached = len(lines(swapping.log, "call"))
        for face in FACES:
            status, body = ask(face, port, echo, {"text": "x"}, key)
            if face == "mrt":
                assert (status, body["error_code"]) == (503, "unavailable")
            elif face == "rpc":
                assert (status, body["error"]["code"]) == (503, -32603)
            else:
                assert (status, code_of(body)) == (200, "UNAVAILABLE")
        assert len(lines(swapping.log, "call")) == reached
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


# -- how refused calls got through elsewhere ----------------------------------------------------------------------------

FILTERED, HELD = "stub_echo", "stub_other"
MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"}
HANDSHAKE = {"mcp-protocol-version": "2025-11-25"}


def message(name: str, *, modern: bool) -> dict[str, Any]:
    return speak.mcp_message(name, {"text": "x"}, modern=modern)


def twice(name: str, other: str) -> bytes:
    """A message in which the tool's name stands twice: who takes the first and who takes the last see two messages."""
    return json.dumps(message("NAME", modern=False)).replace('"NAME"', f'"{name}", "name": "{other}"').encode()


RPC = {"tool": f"mcp.tool:upstream.{FILTERED.replace('_', '.')}", "input": {"text": "x"}}
MRT = {"tool": FILTERED, "args": {"text": "x"}}
INCIDENTS: dict[str, tuple[str, Any, dict[str, str], int, Any]] = {
    "the header names a tool that is held": (
        "/mcp",
        message(FILTERED, modern=True),
        {**MODERN, "mcp-name": HELD},
        400,
        -32020,
    ),
    "a header of one era, a message of the other": (
        "/mcp",
        message(FILTERED, modern=True),
        HANDSHAKE,
        400,
        -32020,
    ),
    "no header, a message of the modern era": ("/mcp", message(FILTERED, modern=True), {}, 200, "role"),
    "a modern header, a message without an envelope": (
        "/mcp",
        message(FILTERED, modern=False),
        {**MODERN, "mcp-name": FILTERED},
        400,
        -32602,
    ),
    "two names, the held one first": ("/mcp", twice(HELD, FILTERED), HANDSHAKE, 400, -32700),
    "two names, the held one last": ("/mcp", twice(FILTERED, HELD), HANDSHAKE, 400, -32700),
    "a name in other letters": (
        "/mcp",
        {**message("", modern=False), "params": {"Name": FILTERED, "arguments": {"text": "x"}}},
        HANDSHAKE,
        200,
        -32602,
    ),
    "a batch of the handshake era": ("/mcp", [message(FILTERED, modern=False)], HANDSHAKE, 400, -32600),
    "a batch of the modern era": (
        "/mcp",
        [message(FILTERED, modern=True)],
        {**MODERN, "mcp-name": FILTERED},
        400,
        -32600,
    ),
    "a batch on rpc": (
        "/rpc",
        [{"id": "1", "jsonrpc": "2.0", "method": "mcp.tool.invoke", "params": RPC}],
        {},
        400,
        "any",
    ),
    "a batch on dispatch": ("/mrt_dispatch", [MRT], {}, 400, "any"),
    "plain text": ("/mcp", message(FILTERED, modern=False), {**HANDSHAKE, "content-type": "text/plain"}, 415, "any"),
    "a form": (
        "/mrt_dispatch",
        MRT,
        {"content-type": "application/x-www-form-urlencoded"},
        415,
        "any",
    ),
    "no media type that is JSON": ("/rpc", MRT, {"content-type": "application/octet-stream"}, 415, "any"),
    "no JSON at all": ("/mcp", b"tools/call stub_echo", HANDSHAKE, 400, -32700),
    "a mark of the byte order": (
        "/mcp",
        b"\xef\xbb\xbf" + json.dumps(message(FILTERED, modern=False)).encode(),
        HANDSHAKE,
        400,
        -32700,
    ),
    "another encoding": (
        "/mcp",
        json.dumps(message(FILTERED, modern=False)).encode("utf-16"),
        HANDSHAKE,
        400,
        -32700,
    ),
}


@pytest.fixture(scope="module")
def filtering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The builder holds one of the two tools."""
    path = tmp_path_factory.mktemp("filtering")
    home = adopting_home(path / "home", {"stub": stub_table("good", path / "log")}, roles=("builder", "admin"))
    manifest = home.path / "policy" / "mcp-tools.policy.json"
    content = json.loads(manifest.read_bytes())
    for row in content["tools"]:
        if row["name"] == FILTERED:
            row["x-roles"] = ["admin"]
    manifest.write_text(json.dumps(content))
    (path / "log").unlink()
    with home.serving() as server:
        yield World(home, server, path / "log")


@pytest.mark.parametrize("incident", INCIDENTS)
def test_a_tool_that_is_filtered_is_not_reached_by_another_way(filtering: World, incident: str) -> None:
    path, body, headers, status, code = INCIDENTS[incident]
    accept = {
        "accept": "application/json, text/event-stream",
        "authorization": f"Bearer {filtering.home.keys['builder']}",
    }
    found, _, answer = speak.send(filtering.server.port, path, body, {**accept, **headers})
    assert found == status, answer
    if code == "role":
        assert code_of(answer) == "AUTH_INSUFFICIENT_ROLE"
    elif code != "any":
        assert answer["error"]["code"] == code
    assert lines(filtering.log, "call") == []


@pytest.mark.parametrize("modern", [True, False])
def test_a_filtered_tool_is_neither_listed_nor_callable_in_either_era_over_a_pipe(
    filtering: World, modern: bool
) -> None:
    with speak.stdio(filtering.home, "builder") as peer:
        asked = {**message("", modern=modern), "method": "tools/list"}
        asked["params"] = {key: value for key, value in asked["params"].items() if key == "_meta"}
        names = {tool["name"] for tool in peer.ask(asked)["result"]["tools"]}
        assert HELD in names
        assert FILTERED not in names
        assert code_of(peer.ask(message(FILTERED, modern=modern))) == "AUTH_INSUFFICIENT_ROLE"
        assert peer.ask(twice(HELD, FILTERED))["error"]["code"] == -32700
        assert peer.ask([message(FILTERED, modern=modern)])["error"]["code"] == -32600
    assert lines(filtering.log, "call") == []
