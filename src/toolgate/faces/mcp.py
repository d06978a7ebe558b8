"""The MCP wire, both eras, tools only: revision 2026-07-28 (stateless) and the handshake revisions, served statelessly.

Nothing is remembered from a connection, so nothing can be hijacked: identity comes with each request. Our wire is small
because the server offers tools only; the official SDK is the oracle of its tests, not a part of it.

The modern ladder, first failure wins: frame (-32600) -> routing headers once each (-32020) -> `_meta` envelope (-32602) ->
headers equal the body (-32020) -> version served (-32022) -> method known (-32601) -> parameters (-32602).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate import __version__
from toolgate.errors import VERDICTS, Happening
from toolgate.faces.reply import JSON, Reply, verdict_headers
from toolgate.model import strictjson
from toolgate.model.call import Call, Transport, Wire

if TYPE_CHECKING:
    from toolgate.gate.permit import Grant
    from toolgate.model.envelope import Answer

ROUTE: Final = "/mcp"
MODERN_VERSIONS: Final = ("2026-07-28",)
HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
VERSION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
ROUTING_HEADERS: Final = frozenset({VERSION_HEADER, METHOD_HEADER, NAME_HEADER})
_META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
_META_CLIENT: Final = "io.modelcontextprotocol/clientInfo"
_META_SERVER: Final = "io.modelcontextprotocol/serverInfo"
LIST_TTL_MS: Final = 60_000
"""How long a client may keep a tool list. It changes only with a restart; a minute keeps role changes visible."""

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022
WIRES: Final[dict[Transport, Wire]] = {
    "http": Wire(face="mcp", transport="http", route=ROUTE),
    "stdio": Wire(face="mcp", transport="stdio", route="tools/call"),
}
SERVER_INFO: Final = {"name": "toolgate", "title": "Toolgate", "version": __version__}
INSTRUCTIONS: Final = (
    "Every answer is a governance envelope: read tier, environment, decision and degradedMode before acting on it. "
    "Only an authoritative tool in the cloud environment can block."
)
_MODERN_METHODS: Final = frozenset({"server/discover", "tools/list", "tools/call"})
_HANDSHAKE_METHODS: Final = frozenset({"initialize", "ping", "tools/list", "tools/call"})
_NAME_BEARING: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_NOT_A_MESSAGE: Final = "Body must be a single JSON-RPC request or notification object"
_BASE64: Final = re.compile(r"=\?base64\?([A-Za-z0-9+/=]*)\?=")


class Request(Struct, frozen=True):
    """One JSON-RPC request that passed the ladder."""

    id: str | int
    method: str
    params: Mapping[str, Any]
    modern: bool
    progress_token: str | int | None


class Notification(Struct, frozen=True):
    """A message that wants no answer. On stdio it may cancel a call; over HTTP there is nothing for it to act on."""

    method: str
    params: Mapping[str, Any]


class Fault(Exception):
    """A protocol fault: the message is wrong as a message, whatever it asks for."""

    def __init__(self, code: int, message: str, *, request_id: Any = None, status: int = 400, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.request_id, self.status, self.data = code, message, request_id, status, data

    def reply(self) -> Reply:
        return error_reply(self.request_id, self.code, self.message, status=self.status, data=self.data)


class Routing(Struct, frozen=True):
    """What the headers of a request say about its message, which must say the same."""

    version: str | None
    method: str | None
    name: str | None
    modern: bool
    """Over HTTP the version header decides, and a version nobody knows is told so in the modern way."""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Routing:
        version = headers.get(VERSION_HEADER)
        modern = version is not None and version not in HANDSHAKE_VERSIONS
        return cls(version, headers.get(METHOD_HEADER), _decoded(headers.get(NAME_HEADER)), modern)


def read(body: Any, routing: Routing | None) -> Request | Notification:
    """What a decoded message is. `routing` is None on stdio, where each message's own envelope tells its era.

    Raises: Fault.
    """
    modern = _has_envelope(body) if routing is None else routing.modern
    if not modern and _is_response(body):
        return Notification("", {})  # the handshake revisions accept a posted response; we never asked for one
    if not isinstance(body, dict) or body.get("jsonrpc") != "2.0" or not isinstance(body.get("method"), str):
        raise Fault(INVALID_REQUEST, _NOT_A_MESSAGE)
    method, params = body["method"], body.get("params", _NO_PARAMS)
    if params is None:
        params = _NO_PARAMS
    if "id" not in body:
        return _notification(method, params, routing if modern else None)
    request_id = body["id"]
    if not isinstance(request_id, str) and type(request_id) is not int:
        raise Fault(INVALID_REQUEST, _NOT_A_MESSAGE)
    if not isinstance(params, dict):
        raise Fault(INVALID_REQUEST, _NOT_A_MESSAGE, request_id=request_id)
    meta = params.get("_meta")
    if modern:
        _climb(method, params, meta, routing, request_id)
    if method not in (_MODERN_METHODS if modern else _HANDSHAKE_METHODS):
        raise Fault(
            METHOD_NOT_FOUND,
            "Method not found",
            request_id=request_id,
            status=404 if modern else 200,
            data=method[:128],
        )
    if meta is None:
        return Request(request_id, method, params, modern, None)
    _check_meta(meta, request_id, modern=modern)
    token = meta.get("progressToken")
    return Request(request_id, method, params, modern, token if isinstance(token, str) or type(token) is int else None)


_NO_PARAMS: Final[dict[str, Any]] = {}


def _notification(method: str, params: Any, routing: Routing | None) -> Notification:
    """`routing` of a modern message over HTTP, else None. Raises: Fault."""
    if not isinstance(params, dict):
        raise Fault(INVALID_REQUEST, _NOT_A_MESSAGE)
    if routing is not None and routing.version not in MODERN_VERSIONS:
        raise _not_served(routing.version or "", None)
    return Notification(method, params)


def _has_envelope(body: Any) -> bool:
    params = body.get("params") if isinstance(body, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and _META_VERSION in meta


def _is_response(body: Any) -> bool:
    return isinstance(body, dict) and "method" not in body and ("result" in body or "error" in body)


def _climb(method: str, params: dict[str, Any], meta: Any, routing: Routing | None, request_id: str | int) -> None:
    """The rungs of revision 2026-07-28. Raises: Fault."""
    if not isinstance(meta, dict):
        raise Fault(
            INVALID_PARAMS,
            f"params._meta must be an object with {_META_VERSION} and {_META_CAPABILITIES}",
            request_id=request_id,
        )
    if _META_VERSION not in meta or _META_CAPABILITIES not in meta:
        missing = [key for key in (_META_VERSION, _META_CAPABILITIES) if key not in meta]
        raise Fault(INVALID_PARAMS, f"params._meta is missing {', '.join(missing)}", request_id=request_id)
    version = meta[_META_VERSION]
    if routing is not None:
        if routing.version != version:
            raise Fault(HEADER_MISMATCH, "MCP-Protocol-Version does not match params._meta", request_id=request_id)
        if routing.method != method:
            raise Fault(HEADER_MISMATCH, "Mcp-Method does not match the method of the body", request_id=request_id)
        key = _NAME_BEARING.get(method)
        if key and params.get(key) is not None and routing.name != params[key]:
            raise Fault(HEADER_MISMATCH, f"Mcp-Name does not match params.{key}", request_id=request_id)
    if not isinstance(version, str):
        raise Fault(INVALID_PARAMS, f"{_META_VERSION} must be a string", request_id=request_id)
    if version not in MODERN_VERSIONS:
        raise _not_served(version, request_id)


def _check_meta(meta: Any, request_id: str | int, *, modern: bool) -> None:
    """The shape of what a client says about itself. Raises: Fault."""
    if not isinstance(meta, dict):
        status = 400 if modern else 200
        raise Fault(INVALID_PARAMS, "params._meta must be an object", request_id=request_id, status=status)
    if not modern:
        return
    if not isinstance(meta[_META_CAPABILITIES], dict):
        raise Fault(INVALID_PARAMS, f"{_META_CAPABILITIES} must be an object", request_id=request_id)
    if meta.get(_META_CLIENT) is not None and not _is_implementation(meta[_META_CLIENT]):
        raise Fault(INVALID_PARAMS, f"{_META_CLIENT} must hold a name and a version", request_id=request_id)


def _is_implementation(value: Any) -> bool:
    """Who a client says it is. Looked at for its shape only: nobody vouches for it."""
    return isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("version"), str)


def _not_served(version: str, request_id: str | int | None) -> Fault:
    data = {"supported": list(MODERN_VERSIONS), "requested": version[:64]}
    return Fault(UNSUPPORTED_VERSION, "Unsupported protocol version", request_id=request_id, data=data)


def _decoded(value: str | None) -> str | None:
    """A header value; text that a header cannot carry comes as =?base64?...?=, in the one form an encoder makes."""
    if value is None or not value.startswith("=?") or not (found := _BASE64.fullmatch(value)):
        return value
    try:
        raw = base64.b64decode(found[1], validate=True)
        return raw.decode("utf-8") if base64.b64encode(raw).decode() == found[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def call_of(request: Request, transport: Transport) -> Call:
    """The call inside a `tools/call`. Raises: Fault: the parameters are not those of a call."""
    name = request.params.get("name")
    arguments = request.params.get("arguments")
    if not isinstance(name, str) or not (arguments is None or isinstance(arguments, dict)):
        raise Fault(
            INVALID_PARAMS,
            "tools/call needs a string name and an object of arguments",
            request_id=request.id,
            status=_status(request, 400),
        )
    return Call(WIRES[transport], name, {} if arguments is None else arguments)


def answer_plain(request: Request, grants: Sequence[Grant]) -> Reply:
    """Every request that is not a call: greetings and lists. `grants` is what this caller may call."""
    if request.method == "tools/list":
        if request.params.get("cursor") is not None:
            raise Fault(INVALID_PARAMS, "Invalid cursor", request_id=request.id, status=_status(request, 400))
        return _result(request, {"tools": [_listed(grant) for grant in grants]}, cacheable=True)
    if request.method == "server/discover":
        result = {
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": {"tools": {"listChanged": False}},
            "instructions": INSTRUCTIONS,
        }
        return _result(request, result, cacheable=True)
    if request.method == "initialize":
        return _initialize(request)
    return _result(request, {})  # ping


def _initialize(request: Request) -> Reply:
    """The handshake: the client's version if we serve it, else our newest of that era. Nothing is remembered."""
    wanted = request.params.get("protocolVersion")
    info, capabilities = request.params.get("clientInfo"), request.params.get("capabilities")
    if not isinstance(wanted, str) or not _is_implementation(info) or not isinstance(capabilities, dict):
        raise Fault(
            INVALID_PARAMS,
            "initialize needs protocolVersion, capabilities and clientInfo with a name and a version",
            request_id=request.id,
            status=200,
        )
    result = {
        "protocolVersion": wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": SERVER_INFO,
        "instructions": INSTRUCTIONS,
    }
    return _result(request, result)


