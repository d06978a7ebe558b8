"""MCP results: lists, greetings, and the answers to everything but a plain call of a tool. For `faces/mcp.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from toolgate import __version__
from toolgate.errors import VERDICTS, Ending
from toolgate.faces import mcp_offers as offers
from toolgate.faces.face import Asked
from toolgate.faces.reply import JSON, Reply, message_of, verdict_headers
from toolgate.model import advertised, strictjson
from toolgate.model.mcpwire import (
    HANDSHAKE_VERSIONS,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    META_SERVER,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    MODERN_VERSIONS,
    PARSE_ERROR,
)

if TYPE_CHECKING:
    from toolgate.faces.face import Visible
    from toolgate.gate.admit import Grant
    from toolgate.model.envelope import Answer
    from toolgate.model.tool import Kind

HANDSHAKES: Final = tuple(version for version in HANDSHAKE_VERSIONS if version != "2025-03-26")
"""Served here. A server of 2025-03-26 must take batches, and we take none."""


LIST_TTL_MS: Final = 60_000
"""How long a client may keep a tool list. It changes only with a restart; a minute keeps role changes visible."""


SERVER_INFO: Final = {"name": "toolgate", "title": "Toolgate", "version": __version__}


INSTRUCTIONS: Final = (
    "Every answer is a governance envelope: read tier, environment, decision and degradedMode before acting on it. "
    "Only an authoritative tool in the cloud environment can block."
)


class McpRequest(Asked, frozen=True):
    """One JSON-RPC message that passed the ladder, or the reply to one that did not."""

    method: str = ""
    params: Mapping[str, Any] = {}
    modern: bool = False
    reply: Reply | None = None


class ProtocolFault(Exception):
    """A protocol fault: the message is wrong as a message, whatever it asks for."""

    def __init__(self, code: int, message: str, *, request_id: Any = None, status: int = 400, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.request_id, self.status, self.data = code, message, request_id, status, data

    def reply(self) -> Reply:
        return error_reply(self.request_id, self.code, self.message, status=self.status, data=self.data)


def is_implementation(value: Any) -> bool:
    """Who a client says it is. Looked at for its shape only: nobody vouches for it."""
    return isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("version"), str)


def answer_plain(request: McpRequest, visible: Visible, found: Sequence[Any]) -> Reply:
    """Every request that is not a call: greetings and lists. Raises: ProtocolFault."""
    if request.method in _LISTS:
        if (kind := _LISTED_KINDS.get(request.method)) is not None and not visible(kind):
            status = _status(request, 404)  # what a caller holds nothing of is not announced either
            raise ProtocolFault(
                METHOD_NOT_FOUND, "Method not found", request_id=request.id, status=status, data=request.method
            )
        if request.params.get("cursor") is not None:
            raise ProtocolFault(INVALID_PARAMS, "Invalid cursor", request_id=request.id, status=_status(request, 400))
        return _result(request, _LISTS[request.method](visible, found), cacheable=True)
    if request.method == "server/discover":
        result = {
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": offers.capabilities(visible),
            "instructions": INSTRUCTIONS,
        }
        return _result(request, result, cacheable=True)
    if request.method == "initialize":
        return _initialize(request, visible)
    if request.method == "subscriptions/listen":
        return Reply(200, offers.acknowledged(request.id, found[0], found[1]))
    return _result(request, {})  # ping, and what is done when it is answered


_LISTED_KINDS: Final[Mapping[str, Kind]] = {
    "prompts/list": "prompt",
    "resources/list": "resource",
    "resources/templates/list": "resource",
}


_LISTS: Final[Mapping[str, Callable[[Visible, Sequence[Any]], dict[str, Any]]]] = {
    "tools/list": lambda visible, _: {"tools": [_listed(grant, visible.environment) for grant in visible()]},
    "prompts/list": lambda visible, _: {"prompts": offers.prompts(visible)},
    "resources/list": lambda visible, found: {"resources": offers.resources(visible, found)},
    "resources/templates/list": lambda visible, _: {"resourceTemplates": offers.templates(visible)},
}


def _initialize(request: McpRequest, visible: Visible) -> Reply:
    """The handshake: the client's version if we serve it, else our newest of that era."""
    wanted = request.params.get("protocolVersion")
    info, capabilities = request.params.get("clientInfo"), request.params.get("capabilities")
    if not isinstance(wanted, str) or not is_implementation(info) or not isinstance(capabilities, dict):
        raise ProtocolFault(
            INVALID_PARAMS,
            "initialize needs protocolVersion, capabilities and clientInfo with a name and a version",
            request_id=request.id,
            status=200,
        )
    result = {
        "protocolVersion": wanted if wanted in HANDSHAKES else HANDSHAKES[-1],
        "capabilities": offers.capabilities(visible),
        "serverInfo": SERVER_INFO,
        "instructions": INSTRUCTIONS,
    }
    return _result(request, result)


