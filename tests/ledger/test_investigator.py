"""The record answers an investigator: from where, under which name, with whose dead key, for which tool that is none."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Done, Managed, managed
from tests.faces import speak
from tests.homes import PATIENCE_S, Home, make_home
from toolgate.config import load_settings
from toolgate.errors import ExitCode, SettingsError
from toolgate.gate.redact import check_kept
from toolgate.model.tool import Tool
from toolgate.policy.manifest import LOCK_FILE

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


@pytest.fixture
def home(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Managed:
    return managed(make_home(tmp_path / "home", packs=("unruly",)), capfd)


def record_of(home: Home, request_id: str) -> dict[str, Any]:
    (found,) = (one for one in home.calls() if one["requestId"] == request_id)
    return found


@pytest.mark.parametrize("face", speak.HTTP_FACES)
def test_p8_an_answer_names_its_request_in_a_header_and_the_record_the_clients_address(
    home: Managed, face: str
) -> None:
    with home.serving() as server:
        asked = {
            key: speak.HTTP_FACES[face](server.port, tool, {}, sent)
            for key, tool, sent in [
                ("good", "unruly_echo", home.keys["admin"]),
                ("refused", "unruly_nothing", home.keys["admin"]),
                ("stranger", "unruly_echo", "tg_000000000000_" + "0" * 64),
            ]
        }
    for key, heard in asked.items():
        assert heard.headers["x-request-id"] == heard.request_id, key
        assert record_of(home, heard.request_id)["clientAddress"] == "127.0.0.1", key


def test_p8_a_stream_of_events_names_its_request_too(home: Managed) -> None:
    message = speak.mcp_message("unruly_chatter", {}, modern=False)
    message["params"]["_meta"] = {"progressToken": 1}
    with home.serving() as server:
        body = json.dumps(message).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
            f"Accept: text/event-stream, application/json\r\nX-MCP-API-Key: {home.keys['admin']}\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as wire:
            wire.sendall(head.encode() + body)
            heard = b"".join(iter(lambda: wire.recv(65536), b""))
    start = heard.partition(b"\r\n\r\n")[0].lower()
    assert b"text/event-stream" in start
    (found,) = home.calls()
    assert f"x-request-id: {found['requestId']}".encode() in start


def test_p8_what_the_sender_calls_it_is_recorded_and_shown(home: Managed) -> None:
    sent = {"x-request-id": "their-id-1", "traceparent": PARENT, "tracestate": "congo=1"}
    with home.serving() as server:
        headers = speak.key_header(home.keys["admin"]) | sent
        _, out, _ = speak.send(server.port, "/mrt_dispatch", {"tool": "unruly_echo", "args": {}}, headers)
    found = record_of(home, out["x-request-id"])
    assert (found["clientRequestId"], found["traceparent"], found["tracestate"]) == ("their-id-1", PARENT, "congo=1")
    assert found["requestId"] != "their-id-1"
    explained = command(home, "explain", found["requestId"]).out
    for text in ("127.0.0.1", "their-id-1", PARENT):
        assert text in explained
    csv = command(home, "audit", "export", "--format", "csv").out
    assert all(text in csv for text in ("clientAddress", "127.0.0.1", "their-id-1", PARENT))
    assert "127.0.0.1" in command(home, "audit", "tail").out


def test_p8_the_trace_context_of_a_message_stands_before_that_of_its_headers(home: Managed) -> None:
    message = speak.mcp_message("unruly_echo", {}, modern=False)
    message["params"]["_meta"] = {"traceparent": PARENT, "tracestate": "congo=1"}
    with home.serving() as server:
        headers = speak.key_header(home.keys["admin"]) | {"traceparent": OTHER_PARENT}
        speak.send(server.port, "/mcp", message, headers)
    with speak.stdio(home) as peer:
        peer.ask(message)
        peer.ask(message | {"params": message["params"] | {"_meta": {"traceparent": "nonsense"}}})
    found = sorted(home.calls(), key=lambda one: (one["transport"], one["stepId"]))
    assert [(one.get("traceparent"), one.get("tracestate")) for one in found] == [
        (PARENT, "congo=1"),
        (PARENT, "congo=1"),
        (None, None),
    ]
    assert "clientAddress" not in found[1]


def test_p8_behind_a_trusted_proxy_the_record_has_the_address_that_the_proxy_saw(home: Managed) -> None:
    headers = speak.key_header(home.keys["admin"]) | {"x-forwarded-for": "1.1.1.1, 203.0.113.7"}
    body = {"tool": "unruly_echo", "args": {}}
    with home.serving() as server:
        speak.send(server.port, "/mrt_dispatch", body, headers)
    with home.serving("--server-trusted-proxies", "127.0.0.1") as server:
        speak.send(server.port, "/mrt_dispatch", body, headers)
    assert {one["clientAddress"] for one in home.calls()} == {"127.0.0.1", "203.0.113.7"}


@pytest.mark.parametrize("value", ["nonsense", "10.0.0.1/8", "0.0.0.0/0"])
def test_p8_what_is_no_proxy_is_refused_at_start(home: Managed, value: str) -> None:
    done = command(home, "serve", "--port", "0", "--server-trusted-proxies", value)
    assert done.code != 0
    assert "server.trusted_proxies" in done.err


def test_p8_a_revoked_or_expired_key_is_named_and_an_unknown_or_a_wrong_one_is_not(home: Managed) -> None:
    ring = home.ring()
    revoked, revoked_text = ring.create("builder")
    ring.revoke(revoked.id)
    expired, expired_text = ring.create("builder", expires=1.0)
    sent = {
        "revoked": revoked_text,
        "expired": expired_text,
        "unknown": "tg_000000000000_" + "0" * 64,
        "wrong secret": f"tg_{revoked.id}_" + "0" * 64,
    }
    with home.serving() as server:
        heard = {name: speak.rpc(server.port, "unruly_echo", {}, key) for name, key in sent.items()}
    found = {name: record_of(home, one.request_id) for name, one in heard.items()}
    assert found["revoked"]["refusedKey"] == {"id": revoked.id, "state": "revoked"}
    assert found["expired"]["refusedKey"] == {"id": expired.id, "state": "expired"}
    for name in ("unknown", "wrong secret"):
        assert "refusedKey" not in found[name]
        assert revoked.id not in json.dumps(found[name])
    assert all(one["caller"] is None for one in found.values())
    assert all(revoked.id not in json.dumps(one.body) for one in heard.values()), "nothing of it travels"
    assert revoked.id in command(home, "explain", found["revoked"]["requestId"]).out


NAMES = {
    "plain": ("jira_comment", "jira_comment"),
    "hostile": ('x","event":"intent\n\x1b[31m\u202e', 'x","event":"intent\\n\\x1b[31m\\u202e'),
    "long": ("n" * 1000, "n" * 128),
    "a key": ("tg_0123456789ab_" + "0" * 64, "[key]"),
}


@pytest.mark.parametrize(("asked", "kept"), NAMES.values(), ids=NAMES)
def test_p8_the_name_of_an_unknown_tool_is_recorded_cut_and_escaped(home: Managed, asked: str, kept: str) -> None:
    with speak.stdio(home) as peer:
        peer.ask(speak.mcp_message(asked, {}, modern=False))
    (found,) = home.calls()
    assert found["askedTool"] == kept
    assert found["metadata"]["toolId"] is None
    assert command(home, "audit", "verify").code == 0


KEEP = """
[ledger.keep]
unruly_write = ["name"]
unruly_echo = ["text", "n"]
"""


def test_p8_chosen_arguments_are_kept_short_and_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    home = managed(make_home(tmp_path / "home", packs=("unruly",), settings=KEEP), capfd)
    with speak.stdio(home) as peer:
        peer.rpc("unruly_write", {"name": "kept.txt"})
        peer.rpc("unruly_echo", {"text": "t", "n": 3})
        peer.rpc("unruly_echo", {"text": ["no", "text"]})
        peer.rpc("unruly_echo", {"text": "x" * 5000})
        peer.rpc("unruly_echo", {"text": "tg_0123456789ab_" + "0" * 64})
        peer.rpc("unruly_secret", {"password": "canary"})
    found = home.calls()
    assert [one.get("arguments") for one in found] == [
        {"name": "kept.txt"},
        {"name": "kept.txt"},
        {"text": "t", "n": 3},
        {"text": ["no", "text"]},
        {"text": "x" * 256 + "... (5000 characters)"},
        {"text": "[key]"},
        None,
    ]
    assert "canary" not in json.dumps(found)
    assert "name = kept.txt" in command(home, "explain", found[0]["requestId"]).out
    assert command(home, "audit", "verify").code == 0
    listed = json.loads(command(home, "config", "print", "--json").out)
    assert "unruly_write" in json.dumps(listed)


NOT_KEPT = {
    "a secret": ('unruly_secret = ["password"]', "is secret"),
    "no argument": ('unruly_echo = ["issue"]', "has no argument issue"),
    "no tool": ('jira_comment = ["issue"]', "there is no tool jira_comment"),
    "no list": ("unruly_echo = 5", "is not a list of texts"),
    "too many": ("unruly_echo = " + json.dumps(["text"] * 9), "at most 8"),
}


@pytest.mark.parametrize(("line", "text"), NOT_KEPT.values(), ids=NOT_KEPT)
def test_p8_what_must_not_be_kept_refuses_the_start(tmp_path: Path, line: str, text: str) -> None:
    with pytest.raises(SettingsError, match=r"ledger\.keep") as refused:
        make_home(tmp_path / "home", packs=("unruly",), settings=f"[ledger.keep]\n{line}\n").app()
    assert text in str(refused.value)


def test_p8_a_secret_behind_a_reference_is_not_kept_either() -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/p"}}, "$defs": {"p": {"x-secret": True}}}
    tool = Tool("t", "t", "", schema, {}, "read", 1.0, lambda *_: None)  # type: ignore[arg-type,return-value] # never run
    with pytest.raises(SettingsError, match="x is secret"):
        check_kept({"t": ["x"]}, {"t": tool})


def test_p8_an_empty_directory_is_not_verified(home: Managed, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    done = command(home, "audit", "verify", str(empty))
    assert (done.code, done.out) == (ExitCode.FAILED, "")
    assert "nothing was verified" in done.err


def test_p8_the_first_record_of_a_run_names_the_policy_and_the_contract_that_it_decides_by(home: Managed) -> None:
    shown = json.loads(command(home, "policy", "show", "--json").out)["serves"]
    with home.serving() as server:
        heard = speak.mrt(server.port, "unruly_echo", {}, home.keys["admin"])
    with speak.stdio(home) as peer:
        peer.rpc("unruly_echo", {})
    firsts = [one for one in home.records() if "began" in one]
    assert [one["serves"] for one in firsts] == [shown, shown]
    lock = json.loads((home.path / "policy" / LOCK_FILE).read_bytes())
    assert shown.keys() == {"policy", "contract"}
    assert shown["contract"] == lock["digest"]
    assert shown["policy"] in command(home, "policy", "show").out
    explained = command(home, "explain", heard.request_id).out
    assert f"Policy:   {shown['policy']}\nContract: {shown['contract']}\n" in explained


def test_p8_a_policy_whose_contract_was_not_built_is_shown_without_its_digest(home: Managed) -> None:
    (home.path / "policy" / LOCK_FILE).unlink()
    shown = json.loads(command(home, "policy", "show", "--json").out)["serves"]
    assert shown["contract"] is None
    assert len(shown["policy"]) == 64


def command(home: Managed, *arguments: str) -> Done:
    return home.toolgate(*home.command(*arguments)[1:])


@pytest.mark.parametrize(
    "environ", [{"TOOLGATE_LEDGER_KEEP_UNRULY_ECHO": "a, b"}, {"TOOLGATE_LEDGER_KEEP_UNRULY_ECHO": '["a", "b"]'}]
)
def test_p8_the_arguments_to_keep_can_be_a_variable(environ: dict[str, str], tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {}, environ)
    assert settings.ledger.keep == {"unruly_echo": ("a", "b")}
    (shown,) = (one for one in settings.resolved() if one.spec.key == "ledger.keep.unruly_echo")
    assert (shown.spec.variable, shown.source) == ("TOOLGATE_LEDGER_KEEP_UNRULY_ECHO", "environment")
