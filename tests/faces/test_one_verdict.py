"""One call, one verdict: each row of the table, over each face, from real servers."""

from __future__ import annotations

import json
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Commands
from tests.faces import speak
from tests.faces.conftest import ASKED, CUSTOM, ELSEWHERE, RULED, SCOPED, STOPPED
from tests.homes import PATIENCE_S, Home, Server, environment, make_home
from tests.offers.client import Client
from tests.waiting import until
from toolgate.model.call import CallerBounds

WRONG_KEY = "tg_000000000000_" + "0" * 64


@dataclass(frozen=True)
class Row:
    """What was done, and how each face must spell what happened. Written from the table of the decisions, not from code."""

    tool: str
    arguments: Any
    key: str | None
    mrt: tuple[int, str | None, str | None]
    """status, error_code, details.reason"""
    rpc: tuple[int, int | None, str | None]
    """status, JSON-RPC code, canonical code"""
    mcp: tuple[int, int, Any]
    """status (modern), status (handshake), JSON-RPC code or the envelope's code"""
    exit: int


UNAUTHORIZED = (401, -32001, "UNAUTHORIZED")
ROWS = {
    "good": Row("unruly_echo", {"text": "x"}, "builder", (200, None, None), (200, None, None), (200, 200, None), 0),
    "no key": Row("unruly_echo", {}, None, (401, "auth_missing_api_key", None), UNAUTHORIZED, (401, 401, 401), 5),
    "bad key": Row("unruly_echo", {}, WRONG_KEY, (403, "auth_invalid_api_key", None), UNAUTHORIZED, (401, 401, 401), 5),
    "role": Row(
        "unruly_admin",
        {},
        "builder",
        (403, "auth_insufficient_role", None),
        UNAUTHORIZED,
        (200, 200, "AUTH_INSUFFICIENT_ROLE"),
        5,
    ),
    "custom role": Row(
        "unruly_guarded", {"mode": "special"}, CUSTOM, (200, None, None), (200, None, None), (200, 200, None), 0
    ),
    "custom role is not its base": Row(
        "unruly_echo",
        {},
        CUSTOM,
        (403, "auth_insufficient_role", None),
        UNAUTHORIZED,
        (200, 200, "AUTH_INSUFFICIENT_ROLE"),
        5,
    ),
    "base is not its custom role": Row(
        "unruly_guarded",
        {},
        "admin",
        (403, "auth_insufficient_role", None),
        UNAUTHORIZED,
        (200, 200, "AUTH_INSUFFICIENT_ROLE"),
        5,
    ),
    "argument of another base": Row(
        "unruly_guarded",
        {"receipt": "x"},
        CUSTOM,
        (403, "auth_insufficient_role", None),
        UNAUTHORIZED,
        (200, 200, "AUTH_INSUFFICIENT_ROLE"),
        5,
    ),
    "within its scope": Row(
        "unruly_write", {"name": "scoped.txt"}, SCOPED, (200, None, None), (200, None, None), (200, 200, None), 0
    ),
    "out of its scope": Row(
        "unruly_echo",
        {},
        SCOPED,
        (403, "auth_insufficient_role", "out_of_scope"),
        UNAUTHORIZED,
        (200, 200, "AUTH_INSUFFICIENT_ROLE"),
        5,
    ),
    "in its scope, not its role": Row(
        "unruly_guarded",
        {},
        SCOPED,
        (403, "auth_insufficient_role", None),
        UNAUTHORIZED,
        (200, 200, "AUTH_INSUFFICIENT_ROLE"),
        5,
    ),
    "another address": Row(
        "unruly_echo", {}, ELSEWHERE, (403, "auth_invalid_api_key", None), UNAUTHORIZED, (401, 401, 401), 5
    ),
    "unknown tool": Row(
        "no_such",
        {},
        "admin",
        (400, "validation_unknown_method", None),
        (404, -32004, "NOT_FOUND"),
        (400, 200, -32602),
        6,
    ),
    "stopped": Row(
        STOPPED,
        {},
        "admin",
        (503, "stopped", "stopped"),
        (503, 503, "STOPPED"),
        (200, 200, "STOPPED"),
        5,
    ),
    "bad arguments": Row(
        "unruly_write",
        {},
        "admin",
        (400, "validation_failed", "missing_name"),
        (400, -32602, "INVALID_INPUT"),
        (200, 200, "INVALID_INPUT"),
        8,
    ),
    "rule denied": Row(
        "unruly_write",
        {"name": RULED},
        "admin",
        (403, "rule_denied", "rule_denied"),
        (403, 403, "RULE_DENIED"),
        (200, 200, "RULE_DENIED"),
        5,
    ),
    "approval required": Row(
        "unruly_write",
        {"name": ASKED},
        "admin",
        (202, "approval_required", "approval_required"),
        (202, 202, "APPROVAL_REQUIRED"),
        (200, 200, "APPROVAL_REQUIRED"),
        11,
    ),
    "not there": Row(
        "unruly_raise",
        {"kind": "missing"},
        "admin",
        (404, "validation_mrt_exec_failed", "file_not_found"),
        (404, -32004, "NOT_FOUND"),
        (200, 200, "FILE_NOT_FOUND"),
        1,
    ),
    "says no": Row(
        "unruly_raise",
        {"kind": "no"},
        "admin",
        (400, "validation_mrt_exec_failed", "directory_exists"),
        (400, -32602, "INVALID_INPUT"),
        (200, 200, "DIRECTORY_EXISTS"),
        1,
    ),
    "a8 target failed": Row(
        "unruly_raise",
        {"kind": "target"},
        "admin",
        (400, "validation_mrt_exec_failed", "timeout"),
        (500, -32603, "INTERNAL_ERROR"),
        (200, 200, "TIMEOUT"),
        1,
    ),
    "crashed": Row(
        "unruly_raise",
        {"kind": "error"},
        "admin",
        (500, "internal_error", "crashed"),
        (500, -32603, "INTERNAL_ERROR"),
        (200, 200, "EXECUTION_FAILED"),
        1,
    ),
    "deadline": Row(
        "unruly_sleep",
        {},
        "admin",
        (500, "internal_error", "deadline_exceeded"),
        (500, -32603, "INTERNAL_ERROR"),
        (200, 200, "EXECUTION_FAILED"),
        1,
    ),
    "nonsense": Row(
        "unruly_answer",
        {"kind": "list"},
        "admin",
        (502, "invalid_tool_output", "invalid_output"),
        (502, -32002, "INVALID_OUTPUT"),
        (200, 200, "INVALID_OUTPUT"),
        1,
    ),
}


