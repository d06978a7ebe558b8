"""What the load sends and what it must get back, for every face. Pure: bytes out, decoded answers in, a fault or None.

Each request has a number of its own, in its id and in one of its fields, so an answer to another request is noticed.
Numbers have one width: a request's length, and with it every header, stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import orjson

Face = Literal["modern", "handshake", "mrt", "rpc", "stdio", "gateway"]
Case = Literal["good", "wrong key", "wrong role", "broken JSON", "bad arguments", "too fast"]

FIRST_ID: Final = 1_000_000_000
FIRST_COUNT: Final = 100_000
COUNTS: Final = 900_000
TOOL: Final = "bench_echo"
RPC_TOOL: Final = "mcp.tool:bench.echo"
GATEWAY_TOOL: Final = "up-bench-echo"
"""What ContextForge calls the tool `bench_echo` of its upstream `up`."""
ADMIN_TOOL: Final = "bench_more0"
"""A tool that the deployment of the refusals gives to administrators only."""
MODERN: Final = "2026-07-28"
HANDSHAKE: Final = "2025-11-25"
META: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
PATHS: Final[Mapping[Face, str]] = {
    "modern": "/mcp",
    "handshake": "/mcp",
    "mrt": "/mrt_dispatch",
    "rpc": "/rpc",
    "gateway": "/rpc",
}
STATUSES: Final[Mapping[Case, int]] = {
    "good": 200,
    "wrong key": 401,
    "wrong role": 200,
    "broken JSON": 400,
    "bad arguments": 200,
    "too fast": 200,
}
AS_RESULT: Final[frozenset[Case]] = frozenset({"wrong role", "bad arguments", "too fast"})
"""The end of one call, which MCP tells as a result with `isError`."""
_ID, _COUNT = FIRST_ID + 1, FIRST_COUNT + 1


@dataclass(frozen=True, slots=True)
class Exchange:
    """One kind of request and the answer that is right for it."""

    face: Face
    case: Case = "good"
    text: str = "hello"
    data_at: tuple[str, ...] = ("result", "structuredContent", "data")
    """Where in the answer the echoed fields are."""
    fixed: bool = False
    """The peer answers the same fields to everyone: only the id is its own."""
    tool: str = TOOL
    arguments: Mapping[str, Any] | None = None
    """Of a tool that is not the echo. Its answer must be a result with data; what the data says is its own tests' business."""

    def body(self) -> bytes:
        """A template for two numbers: the id (where the face has one) and the count."""
        count: Any = "many" if self.case == "bad arguments" else _COUNT
        echoed = {"text": self.text, "count": count, "flag": True}
        arguments = echoed if self.arguments is None else self.arguments
        name = self._tool()
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": _ID}
        if self.face == "mrt":
            message = {"tool": name, "args": arguments}
        elif self.face == "rpc":
            params = {"tool": RPC_TOOL, "input": arguments}
            message |= {"method": "mcp.tool.invoke", "params": params}
        else:
            meta = {"_meta": META} if self.face in ("modern", "stdio") else {}
            message |= {"method": "tools/call", "params": {"name": name, "arguments": arguments} | meta}
        encoded = orjson.dumps(message)
        return encoded[:-1] if self.case == "broken JSON" else encoded

    def _tool(self) -> str:
        if self.face == "gateway":
            return GATEWAY_TOOL
        return ADMIN_TOOL if self.case == "wrong role" else self.tool

    def requests(self, head: bytes = b"", tail: bytes = b"") -> Callable[[int], bytes]:
        """Number -> the whole request. Everything but its numbers is laid out once."""
        first, *rest = re.split(rb"(%d|%d)" % (_ID, _COUNT), self.body())
        markers = [int(marker) for marker in rest[::2]]
        template = b"%d".join(part.replace(b"%", b"%%") for part in (head + first, *rest[1:-1:2], rest[-1] + tail))
        if markers == [_ID, _COUNT]:
            return lambda number: template % (FIRST_ID + number, count_of(number))
        if markers == [_ID]:
            return lambda number: template % (FIRST_ID + number)
        return lambda number: template % count_of(number)

    def headers(self, port: int, key: str | None, session: str | None = None) -> bytes:
        """The head of the HTTP request, content length included."""
        lines = [
            f"POST {PATHS[self.face]} HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            f"Content-Length: {len(self.body())}",
        ]
        if key is not None:
            lines.append(f"Authorization: Bearer {key}" if self.face == "gateway" else f"X-MCP-API-Key: {key}")
        if session is not None:
            lines.append(f"Mcp-Session-Id: {session}")
        if self.face == "modern":
            lines += [f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/call", f"Mcp-Name: {self._tool()}"]
        if self.face == "handshake":
            lines.append(f"MCP-Protocol-Version: {HANDSHAKE}")
        return "\r\n".join([*lines, "", ""]).encode()

    def fault(self, number: int, status: int, answer: Any) -> str | None:
        """What is wrong with this answer, or None. `status` is the HTTP status; on stdio it is always 200."""
        if self.case == "too fast" and self.told(status, answer) == 200:
            return replace(self, case="good").fault(
                number, status, answer
            )  # a limit lets some through; they count apart
        if status != STATUSES[self.case]:
            return f"status {status} instead of {STATUSES[self.case]}"
        if not isinstance(answer, dict):
            return "not a JSON object"
        wants_id = self.face != "mrt" and self.case not in ("wrong key", "broken JSON")
        if wants_id and answer.get("id") != FIRST_ID + number:
            return f"id {answer.get('id')} instead of {FIRST_ID + number}"
        if self.case in AS_RESULT:
            return None if _at(answer, ("result", "isError")) is True else "no error told"
        if self.case != "good":
            return None if "error" in answer else "no error told"
        if _at(answer, ("result", "isError")):
            return f"an error instead of a result: {_at(answer, ('result', 'structuredContent', 'code'))}"
        return self._fault_of_data(number, answer)

    def told(self, status: int, answer: Any) -> int | str:
        """How it ended: the status, or `isError`."""
        return "isError" if _at(answer, ("result", "isError")) is True else status

    def _fault_of_data(self, number: int, answer: dict[str, Any]) -> str | None:
        count = FIRST_COUNT if self.fixed else count_of(number)
        data = _at(answer, self.data_at)
        if self.arguments is not None:
            return None if isinstance(data, dict) else "no data"
        if data != {"text": self.text, "count": count, "flag": True} or data["flag"] is not True:
            return "not the fields that were sent"
        return None


def count_of(number: int) -> int:
    return FIRST_COUNT + number % COUNTS


def number_of(answer: Any) -> int | None:
    """Which request this answers, by its id."""
    found = answer.get("id") if isinstance(answer, dict) else None
    return found - FIRST_ID if isinstance(found, int) else None


def request_id_of(answer: Any) -> str | None:
    """The id under which the server says it has recorded the call."""
    found = _at(answer, ("result", "structuredContent", "requestId"))
    return found if isinstance(found, str) else None


def initialize() -> bytes:
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}}
    return orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})


INITIALIZED: Final = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


def _at(answer: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        answer = answer.get(name) if isinstance(answer, dict) else None
    return answer
