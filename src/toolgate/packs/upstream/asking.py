"""Questions of an upstream to the client of a call (revision 2026-07-28): relayed, and labelled with whose they are.

An upstream is told only what the client declares and the row allows (`x-asks`). Its state is kept in ours, sealed to the caller,
the tool, the arguments and the pin (`gate/sessions/seals.py`): upstreams see one credential for all callers, so nobody else can
tell whose state it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolgate.errors import Ending, UpstreamFailed
from toolgate.model.mcpwire import MISSING_CAPABILITY
from toolgate.model.tool import ASKING, Ask, Context, Result
from toolgate.packs.upstream.making import RelayedError

ASKS: Final = tuple(ASKING)
_COMPLETE, _INPUT_REQUIRED = "complete", "input_required"


def resumed(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a call, with the answers to what it asked before."""
    if ctx.state is None:
        return params
    state = ctx.state["upstream"]
    return {**params, "inputResponses": dict(ctx.answers)} | ({} if state is None else {"requestState": state})


def mirrored_capabilities(ctx: Context) -> dict[str, Any]:
    """What the upstream may ask of this client, without the parts that only some clients have."""
    return {name: {} for name in sorted(ctx.capabilities)}


def question(result: Mapping[str, Any], upstream: str) -> Result | None:
    """What an answer asks of the client; None: it is the answer. Raises: UpstreamFailed."""
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
