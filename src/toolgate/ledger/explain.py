"""Why a call ended as it did: which step of the road decided, by which rule, and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from toolgate.errors import Happening

_RULES: Final[Mapping[Happening, tuple[str, str]]] = {
    Happening.MISSING_KEY: (
        "step 1, authenticate: no key was sent",
        "Send the key in X-MCP-API-Key or as a Bearer token.",
    ),
    Happening.INVALID_KEY: (
        "step 1, authenticate: the key is unknown, revoked or expired",
        "Make a new one: toolgate keys create.",
    ),
    Happening.INSUFFICIENT_ROLE: (
        "step 2, permit: the caller's role does not hold this tool or this argument",
        "Use a key of a role that x-roles in the policy manifest names.",
    ),
    Happening.UNKNOWN_TOOL: (
        "step 2, permit: no such tool in the manifest",
        "List the tools this key may call: toolgate tools list.",
    ),
    Happening.TOO_MANY: (
        "step 3, admit: the caller had too many calls running",
        "Wait for one to end, or raise limits.concurrency_per_caller.",
    ),
    Happening.TOO_FAST: (
        "step 3, admit: the caller called too often",
        "Slow down, or raise limits.rate_per_minute.",
    ),
    Happening.BAD_ARGUMENTS: (
        "step 4, validate: the arguments do not match the tool's schema",
        "Compare them with the tool's inputSchema: toolgate tools list --json.",
    ),
    Happening.NOT_THERE: ("step 6, run: the tool did not find what was asked for", "Check the name or path."),
    Happening.TOOL_SAID_NO: ("step 6, run: the tool refused", "The code says why; see the tool's documentation."),
    Happening.TOOL_FAILED: (
        "step 6, run: the tool crashed or ran past its deadline",
        "See the server's standard error at that time.",
    ),
    Happening.BAD_OUTPUT: (
        "step 7, validate: what the tool returned does not match its output schema",
        "This is a defect of the tool: report it with the request id.",
    ),
    Happening.UNAVAILABLE: ("step 5 or 9: the audit log could not be written", "Make room for the log."),
}
_WIRE: Final = ("before the road: the request itself was not acceptable", "Compare the request with the protocol.")
_ALLOWED: Final = "steps 1 to 9 passed: key, role, limits, arguments and output were in order"


def explain(records: Sequence[Mapping[str, Any]]) -> str:
    """A few lines for people about the records of one request (intent and outcome)."""
    outcome = next((one for one in records if one.get("event") == "outcome"), None)
    found = outcome or records[0]
    return "\n".join([*_facts(found), *(_verdict(outcome) if outcome else _NO_OUTCOME), ""])


_NO_OUTCOME: Final = (
    "Ended:    nobody knows. There is an intent and no outcome: the server stopped, or could not write.",
    "Change:   check whether the effect happened before calling again.",
)


def _facts(found: Mapping[str, Any]) -> Iterator[str]:
    caller = found.get("caller")
    metadata = found.get("metadata") or {}
    yield f"Request:  {found.get('requestId')} at {found.get('ts')}"
    yield f"Tool:     {metadata.get('toolId') or 'none was reached'}"
    yield f"Caller:   {caller['id']} ({caller['role']})" if caller else "Caller:   not authenticated"
    yield f"Way:      {found.get('face')} over {found.get('transport')}, {found.get('route')}"


def _verdict(outcome: Mapping[str, Any]) -> Iterator[str]:
    error = outcome.get("error") or {}
    if not error:
        yield f"Decided:  {_ALLOWED}"
    else:
        rule, change = _rule(str(error.get("happening")))
        named = ", ".join(f"{name} {error[name]}" for name in ("code", "reason") if error.get(name))
        yield f"Decided:  {rule}" + (f" ({named})" if named else "")
        yield f"Change:   {change}"
    if outcome.get("decision"):
        yield f"Decision: {outcome['decision']} (tier {outcome.get('tier')}, environment {outcome.get('environment')})"
    for clamp in outcome.get("clamps") or ():
        yield f"Clamped:  {clamp.get('field')} from {clamp.get('from')} to {clamp.get('to')}, by {clamp.get('rule')}"
    if outcome.get("suppressed"):
        yield f"Flood:    {outcome['suppressed']} more refusals like this were counted, not written"


def _rule(happening: str) -> tuple[str, str]:
    try:
        return _RULES.get(Happening(happening), _WIRE)
    except ValueError:
        return f"an unknown rule: {happening}", "Use the toolgate version that wrote this record."
