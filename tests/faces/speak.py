"""The same call, spoken over each face; what came back, reduced to what the verdict table speaks of."""

from __future__ import annotations

import http.client
import json
import queue
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cli.support import Commands, without_settings
from tests.homes import PATIENCE_S, Home, Server, environment

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}


@dataclass(frozen=True)
class Heard:
    """One answer. `status` is HTTP's (or an exit code), `code` the face's own, `reason` the stable word."""

    status: int | None
    code: Any
    reason: str | None
    body: dict[str, Any]
    headers: Mapping[str, str]
    envelope: dict[str, Any] | None = None

    @property
    def request_id(self) -> str:
        found = self.envelope or self.body.get("error", {}).get("data") or self.body
        return str(found.get("requestId") or found.get("request_id"))


def send(port: int, path: str, body: Any, headers: Mapping[str, str]) -> tuple[int, dict[str, str], Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", path, data, {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        text = answer.read()
        return (
            answer.status,
            {name.lower(): value for name, value in answer.getheaders()},
            json.loads(text) if text else None,
        )
    finally:
        connection.close()


def raw(port: int, request: bytes) -> bytes:
    """Bytes of our own, and all that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def key_header(key: str | None) -> dict[str, str]:
    return {} if key is None else {"x-mcp-api-key": key}


def mrt(port: int, tool: str, arguments: Any, key: str | None) -> Heard:
    status, headers, body = send(port, "/mrt_dispatch", {"tool": tool, "args": arguments}, key_header(key))
    details = body.get("details") or {}
    return Heard(status, body.get("error_code"), details.get("reason"), body, headers, body.get("envelope"))


def rpc(port: int, tool: str, arguments: Any, key: str | None) -> Heard:
    status, headers, body = send(port, "/rpc", rpc_message(tool, arguments), key_header(key))
    return heard_rpc(status, headers, body)


def mcp_modern(port: int, tool: str, arguments: Any, key: str | None) -> Heard:
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool, **key_header(key)}
    return heard_mcp(*send(port, "/mcp", mcp_message(tool, arguments, modern=True), headers))


def mcp_handshake(port: int, tool: str, arguments: Any, key: str | None) -> Heard:
    headers = {"MCP-Protocol-Version": "2025-11-25", **({} if key is None else {"authorization": f"Bearer {key}"})}
    return heard_mcp(*send(port, "/mcp", mcp_message(tool, arguments, modern=False), headers))


HTTP_FACES = {"mrt": mrt, "rpc": rpc, "mcp modern": mcp_modern, "mcp handshake": mcp_handshake}


def tool_id(tool: str) -> str:
    if tool == "dummy_experimental":
        return "mcp.tool:governance.dummy_experimental"
    return "mcp.tool:" + tool.replace("_", ".", 1)


def rpc_message(tool: str, arguments: Any) -> dict[str, Any]:
    params = {"tool": tool_id(tool), "input": arguments}
    return {"id": "call-1", "jsonrpc": "2.0", "method": "mcp.tool.invoke", "params": params}


def mcp_message(tool: str, arguments: Any, *, modern: bool) -> dict[str, Any]:
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    return {
        "id": "call-1",
        "jsonrpc": "2.0",
        "method": "tools/call",
        "params": params | ({"_meta": META} if modern else {}),
    }


def heard_rpc(status: int | None, headers: Mapping[str, str], body: dict[str, Any]) -> Heard:
    error = body.get("error")
    if error is None:
        return Heard(status, None, None, body, headers, body["result"])
    code = (error["code"], error["data"]["canonical_code"])
    return Heard(status, code, error["data"].get("reason"), body, headers)


def heard_mcp(status: int | None, headers: Mapping[str, str], body: dict[str, Any]) -> Heard:
    error = body.get("error")
    if error is not None:
        return Heard(status, error["code"], None, body, headers)
    envelope = body["result"]["structuredContent"]
    check_text(body["result"]["content"][0]["text"], envelope)
    assert body["result"]["isError"] is bool(envelope.get("isError")), "one isError"
    details = envelope.get("details") or {}
    reason = details.get("reason") if isinstance(details, dict) else None
    return Heard(status, envelope.get("code"), reason, body, headers, envelope)


def check_text(text: str, envelope: dict[str, Any]) -> None:
    """For a reader: what was said, and below it one line of how far it counts, if it was judged; or the envelope itself."""
    if text.startswith('{"success"'):
        assert json.loads(text) == envelope, "the text is the same JSON"
        return
    said, _, line = text.rpartition("\n") if "tier" in envelope else (text, "", "")
    if line:
        words = [envelope[name] for name in ("tier", "environment", "decision") if name in envelope]
        assert line.startswith(f"[{', '.join(words)}")
    if envelope["success"]:
        assert said or envelope.get("data") is None
    else:
        assert said in envelope.get("message", "The tool said no.")


class Stdio:
    """A stdio server with one key; both protocols on one stream."""

    def __init__(self, home: Home, key: str, *flags: str) -> None:
        self.process = subprocess.Popen(
            home.command("stdio", *flags),
            env=environment(TOOLGATE_API_KEY=key),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def send(self, message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        return dict(json.loads(self._lines.get(timeout=PATIENCE_S)))

    def ask(self, message: Any) -> dict[str, Any]:
        self.send(message)
        return self.receive()

    def rpc(self, tool: str, arguments: Any) -> Heard:
        return heard_rpc(None, {}, self.ask(rpc_message(tool, arguments)))

    def mcp(self, tool: str, arguments: Any, *, modern: bool = True) -> Heard:
        return heard_mcp(None, {}, self.ask(mcp_message(tool, arguments, modern=modern)))

    def end(self) -> tuple[int, bytes]:
        """Close our end; the server must end by itself."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        self.process.stdin.close()
        code = self.process.wait(PATIENCE_S)
        return code, self.process.stderr.read()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@contextmanager
def stdio(home: Home, role: str = "admin", *flags: str) -> Iterator[Stdio]:
    peer = Stdio(home, home.keys.get(role, role), *flags)
    try:
        yield peer
        code, standard_error = peer.end()
        assert code == 0, standard_error.decode()
        assert b"Traceback" not in standard_error
    finally:
        peer.close()


def command_line(home: Home, tool: str, arguments: Any, key: str | None, server: Server | None = None) -> Heard:
    """`toolgate call`: exit code, and its JSON."""
    command = home.command(*_call(tool, arguments))
    if server is not None:
        command += ["--url", str(server.ready["url"])]
    env = environment() if key is None else environment(TOOLGATE_API_KEY=key)
    done = subprocess.run(command, env=env, capture_output=True, timeout=PATIENCE_S, check=False)
    return _heard_call(done.returncode, json.loads(done.stdout))


def called_here(toolgate: Commands, home: Home, tool: str, arguments: Any, key: str | None) -> Heard:
    """The same in this process: a tenth of the time, where there are many of them."""
    with pytest.MonkeyPatch.context() as patch:
        without_settings(patch)
        if key is not None:
            patch.setenv("TOOLGATE_API_KEY", key)
        done = toolgate(*home.command(*_call(tool, arguments))[1:])
    return _heard_call(done.code, done.json)


def _call(tool: str, arguments: Any) -> list[str]:
    return ["call", tool, "--args", json.dumps(arguments), "--json", "--no-wait"]


def _heard_call(code: int, body: dict[str, Any]) -> Heard:
    details = body.get("details") or {}
    return Heard(code, body.get("error_code"), details.get("reason"), body, {}, body.get("envelope"))
