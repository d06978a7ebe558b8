"""Start, ready, drain, stop; and what a live server does with handlers that misbehave."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, environment, make_home, until_closed
from tests.waiting import until


def test_the_first_line_says_where_everything_is(home: Home) -> None:
    with home.serving() as server:
        url = server.ready["url"]
        assert server.ready == {
            "ready": True,
            "url": url,
            "mcp": f"{url}/mcp",
            "dispatch": f"{url}/mrt_dispatch",
            "rpc": f"{url}/rpc",
            "environment": "local",
            "notes": [],
            "tools": server.ready["tools"],
        }
        assert server.ready["tools"].keys() == {"experimental"}, "how many there are of each tier"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_p14_a_signal_drains_calls_under_way_and_ends_with_0(home: Home, number: signal.Signals) -> None:
    _prepare(home)
    with home.serving() as server:
        heard: list[speak.Heard] = []
        waiting = threading.Thread(
            target=lambda: heard.append(speak.mrt(server.port, "unruly_wait", {}, home.keys["admin"]))
        )
        waiting.start()
        _until_inside(home)
        server.process.send_signal(number)
        until_closed(server.port)
        (home.workspace / "release").touch()
        waiting.join(PATIENCE_S)
        assert heard[0].status == 200, "the call under way was answered"
        assert server.process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(("drain_s", "ending"), [("0.1", "cancelled"), ("60", "deadline_exceeded")])
def test_a_call_that_never_ends_has_the_drain_time_and_no_other(home: Home, drain_s: str, ending: str) -> None:
    """It is cut off by a short one. In a long one it meets its own deadline, and the server ends without waiting for more."""
    _prepare(home)
    with home.serving("--server-drain-seconds", drain_s) as server:
        heard: list[speak.Heard] = []
        waiting = threading.Thread(
            target=lambda: heard.append(speak.mrt(server.port, "unruly_linger", {}, home.keys["admin"]))
        )
        waiting.start()
        _until_inside(home)
        server.process.terminate()
        assert server.process.wait(PATIENCE_S) == 0
        waiting.join(PATIENCE_S)
        assert heard[0].reason == ending


def test_a_second_signal_does_not_wait(home: Home) -> None:
    _prepare(home)
    with home.serving() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        body = json.dumps({"tool": "unruly_wait", "args": {}})
        connection.request(
            "POST", "/mrt_dispatch", body, {"content-type": "application/json", **speak.key_header(home.keys["admin"])}
        )
        _until_inside(home)
        server.process.terminate()
        until_closed(server.port)
        server.process.terminate()
        assert server.process.wait(PATIENCE_S) == 0
        connection.close()
    (home.workspace / "release").touch()


def _prepare(home: Home) -> None:
    for name in ("release", "inside"):
        (home.workspace / name).unlink(missing_ok=True)


def _until_inside(home: Home) -> None:
    _until(home.workspace / "inside")


def _until(path: Path) -> None:
    until(path.exists, f"there is a file {path.name}")


def test_a_taken_port_is_a_clear_refusal_to_start(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            home.command("serve", "--port", str(port)),
            env=environment(),
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 1
    assert str(port).encode() in done.stderr
    assert b"--port 0" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("tool", ["unruly_spin", "unruly_doze", "unruly_sleep", "unruly_stubborn"])
def test_a_handler_that_never_ends_does_not_stop_the_others(home: Home, server: Server, tool: str) -> None:
    def served_meanwhile() -> int:
        heard: list[speak.Heard] = []
        stuck = threading.Thread(target=lambda: heard.append(speak.mrt(server.port, tool, {}, home.keys["admin"])))
        stuck.start()
        served = 0
        while stuck.is_alive():
            assert speak.mcp_modern(server.port, "unruly_echo", {}, home.keys["builder"]).status == 200
            served += 1
        assert (heard[0].status, heard[0].code, heard[0].reason) == (500, "internal_error", "deadline_exceeded")
        return served

    # A server that stands still serves one before and one after. A busy machine may do so once, by chance.
    until(lambda: served_meanwhile() >= 3, "others are served meanwhile")


def test_no_answer_and_no_log_line_holds_what_a_handler_s_exception_said(home: Home, server: Server) -> None:
    heard = speak.mrt(server.port, "unruly_raise", {"kind": "error"}, home.keys["admin"])
    assert "secret" not in json.dumps(heard.body)
    assert "secret/place" not in json.dumps(home.records())


def test_long_text_is_cut_at_a_character_and_says_so(home: Home, server: Server) -> None:
    heard = speak.mrt(server.port, "unruly_text", {"characters": 40_000}, home.keys["admin"])
    assert heard.body["stdout_truncated"] is True
    assert heard.body["stdout"] == "é" * 32_768
    assert heard.body["output_limit_bytes"] == 65_536
    short = speak.mrt(server.port, "unruly_text", {"characters": 2}, home.keys["admin"])
    assert (short.body["stdout"], short.body["stdout_truncated"], short.body["stderr"]) == ("éé", False, "")


@pytest.mark.req("000-D-04")
def test_a_success_on_the_dispatch_face_has_the_documents_six_keys(home: Home, server: Server) -> None:
    body = speak.mrt(server.port, "unruly_echo", {"text": "x"}, home.keys["admin"]).body
    six = {"schema_version": "1", "tool": "unruly_echo", "exitCode": 0, "stderr": "", "output_limit_bytes": 65536}
    assert six.items() <= body.items()
    assert json.loads(body["stdout"]) == {"text": "x"}


def test_progress_over_http_is_a_stream_only_for_who_asks(home: Home, server: Server) -> None:
    message = speak.mcp_message("unruly_chatter", {}, modern=True)
    message["params"]["_meta"] = {**speak.META, "progressToken": 7}
    routing = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "unruly_chatter"}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        **routing,
        **speak.key_header(home.keys["admin"]),
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    connection.request("POST", "/mcp", json.dumps(message), headers)
    answer = connection.getresponse()
    events = [json.loads(part.partition(b"data: ")[2]) for part in answer.read().split(b"\r\n\r\n") if part]
    connection.close()
    assert answer.getheader("content-type") == "text/event-stream"
    assert [one["params"]["progress"] for one in events[:-1]] == [1, 2, 3]
    assert events[-1]["result"]["structuredContent"]["success"] is True
    plain = speak.mcp_modern(server.port, "unruly_chatter", {}, home.keys["admin"])
    assert plain.headers["content-type"] == "application/json"


def test_every_answered_call_is_in_the_log_exactly_once(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    with home.serving() as server:
        heard = [
            say(server.port, tool, {}, home.keys.get(role))
            for say in speak.HTTP_FACES.values()
            for tool in ("unruly_echo", "unruly_admin", "no_such")
            for role in ("builder", "admin", "nobody")
        ]
    wanted = sorted(one.request_id for one in heard)
    assert sorted(record["requestId"] for record in home.calls()) == wanted
    assert len(set(wanted)) == len(heard) == 36


def test_commands_that_do_not_serve_load_neither_server_nor_stores() -> None:
    heavy = {"uvloop", "sqlalchemy", "toolgate.powers.net", "jsonschema_rs", "nacl", "cryptography", "toolgate.app"}
    code = "import sys; sys.argv[1:] = ['--help']; from toolgate.cli.main import run\ntry: run()\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert heavy.isdisjoint(done.stdout.splitlines()[-1].split())


def test_a_signal_ends_the_server_within_its_drain_time_whatever_handlers_do(tmp_path: Path) -> None:
    """Threads that sleep in C, an endless query, a spinning worker, asyncio's executor, a thread of a pack's own."""
    home = make_home(tmp_path / "home", packs=("unruly",))
    calls = [("unruly_stuck", {"kind": kind}) for kind in ("worker", "executor", "query", "thread", "cancelled")]
    calls.append(("unruly_stuck_thread", {}))
    with home.serving("--server-drain-seconds", "0.2") as server:
        for tool, arguments in calls:
            threading.Thread(
                target=_asked, args=(server.port, tool, arguments, home.keys["admin"]), daemon=True
            ).start()
        for name in ("worker", "executor", "query", "thread", "cancelled", "handler"):
            _until(home.workspace / f"stuck-{name}")
        server.process.terminate()
        assert server.process.wait(PATIENCE_S) == 0


def _asked(port: int, tool: str, arguments: dict[str, str], key: str) -> None:
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):  # it ends in the middle
        speak.mrt(port, tool, arguments, key)


BLOCKED = """
import asyncio, sys, threading, time
from toolgate.servers import lifecycle
lifecycle.LAST_RESORT_S = 0.2
async def main():
    with lifecycle.stop_on_signals(lambda: None, drain_s=0.1):
        print("ready", flush=True)
        while True:
            pass
lifecycle.run(main())
"""


def test_a_signal_ends_even_a_server_whose_loop_is_blocked() -> None:
    with subprocess.Popen([sys.executable, "-c", BLOCKED], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            process.terminate()
            assert process.wait(PATIENCE_S) == 1
        finally:
            process.kill()  # leaving the block waits for its end
