"""Every way a call can end badly: the tree of exceptions, and the one table of how each face spells it.

    ToolgateError
    ├── Refusal           the road said no before any handler started (steps 1-5), or could not write it down
    ├── ToolError         the tool said no: its own code, its own words
    ├── StartRefused      the server will not start like this; the text names the fault and the fix
    │   └── SettingsError a setting is unknown, out of range or of the wrong kind
    ├── LedgerUnavailable a record could not be written; StoreUnavailable: a store does not answer
    ├── WorkFailed        a thread or a worker process could not do what a handler asked of it
    └── UpstreamFailed    an MCP server that somebody else wrote did not do what was asked of it

How a call can end stands in `VERDICTS`, with its status number, JSON-RPC code and exit code. Other numbers of that kind are for
what never becomes a call, and stand only where the rule that gives them is:

    servers/framing.py, servers/connection.py   bytes that are not an HTTP message, or come too slowly (RFC 9110, RFC 9112)
    servers/http.py                             readiness
    servers/stdio.py                            a fault of our own on a stream, in JSON-RPC's words
    faces/mcp.py, faces/mcp_results.py, faces/rpc.py   a message that is wrong as a message (JSON-RPC 2.0, MCP)
    faces/reply.py                              headers that HTTP demands beside a status
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple


class Ending(StrEnum):
    """How a call ended. The value is the word used in logs (`error.happening`)."""

    OK = "ok"
    MISSING_KEY = "missing_key"
    INVALID_KEY = "invalid_key"
    INSUFFICIENT_ROLE = "insufficient_role"
    UNKNOWN_TOOL = "unknown_tool"
    STOPPED = "stopped"
    TOO_MANY = "too_many"
    TOO_FAST = "too_fast"
    BAD_ARGUMENTS = "bad_arguments"
    RULE_DENIED = "rule_denied"
    APPROVAL_REQUIRED = "approval_required"
    NOT_THERE = "not_there"
    TOOL_SAID_NO = "tool_said_no"
    TARGET_FAILED = "target_failed"
    TOOL_FAILED = "tool_failed"
    BAD_OUTPUT = "bad_output"
    UPSTREAM_DOWN = "upstream_down"
    UPSTREAM_DRIFT = "upstream_drift"
    UPSTREAM_FAULT = "upstream_fault"
    IN_DOUBT = "in_doubt"
    KEY_REUSED = "key_reused"
    KEY_BUSY = "key_busy"
    CLIENT_CANNOT = "client_cannot"
    STATE_REFUSED = "state_refused"
    NO_SESSION = "no_session"
    UNAVAILABLE = "unavailable"
    # What never became a call, because the wire was already wrong:
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    WRONG_MEDIA_TYPE = "wrong_media_type"
    UNKNOWN_ROUTE = "unknown_route"
    WRONG_METHOD = "wrong_method"
    WRONG_HOST = "wrong_host"


OK: Final = Ending.OK
"""Looked up once: every call asks for it several times, and on Python 3.11 a member of an enum is slow to read."""


class Verdict(NamedTuple):
    """One row: the same event, spelt for each face (ADR-0003)."""

    mrt_status: int
    mrt_code: str
    mrt_message: str
    rpc_status: int
    rpc_code: int
    canonical: str
    rpc_message: str
    mcp_status: int
    """Of a JSON-RPC error. A result is 200: to most clients another status is the end of the connection (ADR-0022)."""
    mcp_code: int | None
    """None: the end of one call, which travels as a result with `isError`, whoever said no: the tool or the gate."""
    exit_code: int


_EXEC = "The tool said no."
_INPUT = "The request is not valid."

# fmt: off
VERDICTS: Final[Mapping[Ending, Verdict]] = {
    #                         mrt: status, code, message                                               rpc: status, code, canonical, message                     mcp: status, code    exit
    Ending.MISSING_KEY:       Verdict(401, "auth_missing_api_key", "API key is required.",             401, -32001, "UNAUTHORIZED", "Unauthorized",               401, 401,            5),
    Ending.INVALID_KEY:       Verdict(403, "auth_invalid_api_key", "API key is invalid.",              401, -32001, "UNAUTHORIZED", "Unauthorized",               401, 401,            5),
    Ending.INSUFFICIENT_ROLE: Verdict(403, "auth_insufficient_role", "API key role is not allowed.",   401, -32001, "UNAUTHORIZED", "Unauthorized",               403, None,           5),
    Ending.UNKNOWN_TOOL:      Verdict(400, "validation_unknown_method", "Unknown tool.",               404, -32004, "NOT_FOUND", "Resource not found",            400, -32602,         6),
    Ending.STOPPED:           Verdict(503, "stopped", "An operator has stopped these calls.",          503, 503, "STOPPED", "Stopped by an operator",             503, None,           5),
    Ending.TOO_MANY:          Verdict(429, "limit_concurrency_exceeded", "Concurrency limit exceeded.", 429, 429, "LIMIT_EXCEEDED", "Limit exceeded",             429, None,           7),
    Ending.TOO_FAST:          Verdict(429, "limit_rate_exceeded", "Rate limit exceeded.",              429, 429, "LIMIT_EXCEEDED", "Limit exceeded",              429, None,           7),
    Ending.BAD_ARGUMENTS:     Verdict(400, "validation_failed", _INPUT,                                400, -32602, "INVALID_INPUT", "Invalid params",            200, None,           8),
    Ending.RULE_DENIED:       Verdict(403, "rule_denied", "A rule of the policy refuses these arguments.", 403, 403, "RULE_DENIED", "Refused by a rule",         403, None,           5),
    Ending.APPROVAL_REQUIRED: Verdict(202, "approval_required", "A person must approve this call.",    202, 202, "APPROVAL_REQUIRED", "A person must approve this", 202, None,          11),
    Ending.NOT_THERE:         Verdict(404, "validation_mrt_exec_failed", _EXEC,                        404, -32004, "NOT_FOUND", "Resource not found",            200, None,           1),
    Ending.TOOL_SAID_NO:      Verdict(400, "validation_mrt_exec_failed", _EXEC,                        400, -32602, "INVALID_INPUT", "Invalid params",            200, None,           1),
    Ending.TARGET_FAILED:     Verdict(400, "validation_mrt_exec_failed", _EXEC,                        500, -32603, "INTERNAL_ERROR", "Internal error",           200, None,           1),
    Ending.TOOL_FAILED:       Verdict(500, "internal_error", "Internal error.",                        500, -32603, "INTERNAL_ERROR", "Internal error",           200, None,           1),
    Ending.BAD_OUTPUT:        Verdict(502, "invalid_tool_output", "Invalid tool output.",              502, -32002, "INVALID_OUTPUT", "Invalid tool output",      200, None,           1),
    Ending.UPSTREAM_DOWN:     Verdict(503, "upstream_down", "The upstream cannot be reached.",         503, 503, "UPSTREAM_DOWN", "Upstream cannot be reached",   200, None,           9),
    Ending.UPSTREAM_DRIFT:    Verdict(409, "upstream_drift", "The tool is not as it was approved.",    409, 409, "UPSTREAM_DRIFT", "Tool is not as approved",     200, None,           3),
    Ending.UPSTREAM_FAULT:    Verdict(502, "upstream_fault", "The upstream's answer is unusable.",     502, 502, "UPSTREAM_FAULT", "Upstream's answer is unusable", 200, None,         1),
    Ending.IN_DOUBT:          Verdict(504, "in_doubt", "The call was sent and may have run.",          504, 504, "IN_DOUBT", "Call was sent and may have run",    200, None,           10),
    Ending.KEY_REUSED:        Verdict(422, "idempotency_key_reused", "The idempotency key was used with other arguments.", 422, 422, "IDEMPOTENCY_KEY_REUSED", "Idempotency key was used with other arguments", 200, None, 8),
    Ending.KEY_BUSY:          Verdict(409, "idempotency_key_busy", "The first call with this idempotency key is under way.", 409, 409, "IDEMPOTENCY_KEY_BUSY", "First call with this idempotency key is under way", 200, None, 7),
    Ending.CLIENT_CANNOT:     Verdict(400, "client_cannot", "The tool asks what this client cannot answer.", 400, -32602, "CLIENT_CANNOT", "Client cannot answer", 400, None,     1),
    Ending.STATE_REFUSED:     Verdict(400, "validation_failed", _INPUT,                                400, -32602, "INVALID_INPUT", "Invalid params",            400, -32602,         8),
    Ending.NO_SESSION:        Verdict(404, "validation_failed", _INPUT,                                404, -32004, "NOT_FOUND", "Resource not found",            404, -32600,         6),
    Ending.UNAVAILABLE:       Verdict(503, "unavailable", "The audit log cannot be written.",          503, -32603, "INTERNAL_ERROR", "Internal error",           503, None,           9),
    Ending.MALFORMED:         Verdict(400, "validation_failed", _INPUT,                                400, -32602, "INVALID_INPUT", "Invalid params",            400, -32600,         8),
    Ending.TOO_LARGE:         Verdict(413, "validation_failed", _INPUT,                                413, -32602, "INVALID_INPUT", "Invalid params",            413, -32600,         8),
    Ending.WRONG_MEDIA_TYPE:  Verdict(415, "validation_failed", _INPUT,                                415, -32602, "INVALID_INPUT", "Invalid params",            415, -32600,         8),
    Ending.UNKNOWN_ROUTE:     Verdict(404, "validation_failed", "There is nothing at this address.",   404, -32004, "NOT_FOUND", "Resource not found",            404, -32601,         6),
    Ending.WRONG_METHOD:      Verdict(405, "validation_failed", "This address takes POST only.",       405, -32602, "INVALID_INPUT", "Invalid params",            405, -32600,         8),
    Ending.WRONG_HOST:        Verdict(403, "validation_failed", "This Host or Origin is not served.",  403, -32001, "UNAUTHORIZED", "Unauthorized",               403, -32600,         5),
}
# fmt: on


class ToolgateError(Exception):
    """Root of everything we raise on purpose."""


class Refusal(ToolgateError):
    """The road says no. Nothing has run.

    `details` travels to the caller; it never holds a value the caller did not send as a name (role, tool, reason).
    """

    def __init__(
        self, ending: Ending, text: str = "", *, recorded: Mapping[str, Any] | None = None, **details: Any
    ) -> None:
        """`recorded`: fields that only the log gets."""
        super().__init__(text or ending)
        self.recorded = recorded
        self.ending = ending
        self.text = text
        self.details: dict[str, Any] = details


class ToolError(ToolgateError):
    """The tool says no. `code` is stable and declared by the tool; `text` is for people and names the fix."""

    def __init__(
        self, code: str, text: str, *, missing: bool = False, elsewhere: bool = False, data: Any = None
    ) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text
        self.missing = missing
        """True when the thing asked for is not there: 404 instead of 400."""
        self.elsewhere = elsewhere
        """True when someone the tool asked failed it: the same call may work later, so it is no fault of the arguments."""
        self.data = data


class StartRefused(ToolgateError):
    """Start-up stops here. One sentence for the fault, one for the fix."""


class SettingsError(StartRefused):
    pass


class LedgerUnavailable(ToolgateError):
    """A record could not be written. Before the handler: refuse. After it: withhold the answer (ADR-0005)."""


class StoreUnavailable(ToolgateError):
    """A configured store does not answer."""


class WorkFailed(ToolgateError):
    """Work beside the event loop could not be done, and not because of what it was given to do.

    `reason` is stable and travels to the caller: no_thread, workers_busy, worker_ended, out_of_memory, no_worker, disk_low,
    write_share_used, too_much_written.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class UpstreamFailed(ToolgateError):
    """A call to an upstream did not end with a usable answer. Both texts are ours: nothing here quotes the upstream.

    `reason` is stable and travels to the caller: not_started, connection_lost, answer_too_large, ...
    """

    def __init__(
        self,
        ending: Ending,
        reason: str,
        text: str,
        *,
        retry_after_s: int | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """`details`: what goes with it beside the reason."""
        super().__init__(text)
        self.ending = ending
        self.reason = reason
        self.text = text
        self.retry_after_s = retry_after_s
        self.details = details or {}


class CanonicalError(Enum):
    """The five errors of JSON-RPC callers (ADR-0003), for programs that embed the schemas: each by the verdict that spells it."""

    INVALID_INPUT = Ending.BAD_ARGUMENTS
    INVALID_OUTPUT = Ending.BAD_OUTPUT
    NOT_FOUND = Ending.NOT_THERE
    UNAUTHORIZED = Ending.MISSING_KEY
    INTERNAL_ERROR = Ending.TOOL_FAILED

    @staticmethod
    def to_http_status(code: str) -> int:
        """Raises: KeyError: not one of the five."""
        return VERDICTS[CanonicalError[code].value].rpc_status

    @staticmethod
    def to_jsonrpc_error(code: str) -> dict[str, Any]:
        """A fresh object each time, so that no caller can change another's answer. Raises: KeyError."""
        verdict = VERDICTS[CanonicalError[code].value]
        return {"code": verdict.rpc_code, "message": verdict.rpc_message, "data": {"canonical_code": code}}


class ExitCode:
    """Exit codes of every command, in one place (docs/reference/exit-codes.md is made from this class)."""

    OK = 0
    """It worked."""
    FAILED = 1
    """The finding is bad, the tool said no, or a check did not pass."""
    USAGE = 2
    """The command line is wrong, or a check could not judge what it was asked to: nothing to judge, a file or rule that cannot be read."""
    DRIFT = 3
    """The contract differs from its lock."""
    WARNED = 4
    """Warnings, where the caller asked to fail on them; a valid receipt of an unknown signer."""
    DENIED = 5
    """No key, a bad key, a role that does not hold the tool, a rule that refuses the arguments, calls that an operator has stopped; or a binding answer was required and this one is degraded."""
    UNKNOWN_TOOL = 6
    """There is no such tool."""
    LIMITED = 7
    """Too many calls at once, or too fast; the first call with the same idempotency key is under way."""
    BAD_ARGUMENTS = 8
    """The tool's arguments are wrong, or not those that the idempotency key was used with before."""
    UNAVAILABLE = 9
    """The log, a store or the server cannot be reached."""
    IN_DOUBT = 10
    """The call may have run, and how it ended is not known: an upstream's answer did not come, or the first call with the same
    idempotency key did not end."""
    WAITING = 11
    """A person must approve the call; make it again when that is done."""
    READER_LEFT = 141
    """Nobody reads the output any more (`| head`); the rest is not written. 128 + SIGPIPE, as shells count it."""