def _listed(grant: Grant) -> dict[str, Any]:
    tool = grant.tool
    return {
        "name": tool.name,
        "description": tool.summary,
        "inputSchema": tool.input_schema,
        "outputSchema": envelope_schema(tool.output_schema),
        "annotations": {"readOnlyHint": tool.effect == "read", "openWorldHint": tool.effect == "network"},
        "_meta": {
            "toolgate/tier": grant.tier,
            "toolgate/id": tool.canonical_id,
            "toolgate/effect": tool.effect,
            "toolgate/hint": grant.hint,
        },
    }


def _modern(result: Mapping[str, Any]) -> dict[str, Any]:
    return {**result, "resultType": "complete", "_meta": {_META_SERVER: SERVER_INFO}}


def envelope_schema(data: Mapping[str, Any]) -> dict[str, Any]:
    """What `structuredContent` looks like: the whole envelope, with the tool's own schema for `data`."""
    text = {"type": "string"}
    return {
        "type": "object",
        "required": ["success", "tier", "environment", "requestId", "timestamp"],
        "properties": {
            "success": {"type": "boolean"},
            "code": text,
            "message": text,
            "isError": {"type": "boolean"},
            "tier": {"enum": ["authoritative", "experimental"]},
            "environment": {"enum": ["local", "cloud"]},
            "decision": {"enum": ["block", "warn", "pass"]},
            "degradedMode": {"type": "boolean"},
            "requestId": text,
            "timestamp": text,
            "data": data,
            "clamps": {"type": "array", "items": {"type": "object"}},
            "notes": {"type": "array", "items": text},
            "audit": {"type": "object"},
        },
    }