def _listed(grant: Grant, environment: str) -> dict[str, Any]:
    """An adopted tool as it was approved; one of our own also says what its answers count for, here and now."""
    tool = grant.tool
    if tool.foreign is not None:
        return offers.as_approved(grant, _about(grant), name=tool.name)
    return {
        "name": tool.name,
        "description": tool.summary,
        "title": advertised.title(tool, grant.tier, environment),
        "inputSchema": advertised.input_schema(tool.input_schema),
        "outputSchema": advertised.output_schema(tool.output_schema),
        "annotations": advertised.hints(tool, grant.tier, environment),
        "_meta": _about(grant),
    }


def _about(grant: Grant) -> dict[str, Any]:
    return {
        "toolgate/tier": grant.tier,
        "toolgate/id": grant.tool.canonical_id,
        "toolgate/effect": grant.tool.effect,
        "toolgate/hint": grant.hint,
    }


def modern_result(result: Mapping[str, Any]) -> dict[str, Any]:
    return {**result, "resultType": "complete", "_meta": {META_SERVER: SERVER_INFO}}


def render_offer(request: McpRequest, answer: Answer) -> Reply:
    """A prompt, a resource, a completion or a subscription: its own result with the envelope in `_meta`, or an error."""
    if answer.ending is Ending.OK and answer.asks is None:
        result = offers.result_of(request.method, request.params, answer)
        if result:
            envelope = _as_it_came(_MEMBERS.decode(answer.envelope_json), without=("data",))
            result["_meta"] = {**result.get("_meta", {}), "toolgate/envelope": envelope}
        return _replied(request, answer, result, cacheable=request.method == "resources/read")
    if answer.asks is not None or answer.ending is Ending.CLIENT_CANNOT:
        return render_question(request, answer)
    code, message, data = offers.error_of(request.method, request.params, answer)
    return _error(request, answer, code, message, data, status=_status(request, _offer_status(answer)))


def _offer_status(answer: Answer) -> int:
    return 400 if answer.ending in (Ending.UNKNOWN_TOOL, Ending.STATE_REFUSED) else 200


def render_question(request: McpRequest, answer: Answer) -> Reply:
    """What the client is asked before the call goes on, or why it cannot be asked."""
    if answer.asks is None:
        assert answer.envelope is not None
        data = {"requiredCapabilities": answer.envelope.details["requiredCapabilities"]}
        code = MISSING_CAPABILITY if request.modern else INVALID_PARAMS
        return _error(request, answer, code, answer.text or "", data, status=_status(request, 400))
    said = answer.envelope_json if answer.envelope is not None else refusal_json(answer)
    envelope = _as_it_came(_MEMBERS.decode(said), without=("data",))
    meta = {"toolgate/envelope": envelope, META_SERVER: SERVER_INFO}
    return _sent(request, answer, {**answer.asks, "resultType": "input_required", "_meta": meta})


def _replied(request: McpRequest, answer: Answer, result: dict[str, Any], *, cacheable: bool) -> Reply:
    if request.modern:
        meta = {**result.get("_meta", {}), META_SERVER: SERVER_INFO}
        result = {**result, "resultType": "complete", "_meta": meta}
        if cacheable:
            result |= {"ttlMs": 0, "cacheScope": "private"}  # each read is a call, with a record
    return _sent(request, answer, result)


def _sent(request: McpRequest, answer: Answer, result: dict[str, Any]) -> Reply:
    body = strictjson.dumps({"jsonrpc": "2.0", "id": request.id, "result": result})
    return Reply(200, body, (JSON,), answer.request_id)


def _error(request: McpRequest, answer: Answer, code: int, message: str, data: dict[str, Any], *, status: int) -> Reply:
    data |= {"request_id": answer.request_id, "timestamp": answer.timestamp}
    if answer.audit is not None:
        data["audit"] = answer.audit
    error = {"code": code, "message": message, "data": data}
    body = strictjson.dumps({"jsonrpc": "2.0", "id": request.id, "error": error})
    return Reply(status, body, (JSON, *verdict_headers(answer, status)), answer.request_id)


def refusal_reply(answer: Answer, *, request_id: Any, modern: bool) -> Reply:
    """A refusal as JSON-RPC error. Codes outside -32768..-32000 are ours to use; the statuses are HTTP's own."""
    verdict = VERDICTS[answer.ending]
    code = verdict.mcp_code if verdict.mcp_code is not None else INTERNAL_ERROR
    data: dict[str, Any] = {
        "canonical_code": verdict.canonical,
        **(answer.details or {}),
        "request_id": answer.request_id,
        "timestamp": answer.timestamp,
    }
    if answer.audit is not None:
        data["audit"] = answer.audit
    if answer.ending is Ending.MALFORMED and data.get("reason") == "malformed_json":
        code = PARSE_ERROR
    status = verdict.mcp_status
    if answer.ending is Ending.UNKNOWN_TOOL and not modern:
        status = 200
    error = {"code": code, "message": answer.text or verdict.mrt_message, "data": data}
    body = strictjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
    return Reply(status, body, (JSON, *verdict_headers(answer, status)), answer.request_id)


