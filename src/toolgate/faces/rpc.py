"""The rpc face, `POST /rpc` and lines on stdio: JSON-RPC with `params.tool` and `params.input` (ADR-0003)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from toolgate.errors import VERDICTS, Ending, Refusal
from toolgate.faces.face import Asked, checked_key, key_hint
from toolgate.faces.reply import JSON, Reply, details_of, message_of, request_id_of, verdict_headers
from toolgate.model import strictjson
from toolgate.model.call import Call, Transport, Wire

if TYPE_CHECKING:
    from toolgate.faces import Parts
    from toolgate.faces.face import Visible
    from toolgate.faces.reply import SchemaExplainer
    from toolgate.model.envelope import Answer

ROUTE: Final = "/rpc"
METHOD: Final = "mcp.tool.invoke"
_PARSE_ERROR: Final = -32700


def make(parts: Parts) -> list[RpcFace]:
    return [RpcFace(parts.envelope(), parts.short_name)]


class RpcFace:
    route = ROUTE
    wires: Mapping[Transport, Wire] = {
        "http": Wire(face="rpc", transport="http", route=ROUTE),
        "stdio": Wire(face="rpc", transport="stdio", route=METHOD),
    }

    def __init__(self, request: SchemaExplainer, short_name: Callable[[str], str]) -> None:
        self._request = request
        self._short_name = short_name

    def hints(self, headers: Mapping[bytes, bytes], repeated: frozenset[bytes]) -> str | None:
        return key_hint(headers, repeated)

    def speaks(self, message: Any) -> bool:
        """One without a method is this face's, too: MCP knows no such thing but a response."""
        if not isinstance(message, dict):
            return False
        return message["method"] == METHOD if "method" in message else not ("result" in message or "error" in message)

    def unread(self, message: Any) -> Asked:
        return Asked(request_id_of(message))

    def read(self, message: Any, transport: Transport, hints: str | None) -> Asked:
        """Any deviation from the envelope is INVALID_INPUT."""
        request_id = request_id_of(message)
        faults = self._request.faults(message)
        if faults:
            return Asked(request_id, refusal=Refusal(Ending.MALFORMED, faults[0].text, reason=faults[0].reason))
        params = message["params"]
        name = self._short_name(params["tool"])
        if hints is None:
            return Asked(request_id, Call(self.wires[transport], name, params["input"]))
        try:
            key = checked_key(hints)
        except Refusal as refusal:
            return Asked(request_id, refusal=refusal)
        return Asked(request_id, Call(self.wires[transport], name, params["input"], idempotency_key=key))

    def look(self, hints: Any) -> None:
        """There is nothing to get."""

    def answer(self, asked: Asked, visible: Visible, found: Sequence[Any] = ()) -> Reply:
        raise NotImplementedError  # every message is a call or refused

    def render(self, asked: Asked, answer: Answer) -> Reply:
        if answer.ending is Ending.OK:
            result = orjson.Fragment(answer.envelope_json)
            body = strictjson.dumps({"jsonrpc": "2.0", "id": asked.id, "result": result})
            return Reply(200, body, (JSON,), answer.request_id)
        verdict = VERDICTS[answer.ending]
        data: dict[str, Any] = {"canonical_code": verdict.canonical, **(details_of(answer) or {})}
        if answer.envelope is not None and answer.envelope.code is not None:
            data["code"] = answer.envelope.code
        data |= {"request_id": answer.request_id, "timestamp": answer.timestamp}
        if answer.audit is not None:
            data["audit"] = answer.audit
        unparsable = answer.ending is Ending.MALFORMED and data.get("reason") == "malformed_json"
        code = _PARSE_ERROR if unparsable else verdict.rpc_code
        error = {"code": code, "message": _message_of(answer, unparsable=unparsable), "data": data}
        body = strictjson.dumps({"jsonrpc": "2.0", "id": asked.id, "error": error})
        headers = (JSON, *verdict_headers(answer, verdict.rpc_status))
        return Reply(verdict.rpc_status, body, headers, answer.request_id)


def _message_of(answer: Answer, *, unparsable: bool) -> str:
    """The words of the code (ADR-0003), and after them the sentence for people where there is one."""
    if unparsable:
        return answer.text or "Parse error"
    words = VERDICTS[answer.ending].rpc_message
    return f"{words}: {answer.text}" if answer.text and message_of(answer) == answer.text else words
