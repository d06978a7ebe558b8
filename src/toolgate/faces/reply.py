"""What a face hands to a server: a status, a body, and the headers that belong to the verdict; and the bodies that more than
one face sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson
from msgspec import Struct

from toolgate.errors import VERDICTS, Ending
from toolgate.model import strictjson

if TYPE_CHECKING:
    from toolgate.model.envelope import Answer

JSON = (b"content-type", b"application/json")
_CHALLENGE = (b"www-authenticate", b'Bearer realm="toolgate"')
_ALLOW_POST = (b"allow", b"POST")
_ABOUT_KEYS = frozenset({Ending.MISSING_KEY, Ending.INVALID_KEY, Ending.INSUFFICIENT_ROLE})
RETRY_AFTER_S = 1
"""A slot is usually free again within a second; a rate refusal carries its own time."""

SCHEMA_VERSION: Final = "1"
"""Of a finished command's body."""

Headers = tuple[tuple[bytes, bytes], ...]


class SchemaExplainer(Protocol):
    """The part of a compiled schema that a face needs."""

    def faults(self, instance: Any) -> list[Any]: ...


class Reply(Struct, frozen=True):
    status: int
    body: bytes = b""
    headers: Headers = ()
    request_id: str = ""
    """Of the call that this answers: sent as `X-Request-ID`."""
    stream: Any = None
    """What follows: a `toolgate.gate.sessions.watch.WatchStream`, whose first message is the body."""


def details_of(answer: Answer) -> Mapping[str, Any] | None:
    """What the caller is told beside the verdict. A refused key that shows a mistake (`${NAME}`, expired) gets a hint."""
    if answer.ending is Ending.INVALID_KEY and answer.text != VERDICTS[answer.ending].mrt_message:
        return {"hint": answer.text}
    return answer.details


def message_of(answer: Answer) -> str:
    """The sentence for people. What is said about keys and roles has a fixed wording (ADR-0003)."""
    default = VERDICTS[answer.ending].mrt_message
    return default if answer.ending in _ABOUT_KEYS else answer.text or default


def verdict_headers(answer: Answer, status: int) -> Headers:
    """Headers that HTTP demands beside some statuses (RFC 9110: 401, 405, 429, 503), and when to ask again after a 202."""
    if status == 401:
        return (_CHALLENGE,)
    if status == 405:
        return (_ALLOW_POST,)
    waits = answer.ending in (Ending.TOO_MANY, Ending.TOO_FAST, Ending.UPSTREAM_DOWN)
    if waits or (status in (202, 503) and answer.retry_after_s):
        return ((b"retry-after", str(answer.retry_after_s or RETRY_AFTER_S).encode()),)
    return ()


def admits(accept: bytes | None, kind: str) -> bool:
    """Does `Accept` admit this media type? Absent means anything (RFC 9110)."""
    if accept is None:
        return True
    ranges = {part.partition(";")[0].strip().lower() for part in accept.decode("latin-1").split(",")}
    return bool(ranges & {kind, kind.partition("/")[0] + "/*", "*/*"})


def finished_reply(answer: Answer, text_bytes: int) -> Reply:
    """A finished command, for the dispatch face and the command line: what it printed, its exit code, its envelope."""
    if answer.ending is not Ending.OK:
        return error_reply(answer)
    stdout, truncated = clip(answer.stdout, text_bytes)
    body = {
        "schema_version": SCHEMA_VERSION,
        "tool": answer.tool,
        "exitCode": answer.exit_code,
        "stdout": stdout,
        "stderr": "",
        "output_limit_bytes": text_bytes,
        "stdout_truncated": truncated,
        "stderr_truncated": False,
        "envelope": orjson.Fragment(answer.envelope_json),
        "audit": answer.audit,
    }
    return Reply(200, strictjson.dumps(body), (JSON,), answer.request_id)


def error_reply(answer: Answer) -> Reply:
    """The canonical error envelope, in the union of its two shapes (ADR-0003)."""
    verdict = VERDICTS[answer.ending]
    details, message = details_of(answer), message_of(answer)
    body = {
        "ok": False,
        "error": {"code": verdict.mrt_code, "message": message, "details": details},
        "error_code": verdict.mrt_code,
        "message": message,
        "details": details,
        "request_id": answer.request_id,
        "timestamp": answer.timestamp,
    }
    if answer.audit is not None:
        body["audit"] = answer.audit
    headers = (JSON, *verdict_headers(answer, verdict.mrt_status))
    return Reply(verdict.mrt_status, strictjson.dumps(body), headers, answer.request_id)


def request_id_of(message: Any) -> Any:
    """The id to answer to of a message in JSON-RPC: what every reader can send back, else null (JSON-RPC 2.0, section 5)."""
    found = message.get("id") if isinstance(message, dict) else None
    if isinstance(found, str) and 1 <= len(found) <= 128:
        return found
    return found if type(found) is int else None


def clip(text: str, limit: int) -> tuple[str, bool]:
    """Cut at `limit` bytes of UTF-8, at a character boundary."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text, False
    return raw[:limit].decode("utf-8", "ignore"), True
