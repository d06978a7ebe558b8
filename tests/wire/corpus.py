"""What the two servers are sent: one row a message, both eras, good calls and every fault we know.

A row without `ours` must be answered alike by both. A row with `ours` names one of the intended `DIFFERENCES` and says what
our server answers there; such a row fails as well when the difference is gone, so that the list cannot rot.
"""

from __future__ import annotations

from typing import Any

from tests.wire.messages import (
    CAPABILITIES,
    CLIENT,
    ECHO,
    GREETING,
    HANDSHAKE,
    META,
    MODERN,
    VERSION,
    Case,
    Ours,
    b64,
    enveloped,
    new,
    note,
    old,
    request,
)

DIFFERENCES = {
    "strict-json": "duplicate keys, huge integers and the like are refused by the one reader that every face uses",
    "frame": "what is not a JSON-RPC request is -32600 in both eras; the SDK says -32602 with a page of validator text, "
    "or takes a request with an impossible id for a notification and never answers",
    "known-id": "when the id can be read, the error carries it; the SDK answers null",
    "no-method": "on a pipe a message without method is document 002's INVALID_INPUT, with its id, as on /rpc",
    "silent": "on a pipe the SDK drops a line it cannot read; JSON-RPC wants an error with id null, and a person debugging too",
    "no-stream": "without a session there is no stream to open with GET, and none is ended with DELETE: 405 with Allow",
    "sessions": "a session id is ours or it is none (404); the reference keeps no sessions and looks at none",
    "state": "a requestState is one that this call was given, or the call is refused; the reference looks at none",
    "offered": "prompts, resources and streams are served here, and the reference has none",
    "allow": "RFC 9110 wants Allow on every 405, and it names what there is: POST",
    "accept": "an absent Accept means anything (RFC 9110); a refusal says why in JSON instead of an empty body",
    "media-type": "a wrong media type is 415 whichever way it is wrong; its letters may be of either case (RFC 9110)",
    "host": "a Host that is not ours is refused as forbidden, like an Origin, with a body that says so",
    "cursor": "we never hand out a cursor, so any cursor is invalid; the specification wants -32602 for that",
    "batches": "a server of 2025-03-26 must take batches; we take none, so we do not say that we serve it",
    "eras": "a header of the handshake era around a message of the stateless one is a mismatch",
    "stateless": "each message stands for itself, on a pipe too: no handshake is needed first and none locks the era",
}
"""Why an answer differs from the SDK's on purpose."""

