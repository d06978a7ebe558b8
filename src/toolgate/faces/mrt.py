"""The dispatch face, `POST /mrt_dispatch`: `{tool, args}` in, six keys of a finished command out (document 000)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

from toolgate.errors import VERDICTS, Happening, Refusal
from toolgate.faces.reply import JSON, Reply, details_of, verdict_headers
from toolgate.model import strictjson
from toolgate.model.call import Call, Wire

if TYPE_CHECKING:
    from toolgate.model.envelope import Answer

ROUTE: Final = "/mrt_dispatch"
WIRE: Final = Wire(face="mrt", transport="http", route=ROUTE)
SCHEMA_VERSION: Final = "1"
REQUEST_SCHEMA: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["tool"],
    "properties": {
        "tool": {"type": "string", "minLength": 1, "maxLength": 128},
        "args": {"type": "object"},
    },
}


class Faults(Protocol):
    """The part of a compiled schema that a face needs."""

    def faults(self, instance: Any) -> list[Any]: ...


class MrtFace:
    def __init__(self, request: Faults, *, text_bytes: int) -> None:
        self._request = request
        self._text_bytes = text_bytes

    def parse(self, body: Any) -> Call:
        """Raises: Refusal MALFORMED with a stable reason."""
        faults = self._request.faults(body)
        if faults:
            raise Refusal(Happening.MALFORMED, reason=faults[0].reason)
        return Call(WIRE, body["tool"], body.get("args", {}), wants_text=True)

    def render(self, answer: Answer) -> Reply:
        if answer.happening is not Happening.OK:
            return error_reply(answer)
        stdout, truncated = clip(answer.stdout, self._text_bytes)
        body = {
            "schema_version": SCHEMA_VERSION,
            "tool": answer.tool,
            "exitCode": answer.exit_code,
            "stdout": stdout,
            "stderr": "",
            "output_limit_bytes": self._text_bytes,
            "stdout_truncated": truncated,
            "stderr_truncated": False,
            "envelope": orjson.Fragment(answer.envelope_json()),
            "audit": answer.audit,
        }
        return Reply(200, strictjson.dumps(body), (JSON,))


def error_reply(answer: Answer) -> Reply:
    """The canonical error envelope of document 000, in the union of its two shapes."""
    verdict = VERDICTS[answer.happening]
    details = details_of(answer)
    body = {
        "ok": False,
        "error": {"code": verdict.mrt_code, "message": verdict.mrt_message, "details": details},
        "error_code": verdict.mrt_code,
        "message": verdict.mrt_message,
        "details": details,
        "request_id": answer.request_id,
        "timestamp": answer.timestamp,
    }
    if answer.audit is not None:
        body["audit"] = answer.audit
    return Reply(verdict.mrt_status, strictjson.dumps(body), (JSON, *verdict_headers(answer, verdict.mrt_status)))


def clip(text: str, limit: int) -> tuple[str, bool]:
    """Cut at `limit` bytes of UTF-8, at a character boundary."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text, False
    return raw[:limit].decode("utf-8", "ignore"), True
