"""The rpc face, `POST /rpc` and lines on stdio: JSON-RPC with `params.tool` and `params.input` (document 002)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from toolgate.errors import VERDICTS, Happening, Refusal
from toolgate.faces.reply import JSON, Reply, details_of, verdict_headers
from toolgate.model import strictjson
from toolgate.model.call import Call, Transport, Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolgate.faces.mrt import Faults
    from toolgate.model.envelope import Answer

ROUTE: Final = "/rpc"
METHOD: Final = "mcp.tool.invoke"
_PARSE_ERROR: Final = -32700
WIRES: Final[dict[Transport, Wire]] = {
    "http": Wire(face="rpc", transport="http", route=ROUTE),
    "stdio": Wire(face="rpc", transport="stdio", route=METHOD),
}


class RpcFace:
    def __init__(self, envelope: Faults, short_name: Callable[[str], str]) -> None:
        self._envelope = envelope
        self._short_name = short_name

    def parse(self, body: Any, transport: Transport) -> Call:
        """Raises: Refusal MALFORMED: any deviation from the envelope is INVALID_INPUT."""
        faults = self._envelope.faults(body)
        if faults:
            raise Refusal(Happening.MALFORMED, reason=faults[0].reason)
        params = body["params"]
        return Call(WIRES[transport], self._short_name(params["tool"]), params["input"])

    def render(self, answer: Answer, request_id: Any) -> Reply:
        if answer.happening is Happening.OK:
            result = orjson.Fragment(answer.envelope_json())
            return Reply(200, strictjson.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}), (JSON,))
        verdict = VERDICTS[answer.happening]
        data: dict[str, Any] = {"canonical_code": verdict.canonical, **(details_of(answer) or {})}
        if answer.envelope is not None and answer.envelope.code is not None:
            data["code"] = answer.envelope.code
        data["request_id"] = answer.request_id
        if answer.audit is not None:
            data["audit"] = answer.audit
        unparsable = answer.happening is Happening.MALFORMED and data.get("reason") == "malformed_json"
        code = _PARSE_ERROR if unparsable else verdict.rpc_code
        error = {"code": code, "message": "Parse error" if unparsable else verdict.rpc_message, "data": data}
        body = strictjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
        return Reply(verdict.rpc_status, body, (JSON, *verdict_headers(answer, verdict.rpc_status)))


def request_id_of(body: Any) -> Any:
    """The id to answer to: what the envelope allows, else null (JSON-RPC 2.0, section 5)."""
    found = body.get("id") if isinstance(body, dict) else None
    if isinstance(found, str) and 1 <= len(found) <= 128:
        return found
    return found if type(found) is int else None
