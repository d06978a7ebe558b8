"""stdio: the same road, one line a message, and a stream that nothing else can write to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, environment
from tests.ledger import world
from tests.waiting import until
from toolgate.errors import ExitCode
from toolgate.faces.mcp import McpFace
from toolgate.faces.rpc import RpcFace
from toolgate.ledger.reading import parity
from toolgate.servers.stdio import StdioServer


def rpc_line(tool: str, request_id: Any, **arguments: Any) -> dict[str, Any]:
    return speak.rpc_message(tool, arguments) | {"id": request_id}


HOSTILE_LINES = {
    "not JSON": (b"{", -32700),
    "two values": (b"{} {}", -32700),
    "duplicate keys": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32700),
    "NaN": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', -32700),
    "not UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700),
    "deep": (b"[" * 10_000 + b"]" * 10_000, -32700),
    "a batch": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
    "a number": (b"5", -32600),
    "id null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
    "id 1.5": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
    "two megabytes": (b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 2_000_000 + b'"}', -32600),
}


def test_hostile_lines_are_answered_and_the_next_call_works(home: Home) -> None:
    with speak.stdio(home) as peer:
        for name, (line, code) in HOSTILE_LINES.items():
            answer = peer.ask(line)
            assert (answer["id"], answer["error"]["code"]) == (None, code), name
            assert peer.rpc("unruly_echo", {"text": name[:60]}).envelope is not None


def test_silence_where_the_protocol_wants_silence(home: Home) -> None:
    with speak.stdio(home) as peer:
        for line in (
            b"",
            b"   ",
            b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
            b'{"jsonrpc":"2.0","id":9,"result":{}}',
        ):
            peer.send(line)
        assert peer.ask({"jsonrpc": "2.0", "id": "after", "method": "ping"}) == {
            "jsonrpc": "2.0",
            "id": "after",
            "result": {},
        }


def test_calls_run_side_by_side_and_answers_leave_as_they_are_ready(home: Home) -> None:
    (home.workspace / "release").unlink(missing_ok=True)
    with speak.stdio(home) as peer:
        peer.send(rpc_line("unruly_hold", "slow"))
        assert peer.ask(rpc_line("unruly_echo", "quick"))["id"] == "quick"
        (home.workspace / "release").touch()
        assert peer.receive()["id"] == "slow"


def test_a_burst_in_one_write_is_answered_whole(home: Home) -> None:
    with speak.stdio(home) as peer:
        peer.send(b"\n".join(json.dumps(rpc_line("unruly_echo", n, n=n % 10)).encode() for n in range(500)))
        assert [peer.receive()["id"] for _ in range(500)] == list(range(500))


def test_limits_hold_on_stdio_too(home: Home) -> None:
    (home.workspace / "release").unlink(missing_ok=True)
    with speak.stdio(home) as peer:
        for number in range(10):
            peer.send(rpc_line("unruly_hold", number))
        refused = peer.ask(rpc_line("unruly_echo", "eleventh"))
        assert refused["error"]["code"] == 429
        (home.workspace / "release").touch()
        assert sorted(peer.receive()["id"] for _ in range(10)) == list(range(10))
        assert "result" in peer.ask(rpc_line("unruly_echo", "again"))


def test_a_cancelled_call_ends_and_gets_no_answer(home: Home) -> None:
    (home.workspace / "release").unlink(missing_ok=True)
    with speak.stdio(home) as peer:
        for number in range(10):
            peer.send(speak.mcp_message("unruly_hold", {}, modern=True) | {"id": number})
        for number in range(10):
            peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        assert peer.ask(rpc_line("unruly_echo", "next"))["id"] == "next", "no answer of a cancelled call comes before"
        asked = [peer.ask(rpc_line("unruly_echo", number)) for number in range(50)]
        assert "result" in asked[-1], "and every slot is free again"


def test_progress_comes_before_its_answer_and_prints_of_a_pack_do_not_come_at_all(home: Home) -> None:
    with speak.stdio(home) as peer:
        message = speak.mcp_message("unruly_chatter", {}, modern=True)
        message["params"]["_meta"] = {**speak.META, "progressToken": "p"}
        peer.send(message)
        heard = [peer.receive() for _ in range(4)]
    assert [one["params"]["progress"] for one in heard[:3]] == [1, 2, 3]
    assert heard[0]["params"] == {"progressToken": "p", "progress": 1, "total": 3, "message": "part 1"}
    assert heard[3]["result"]["structuredContent"]["success"] is True


def test_a_revoked_key_is_dead_in_the_middle_of_a_stream(home: Home) -> None:
    key, text = home.ring().create("admin")
    with speak.stdio(home, text) as peer:
        assert peer.rpc("unruly_echo", {}).envelope is not None
        home.ring().revoke(key.id)
        assert peer.rpc("unruly_echo", {}).code == (-32001, "UNAUTHORIZED")
        assert peer.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})["error"]["code"] == 401


@pytest.mark.parametrize("tool", ["unruly_hold", "unruly_wait", "unruly_write"], ids=["read", "effect", "thread"])
def test_f23_d5_what_was_read_before_the_pipe_closed_is_answered(home: Home, tool: str) -> None:
    (home.workspace / "release").unlink(missing_ok=True)
    peer = speak.Stdio(home, home.keys["admin"])
    try:
        arguments = {"name": "told"} if tool == "unruly_write" else {}
        peer.send(rpc_line(tool, "rpc", **arguments))
        peer.send(speak.mcp_message(tool, arguments, modern=True) | {"id": "mcp"})
        assert peer.process.stdin is not None
        peer.process.stdin.close()
        (home.workspace / "release").touch()
        heard = {one["id"]: one for one in (peer.receive(), peer.receive())}
        assert heard["rpc"]["result"]["success"] is True
        assert heard["mcp"]["result"]["structuredContent"]["success"] is True
        code, complaints = peer.end()
        assert code == 0
        assert b"Warning" not in complaints
    finally:
        peer.close()


def test_f23_what_does_not_end_within_the_drain_time_is_told_that_it_was_cancelled(home: Home) -> None:
    (home.workspace / "release").unlink(missing_ok=True)
    peer = speak.Stdio(home, home.keys["admin"], "--server-drain-seconds", "0.1")
    try:
        peer.send(rpc_line("unruly_hold", "waits"))
        assert peer.ask(rpc_line("unruly_echo", "quick"))["id"] == "quick"
        assert peer.end()[0] == 0
        assert peer.receive()["error"]["data"]["reason"] == "cancelled"
    finally:
        peer.close()


@pytest.mark.parametrize(("drain_s", "ending"), [("0.1", "cancelled"), ("60", "deadline_exceeded")])
def test_a_call_that_never_ends_has_the_drain_time_and_no_other_over_a_pipe(
    home: Home, drain_s: str, ending: str
) -> None:
    (home.workspace / "inside").unlink(missing_ok=True)
    peer = speak.Stdio(home, home.keys["admin"], "--server-drain-seconds", drain_s)
    try:
        peer.send(rpc_line("unruly_linger", "lingers"))
        until((home.workspace / "inside").exists, "it is under way")
        assert peer.end()[0] == 0
        assert peer.receive()["error"]["data"]["reason"] == ending
    finally:
        peer.close()


def test_f23_more_signals_end_the_waiting_and_nothing_else(home: Home) -> None:
    """However many come: not one of them kills it while it writes the end of its log."""
    (home.workspace / "release").unlink(missing_ok=True)
    peer = speak.Stdio(home, home.keys["admin"], "--server-drain-seconds", "600")
    try:
        peer.send(rpc_line("unruly_hold", "waits"))
        assert peer.ask(rpc_line("unruly_echo", "quick"))["id"] == "quick"
        due = time.monotonic() + PATIENCE_S
        while peer.process.poll() is None:
            assert time.monotonic() < due
            peer.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                peer.process.wait(0.001)
        assert peer.process.returncode == 0
        assert peer.receive()["error"]["data"]["reason"] == "cancelled"
    finally:
        peer.close()


def test_f23_answers_that_the_pipe_cannot_hold_are_not_lost_at_the_end(home: Home) -> None:
    lines = [json.dumps(rpc_line("unruly_echo", n, text="x" * 60)).encode() for n in range(1000)]
    process = subprocess.Popen(
        home.command("stdio"),
        env=environment(TOOLGATE_API_KEY=home.keys["admin"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    sender = threading.Thread(target=lambda: (process.stdin.write(b"\n".join(lines)), process.stdin.close()))  # type: ignore[union-attr]
    sender.start()
    heard = b""
    while piece := os.read(process.stdout.fileno(), 512):
        heard += piece
    sender.join(PATIENCE_S)
    assert process.wait(PATIENCE_S) == 0
    process.stdout.close()
    assert [json.loads(line)["id"] for line in heard.splitlines()] == list(range(1000))


@pytest.mark.req("002-E3")
def test_d6_a_message_without_a_method_is_invalid_input_with_its_id_and_a_record_as_over_http(home: Home) -> None:
    message = {"jsonrpc": "2.0", "id": "x1", "params": {}}
    before = home.calls()
    with speak.stdio(home) as peer:
        piped = peer.ask(message)
    with home.serving() as server:
        status, _, posted = speak.send(server.port, "/rpc", message, speak.key_header(home.keys["admin"]))
    assert status == 400
    for answer in (piped, posted):
        assert (answer["id"], answer["error"]["code"]) == ("x1", -32602)
        assert answer["error"]["data"]["canonical_code"] == "INVALID_INPUT"
        assert answer["error"]["data"]["reason"] == "missing_method"
    one, other = (found for found in home.calls() if found not in before)
    assert parity.projected(one) == parity.projected(other)


BAD_KEYS = {
    "none": (None, "TOOLGATE_API_KEY is not set"),
    "wrong": ("tg_wrong", "API key is invalid."),
    "unexpanded": ("${KEY}", "not expanded"),
}
FIRST_REQUESTS: dict[str, tuple[Any, int]] = {
    "initialize": ({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {}}, 401),
    "rpc": (rpc_line("unruly_echo", 7), -32001),
}


@pytest.mark.parametrize("first", FIRST_REQUESTS)
@pytest.mark.parametrize("key", BAD_KEYS)
def test_d5_a_bad_key_is_told_to_the_client_that_greets_and_recorded(home: Home, first: str, key: str) -> None:
    text, why = BAD_KEYS[key]
    message, code = FIRST_REQUESTS[first]
    before = home.calls()
    process = subprocess.Popen(
        home.command("stdio"),
        env=environment() if text is None else environment(TOOLGATE_API_KEY=text),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()  # and held open, as a client does that waits for its answer
        answer = json.loads(process.stdout.readline())
        assert (answer["id"], answer["error"]["code"]) == (7, code)
        assert process.wait(PATIENCE_S) == ExitCode.DENIED
        assert why in process.stderr.read().decode()
        if first == "initialize":
            assert why in answer["error"]["message"]
    finally:
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()
    (found,) = (found for found in home.calls() if found not in before)
    assert found["error"]["happening"] == ("missing_key" if text is None else "invalid_key")


def test_a_fault_of_our_own_ends_one_call_and_not_the_stream(home: Home) -> None:
    class Broken:
        def faults(self, instance: Any) -> list[Any]:
            raise KeyError("never in an answer")

    app = home.app()
    ends = Ends()
    faces = [RpcFace(Broken(), str), McpFace()]
    server = StdioServer(app.road, faces, home.keys["admin"].encode(), ends, body_bytes=1000)  # type: ignore[arg-type] # two stand-ins

    async def scene() -> None:
        await server._take(json.dumps(rpc_line("unruly_echo", 1)).encode())
        await server._take(b'{"jsonrpc":"2.0","id":2,"method":"ping"}')
        await server._flush()
        await app.close()

    asyncio.run(scene())
    first, second = (json.loads(line) for line in ends.written.splitlines())
    assert (first["error"]["code"], second["id"]) == (-32603, 2)
    assert b"never" not in ends.written


class Ends:
    """Pipes of one piece: what comes in, what went out, and what was true when it did."""

    def __init__(self, *pieces: bytes, on_write: Callable[[], None] = lambda: None) -> None:
        self._pieces = [*pieces, b""]
        self._on_write = on_write
        self.written = b""

    async def read(self) -> bytes:
        return self._pieces.pop(0)

    async def write(self, data: bytes) -> None:
        self._on_write()
        self.written += data

    async def sent(self) -> None:
        pass

    async def left(self) -> None:
        await asyncio.Event().wait()


def served(home: Home, ends: Ends) -> list[Any]:
    app = home.app()
    server = StdioServer(app.road, app.faces(), home.keys["admin"].encode(), ends, body_bytes=1000)  # type: ignore[arg-type] # a stand-in

    async def scene() -> None:
        await server.serve()
        await server.drain(PATIENCE_S)
        await app.close()

    asyncio.run(scene())
    return [json.loads(line) for line in ends.written.splitlines()]


BURST = b"\n".join(
    [
        json.dumps(rpc_line("unruly_echo", "rpc")).encode(),
        json.dumps(speak.mcp_message("unruly_echo", {}, modern=True) | {"id": "mcp"}).encode(),
        json.dumps(rpc_line("unruly_nothing", "refused")).encode() + b"\n",
    ]
)


def test_a_burst_is_answered_after_all_its_records(home: Home) -> None:
    before = len(home.calls())
    seen: list[int] = []
    answers = served(home, Ends(BURST, on_write=lambda: seen.append(len(home.calls()) - before)))
    assert [answer["id"] for answer in answers] == ["rpc", "mcp", "refused"]
    assert seen == [3]


def test_when_the_log_fails_a_burst_is_told_so_line_by_line(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(home.calls())
    real = StdioServer._flush

    async def flush(server: StdioServer) -> None:
        with monkeypatch.context() as full:
            full.setattr(os, "write", world.no_space)
            await real(server)

    monkeypatch.setattr(StdioServer, "_flush", flush)
    answers = served(home, Ends(BURST))
    rpc, mcp, refused = answers
    assert (mcp["id"], mcp["result"]["isError"]) == ("mcp", True)
    assert mcp["result"]["content"][0]["text"] == "The audit log cannot be written."
    assert [(answer["id"], answer["error"]["message"]) for answer in (rpc, refused)] == [
        ("rpc", "Internal error: The audit log cannot be written."),
        ("refused", "Internal error: The audit log cannot be written."),
    ]
    assert len(home.calls()) == before


def test_a_file_can_be_replayed_into_it(home: Home, tmp_path: Any) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_bytes(b"\n".join(json.dumps(rpc_line("unruly_echo", n)).encode() for n in range(5)))
    with corpus.open("rb") as given, (tmp_path / "out").open("wb") as taken:
        env = environment(TOOLGATE_API_KEY=home.keys["admin"])
        done = subprocess.run(
            home.command("stdio"), env=env, stdin=given, stdout=taken, timeout=PATIENCE_S, check=False
        )
    assert done.returncode == 0
    assert [json.loads(line)["id"] for line in (tmp_path / "out").read_text().splitlines()] == list(range(5))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_p14_a_signal_ends_it_cleanly(home: Home, number: signal.Signals) -> None:
    peer = speak.Stdio(home, home.keys["admin"])
    try:
        assert peer.rpc("unruly_echo", {}).envelope is not None
        peer.process.send_signal(number)
        assert peer.process.wait(PATIENCE_S) == 0
    finally:
        peer.close()


@pytest.mark.req("002-D1")
def test_deterministic_ids_are_the_same_over_both_transports_and_in_every_run(home: Home) -> None:
    seen: list[list[str]] = []
    for _ in range(2):
        with speak.stdio(home, "admin", "--deterministic-ids") as peer:
            calls = [
                peer.rpc("unruly_echo", {"text": "a"}),
                peer.mcp("unruly_echo", {"text": "a"}),
                peer.rpc("unruly_echo", {"text": "b"}),
            ]
            seen.append([call.request_id for call in calls])
    with home.serving("--deterministic-ids") as server:
        key = home.keys["admin"]
        calls = [
            speak.rpc(server.port, "unruly_echo", {"text": "a"}, key),
            speak.mrt(server.port, "unruly_echo", {"text": "a"}, key),
        ]
        calls.append(speak.mcp_modern(server.port, "unruly_echo", {"text": "b"}, key))
        seen.append([call.request_id for call in calls])
    assert seen[0] == seen[1] == seen[2]
    assert len(set(seen[0])) == 3, "the second identical call of a run is told apart"
