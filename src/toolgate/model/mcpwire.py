"""What both ends of the MCP wire know: the eras and their versions, the headers, the keys of `_meta`, the error numbers.

The face (`faces/mcp.py`) answers clients in these words, the client (`powers/mcp`) speaks them to upstreams.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

from msgspec import Struct

Era = Literal["modern", "handshake"]
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

MODERN_VERSIONS: Final = ("2026-07-28",)
HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

VERSION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
SESSION_HEADER: Final = "mcp-session-id"
PARAM_HEADER: Final = "mcp-param-"
"""Before the word that a property's `x-mcp-header` names: the header that repeats its value."""
TRACE_KEYS: Final = ("traceparent", "tracestate")
"""Of W3C Trace Context: keys of `_meta`, and headers, of these names."""

META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_CLIENT: Final = "io.modelcontextprotocol/clientInfo"
META_SERVER: Final = "io.modelcontextprotocol/serverInfo"
META_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
META_IDEMPOTENCY: Final = "toolgate/idempotency-key"
RESERVED_META: Final = re.compile(r"(?:[^/]*\.)?(?:modelcontextprotocol|mcp)(?:\.[^/]*)?/.*")
"""Keys of `_meta` that belong to the protocol: each hop writes its own."""

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022
NOT_ANSWERED: Final = -1
"""What the protocol says for a person who refuses."""
MODERN_ERRORS: Final = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})
"""Only a server of the modern era says these, so whoever does is not asked again in the other."""

_BASE64: Final = re.compile(r"=\?base64\?([A-Za-z0-9+/=]*)\?=")
_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


class RelayedCall(Struct, frozen=True):
    """What is asked of an upstream for a caller."""

    place: str
    """What of the pin it concerns."""
    method: str
    params: dict[str, Any]
    reads: bool = False
    """Policy says that it changes nothing."""
    needs: str = ""
    """The capability that the upstream must have said it has."""
    meta: Mapping[str, Any] = NOTHING
    """For `_meta`: the caller's trace context."""
    mirrored: Mapping[str, str] = NOTHING
    """HTTP headers that repeat arguments."""
    step: Callable[[Any], None] | None = None
    """Told of each step of its progress."""
    capabilities: Mapping[str, Any] = NOTHING
    """What may be asked of the caller's client. In the modern era each call says it; in the other a connection does, for good."""
    caller: str = ""
    """Whose call it is: a connection on which it may be asked something is shared with nobody."""
    era: Era = "modern"
    """Of the caller's client: an upstream of both eras is asked in the same."""
    log: Callable[[Any, Any], None] | None = None
    """Told of what is logged on the way (level, data), where it is sure that it belongs to this call."""


class RefusedQuestion(Struct, frozen=True):
    """Why an upstream gets no answer to what it asks of a caller."""

    code: int
    reason: str
    """A stable word, for the log."""
    text: str
    """Told to the upstream."""


def era_of(version: str) -> Era | None:
    """None: a version that we do not speak."""
    if version in MODERN_VERSIONS:
        return "modern"
    return "handshake" if version in HANDSHAKE_VERSIONS else None


def header_value(text: str) -> str:
    """Text as a header carries it: what would not survive there goes as =?base64?...?=."""
    if _PLAIN.fullmatch(text) and not _BASE64.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def header_text(value: str | None) -> str | None:
    """The text that a header carries; base64 only in the one form that an encoder makes, else None."""
    if value is None or not value.startswith("=?") or not (found := _BASE64.fullmatch(value)):
        return value
    try:
        raw = base64.b64decode(found[1], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == found[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None
