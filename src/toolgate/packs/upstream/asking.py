"""Questions of an upstream to the client of a call: relayed, and labelled with whose they are.

An upstream is told only what the client declares and the row allows (`x-asks`). In revision 2026-07-28 its question is a result,
with a state that is kept in ours, sealed to the caller, the tool, the arguments and the pin (`gate/sessions/seals.py`): upstreams
see one credential for all callers, so nobody else can tell whose state it is. In the handshake era it asks in the middle of the
call, which is held (`powers/mcp/relay/lanes.py`); what is sealed then is the handle of it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Final

from toolgate.errors import Ending, UpstreamFailed
from toolgate.kit.secretlike import FORMS_ONLY, NO_SECRETS, form_fault
from toolgate.model import strictjson
from toolgate.model.mcpwire import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    NOT_ANSWERED,
    RefusedQuestion,
    RelayedCall,
)
from toolgate.model.tool import ASKING, MAX_ASKED_BYTES, Ask, Context, Result
from toolgate.packs.upstream.making import Relay, Relayed, RelayedError, RelayedQuestion, seconds_of

ASKS: Final = tuple(ASKING)
_COMPLETE, _INPUT_REQUIRED = "complete", "input_required"
_HELD, _QUESTION = "held", "question"
_REASONS: Final = {NO_SECRETS: "secret_form", FORMS_ONLY: "not_relayed"}
"""Of a form that is refused, a stable word for the log."""
_NO_ANSWER: Final = "The caller's client did not answer, or takes no stream of events on which it could be asked."
ROOM_FOR_LABEL: Final = 512
"""Bytes of a question that say whose it is."""


def resumed(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a call, with the answers to what it asked before."""
    if ctx.state is None or _HELD in ctx.state:
        return params
    state = ctx.state["upstream"]
    return {**params, "inputResponses": dict(ctx.answers)} | ({} if state is None else {"requestState": state})


async def relayed(relay: Relay, ctx: Context, call: RelayedCall) -> Relayed:
    """What comes of a call, or of one that is held for these answers: its answer, or a question that its client may be asked.

    Raises: UpstreamFailed, ToolError.
    """
    answered = await begun(relay, ctx, call)
    return answered if answered.question is None else await judged(relay, ctx, call, answered)


def begun(relay: Relay, ctx: Context, call: RelayedCall) -> Coroutine[Any, Any, Relayed]:
    """What comes of it first: an answer, or a question that is for `judged`. Raises: as `relayed`."""
    held = ctx.state.get(_HELD) if ctx.state is not None else None
    if held is None:
        return relay.request(call, seconds=seconds_of(ctx))
    said, refused = _answer_of(ctx)
    return relay.go_on(call, held, said, refused=refused, seconds=seconds_of(ctx))


async def judged(relay: Relay, ctx: Context, call: RelayedCall, answered: Relayed) -> Relayed:
    """An answer, or a question that the client may be asked; others are refused. Raises: as `relayed`."""
    while answered.question is not None:
        refused = _question_fault(answered.question, ctx)
        if refused is None:
            break
        answered = await relay.go_on(call, answered.handle, None, refused=refused, seconds=seconds_of(ctx))
    return answered


def _answer_of(ctx: Context) -> tuple[Any, RefusedQuestion | None]:
    """What the client said to the question of a call that is held."""
    if _QUESTION in ctx.answers:
        return ctx.answers[_QUESTION], None
    return None, RefusedQuestion(NOT_ANSWERED, "client_refused", _NO_ANSWER)