def render_adopted(request: McpRequest, answer: Answer) -> Reply:
    """An upstream's result as it came, with the envelope in `_meta`; or what the gate says instead, as text alone: what the
    tool's own schema would refuse is not an answer of this tool."""
    body = _passed_on(request, answer)
    if body is None:
        body = _put_together(request, answer)
    return Reply(200, body, (JSON,), answer.request_id)


def _passed_on(request: McpRequest, answer: Answer) -> bytes | None:
    """Most results go on byte for byte, the envelope behind them. None: this one says something that each hop says itself."""
    data, raw = None if answer.envelope is None else answer.envelope.data, answer.relayed
    if raw is None or type(data) is not dict or "_meta" in data or raw[-1:] != b"}":
        return None
    if data.get("resultType") != ("complete" if request.modern else None):
        return None
    parts = (strictjson.dumps(request.id), raw[:-1], _without_data(answer))
    return (_MODERN_RELAYED if request.modern else _HANDSHAKE_RELAYED) % parts


_RELAYED: Final = b'{"jsonrpc":"2.0","id":%b,"result":%b,"_meta":{"toolgate/envelope":%b{more}}}}'
_HANDSHAKE_RELAYED: Final = _RELAYED.replace(b"{more}", b"")
_MODERN_RELAYED: Final = _RELAYED.replace(
    b"{more}", b"," + strictjson.dumps({META_SERVER: SERVER_INFO})[1:-1].replace(b"%", b"%%")
)


def _put_together(request: McpRequest, answer: Answer) -> bytes:
    meta: dict[str, Any] = {}
    if answer.relayed is not None:
        came = _MEMBERS.decode(answer.relayed)
        if "_meta" in came:
            meta = offers.own_meta(strictjson.loads(bytes(came["_meta"])))
        result: dict[str, Any] = _as_it_came(came, without=("_meta", "resultType"))
    else:
        said = (answer.envelope.message if answer.envelope else None) or words_of(answer)
        result = {"content": [{"type": "text", "text": said}], "isError": True}
    meta["toolgate/envelope"] = orjson.Fragment(_without_data(answer))
    if request.modern:
        meta[META_SERVER] = SERVER_INFO
        result["resultType"] = "complete"
    return strictjson.dumps({"jsonrpc": "2.0", "id": request.id, "result": {**result, "_meta": meta}})


def _without_data(answer: Answer) -> bytes:
    """The envelope of an adopted tool's answer: its data stands beside it. No text in JSON can hold these bytes."""
    if answer.envelope is None:
        return refusal_json(answer)
    data = answer.relayed
    return answer.envelope_json if data is None else answer.envelope_json.replace(b',"data":' + data, b"", 1)


_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _as_it_came(members: Mapping[str, msgspec.Raw], *, without: Sequence[str]) -> dict[str, Any]:
    return {key: orjson.Fragment(bytes(raw)) for key, raw in members.items() if key not in without}


def refusal_json(answer: Answer) -> bytes:
    """What the gate said no to has no envelope of the floor; it has the fields of one that a reader looks for."""
    verdict = VERDICTS[answer.ending]
    details: dict[str, Any] = {"canonical_code": verdict.canonical, **(answer.details or {})}
    if answer.retry_after_s is not None:
        details["retry_after_s"] = answer.retry_after_s
    body = {
        "success": False,
        "code": verdict.mrt_code.upper(),
        "message": words_of(answer),
        "isError": True,
        "requestId": answer.request_id,
        "timestamp": answer.timestamp,
        "details": details,
    }
    return strictjson.dumps(body if answer.audit is None else {**body, "audit": answer.audit})


def words_of(answer: Answer) -> str:
    return answer.text or message_of(answer)


def error_reply(request_id: Any, code: int, message: str, *, status: int, data: Any = None) -> Reply:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return Reply(status, strictjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}), (JSON,))


def _result(request: McpRequest, result: dict[str, Any], *, cacheable: bool = False) -> Reply:
    if request.modern:
        result = modern_result(result)
        if cacheable:
            # Lists differ by role: never shared between credentials.
            result |= {"ttlMs": LIST_TTL_MS, "cacheScope": "private"}
    return Reply(200, strictjson.dumps({"jsonrpc": "2.0", "id": request.id, "result": result}), (JSON,))


def _status(request: McpRequest, modern: int) -> int:
    """The handshake revisions answer 200 to every request that could be read, also when the answer is an error."""
    return modern if request.modern else 200
