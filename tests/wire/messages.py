"""How a row of the corpus is written: JSON-RPC messages of both eras, and the headers that go with them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Literal

HANDSHAKE = ("2024-11-05", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT = "io.modelcontextprotocol/clientInfo"
META: dict[str, Any] = {VERSION: MODERN, CAPABILITIES: {}, CLIENT: {"name": "corpus", "version": "1"}}

Era = Literal["handshake", "modern"]


@dataclass(frozen=True)
class Ours:
    """What our server answers where it differs: the reason, the HTTP status, the JSON-RPC error code (None: no error)."""

    why: str
    status: int
    code: int | None = None


@dataclass(frozen=True)
class Case:
    name: str
    era: Era
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    method: str = "POST"
    ours: Ours | None = None
    """A difference over HTTP, and on a pipe unless `on_stdio` says otherwise."""
    stdio: bool = False
    """The body means something on a pipe too."""
    on_stdio: Ours | None = None
    """Another difference on a pipe."""

    def __str__(self) -> str:
        return f"{self.era}: {self.name}"


JSON_HEADERS = (("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream"))
ECHO: dict[str, Any] = {"name": "wire_echo", "arguments": {"text": "hi"}}
GREETING: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "corpus", "version": "1"},
}


def request(method: Any, params: Any = None, ident: Any = 7, **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": ident, "method": method}
    if params is not None:
        message["params"] = params
    return message | more


def enveloped(method: str, params: dict[str, Any] | None = None, meta: Any = META, ident: Any = 7) -> dict[str, Any]:
    return request(method, {**(params or {}), "_meta": meta}, ident)


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def _headers(given: dict[str, str | None], extra: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The usual headers, with some replaced (a text) or left out (None), and more behind them."""
    replaced = {name.lower() for name in given}
    kept = [(name, value) for name, value in JSON_HEADERS if name.lower() not in replaced]
    return (*kept, *((name, value) for name, value in given.items() if value is not None), *extra)


def old(
    name: str,
    body: Any,
    given: dict[str, str | None] | None = None,
    extra: tuple[tuple[str, str], ...] = (),
    **more: Any,
) -> Case:
    """A case of the handshake era; its version header says 2025-11-25 unless `given` says otherwise."""
    plain = given is None and not extra and "method" not in more
    headers = _headers({"MCP-Protocol-Version": "2025-11-25"} | (given or {}), extra)
    return Case(name, "handshake", _bytes(body), headers, **({"stdio": plain} | more))


def new(
    name: str,
    body: Any,
    given: dict[str, str | None] | None = None,
    extra: tuple[tuple[str, str], ...] = (),
    **more: Any,
) -> Case:
    """A case of revision 2026-07-28; its routing headers mirror the body unless `given` says otherwise."""
    method = body.get("method") if isinstance(body, dict) else None
    params = body.get("params") if isinstance(body, dict) else None
    named = params.get("name") if isinstance(params, dict) else None
    mirrored: dict[str, str | None] = {"MCP-Protocol-Version": MODERN}
    if isinstance(method, str):
        mirrored["Mcp-Method"] = method
    if isinstance(named, str):
        mirrored["Mcp-Name"] = named
    plain = given is None and not extra and "method" not in more
    return Case(name, "modern", _bytes(body), _headers(mirrored | (given or {}), extra), **({"stdio": plain} | more))


def note(method: str, params: Any = None) -> dict[str, Any]:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message


def b64(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="