_ANSWER: Final = (
    b'{"jsonrpc":"2.0","id":%b,"result":'
    b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"isError":%b{more}}}'
)
"""One encode, two places: the envelope as it is, and as text."""
_HANDSHAKE_ANSWER: Final = _ANSWER.replace(b"{more}", b"")
_MODERN_ANSWER: Final = _ANSWER.replace(b"{more}", b"," + strictjson.dumps(_modern({}))[1:-1].replace(b"%", b"%%"))


def render(request: Request, answer: Answer) -> Reply:
    """One answer of the road. A fault of the tool is a result with `isError`; a refusal is a JSON-RPC error."""
    if answer.envelope is not None and (answer.happening is Happening.OK or _is_tools_own(answer.happening)):
        envelope = answer.envelope_json()
        skeleton = _MODERN_ANSWER if request.modern else _HANDSHAKE_ANSWER
        is_error = b"true" if answer.envelope.is_error else b"false"
        text = strictjson.dumps(envelope.decode())
        return Reply(200, skeleton % (strictjson.dumps(request.id), text, envelope, is_error), (JSON,))
    return refusal_reply(answer, request_id=request.id, modern=request.modern)


def refusal_reply(answer: Answer, *, request_id: Any, modern: bool) -> Reply:
    """A refusal as JSON-RPC error. Codes outside -32768..-32000 are ours to use; the statuses are HTTP's own."""
    verdict = VERDICTS[answer.happening]
    code = verdict.mcp_code if verdict.mcp_code is not None else INVALID_PARAMS
    data: dict[str, Any] = {
        "canonical_code": verdict.canonical,
        **(answer.details or {}),
        "request_id": answer.request_id,
    }
    if answer.audit is not None:
        data["audit"] = answer.audit
    if answer.happening is Happening.MALFORMED and data.get("reason") == "malformed_json":
        code = PARSE_ERROR
    status = verdict.mcp_status
    if answer.happening is Happening.UNKNOWN_TOOL and not modern:
        status = 200
    return error_reply(
        request_id,
        code,
        answer.text or verdict.mrt_message,
        status=status,
        data=data,
        headers=verdict_headers(answer, status),
    )


def error_reply(request_id: Any, code: int, message: str, *, status: int, data: Any = None, headers: Any = ()) -> Reply:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return Reply(status, strictjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}), (JSON, *headers))


def progress_message(token: str | int, done: int, total: int | None, message: str) -> bytes:
    params: dict[str, Any] = {"progressToken": token, "progress": done}
    if total is not None:
        params["total"] = total
    if message:
        params["message"] = message
    return strictjson.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def _is_tools_own(happening: Happening) -> bool:
    return VERDICTS[happening].mcp_code is None


def _result(request: Request, result: dict[str, Any], *, cacheable: bool = False) -> Reply:
    if request.modern:
        result = _modern(result)
        if cacheable:
            # Lists differ by role: never shared between credentials.
            result |= {"ttlMs": LIST_TTL_MS, "cacheScope": "private"}
    return Reply(200, strictjson.dumps({"jsonrpc": "2.0", "id": request.id, "result": result}), (JSON,))


def _status(request: Request, modern: int) -> int:
    """The handshake revisions answer 200 to every request that could be read, also when the answer is an error."""
    return modern if request.modern else 200
