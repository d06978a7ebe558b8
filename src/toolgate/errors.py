"""Every way a call can end badly: the tree of exceptions, and the one table of how each face spells it.

    ToolgateError
    ├── Refusal           the road said no before any handler started (steps 1-5), or could not write it down
    ├── ToolError         the tool said no: its own code, its own words
    ├── StartRefused      the server will not start like this; the text names the fault and the fix
    │   └── SettingsError a setting is unknown, out of range or of the wrong kind
    └── LedgerUnavailable a record could not be written; StoreUnavailable: a store does not answer

A status number, a JSON-RPC code or an exit code for a verdict stands in `VERDICTS` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from http import HTTPStatus
from typing import Any, Final

from msgspec import Struct


class Happening(StrEnum):
    """What happened to a call. The value is the word used in logs."""

    OK = "ok"
    MISSING_KEY = "missing_key"
    INVALID_KEY = "invalid_key"
    INSUFFICIENT_ROLE = "insufficient_role"
    UNKNOWN_TOOL = "unknown_tool"
    TOO_MANY = "too_many"
    TOO_FAST = "too_fast"
    BAD_ARGUMENTS = "bad_arguments"
    NOT_THERE = "not_there"
    TOOL_SAID_NO = "tool_said_no"
    TOOL_FAILED = "tool_failed"
    BAD_OUTPUT = "bad_output"
    UNAVAILABLE = "unavailable"
    # What never became a call, because the wire was already wrong:
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    WRONG_MEDIA_TYPE = "wrong_media_type"
    UNKNOWN_ROUTE = "unknown_route"
    WRONG_METHOD = "wrong_method"
    WRONG_HOST = "wrong_host"


class Verdict(Struct, frozen=True):
    """One row: the same event, spelt for each face (decisions, "One call, one verdict")."""

    mrt_status: int
    mrt_code: str
    mrt_message: str
    rpc_status: int
    rpc_code: int
    canonical: str
    rpc_message: str
    mcp_status: int
    mcp_code: int | None
    """None: the fault belongs to the tool and travels as an `isError` result with the envelope."""
    exit_code: int


_EXEC = "MRT execution failed."
_INPUT = "Invalid MRT dispatch input."

# fmt: off
VERDICTS: Final[Mapping[Happening, Verdict]] = {
    #                            mrt: status, code, message                                               rpc: status, code, canonical, message                     mcp: status, code    exit
    Happening.MISSING_KEY:       Verdict(401, "auth_missing_api_key", "API key is required.",             401, -32001, "UNAUTHORIZED", "Unauthorized",               401, 401,            5),
    Happening.INVALID_KEY:       Verdict(403, "auth_invalid_api_key", "API key is invalid.",              401, -32001, "UNAUTHORIZED", "Unauthorized",               401, 401,            5),
    Happening.INSUFFICIENT_ROLE: Verdict(403, "auth_insufficient_role", "API key role is not allowed.",   401, -32001, "UNAUTHORIZED", "Unauthorized",               403, 403,            5),
    Happening.UNKNOWN_TOOL:      Verdict(400, "validation_unknown_method", "Unknown tool.",               404, -32004, "NOT_FOUND", "Resource not found",            400, -32602,         6),
    Happening.TOO_MANY:          Verdict(429, "limit_concurrency_exceeded", "Concurrency limit exceeded.", 429, 429, "LIMIT_EXCEEDED", "Limit exceeded",             429, 429,            7),
    Happening.TOO_FAST:          Verdict(429, "limit_rate_exceeded", "Rate limit exceeded.",              429, 429, "LIMIT_EXCEEDED", "Limit exceeded",              429, 429,            7),
    Happening.BAD_ARGUMENTS:     Verdict(400, "validation_failed", _INPUT,                                400, -32602, "INVALID_INPUT", "Invalid params",            200, None,           8),
    Happening.NOT_THERE:         Verdict(404, "validation_mrt_exec_failed", _EXEC,                        404, -32004, "NOT_FOUND", "Resource not found",            200, None,           1),
    Happening.TOOL_SAID_NO:      Verdict(400, "validation_mrt_exec_failed", _EXEC,                        400, -32602, "INVALID_INPUT", "Invalid params",            200, None,           1),
    Happening.TOOL_FAILED:       Verdict(500, "internal_error", "Internal error.",                        500, -32603, "INTERNAL_ERROR", "Internal error",           200, None,           1),
    Happening.BAD_OUTPUT:        Verdict(502, "invalid_tool_output", "Invalid tool output.",              502, -32002, "INVALID_OUTPUT", "Invalid tool output",      200, None,           1),
    Happening.UNAVAILABLE:       Verdict(503, "unavailable", "The audit log cannot be written.",          503, -32603, "INTERNAL_ERROR", "Internal error",           503, 503,            9),
    Happening.MALFORMED:         Verdict(400, "validation_failed", _INPUT,                                400, -32602, "INVALID_INPUT", "Invalid params",            400, -32600,         8),
    Happening.TOO_LARGE:         Verdict(413, "validation_failed", _INPUT,                                413, -32602, "INVALID_INPUT", "Invalid params",            413, -32600,         8),
    Happening.WRONG_MEDIA_TYPE:  Verdict(415, "validation_failed", _INPUT,                                415, -32602, "INVALID_INPUT", "Invalid params",            415, -32600,         8),
    Happening.UNKNOWN_ROUTE:     Verdict(404, "validation_failed", "There is nothing at this address.",   404, -32004, "NOT_FOUND", "Resource not found",            404, -32601,         6),
    Happening.WRONG_METHOD:      Verdict(405, "validation_failed", "This address takes POST only.",       405, -32602, "INVALID_INPUT", "Invalid params",            405, -32600,         8),
    Happening.WRONG_HOST:        Verdict(403, "validation_failed", "This Host or Origin is not served.",  403, -32001, "UNAUTHORIZED", "Unauthorized",               403, -32600,         5),
}
# fmt: on


class ToolgateError(Exception):
    """Root of everything we raise on purpose."""


class Refusal(ToolgateError):
    """The road says no. Nothing has run.

    `details` travels to the caller; it never holds a value the caller did not send as a name (role, tool, reason).
    """

    def __init__(self, happening: Happening, text: str = "", **details: Any) -> None:
        super().__init__(text or happening)
        self.happening = happening
        self.text = text
        self.details: dict[str, Any] = details


class ToolError(ToolgateError):
    """The tool says no. `code` is stable and declared by the tool; `text` is for people and names the fix."""

    def __init__(self, code: str, text: str, *, missing: bool = False, data: Any = None) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text
        self.missing = missing
        """True when the thing asked for is not there: 404 instead of 400."""
        self.data = data


class StartRefused(ToolgateError):
    """Start-up stops here. One sentence for the fault, one for the fix."""


class SettingsError(StartRefused):
    pass


class LedgerUnavailable(ToolgateError):
    """A record could not be written. Before the handler: refuse. After it: withhold the answer (decision 96)."""


class StoreUnavailable(ToolgateError):
    """A configured store does not answer."""


class CanonicalError(Enum):
    """Document 002's five errors, exactly as it prints them."""

    INVALID_INPUT = (HTTPStatus.BAD_REQUEST, -32602, "Invalid params")
    INVALID_OUTPUT = (HTTPStatus.BAD_GATEWAY, -32002, "Invalid tool output")
    NOT_FOUND = (HTTPStatus.NOT_FOUND, -32004, "Resource not found")
    UNAUTHORIZED = (HTTPStatus.UNAUTHORIZED, -32001, "Unauthorized")
    INTERNAL_ERROR = (HTTPStatus.INTERNAL_SERVER_ERROR, -32603, "Internal error")

    @staticmethod
    def to_http_status(code: str) -> int:
        """Raises: KeyError: not one of the five."""
        return int(CanonicalError[code].value[0])

    @staticmethod
    def to_jsonrpc_error(code: str) -> dict[str, Any]:
        """A fresh object each time, so that no caller can change another's answer. Raises: KeyError."""
        _, number, message = CanonicalError[code].value
        return {"code": number, "message": message, "data": {"canonical_code": code}}


class ExitCode:
    """Exit codes of every command, in one place (docs/reference/exit-codes.md is made from this class)."""

    OK = 0
    """It worked."""
    FAILED = 1
    """The finding is bad, the tool said no, or a check did not pass."""
    USAGE = 2
    """The command line is wrong."""
    DRIFT = 3
    """The contract differs from its lock."""
    WARNED = 4
    """Warnings, where the caller asked to fail on them; a valid receipt of an unknown signer."""
    DENIED = 5
    """No key, a bad key, a role that does not hold the tool; or a binding answer was required and this one is degraded."""
    UNKNOWN_TOOL = 6
    """There is no such tool."""
    LIMITED = 7
    """Too many calls at once, or too fast."""
    BAD_ARGUMENTS = 8
    """The tool's arguments are wrong."""
    UNAVAILABLE = 9
    """The log, a store or the server cannot be reached."""