def check_mrt(heard: speak.Heard, row: Row) -> None:
    assert (heard.status, heard.code, heard.reason) == row.mrt
    if heard.code is not None:
        body = heard.body
        assert body["ok"] is False
        assert body["error"] == {"code": body["error_code"], "message": body["message"], "details": body["details"]}
        assert body["details"] is None or isinstance(body["details"], dict)
        assert body["request_id"]
        assert body["timestamp"].endswith("Z")


def check_rpc(heard: speak.Heard, row: Row, *, status: bool = True) -> None:
    code = heard.code or (None, None)
    assert code == row.rpc[1:]
    if status:
        assert heard.status == row.rpc[0]


def check_mcp(heard: speak.Heard, row: Row, status: int | None) -> None:
    assert (heard.status, heard.code) == (status, row.mcp[2])
    assert heard.code != -32002, "revision 2026-07-28 forbids emitting it"


@pytest.mark.req("000-C-04", "000-C-10", "000-C-11", "000-D-01", "000-D-02", "000-D-03", "002-C1", "001-F4")
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("face", speak.HTTP_FACES)
def test_over_http(home: Home, server: Server, face: str, name: str) -> None:
    row = ROWS[name]
    heard = speak.HTTP_FACES[face](server.port, row.tool, row.arguments, home.keys.get(row.key or "", row.key))
    if face == "mrt":
        check_mrt(heard, row)
    elif face == "rpc":
        check_rpc(heard, row)
    else:
        check_mcp(heard, row, row.mcp[0 if face == "mcp modern" else 1])
    if heard.status == 401:
        assert heard.headers["www-authenticate"] == 'Bearer realm="toolgate"'


@pytest.mark.req("000-C-10")
@pytest.mark.parametrize("face", speak.HTTP_FACES)
def test_d9_every_refusal_carries_its_id_and_its_time(home: Home, server: Server, face: str) -> None:
    """What document 000 asks of an error, in the place that each protocol leaves for it."""
    for name in ("no key", "bad key", "role", "unknown tool"):
        row = ROWS[name]
        heard = speak.HTTP_FACES[face](server.port, row.tool, row.arguments, home.keys.get(row.key or "", row.key))
        if heard.envelope is not None:
            said, request_id = heard.envelope, "requestId"
        else:
            said, request_id = heard.body if face == "mrt" else heard.body["error"]["data"], "request_id"
        assert said[request_id]
        assert said["timestamp"].endswith("Z")


