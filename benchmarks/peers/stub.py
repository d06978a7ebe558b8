"""The upstream behind every gateway: an echo tool, in both eras of the protocol, with as little work as an answer needs.

stub.py http [TOOLS]      streamable HTTP with JSON answers, no sessions
stub.py stdio [TOOLS]
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from typing import Any, cast

import orjson
import uvloop

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text", "count", "flag"],
    "properties": {
        "text": {"type": "string", "maxLength": 1_000_000},
        "count": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
        "flag": {"type": "boolean"},
    },
}
MODERN = "2026-07-28"
SERVER = {"name": "stub", "version": "1"}
FRESH = {"ttlMs": 3_600_000, "cacheScope": "public"}
READ_BYTES = 1 << 16
NO_BODY = b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n"


def tools(count: int) -> list[dict[str, Any]]:
    names = ["bench_echo", *(f"more_{number}" for number in range(1, count))]
    about = {"description": "Echo three fields.", "inputSchema": SCHEMA, "outputSchema": SCHEMA}
    return [{"name": name, **about} for name in names]


TOOLS = tools(int(sys.argv[2]) if len(sys.argv) > 2 else 1)


def answer(data: bytes) -> bytes | None:
    """To one message; None: it wants no answer."""
    message = orjson.loads(data)
    if "id" not in message:
        return None
    method, params = message["method"], message.get("params", {})
    if method == "tools/call":
        echoed = params["arguments"]
        result = {
            "content": [{"type": "text", "text": orjson.dumps(echoed).decode()}],
            "structuredContent": echoed,
            "resultType": "complete",
        }
    elif method == "tools/list":
        result = {"tools": TOOLS, "resultType": "complete", **FRESH}
    elif method == "server/discover":
        about = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "serverInfo": SERVER}
        result = {**about, "resultType": "complete", **FRESH}
    elif method == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": SERVER,
        }
    else:
        error = {"code": -32601, "message": "Method not found"}
        return orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})
    return orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})


class Answerer(asyncio.Protocol):
    """One request at a time on each connection, with a content length."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast("asyncio.Transport", transport).write

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].lower()
            found = head.find(b"\r\ncontent-length:")
            length = int(head[found + 17 :].split(b"\r\n", 1)[0]) if found >= 0 else 0
            if len(self._received) < end + 4 + length:
                return
            body, self._received = self._received[end + 4 : end + 4 + length], self._received[end + 4 + length :]
            self._write(respond(head, body))


def respond(head: bytes, body: bytes) -> bytes:
    if not head.startswith(b"post"):
        return NO_BODY % b"405 Method Not Allowed"
    said = answer(body)
    if said is None:
        return NO_BODY % b"202 Accepted"
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(said) + said


async def over_http() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    server = await asyncio.get_running_loop().create_server(Answerer, sock=listener)
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    await server.serve_forever()


def over_stdio() -> None:
    """Whatever a read brings is answered by one write: many may be in flight."""
    rest = b""
    while piece := os.read(0, READ_BYTES):
        *lines, rest = (rest + piece).split(b"\n")
        answers = [said for said in map(answer, filter(None, lines)) if said is not None]
        left = b"".join(said + b"\n" for said in answers)
        while left:
            left = left[os.write(1, left) :]


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        over_stdio()
    else:
        uvloop.run(over_http())
