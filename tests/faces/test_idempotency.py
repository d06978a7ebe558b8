"""An idempotency key on each face: where it stands, how a repeated answer looks, and how each refusal is spelt."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, environment

META_KEY = "toolgate/idempotency-key"


def say(face: str, port: int, arguments: Any, api_key: str, once: Any, tool: str = "unruly_write") -> speak.Heard:
    headers = {"x-mcp-api-key": api_key}
    if face == "mrt":
        message: dict[str, Any] = {"tool": tool, "args": arguments}
        status, back, body = speak.send(port, "/mrt_dispatch", message, {**headers, "Idempotency-Key": once})
        details = body.get("details") or {}
        return speak.Heard(status, body.get("error_code"), details.get("reason"), body, back, body.get("envelope"))
    if face == "rpc":
        message = speak.rpc_message(tool, arguments)
        return speak.heard_rpc(*speak.send(port, "/rpc", message, {**headers, "Idempotency-Key": once}))
    return speak.heard_mcp(*post_mcp(face, port, arguments, headers, once, tool))


def post_mcp(
    face: str, port: int, arguments: Any, headers: dict[str, str], once: Any, tool: str = "unruly_write"
) -> tuple[int, dict[str, str], Any]:
    modern = face == "mcp modern"
    version = "2026-07-28" if modern else "2025-11-25"
    headers = {**headers, "MCP-Protocol-Version": version}
    headers |= {"Mcp-Method": "tools/call", "Mcp-Name": tool} if modern else {}
    return speak.send(port, "/mcp", with_key(speak.mcp_message(tool, arguments, modern=modern), once), headers)


def with_key(message: dict[str, Any], once: Any) -> dict[str, Any]:
    params = message["params"]
    return {**message, "params": {**params, "_meta": {**params.get("_meta", {}), META_KEY: once}}}


@pytest.mark.parametrize("face", speak.HTTP_FACES)
def test_a_repeated_call_gets_its_answer_and_other_arguments_are_refused(home: Home, server: Server, face: str) -> None:
    key, once = home.keys["admin"], f"faces-{face.replace(' ', '-')}"
    name = f"{once}-file"
    first = say(face, server.port, {"name": name}, key, once)
    (home.workspace / name).unlink()
    again = say(face, server.port, {"name": name}, key, once)
    assert not (home.workspace / name).exists()
    assert first.envelope is not None
    assert again.envelope is not None
    assert again.envelope["data"] == first.envelope["data"] == {"name": name}
    assert again.envelope["audit"]["repeats"] == first.envelope["requestId"]
    assert "repeats" not in first.envelope["audit"]
    other = say(face, server.port, {"name": "another"}, key, once)
    expected = {
        "mrt": (422, "idempotency_key_reused"),
        "rpc": (422, (422, "IDEMPOTENCY_KEY_REUSED")),
    }
    assert (other.status, other.code) == expected.get(face, (200, "IDEMPOTENCY_KEY_REUSED"))
    if face != "rpc":
        assert other.reason == "other_arguments"
    assert not (home.workspace / "another").exists()


def test_one_key_is_one_key_on_all_faces(home: Home, server: Server) -> None:
    heard = [
        say(face, server.port, {"name": "all-faces"}, home.keys["admin"], "all-faces") for face in speak.HTTP_FACES
    ]
    assert heard[0].envelope is not None
    for other in heard[1:]:
        assert other.envelope is not None
        assert other.envelope["audit"]["repeats"] == heard[0].envelope["requestId"]


NO_KEYS = {"empty": "", "a space": "a b", "too long": "k" * 256, "not ASCII": "schl\xfcssel"}


@pytest.mark.parametrize("wrong", NO_KEYS)
@pytest.mark.parametrize("face", ["mrt", "rpc"])
def test_what_is_no_key_is_refused_and_nothing_runs(home: Home, server: Server, face: str, wrong: str) -> None:
    heard = say(face, server.port, {"name": "no-key"}, home.keys["admin"], NO_KEYS[wrong].encode("latin-1"))
    assert (heard.status, heard.reason) == (400, "invalid_idempotency_key")
    assert not (home.workspace / "no-key").exists()


@pytest.mark.parametrize("wrong", [*NO_KEYS.values(), 7, ["k"]])
@pytest.mark.parametrize("face", ["mcp modern", "mcp handshake"])
def test_what_is_no_key_on_mcp_is_refused_and_nothing_runs(home: Home, server: Server, face: str, wrong: Any) -> None:
    _, _, body = post_mcp(face, server.port, {"name": "no-key"}, {"x-mcp-api-key": home.keys["admin"]}, wrong)
    assert body["error"]["code"] == -32602
    assert META_KEY in body["error"]["message"]
    assert not (home.workspace / "no-key").exists()


@pytest.mark.parametrize("face", ["mcp modern", "mcp handshake"])
def test_a_header_on_mcp_must_say_what_the_message_says(home: Home, server: Server, face: str) -> None:
    headers = {"x-mcp-api-key": home.keys["admin"], "Idempotency-Key": "in-the-header"}
    for once in (None, "in-the-message"):
        _, _, body = post_mcp(face, server.port, {"name": "no-key"}, headers, once)
        assert body["error"]["code"] == -32602
    assert not (home.workspace / "no-key").exists()
    status, _, body = post_mcp(face, server.port, {"name": "same-key"}, headers, "in-the-header")
    assert (status, body["result"]["isError"]) == (200, False)


def test_a_key_that_comes_twice_is_no_key(home: Home, server: Server) -> None:
    body = json.dumps({"tool": "unruly_write", "args": {"name": "no-key"}}).encode()
    head = (
        f"POST /mrt_dispatch HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
        f"X-MCP-API-Key: {home.keys['admin']}\r\nIdempotency-Key: a\r\nIdempotency-Key: a\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    answer = speak.raw(server.port, head.encode() + body)
    assert b" 400 " in answer.partition(b"\r\n")[0]
    assert b"invalid_idempotency_key" in answer
    assert not (home.workspace / "no-key").exists()


def test_a_key_on_a_pipe(home: Home) -> None:
    with speak.stdio(home) as peer:
        asked = with_key(speak.mcp_message("unruly_write", {"name": "piped"}, modern=True), "piped")
        first, again = (speak.heard_mcp(None, {}, peer.ask(asked)) for _ in range(2))
    assert first.envelope is not None
    assert again.envelope is not None
    assert again.envelope["audit"]["repeats"] == first.envelope["requestId"]


@pytest.mark.guard
@pytest.mark.parametrize("way", ["in this process", "over HTTP"])
def test_on_the_command_line(home: Home, server: Server, way: str) -> None:
    once = way.replace(" ", "-")
    flags = ["--url", str(server.ready["url"])] if way == "over HTTP" else []

    def call(name: str, key: str = once) -> tuple[int, dict[str, Any]]:
        command = home.command("call", "unruly_write", f"name={name}", "--json", "--idempotency-key", key, *flags)
        env = environment(TOOLGATE_API_KEY=home.keys["admin"])
        done = subprocess.run(command, env=env, capture_output=True, timeout=PATIENCE_S, check=False)
        return done.returncode, json.loads(done.stdout) if done.stdout else {}

    code, first = call(once)
    (home.workspace / once).unlink()
    assert code == 0
    code, again = call(once)
    assert (code, again["audit"]["repeats"]) == (0, first["envelope"]["requestId"])
    assert not (home.workspace / once).exists()
    code, other = call("another")
    assert (code, other["error_code"]) == (8, "idempotency_key_reused")
    assert call("another", "no key")[0] == 2