@pytest.mark.parametrize(
    ("path", "host", "status", "reason"),
    [("/nowhere", None, 404, "unknown_route"), ("/rpc", "evil.example", 403, "host_not_served")],
)
def test_d18_what_is_not_served_says_so_in_its_details(
    server: Server, path: str, host: str | None, status: int, reason: str
) -> None:
    found, _, body = speak.send(server.port, path, {}, {"host": host} if host else {})
    assert (found, body["details"], body["error"]["details"]) == (status, {"reason": reason}, {"reason": reason})


@pytest.mark.parametrize("role", ["builder", "admin", CUSTOM, SCOPED])
def test_over_stdio(home: Home, role: str) -> None:
    with speak.stdio(home, role) as peer:
        for row in ROWS.values():
            if row.key == role:
                check_rpc(peer.rpc(row.tool, row.arguments), row, status=False)
                check_mcp(peer.mcp(row.tool, row.arguments), row, None)
                check_mcp(peer.mcp(row.tool, row.arguments, modern=False), row, None)


@pytest.mark.parametrize("name", ROWS)
def test_on_the_command_line(home: Home, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    row = ROWS[name]
    heard = speak.called_here(Commands(capfd), home, row.tool, row.arguments, home.keys.get(row.key or "", row.key))
    assert heard.status == row.exit
    assert (heard.code, heard.reason) == row.mrt[1:]


def test_a_modern_client_that_can_ask_its_person_hears_the_same_verdict_beside_a_question(
    home: Home, server: Server
) -> None:
    row = ROWS["approval required"]
    client = Client(server.port, home.keys["admin"])
    result = client.ask_modern("tools/call", {"name": row.tool, "arguments": row.arguments}, elicitation={})["result"]
    assert (result["resultType"], result["_meta"]["toolgate/envelope"]["code"]) == ("input_required", row.mcp[2])


@pytest.mark.parametrize("key", [None, WRONG_KEY, "${TOOLGATE_KEY}", ""])
def test_stdio_does_not_start_without_a_good_key_and_says_so_on_standard_error(home: Home, key: str | None) -> None:
    env = environment() if key is None else environment(TOOLGATE_API_KEY=key)
    done = subprocess.run(
        home.command("stdio"), env=env, input=b"", capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 5
    assert done.stdout == b""
    assert b"key" in done.stderr.lower()
    assert b"Traceback" not in done.stderr
    if key == "${TOOLGATE_KEY}":
        assert b"not expanded" in done.stderr


def test_stdio_has_no_address_so_a_key_for_some_addresses_does_not_start_it(home: Home) -> None:
    done = subprocess.run(
        home.command("stdio"),
        env=environment(TOOLGATE_API_KEY=home.keys[ELSEWHERE]),
        input=b"",
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (5, b"")
    assert b"it is for some addresses, and here is none" in done.stderr


def test_the_list_over_mcp_shows_what_a_key_is_scoped_to(home: Home, server: Server) -> None:
    headers = {"authorization": f"Bearer {home.keys[SCOPED]}"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    _, _, body = speak.send(server.port, "/mcp", message, headers)
    names = {tool["name"] for tool in body["result"]["tools"]}
    assert names
    assert all(name.startswith("unruly_w") for name in names)


def test_a_key_for_some_addresses_goes_by_what_trusted_proxies_say(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",), settings='[server]\ntrusted_proxies = ["127.0.0.1"]\n')
    _, key = home.ring().create("admin", bounds=CallerBounds(ranges=("192.0.2.0/24",)))
    body = {"tool": "unruly_echo", "args": {}}
    with home.serving() as server:

        def status(**headers: str) -> int:
            found, _, _ = speak.send(server.port, "/mrt_dispatch", body, {"x-mcp-api-key": key, **headers})
            return int(found)

        assert status(**{"x-forwarded-for": "192.0.2.9"}) == 200
        assert status(**{"x-forwarded-for": "192.0.2.9, 198.51.100.1"}) == 403, "the nearest stranger is who calls"
        assert status(**{"x-forwarded-for": "198.51.100.1"}) == 403
        assert status() == 403


@pytest.mark.req("000-D-05", "000-C-09")
def test_too_many_at_once_over_each_face(home: Home, server: Server) -> None:
    (home.workspace / "release").unlink(missing_ok=True)
    holding = [
        threading.Thread(target=speak.mrt, args=(server.port, "unruly_hold", {}, home.keys["committer"]))
        for _ in range(10)
    ]
    for thread in holding:
        thread.start()
    try:
        for face, say in speak.HTTP_FACES.items():
            heard = _until_limited(say, server.port, home.keys["committer"])
            expected = {"mrt": "limit_concurrency_exceeded", "rpc": (429, "LIMIT_EXCEEDED")}
            assert heard.code == expected.get(face, "LIMIT_CONCURRENCY_EXCEEDED")
            if face in expected:
                assert heard.status == 429, face
                assert int(heard.headers["retry-after"]) >= 1
        assert speak.mrt(server.port, "unruly_echo", {}, home.keys["builder"]).status == 200
    finally:
        (home.workspace / "release").touch()
        for thread in holding:
            thread.join(PATIENCE_S)
    assert speak.mrt(server.port, "unruly_echo", {}, home.keys["committer"]).status == 200, "the slots came back"


def _until_limited(say: Any, port: int, key: str) -> speak.Heard:
    """The ten are on their way; in the end the eleventh meets all of them inside."""

    def refused() -> speak.Heard | None:
        heard: speak.Heard = say(port, "unruly_echo", {}, key)
        return None if heard.code is None else heard

    found = until(refused, "the eleventh call is refused")
    assert found is not None
    return found


def test_too_fast_over_each_face(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",), settings="[limits]\nrate_per_minute = 1\n")
    with home.serving() as server:
        assert speak.mrt(server.port, "unruly_echo", {}, home.keys["admin"]).status == 200
        for face, say in speak.HTTP_FACES.items():
            heard = say(server.port, "unruly_echo", {}, home.keys["admin"])
            expected = {"mrt": "limit_rate_exceeded", "rpc": (429, "LIMIT_EXCEEDED")}
            assert heard.code == expected.get(face, "LIMIT_RATE_EXCEEDED")
            if face in expected:
                assert heard.status == 429
                wait = int(heard.headers["retry-after"])
            else:
                assert heard.status == 200, "to most clients another status is the end of the connection"
                assert heard.envelope is not None
                wait = heard.envelope["details"]["retry_after_s"]
            assert 1 <= wait <= 60


@pytest.mark.req("001-F5", "001-F1")
def test_the_misbehaving_dummy_is_caught_by_the_floor_over_every_face(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("governance",))
    with home.serving() as server:
        heard = [say(server.port, "dummy_experimental", {}, home.keys["builder"]) for say in speak.HTTP_FACES.values()]
    heard.append(speak.command_line(home, "dummy_experimental", {}, home.keys["builder"]))
    with speak.stdio(home, "builder") as peer:
        heard += [
            peer.rpc("dummy_experimental", {}),
            peer.mcp("dummy_experimental", {}),
            peer.mcp("dummy_experimental", {}, modern=False),
        ]
    for one in heard:
        envelope = one.envelope
        assert envelope is not None
        assert (envelope["success"], envelope["isError"], envelope["decision"]) == (True, False, "warn")
        assert "code" not in envelope
        assert envelope["data"] == {"some": "payload"}
        assert (envelope["tier"], envelope["environment"]) == ("experimental", "local")
        assert {clamp["field"] for clamp in envelope["clamps"]} == {"decision", "code"}
        assert set(envelope["audit"]) == {"run", "seq", "leaf"}
    assert len(heard) == 8


def test_a_log_that_cannot_be_written_is_told_on_every_face_and_nothing_runs(tmp_path: Path) -> None:
    """A real limit on a real process: the audit log may grow to 12 KB and not further."""
    home = make_home(tmp_path / "home", packs=("unruly",))
    command = ["sh", "-c", 'ulimit -f 24; exec "$@"', "sh", *home.command("serve", "--port", "0", "--json")]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        for _ in range(100):
            if speak.mrt(port, "unruly_echo", {}, home.keys["admin"]).status == 503:
                break
        expected = {"mrt": "unavailable", "rpc": (-32603, "INTERNAL_ERROR")}
        for face, say in speak.HTTP_FACES.items():
            heard = say(port, "unruly_write", {"name": "unlogged"}, home.keys["admin"])
            assert heard.status == (503 if face in expected else 200)
            assert heard.code == expected.get(face, "UNAVAILABLE")
        assert not (home.workspace / "unlogged").exists()
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