GREETING_WITHOUT_CLIENT = {"protocolVersion": "2025-11-25", "capabilities": {}}
ODD_IDS: tuple[Any, ...] = (None, 1.5, True, [], {})
NOT_MESSAGES: dict[str, Any] = {
    "a batch": [request("ping"), request("ping", ident=8)],
    "an empty batch": [],
    "a string": b'"ping"',
    "a number": b"5",
    "null": b"null",
    "no jsonrpc": {"method": "ping"},
}
NO_METHOD: dict[str, Any] = {"jsonrpc": "2.0", "id": 7}
NOT_JSON: dict[str, bytes] = {
    "half an object": b'{"jsonrpc":',
    "not UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
    "two values": b"{} {}",
}
LISTS = ("resources/list", "resources/templates/list", "prompts/list")
"""Lists of both eras that the reference has none of."""
OFFERED: dict[str, dict[str, Any]] = {
    "resources/read": {"uri": "file:///x"},
    "prompts/get": {"name": "x"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": "b"}},
}
"""Calls of both eras that the reference does not know, of things that are not there."""

_BATCHES = Ours("batches", 200)
_FRAME = Ours("frame", 400, -32600)
_SILENT = Ours("silent", 400, -32600)
_INVALID_INPUT = Ours("no-method", 400, -32602)

HANDSHAKE_CASES: tuple[Case, ...] = (
    # Greetings
    *(old(f"initialize at {v}", request("initialize", GREETING | {"protocolVersion": v})) for v in HANDSHAKE),
    old("initialize at 2025-03-26", request("initialize", GREETING | {"protocolVersion": "2025-03-26"}), ours=_BATCHES),
    old(
        "tools/list at 2025-03-26",
        request("tools/list"),
        {"MCP-Protocol-Version": "2025-03-26"},
        ours=Ours("batches", 400, -32602),
    ),
    *(
        old(
            f"initialize at {v}, version header absent",
            request("initialize", GREETING | {"protocolVersion": v}),
            {"MCP-Protocol-Version": None},
        )
        for v in (*HANDSHAKE, MODERN, "1999-01-01", "")
    ),
    old("initialize with unknown parameters", request("initialize", GREETING | {"more": 1})),
    old("initialize without parameters", request("initialize")),
    old("initialize with empty parameters", request("initialize", {})),
    old("initialize without clientInfo", request("initialize", GREETING_WITHOUT_CLIENT)),
    old("initialize with a nameless client", request("initialize", GREETING | {"clientInfo": {}})),
    old("initialize at a number", request("initialize", GREETING | {"protocolVersion": 20251125})),
    old("initialize with capabilities as a list", request("initialize", GREETING | {"capabilities": []})),
    old("ping", request("ping")),
    old("ping with null parameters", request("ping", params=None) | {"params": None}),
    old("ping with empty parameters", request("ping", {})),
    old("ping with a text id", request("ping", ident="a-b")),
    old("ping with an empty id", request("ping", ident="")),
    old("ping with a negative id", request("ping", ident=-1)),
    old("ping with a member nobody knows", request("ping", extra=1)),
    old("ping without a version header", request("ping"), {"MCP-Protocol-Version": None}),
    old(
        "ping with a session nobody has",
        request("ping"),
        {"Mcp-Session-Id": "1234"},
        ours=Ours("sessions", 404, -32600),
        on_stdio=Ours("sessions", 200),
    ),
    old("ping with Last-Event-ID", request("ping"), {"Last-Event-ID": "1"}),
    # Notifications
    old("initialized", note("notifications/initialized")),
    old("cancelled", note("notifications/cancelled", {"requestId": 99})),
    old("cancelled without saying what", note("notifications/cancelled", {})),
    *(
        old(f"cancelled, naming {odd!r}", note("notifications/cancelled", {"requestId": odd}))
        for odd in ([], {}, None, 1.5, True)
    ),
    old("a notification nobody knows", note("notifications/weather", {"rain": True})),
    old("a request method without id", note("tools/list")),
    old("a notification with an id", request("notifications/initialized")),
    # Lists and calls
    *(old(f"tools/list at {v}", request("tools/list"), {"MCP-Protocol-Version": v}) for v in HANDSHAKE),
    old("tools/list on the plain wire", request("tools/list")),
    old("tools/list without a version header", request("tools/list"), {"MCP-Protocol-Version": None}),
    old("tools/list with an unknown parameter", request("tools/list", {"more": 1})),
    old("tools/list with a cursor", request("tools/list", {"cursor": "zzz"}), ours=Ours("cursor", 200, -32602)),
    old("tools/list with a cursor that is a number", request("tools/list", {"cursor": 5})),
    *(old(f"a good call at {v}", request("tools/call", ECHO), {"MCP-Protocol-Version": v}) for v in HANDSHAKE),
    old("a good call", request("tools/call", ECHO)),
    old(
        "a good call with every argument",
        request("tools/call", {"name": "wire_echo", "arguments": {"text": "é", "times": 3}}),
    ),
    old("a call of the tool that the floor clamps", request("tools/call", {"name": "dummy_experimental"})),
    old("a call with null arguments", request("tools/call", {"name": "dummy_experimental", "arguments": None})),
    old("a call with unknown parameters", request("tools/call", ECHO | {"more": 1})),
    old(
        "a call with a progress token, JSON only",
        request("tools/call", ECHO | {"_meta": {"progressToken": 1}}),
        {"Accept": "application/json"},
    ),
    old("a call that the tool refuses", request("tools/call", {"name": "wire_fail", "arguments": {"text": "shop"}})),
    old("a call without its argument", request("tools/call", {"name": "wire_echo", "arguments": {}})),
    old(
        "a call with an argument of the wrong kind",
        request("tools/call", {"name": "wire_echo", "arguments": {"text": 5}}),
    ),
    old(
        "a call with one argument too many",
        request("tools/call", {"name": "wire_echo", "arguments": {"text": "x", "y": 1}}),
    ),
    old("a call of a tool nobody has", request("tools/call", {"name": "nobody", "arguments": {}})),
    old("a call of a tool without name", request("tools/call", {"name": "", "arguments": {}})),
    old("a call with a list of arguments", request("tools/call", {"name": "wire_echo", "arguments": []})),
    old("a call without a name", request("tools/call", {"arguments": {}})),
    old("a call with a number for a name", request("tools/call", {"name": 5, "arguments": {}})),
    old("a call without parameters", request("tools/call")),
    old("a call whose _meta is text", request("tools/call", ECHO | {"_meta": "x"})),
    old(
        "a call with routing headers that do not match",
        request("tools/call", ECHO),
        {"Mcp-Method": "x", "Mcp-Name": "y"},
    ),
    old(
        "an enveloped list under a handshake version",
        enveloped("tools/list"),
        {"MCP-Protocol-Version": "2025-11-25"},
        stdio=True,
        ours=Ours("eras", 400, -32020),
        on_stdio=Ours("stateless", 200),
    ),
    # Methods that the reference does not have, or nobody has
    *(old(method, request(method, {}), ours=Ours("offered", 200)) for method in LISTS),
    *(
        old(f"{method}, of nothing", request(method, params), ours=Ours("offered", 200, -32602))
        for method, params in OFFERED.items()
    ),
    old(
        "logging/setLevel without a session",
        request("logging/setLevel", {"level": "info"}),
        ours=Ours("sessions", 400, -32600),
        on_stdio=Ours("sessions", 200),
    ),
    old(
        "resources/subscribe without a session, to nothing",
        request("resources/subscribe", {"uri": "file:///x"}),
        ours=Ours("offered", 200, -32602),
    ),
    old("resources/read without uri", request("resources/read", {})),
    *(
        old(f"{method}, unknown", request(method, {}))
        for method in ("nope", "tasks/list", "sampling/createMessage", "roots/list", "", "rpc.discover")
    ),
    old(
        "server/discover under a handshake version",
        request("server/discover", {}),
        {"MCP-Protocol-Version": "2025-11-25"},
    ),
    # Messages that are none
    *(old(f"the body is {what}", body, ours=_FRAME) for what, body in NOT_MESSAGES.items()),
    old("the body has no method", NO_METHOD, ours=_FRAME, on_stdio=_INVALID_INPUT),
    old("the body has neither method nor id", {"jsonrpc": "2.0"}, ours=_FRAME, on_stdio=_INVALID_INPUT),
    *(old(f"the id is {odd!r}", request("ping", ident=odd), ours=_FRAME) for odd in ODD_IDS),
    old("jsonrpc 1.0", request("ping") | {"jsonrpc": "1.0"}, ours=_FRAME),
    old("the method is a number", request(5), ours=_FRAME),
    old("the parameters are a list", request("ping", []), ours=_FRAME),
    old("a notification with a list of parameters", note("notifications/initialized", []), ours=_FRAME),
    old(
        "a response",
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    ),
    old(
        "an error",
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}},
    ),
    *(old(f"the body is {what}", body, on_stdio=Ours("silent", 400, -32700)) for what, body in NOT_JSON.items()),
    old("the body is empty", b"", stdio=False),
    old("duplicate keys", b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', ours=Ours("strict-json", 400, -32700)),
    old("an id beyond 2^53", request("ping", ident=2**60), ours=Ours("strict-json", 400, -32700)),
)

