"""Calls that ask their client something before they can be answered: what may be asked, and whether the answers fit.

A tool asks only for what it declares and its row in the manifest allows (`x-asks`; absence denies), and only of a client that
says it can answer. What was asked is sealed into the state that the client brings back, so that answers are held against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import Ending, Refusal
from toolgate.gate.validate import compile_schema
from toolgate.kit.secretlike import form_fault
from toolgate.model import strictjson
from toolgate.model.tool import ASKING, MAX_ASKED_BYTES, Ask

if TYPE_CHECKING:
    from toolgate.gate.admit import Grant, Ticket
    from toolgate.model.call import Call

MAX_REQUESTS: Final = 8
MAX_STATE_BYTES: Final = 2048
_APPROVAL: Final = "toolgate/approval"
"""The name of the gate's own question, and the mark of its state."""
_CAPABILITY: Final = {method: name for name, method in ASKING.items()}
_TEXT: Final = {"type": "string", "maxLength": 65_536}
_ANSWER: Final[Mapping[str, Mapping[str, Any]]] = {
    "elicitation/create": {
        "type": "object",
        "required": ["action"],
        "properties": {"action": {"enum": ["accept", "decline", "cancel"]}, "content": {"type": "object"}},
    },
    "sampling/createMessage": {
        "type": "object",
        "required": ["role", "content", "model"],
        "properties": {"role": _TEXT, "model": _TEXT, "content": {"type": ["object", "array"]}},
    },
    "roots/list": {
        "type": "object",
        "required": ["roots"],
        "properties": {"roots": {"type": "array", "maxItems": 1000, "items": {"type": "object", "required": ["uri"]}}},
    },
}
"""What the protocol says an answer looks like, as far as a handler relies on it."""


def ask_fault(ask: Any, grant: Grant) -> str | None:
    """Why this may not be asked; None: it may."""
    if not isinstance(ask, Ask) or not isinstance(ask.requests, Mapping) or not ask.requests:
        return "it asks for nothing"
    if len(ask.requests) > MAX_REQUESTS:
        return f"it asks more than {MAX_REQUESTS} things at once"
    try:
        asked, state = strictjson.encode_checked(ask.requests), strictjson.encode_checked(ask.state)
    except strictjson.JsonFault:
        return "what it asks is not strict JSON"
    if len(asked) > MAX_ASKED_BYTES or len(state) > MAX_STATE_BYTES:
        return f"what it asks is larger than {MAX_ASKED_BYTES} bytes, or its state than {MAX_STATE_BYTES}"
    faults = (_request_fault(each, grant) for each in ask.requests.values())
    return next((fault for fault in faults if fault is not None), None)


def _request_fault(request: Any, grant: Grant) -> str | None:
    method = request.get("method") if isinstance(request, Mapping) else None
    if _CAPABILITY.get(method or "") not in grant.asks:
        return "it asks for what it does not declare, or its row does not allow (x-asks)"
    if not isinstance(request.get("params", {}), Mapping):
        return "what it asks has no parameters"
    return _form_fault(request.get("params", {})) if method == "elicitation/create" else None


def _form_fault(params: Mapping[str, Any]) -> str | None:
    if (fault := form_fault(params)) is not None:
        return fault
    try:
        compile_schema(params["requestedSchema"])
    except ValueError:
        return "the requestedSchema is no usable JSON Schema"
    return None


def approval_question(approval: str, text: str) -> Ask:
    """What the gate itself asks: that the call be made again when a person has approved it."""
    params = {"message": text, "requestedSchema": {"type": "object", "properties": {}}}
    return Ask({_APPROVAL: {"method": "elicitation/create", "params": params}}, [_APPROVAL, approval])


def is_approval(state: Any) -> bool:
    """The state belongs to that question, not to one of the tool."""
    return isinstance(state, list) and state[:1] == [_APPROVAL]


def can_wait(call: Call) -> bool:
    """The client can carry a state and ask its person; and did not say that its person no longer waits."""
    answer = (call.answers or {}).get(_APPROVAL)
    gave_up = isinstance(answer, Mapping) and answer.get("action") != "accept"
    return call.era == "modern" and "elicitation" in call.capabilities and not gave_up


def undeclared(ask: Ask, call: Call) -> list[str]:
    """The capabilities that the client would need for this and does not declare."""
    needed = {_CAPABILITY[each["method"]] for each in ask.requests.values()}
    return sorted(needed - call.capabilities)


def kept_of(ask: Ask, ticket: Ticket) -> list[Any]:
    """What the client carries, sealed, until it calls again: the state, what was asked, and which request is held for it. Who
    holds a request hears whatever was filled in, as from a client of its own, and judges by its own form."""
    asked = {name: [each["method"], None if ask.holds else _schema_of(each)] for name, each in ask.requests.items()}
    return [ask.state, asked, ticket.ids.request if ask.holds else None]


def _schema_of(request: Mapping[str, Any]) -> Any:
    return request.get("params", {}).get("requestedSchema")


def fitting(answers: Mapping[str, Any] | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The answers to what was asked; others are left out. Raises: Refusal STATE_REFUSED."""
    found = {name: value for name, value in (answers or {}).items() if name in asked}
    for name, value in found.items():
        method, schema = asked[name]
        if not compile_schema(_ANSWER[method]).is_valid(value) or not _fits_form(value, schema):
            text = f"The answer to {name[:64]!a} does not fit what was asked."
            raise Refusal(Ending.STATE_REFUSED, text, reason="invalid_input_response")
    return found


def _fits_form(value: Mapping[str, Any], schema: Any) -> bool:
    if schema is None or value.get("action") != "accept":
        return True
    return compile_schema(schema).is_valid(value.get("content"))
