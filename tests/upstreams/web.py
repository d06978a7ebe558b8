"""An MCP server over HTTP for the tests, on a real socket; behaviours replace its parts."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.upstreams.stub import OTHER, TOOL
from tests.upstreams.support import PATIENCE_S, all_approved
from toolgate.powers.mcp.bounds import STANDARD, Bounds
from toolgate.powers.mcp.http import Dialer, Endpoint, HttpTransport
from toolgate.powers.mcp.transport import Transport
from toolgate.powers.mcp.upstream import Upstream, UpstreamEvent, UpstreamOptions

JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass
class Asked:
    method: str
    """HTTP's."""
    path: str
    headers: dict[str, str]
    message: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.message.get("method", ""))


Handler = Callable[[Asked, asyncio.StreamWriter], Awaitable[bytes | None]]


def http(body: bytes = b"", status: str = "200 OK", kind: str = JSON, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", f"Content-Type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def result(asked: Asked, value: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "result": value}).encode()


def error(asked: Asked, code: int) -> bytes:
    said = {"code": code, "message": "no"}
    return json.dumps({"jsonrpc": "2.0", "id": asked.message.get("id"), "error": said}).encode()


def echoed(asked: Asked) -> bytes:
    text = asked.message["params"]["arguments"].get("text", "")
    return result(asked, {"content": [{"type": "text", "text": text}]})


@dataclass
class Web:
    """A good server of one era. `on_call` answers calls, `on_any` whatever it wants to."""

    era: str = "modern"
    session: str | None = None
    on_call: Handler | None = None
    on_any: Handler | None = None
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    tells_changes: bool = False
    tools: list[dict[str, Any]] = field(default_factory=lambda: [TOOL, OTHER])

    def names(self) -> list[str]:
        return [each.name for each in self.asked]

    def _offered(self) -> dict[str, Any]:
        return {"tools": {"listChanged": True} if self.tells_changes else {}}

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> bytes | None:
        if self.on_any is not None:
            found = await self.on_any(asked, writer)
            if found is not None:
                return found
        if "id" not in asked.message:
            return http(status="202 Accepted")
        if asked.name == "server/discover" and self.era == "modern":
            return http(result(asked, {"supportedVersions": ["2026-07-28"], "capabilities": self._offered()}))
        if asked.name == "initialize" and self.era == "handshake":
            hello = {"protocolVersion": "2025-11-25", "capabilities": self._offered(), "serverInfo": {"name": "w"}}
            return http(result(asked, hello), **({"Mcp_Session_Id": self.session} if self.session else {}))
        if self.session and asked.headers.get("mcp-session-id") != self.session:
            return http(error(asked, -32600), "404 Not Found" if asked.name != "server/discover" else "400 Bad Request")
        if asked.name == "tools/list":
            return http(result(asked, {"tools": self.tools}))
        if asked.name == "tools/call":
            return await self.on_call(asked, writer) if self.on_call else http(echoed(asked))
        return http(error(asked, -32601), "400 Bad Request")

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (asked := await read_request(reader)) is not None:
                self.asked.append(asked)
                reply = await self.answer(asked, writer)
                if reply is None:
                    break
                writer.write(reply)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            pass  # cancelled: the test is over
        finally:
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *rest = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ")
    return Asked(method, path, headers, json.loads(body or b"{}"))


@asynccontextmanager
async def listening(web: Web, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            await web.talk(reader, writer)
        finally:
            talks.discard(task)

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(talks):
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)


@asynccontextmanager
async def web_upstream(
    web: Web,
    *,
    bounds: Bounds = STANDARD,
    headers: dict[str, str] | None = None,
    events: list[UpstreamEvent] | None = None,
    judge: Any = all_approved,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Upstream]:
    async with listening(web) as port:
        endpoint = Endpoint(f"http://127.0.0.1:{port}/mcp", private=True, headers=headers or {})
        door = Dialer(endpoint)

        async def connect() -> Transport:
            return HttpTransport(endpoint, door, bounds)

        made = Upstream(
            "web",
            connect,
            judge,
            options=UpstreamOptions(connect_s=PATIENCE_S, bounds=bounds),
            on_event=events.append if events is not None else lambda _: None,
            clock=clock,
        )
        try:
            yield made
        finally:
            await made.close()