_LIST = enveloped("tools/list")
_CALL = enveloped("tools/call", ECHO)


def _meta_with(**changes: Any) -> dict[str, Any]:
    named = {"version": VERSION, "capabilities": CAPABILITIES, "client": CLIENT}
    return META | {named[name]: value for name, value in changes.items()}


def _meta_without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in META.items() if key not in keys}


MODERN_CASES: tuple[Case, ...] = (
    # Greetings, lists and calls
    new("server/discover", enveloped("server/discover")),
    new("tools/list", _LIST),
    new("tools/list with a text id", enveloped("tools/list", ident="a-b")),
    new("tools/list with an empty id", enveloped("tools/list", ident="")),
    new("tools/list from a client without a name", enveloped("tools/list", meta=_meta_without(CLIENT))),
    new("tools/list with an unknown parameter", enveloped("tools/list", {"more": 1})),
    new("tools/list with a cursor", enveloped("tools/list", {"cursor": "z"}), ours=Ours("cursor", 400, -32602)),
    new("tools/list with a cursor that is a number", enveloped("tools/list", {"cursor": 5})),
    new("a good call", _CALL),
    new("a call of the tool that the floor clamps", enveloped("tools/call", {"name": "dummy_experimental"})),
    new("a call with null arguments", enveloped("tools/call", {"name": "dummy_experimental", "arguments": None})),
    new(
        "a call that carries answers nobody asked for",
        enveloped("tools/call", ECHO | {"inputResponses": {}, "requestState": "x"}),
        ours=Ours("state", 400, -32602),
    ),
    new(
        "a call with a progress token, JSON only",
        enveloped("tools/call", ECHO, META | {"progressToken": "p"}),
        {"Accept": "application/json"},
    ),
    new("a call that the tool refuses", enveloped("tools/call", {"name": "wire_fail", "arguments": {"text": "shop"}})),
    new("a call without its argument", enveloped("tools/call", {"name": "wire_echo", "arguments": {}})),
    new(
        "a call with one argument too many",
        enveloped("tools/call", {"name": "wire_echo", "arguments": {"text": "x", "y": 1}}),
    ),
    new("a call of a tool nobody has", enveloped("tools/call", {"name": "nobody", "arguments": {}})),
    new("a call with a list of arguments", enveloped("tools/call", {"name": "wire_echo", "arguments": []})),
    new("a call without a name", enveloped("tools/call", {"arguments": {}})),
    new(
        "a call without a name, but with the header",
        enveloped("tools/call", {"arguments": {}}),
        {"Mcp-Name": "wire_echo"},
    ),
    new("a call with null for a name", enveloped("tools/call", {"name": None}), {"Mcp-Name": "wire_echo"}),
    new("a call with a number for a name", enveloped("tools/call", {"name": 5}), {"Mcp-Name": "5"}),
    # Routing headers
    new(
        "header names in small letters",
        _LIST,
        {"MCP-Protocol-Version": None, "Mcp-Method": None},
        (("mcp-protocol-version", MODERN), ("mcp-method", "tools/list")),
    ),
    new(
        "header names in capitals",
        _LIST,
        {"MCP-Protocol-Version": None, "Mcp-Method": None},
        (("MCP-PROTOCOL-VERSION", MODERN), ("MCP-METHOD", "tools/list")),
    ),
    new(
        "blanks around header values",
        _CALL,
        {"Mcp-Name": " \twire_echo \t", "Mcp-Method": "  tools/call  ", "MCP-Protocol-Version": f" {MODERN} "},
    ),
    new("Mcp-Name in base64", _CALL, {"Mcp-Name": b64("wire_echo")}),
    new("Mcp-Name in base64, of another tool", _CALL, {"Mcp-Name": b64("wire_fail")}),
    new(
        "Mcp-Name in base64 without padding",
        enveloped("tools/call", {"name": "wire_admin", "arguments": {"text": "x"}}),
        {"Mcp-Name": b64("wire_admin").replace("==", "").replace("=?=", "?=")},
    ),
    new(
        "Mcp-Name in base64 with stray bits",
        enveloped("tools/call", {"name": "wire_admin", "arguments": {"text": "x"}}),
        {"Mcp-Name": "=?base64?d2lyZV9hZG1pbi==?="},
    ),
    new("Mcp-Name in BASE64", _CALL, {"Mcp-Name": b64("wire_echo").replace("base64", "BASE64")}),
    new("Mcp-Name in base64 that is not UTF-8", _CALL, {"Mcp-Name": "=?base64?/w==?="}),
    new("Mcp-Name missing", _CALL, {"Mcp-Name": None}),
    new("Mcp-Name of another tool", _CALL, {"Mcp-Name": "wire_fail"}),
    new("Mcp-Name in other letters", _CALL, {"Mcp-Name": "Wire_Echo"}),
    new("Mcp-Name where none is needed", _LIST, {"Mcp-Name": "whatever"}),
    new("Mcp-Method missing", _CALL, {"Mcp-Method": None}),
    new("Mcp-Method of another method", _CALL, {"Mcp-Method": "tools/list"}),
    new("Mcp-Method in other letters", _LIST, {"Mcp-Method": "Tools/List"}),
    new("Mcp-Method in base64", _LIST, {"Mcp-Method": b64("tools/list")}),
    new("an unknown method under another header", enveloped("nope"), {"Mcp-Method": "other"}),
    *(
        new(f"{name} twice", _CALL, extra=((name, value),))
        for name, value in (("Mcp-Method", "tools/call"), ("Mcp-Name", "wire_echo"), ("MCP-Protocol-Version", MODERN))
    ),
    new("a parameter header for nothing", _CALL, {"Mcp-Param-Text": "other"}),
    new("a session nobody has", _LIST, {"Mcp-Session-Id": "1234"}),
    # Versions
    new(
        "a version nobody serves",
        enveloped("tools/list", meta=_meta_with(version="2099-01-01")),
        {"MCP-Protocol-Version": "2099-01-01"},
    ),
    new("a version nobody serves, in the header only", _LIST, {"MCP-Protocol-Version": "2099-01-01"}),
    new(
        "a version nobody serves, in the body only",
        enveloped("tools/list", meta=_meta_with(version="2099-01-01")),
        {"MCP-Protocol-Version": MODERN},
    ),
    new(
        "a handshake version in the body only",
        enveloped("tools/list", meta=_meta_with(version="2025-11-25")),
        {"MCP-Protocol-Version": MODERN},
    ),
    new("an empty version header", _LIST, {"MCP-Protocol-Version": ""}),
    new("a number for a version", enveloped("tools/list", meta=_meta_with(version=5)), {"MCP-Protocol-Version": "5"}),
    # The envelope
    new("no parameters", request("tools/list"), on_stdio=Ours("stateless", 200)),
    new("null parameters", request("tools/list") | {"params": None}, on_stdio=Ours("stateless", 200)),
    new("no _meta", request("tools/list", {}), on_stdio=Ours("stateless", 200)),
    new("_meta is a list", enveloped("tools/list", meta=[])),
    new("_meta is empty", enveloped("tools/list", meta={}), on_stdio=Ours("stateless", 200)),
    new(
        "_meta without version", enveloped("tools/list", meta=_meta_without(VERSION)), {"MCP-Protocol-Version": MODERN}
    ),
    new("_meta without capabilities", enveloped("tools/list", meta=_meta_without(CAPABILITIES))),
    new(
        "_meta without capabilities, and another method in the header",
        enveloped("tools/list", meta=_meta_without(CAPABILITIES)),
        {"Mcp-Method": "x"},
    ),
    new("capabilities are text", enveloped("tools/list", meta=_meta_with(capabilities="all"))),
    new("capabilities are null", enveloped("tools/list", meta=_meta_with(capabilities=None))),
    new("the client is text", enveloped("tools/list", meta=_meta_with(client="me"))),
    new("the client has no name", enveloped("tools/list", meta=_meta_with(client={}))),
    # Methods that are not there
    *(new(method, enveloped(method, {}), ours=Ours("offered", 200)) for method in LISTS),
    *(
        new(
            f"{method}, of nothing",
            enveloped(method, params),
            {"Mcp-Name": params.get("name") or params.get("uri")},
            ours=Ours("offered", 400, -32602),
        )
        for method, params in OFFERED.items()
    ),
    *(
        new(f"{method}, removed or unknown", enveloped(method))
        for method in ("nope", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/get")
    ),
    new("initialize, removed", enveloped("initialize", GREETING), {"Mcp-Method": "initialize"}),
    new("initialize without an envelope", request("initialize", GREETING), on_stdio=Ours("stateless", 200)),
    new("subscriptions/listen for nothing in particular", enveloped("subscriptions/listen", {})),
    new("resources/read without uri", enveloped("resources/read")),
    # Notifications
    new("cancelled", note("notifications/cancelled", {"requestId": 99})),
    new("cancelled, without Mcp-Method", note("notifications/cancelled", {"requestId": 99}), {"Mcp-Method": None}),
    new(
        "cancelled, at a version nobody serves", note("notifications/cancelled"), {"MCP-Protocol-Version": "2099-01-01"}
    ),
    new("a request method without id", note("tools/list")),
    # Messages that are none
    *(new(f"the body is {what}", body, on_stdio=_SILENT) for what, body in NOT_MESSAGES.items()),
    new("the body has no method", NO_METHOD, on_stdio=_INVALID_INPUT),
    new("the body has neither method nor id", {"jsonrpc": "2.0"}, on_stdio=_INVALID_INPUT),
    *(new(f"the id is {odd!r}", enveloped("tools/list", ident=odd), on_stdio=_SILENT) for odd in ODD_IDS),
    new("jsonrpc 1.0", _LIST | {"jsonrpc": "1.0"}, on_stdio=_SILENT),
    new("a notification with a list of parameters", note("notifications/cancelled", []), on_stdio=_SILENT),
    new("the parameters are a list", request("tools/list", []), ours=Ours("known-id", 400, -32600)),
    new("a response", {"jsonrpc": "2.0", "id": 1, "result": {}}),
    *(new(f"the body is {what}", body, on_stdio=Ours("silent", 400, -32700)) for what, body in NOT_JSON.items()),
    new("the body is empty", b"", stdio=False),
    new(
        "duplicate keys",
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}',
        ours=Ours("strict-json", 400, -32700),
    ),
)

