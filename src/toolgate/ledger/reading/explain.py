"""Why a call ended as it did: which step of the road decided, by which rule, and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from toolgate.errors import Ending

_RULES: Final[Mapping[Ending, tuple[str, str]]] = {
    Ending.MISSING_KEY: (
        "step 1, authenticate: no key was sent",
        "Send the key in X-MCP-API-Key or as a Bearer token.",
    ),
    Ending.INVALID_KEY: (
        "step 1, authenticate: the key is unknown, revoked, expired or not for this address",
        "Look at it: toolgate keys show; make a new one: toolgate keys create.",
    ),
    Ending.INSUFFICIENT_ROLE: (
        "step 2, permit: the caller's role, or its key's scope, does not hold this tool or this argument",
        "Use a key of a role that x-roles in the policy manifest names, without a scope that leaves the tool out.",
    ),
    Ending.UNKNOWN_TOOL: (
        "step 2, permit: no such tool in the manifest",
        "List the tools this key may call: toolgate tools list.",
    ),
    Ending.STOPPED: (
        "step 2, permit: an operator had stopped these calls",
        "See what is stopped: toolgate stop-calls; end it: toolgate resume.",
    ),
    Ending.TOO_MANY: (
        "step 3, admit: the caller had too many calls running",
        "Wait for one to end, or raise limits.concurrency_per_caller.",
    ),
    Ending.TOO_FAST: (
        "step 3, admit: the caller called too often",
        "Slow down, or raise limits.rate_per_minute.",
    ),
    Ending.BAD_ARGUMENTS: (
        "step 4, validate: the arguments do not match the tool's schema",
        "Compare them with the tool's inputSchema: toolgate tools list --json.",
    ),
    Ending.RULE_DENIED: (
        "step 4, validate: a rule of the tool's row refuses such arguments, or could not be judged",
        "The record names the rule; try others: toolgate policy explain.",
    ),
    Ending.APPROVAL_REQUIRED: (
        "step 4, validate: a rule of the tool's row wants a person's approval",
        "Approve it (toolgate approvals), then make the same call again.",
    ),
    Ending.NOT_THERE: ("step 6, run: the tool did not find what was asked for", "Check the name or path."),
    Ending.TOOL_SAID_NO: ("step 6, run: the tool refused", "The code says why; see the tool's documentation."),
    Ending.TARGET_FAILED: (
        "step 6, run: what the tool asked elsewhere did not answer as it must, or not in time",
        "Try again later, or look at the target.",
    ),
    Ending.TOOL_FAILED: (
        "step 6, run: the tool crashed or ran past its deadline",
        "See the server's standard error at that time.",
    ),
    Ending.BAD_OUTPUT: (
        "step 7, validate: what the tool returned does not match its output schema",
        "This is a defect of the tool: report it with the request id.",
    ),
    Ending.UNAVAILABLE: ("step 5 or 9: the audit log could not be written", "Make room for the log."),
}
_WIRE: Final = ("before the road: the request itself was not acceptable", "Compare the request with the protocol.")
_ALLOWED: Final = "steps 1 to 9 passed: key, role, limits, arguments and output were in order"


def explain(records: Sequence[Mapping[str, Any]], serves: Mapping[str, str] | None = None) -> str:
    """A few lines for people about the records of one request (intent and outcome). `serves`: digests of what was in force."""
    if records[0].get("event") == "act":
        return "\n".join([*_act(records), ""])
    outcome = next((record for record in records if record.get("event") == "outcome"), None)
    found = outcome or records[0]
    in_force = [f"{name.capitalize() + ':':<10}{digest}" for name, digest in (serves or {}).items()]
    return "\n".join([*_facts(found), *in_force, *(_verdict(outcome) if outcome else _NO_OUTCOME), ""])


_NO_OUTCOME: Final = (
    "Ended:    nobody knows. There is an intent and no outcome: the server stopped, or could not write.",
    "Change:   check whether the effect happened before calling again.",
)


def _act(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What somebody did on the command line."""
    outcome = next((record for record in records if record.get("stage") == "outcome"), None)
    found = outcome or records[0]
    by, place = found.get("by") or {}, found.get("from") or {}
    yield f"Act:      {found.get('act')}, {found.get('requestId')} at {found.get('ts')}"
    key = f", key {by['key']} ({by.get('role')})" if by.get("key") else ""
    yield f"By:       {by.get('user')} (uid {by.get('uid')}) on {place.get('host')}, {place.get('way')}{key}"
    for name, value in (found.get("about") or records[0].get("about") or {}).items():
        yield f"About:    {name} = {value}"
    if outcome is None:
        yield from _NO_OUTCOME
    else:
        yield f"Ended:    {outcome.get('status')}" + (f" ({outcome['error']})" if outcome.get("error") else "")


def _facts(found: Mapping[str, Any]) -> Iterator[str]:
    caller = found.get("caller")
    metadata = found.get("metadata") or {}
    yield f"Request:  {found.get('requestId')} at {found.get('ts')}"
    yield f"Tool:     {metadata.get('toolId') or _asked(found)}"
    yield f"Caller:   {caller['id']} ({caller['role']})" if caller else f"Caller:   {_stranger(found)}"
    yield f"Way:      {found.get('face')} over {found.get('transport')}, {found.get('route')}"
    for name, label in _ORIGIN.items():
        if found.get(name):
            yield f"{label + ':':<10}{found[name]}"
    for name, value in (found.get("arguments") or {}).items():
        yield f"Kept:     {name} = {value}"


_ORIGIN: Final = {"clientAddress": "From", "clientRequestId": "Theirs", "traceparent": "Trace"}
"""What the sender said, and the word for it here."""


def _asked(found: Mapping[str, Any]) -> str:
    return f"none is called {found['askedTool']}" if found.get("askedTool") else "none was reached"


def _stranger(found: Mapping[str, Any]) -> str:
    key = found.get("refusedKey")
    return f"not authenticated; the key {key['id']} is {key['state']}" if key else "not authenticated"


def _verdict(outcome: Mapping[str, Any]) -> Iterator[str]:
    error = outcome.get("error") or {}
    if not error:
        yield f"Decided:  {_ALLOWED}"
    else:
        rule, change = rule_of(str(error.get("happening")))
        named = ", ".join(f"{name} {error[name]}" for name in ("code", "reason") if error.get(name))
        yield f"Decided:  {rule}" + (f" ({named})" if named else "")
        yield f"Change:   {change}"
    if outcome.get("decision"):
        yield f"Decision: {outcome['decision']} (tier {outcome.get('tier')}, environment {outcome.get('environment')})"
    for clamp in outcome.get("clamps") or ():
        yield f"Clamped:  {clamp.get('field')} from {clamp.get('from')} to {clamp.get('to')}, by {clamp.get('rule')}"
    if outcome.get("suppressed"):
        yield f"Flood:    {outcome['suppressed']} refusals of this caller before this one were counted, not written"


def rule_of(happening: str) -> tuple[str, str]:
    """(the step of the road that decided, and its rule; what to change) for a record's `error.happening`."""
    try:
        return _RULES.get(Ending(happening), _WIRE)
    except ValueError:
        return f"an unknown rule: {happening}", "Use the toolgate version that wrote this record."
