"""One JSON-RPC message as bytes. Out: written once. In: read strictly, and its result kept as the bytes that came."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from toolgate.model import strictjson
from toolgate.model.mcpwire import METHOD_NOT_FOUND
from toolgate.model.tool import ASKING

MAX_TEXT: Final = 500
"""Characters of an upstream's error message that are kept."""


class MalformedMessage(Exception):
    """What came is not a message of the protocol. The text never quotes it."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class RpcError(Struct, frozen=True):
    code: int
    message: str
    data: Any = None


class Response(Struct, frozen=True):
    """To a request of ours. Either `error` is set, or `result` and `raw` are."""

    id: int
    result: Any = None
    raw: bytes = b""
    """The result exactly as it came."""
    error: RpcError | None = None
    status: int = 200
    """Over HTTP, the status it came with."""
    question: UpstreamRequest | None = None
    """In place of a result: what the upstream asks of the caller before it answers."""
    handle: str = ""
    """By which the question is answered."""


class Notification(Struct, frozen=True):
    """Wants no answer."""

    method: str
    params: dict[str, Any]


class UpstreamRequest(Struct, frozen=True):
    """A request of the upstream's own."""

    id: str | int
    method: str
    params: dict[str, Any] = {}


def read(data: bytes, *, max_bytes: int, max_values: int) -> Response | Notification | UpstreamRequest:
    """Raises: MalformedMessage."""
    try:
        message = strictjson.loads(data, max_bytes=max_bytes, max_values=max_values)
    except strictjson.JsonFault as fault:
        reason = "answer_too_large" if fault.reason in {"body_too_large", "too_many_values"} else fault.reason
        raise MalformedMessage(reason, str(fault)) from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise MalformedMessage("not_a_message", "a line is JSON and no JSON-RPC message")
    if "method" in message:
        return _from_them(message)
    return _answer(message, data)


def _from_them(message: dict[str, Any]) -> Notification | UpstreamRequest:
    method, params = message["method"], message.get("params")
    if not isinstance(method, str) or not (params is None or isinstance(params, dict)):
        raise MalformedMessage("not_a_message", "a request or notification has no proper method or params")
    if "id" not in message:
        return Notification(method, params or {})
    if type(message["id"]) not in (str, int):
        raise MalformedMessage("not_a_message", "a request has an id that is neither text nor an integer")
    return UpstreamRequest(message["id"], method, params or {})


def _answer(message: dict[str, Any], data: bytes) -> Response:
    number = message.get("id")
    if ("result" in message) == ("error" in message):
        raise MalformedMessage("not_a_message", "an answer needs either a result or an error")
    if "error" in message:
        # A server that could not read a request does not know its id; over HTTP it is still the answer to that request.
        return Response(number if type(number) is int else -1, error=_error(message["error"]))
    if type(number) is not int:
        raise MalformedMessage("wrong_id", "an answer carries an id that was never sent")
    if not isinstance(message["result"], dict):
        raise MalformedMessage("not_a_message", "the result of an answer is not an object")
    return Response(number, message["result"], bytes(_RESULT.decode(data).result))


def _error(error: Any) -> RpcError:
    if not isinstance(error, dict) or type(error.get("code")) is not int:
        raise MalformedMessage("not_a_message", "the error of an answer has no code")
    text = error.get("message")
    return RpcError(error["code"], text[:MAX_TEXT] if isinstance(text, str) else "", error.get("data"))


class _WithResult(Struct):
    result: Raw = Raw()


_RESULT: Final = msgspec.json.Decoder(_WithResult)


def request(number: int, method: str, params: dict[str, Any]) -> bytes:
    return strictjson.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def note(method: str, params: dict[str, Any] | None = None) -> bytes:
    return strictjson.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}})


def reply(ask: UpstreamRequest) -> bytes:
    """Where nobody can be asked anything: an upstream may only ask whether we are there."""
    if ask.method == "ping":
        return answer(ask, {})
    capability = next((name for name, method in ASKING.items() if method == ask.method), None)
    if capability is None:
        return refusal(ask, METHOD_NOT_FOUND, "Method not found")
    text = (
        f"Nobody can be asked for {capability} on this connection: it takes a caller whose client declares {capability}, "
        "and a tool whose row in the gate's policy allows it (x-asks)."
    )
    return refusal(ask, METHOD_NOT_FOUND, text)


def answer(ask: UpstreamRequest, result: Any) -> bytes:
    return strictjson.dumps({"jsonrpc": "2.0", "id": ask.id, "result": result})


def refusal(ask: UpstreamRequest, code: int, text: str) -> bytes:
    return strictjson.dumps({"jsonrpc": "2.0", "id": ask.id, "error": {"code": code, "message": text}})


class Progress(Struct, frozen=True):
    token: int
    done: float
    total: float | None
    message: str


def progress_of(note: Notification) -> Progress | None:
    """None: no step of a request of ours, or not in the form of one."""
    token: Any = note.params.get("progressToken")
    done: Any = note.params.get("progress")
    total: Any = note.params.get("total")
    if type(token) is not int or not _is_number(done) or not (total is None or _is_number(total)):
        return None
    text = note.params.get("message")
    return Progress(token, done, total, text[:MAX_TEXT] if isinstance(text, str) else "")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)