_PING = request("ping")
HTTP_CASES: tuple[Case, ...] = (
    # Accept
    *(
        old(f"Accept: {accept}", _PING, {"Accept": accept})
        for accept in (
            "application/json",
            "*/*",
            "application/*",
            "APPLICATION/JSON",
            "text/html, application/json;q=0.1",
        )
    ),
    *(old(f"Accept: {accept}", _PING, {"Accept": accept}) for accept in ("text/event-stream", "text/html", "image/*")),
    old("no Accept", _PING, {"Accept": None}, ours=Ours("accept", 200)),
    *(new(f"Accept: {accept}", _LIST, {"Accept": accept}) for accept in ("application/json", "*/*", "application/*")),
    *(
        new(f"Accept: {accept}", _LIST, {"Accept": accept}, ours=Ours("accept", 406, -32600))
        for accept in ("text/event-stream", "text/html")
    ),
    new("no Accept", _LIST, {"Accept": None}, ours=Ours("accept", 200)),
    # Content-Type
    *(
        old(f"Content-Type: {kind}", _PING, {"Content-Type": kind})
        for kind in ("application/json; charset=utf-8", "application/json;charset=UTF-8")
    ),
    old("Content-Type: Application/JSON", _PING, {"Content-Type": "Application/JSON"}, ours=Ours("media-type", 200)),
    old("Content-Type: application/jsonx", _PING, {"Content-Type": "application/jsonx"}),
    *(
        old(f"Content-Type: {kind}", _PING, {"Content-Type": kind}, ours=Ours("media-type", 415, -32600))
        for kind in ("text/plain", "application/x-www-form-urlencoded", None)
    ),
    *(
        new(f"Content-Type: {kind}", _LIST, {"Content-Type": kind}, ours=Ours("media-type", 415, -32600))
        for kind in ("text/plain", "application/json-patch+json", None)
    ),
    # Methods
    old("GET", b"", method="GET", ours=Ours("no-stream", 405, -32600)),
    old("DELETE", b"", method="DELETE", ours=Ours("no-stream", 405, -32600)),
    *(old(method, b"", method=method, ours=Ours("allow", 405, -32600)) for method in ("PUT", "PATCH", "OPTIONS")),
    *(
        new(method, b"", method=method, ours=Ours("allow", 405, -32600))
        for method in ("GET", "DELETE", "PUT", "PATCH", "OPTIONS")
    ),
    # Host and Origin
    old("a foreign Host", _PING, {"Host": "evil.example"}, ours=Ours("host", 403)),
    old("a foreign Origin", _PING, {"Origin": "http://evil.example"}, ours=Ours("host", 403)),
    old("the Origin null", _PING, {"Origin": "null"}, ours=Ours("host", 403)),
    new("a foreign Host", _LIST, {"Host": "evil.example"}, ours=Ours("host", 403)),
    new("a foreign Origin", _LIST, {"Origin": "http://evil.example"}, ours=Ours("host", 403)),
)

CASES = (*HANDSHAKE_CASES, *MODERN_CASES, *HTTP_CASES)