def _question_fault(question: RelayedQuestion, ctx: Context) -> RefusedQuestion | None:
    """Why the client is not asked this, and which side it is that lacks something; None: it is asked."""
    capability = next((name for name, method in ASKING.items() if method == question.method), None)
    if capability is None:
        return RefusedQuestion(METHOD_NOT_FOUND, "unknown_method", "Method not found")
    if capability not in ctx.allowed:
        text = f"The tool's row in the gate's policy does not allow {capability} (x-asks)."
        return RefusedQuestion(METHOD_NOT_FOUND, "not_allowed", text)
    if capability not in ctx.capabilities:
        text = f"The caller's client does not declare {capability}."
        return RefusedQuestion(METHOD_NOT_FOUND, "not_declared", text)
    fault = form_fault(question.params) if capability == "elicitation" else None
    if len(strictjson.dumps(question.params)) > MAX_ASKED_BYTES - ROOM_FOR_LABEL:
        fault = f"a question has at most {MAX_ASKED_BYTES - ROOM_FOR_LABEL} bytes"
    if fault is None:
        return None
    return RefusedQuestion(INVALID_PARAMS, _REASONS.get(fault, "bad_question"), f"Refused: {fault}.")


def _held_question(asked: RelayedQuestion, handle: str, upstream: str) -> Result:
    """What the upstream asks in the middle of a call that is held for the answer."""
    request = {"method": asked.method, "params": _plain(asked.params)}
    return Result(ask=Ask({_QUESTION: _labelled(request, upstream)}, {_HELD: handle}, holds=True))


def _plain(params: dict[str, Any]) -> dict[str, Any]:
    """Without what belongs to the other hop: its token for progress, its task."""
    return {key: value for key, value in params.items() if key not in ("_meta", "task")}


def mirrored_capabilities(ctx: Context) -> dict[str, Any]:
    """What the upstream may ask of this client, without the parts that only some clients have."""
    return {name: {} for name in sorted(ctx.capabilities)}


def question(answered: Relayed, upstream: str) -> Result | None:
    """What is asked of the client in place of an answer; None: it is the answer. Raises: UpstreamFailed."""
    if answered.question is not None:
        return _held_question(answered.question, answered.handle, upstream)
    result: Mapping[str, Any] = answered.result
    kind = result.get("resultType", _COMPLETE)
    if kind == _COMPLETE:
        return None
    requests, state = result.get("inputRequests"), result.get("requestState")
    if kind != _INPUT_REQUIRED or not isinstance(requests, dict) or not isinstance(state, str | None):
        text = f"{upstream} answered with a result of a kind that is not relayed"
        raise UpstreamFailed(Ending.UPSTREAM_FAULT, "unknown_result", text)
    labelled = {name: _labelled(request, upstream) for name, request in requests.items()}
    return Result(ask=Ask(labelled, {"upstream": state}))


def _labelled(request: Any, upstream: str) -> Any:
    """A person reads whose question it is; a model reads that it is not the user's."""
    params = request.get("params", {}) if isinstance(request, dict) else None
    if not isinstance(params, dict):
        return request
    label: dict[str, Any] = {}
    if request.get("method") == ASKING["elicitation"] and isinstance(params.get("message"), str):
        label["message"] = f"The server {upstream} asks: {params['message']}"
    elif request.get("method") == ASKING["sampling"]:
        told = f"This is asked by the MCP server {upstream}, not by the user."
        before = params.get("systemPrompt")
        label["systemPrompt"] = f"{told}\n\n{before}" if isinstance(before, str) else told
    return {**request, "params": {**params, **label}} if label else request


def refuse_missing(error: RelayedError, tool: str, upstream: str) -> None:
    """Raises: UpstreamFailed: the upstream says that the client lacks a capability."""
    if error.code != MISSING_CAPABILITY:
        return
    said = error.data.get("requiredCapabilities") if isinstance(error.data, dict) else None
    needed = sorted(set(said) & set(ASKING)) if isinstance(said, dict) else []
    words = ", ".join(needed) or "a capability of the client"
    text = (
        f"{tool} of {upstream} needs {words}: the client must declare it with the call (revision 2026-07-28), and the "
        "tool's row in the policy must allow it (x-asks)."
    )
    details: dict[str, Any] = {"requiredCapabilities": {name: {} for name in needed}}
    raise UpstreamFailed(Ending.CLIENT_CANNOT, "client_cannot", text, details=details)
