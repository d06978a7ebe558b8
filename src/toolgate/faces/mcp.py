"""The MCP wire, both eras: revision 2026-07-28 (stateless) and the handshake revisions.

Nothing is remembered from a connection, so nothing can be hijacked: identity comes with each request, and what a client of the
handshake era has told us comes with its session id, sealed. The official SDK is the oracle of the tests, not a part of this.
What is no tool (prompts, resources and the like) has its words in `mcp_offers.py`.

The modern ladder, first failure wins: frame (-32600) -> routing headers once each (-32020) -> `_meta` envelope (-32602) ->
headers equal the body (-32020) -> version served (-32022) -> method known (-32601) -> parameters (-32602).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from toolgate.errors import OK, VERDICTS, Ending
from toolgate.faces import mcp_offers as offers
from toolgate.faces.face import KEY_FORM, Asked, Besides, key_hint
from toolgate.faces.mcp_results import (
    HANDSHAKES,
    SERVER_INFO,
    McpRequest,
    ProtocolFault,
    answer_plain,
    is_implementation,
    modern_result,
    refusal_json,
    refusal_reply,
    render_adopted,
    render_offer,
    render_question,
    words_of,
)
from toolgate.faces.reply import JSON, Reply, admits, clip, request_id_of
from toolgate.model import strictjson
from toolgate.model.call import IDEMPOTENCY_KEY, Call, Transport, Wire
from toolgate.model.mcpwire import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    META_CAPABILITIES,
    META_CLIENT,
    META_IDEMPOTENCY,
    META_LOG_LEVEL,
    META_SERVER,
    META_SUBSCRIPTION,
    META_VERSION,
    METHOD_HEADER,
    METHOD_NOT_FOUND,
    MODERN_VERSIONS,
    NAME_HEADER,
    SESSION_HEADER,
    UNSUPPORTED_VERSION,
    VERSION_HEADER,
    header_text,
)
from toolgate.model.tool import LEVELS
from toolgate.model.trace import trace_context

if TYPE_CHECKING:
    from toolgate.faces import Parts
    from toolgate.faces.face import Note, Visible, Wish
    from toolgate.model.envelope import Answer, Envelope
    from toolgate.model.tool import Level

ROUTE: Final = "/mcp"
_ROUTING_HEADERS: Final = {name.encode(): name for name in (VERSION_HEADER, METHOD_HEADER, NAME_HEADER)}
_SESSION_HEADER: Final = SESSION_HEADER.encode()
MAX_ID: Final = 256
"""Characters of an id or a progress token, which are sent back with every answer and every step; clients' own have 36 at most.
Integers are bounded by the reader of JSON."""
KEPT_BYTES: Final = 4096
"""Of a message whose `_meta` is kept for the next one under the same head: there are as many of these as known heads."""
UTF8_BYTES: Final = 4
"""Of one character at most: a text that is short by this measure needs no closer look."""
_BOTH: Final = frozenset(
    {
        "tools/list",
        "tools/call",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "completion/complete",
    }
)
_MODERN_METHODS: Final = _BOTH | {"server/discover", "subscriptions/listen"}
_HANDSHAKE_METHODS: Final = _BOTH | {
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
}
_CALLS: Final = frozenset({"prompts/get", "resources/read", "completion/complete", "resources/subscribe"})
"""Calls on the road that are no calls of tools."""
_NO_TOOLS: Final = ("prompt:", "resource:", "complete:", "subscribe:", "list:")
_ALL_LISTS: Final = frozenset({"tools", "prompts", "resources"})
DEFAULT_LEVEL: Final = "info"
"""What a client of the handshake era reads of what tools log, if it has not said; one of the other era reads nothing."""
LOOK: Final = object()
"""The message that a GET stands for: a client of the handshake era wants to hear of changes."""
_NAME_BEARING: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_NOT_A_MESSAGE: Final = "Body must be a single JSON-RPC request or notification object"


class MetaFacts(Struct, frozen=True):
    """What a message says about itself and its client in `params._meta`, checked."""

    note: Note | None = None
    trace: tuple[str, str | None] | None = None
    level: Level | None = DEFAULT_LEVEL
    """From which level on this client reads along. Of the modern era, each message says it."""
    can: frozenset[str] = frozenset()
    """What the client can be asked."""
    key: Any = None
    """An idempotency key, unchecked."""


class Routing(Struct):
    """What the headers of a request say about its message, which must say the same, and about its answer."""

    version: str | None
    method: str | None
    name: str | None
    modern: bool
    """Over HTTP the version header decides, and a version nobody knows is told so in the modern way."""
    twice: str | None = None
    """One of them that came more than once."""
    takes_json: bool = True
    session: str | None = None
    """What the client says its session is; of the handshake era only."""
    key: str | None = None
    """An idempotency key, which belongs into the message."""
    is_plain: bool = True
    """Nothing in the head can be wrong by itself."""
    is_short: bool = False
    """What its message says may be kept."""
    meta: Mapping[str, Any] | None = None
    """The `_meta` of the last message under this very head, and what it was found to say. A client sends the same with each
    call; comparing it costs a tenth of reading it (1.5 us a call). Kept only of modern messages."""
    facts: MetaFacts = MetaFacts()
    pattern: McpRequest | None = None
    """The last call of a tool under this head with this `_meta`, without its id and its arguments."""


def make(parts: Parts) -> list[McpFace]:
    return [McpFace(parts.text_bytes if parts.mcp_text == "reader" else None, parts.resource_at)]


class McpFace:
    route = ROUTE
    wires: Mapping[Transport, Wire] = {
        "http": Wire(face="mcp", transport="http", route=ROUTE),
        "stdio": Wire(face="mcp", transport="stdio", route="tools/call"),
    }

    def __init__(self, text_bytes: int | None = None, resource_at: offers.ResourceAt = lambda uri: None) -> None:  # noqa: ARG005
        """`text_bytes`: how much text for a reader an answer carries; None: its text is the envelope."""
        self._text_bytes = text_bytes
        self._resource_at = resource_at

    def hints(self, headers: Mapping[bytes, bytes], repeated: frozenset[bytes]) -> Routing:
        texts = {text: headers[name].decode("latin-1") for name, text in _ROUTING_HEADERS.items() if name in headers}
        version = texts.get(VERSION_HEADER)
        modern = version is not None and version not in HANDSHAKES
        session = headers.get(_SESSION_HEADER) if not modern else None
        twice = next((text for name, text in _ROUTING_HEADERS.items() if name in repeated), None)
        takes_json = admits(headers.get(b"accept"), "application/json")
        size = headers.get(b"content-length", b"")
        return Routing(
            version,
            texts.get(METHOD_HEADER),
            header_text(texts.get(NAME_HEADER)),
            modern=modern,
            twice=twice,
            takes_json=takes_json,
            session=None if session is None else session.decode("latin-1"),
            key=key_hint(headers, repeated),
            is_plain=takes_json and twice is None and (modern or version is None),
            is_short=size.isdigit() and int(size) <= KEPT_BYTES,
        )

    def look(self, hints: Routing) -> object | None:
        return LOOK if hints.session is not None and hints.twice is None else None

    def speaks(self, message: Any) -> bool:  # noqa: ARG002 (whatever is no other face's)
        return True

    def unread(self, message: Any) -> McpRequest:
        return McpRequest(request_id_of(message))

    def read(self, message: Any, transport: Transport, hints: Routing | None) -> McpRequest:
        """`hints` is None on stdio, where each message's own envelope tells its era."""
        try:
            if message is LOOK:
                assert hints is not None
                return _stream_of_a_session(hints.session)
            if hints is not None:
                if hints.pattern is not None and (again := _again(message, hints, hints.pattern)) is not None:
                    return again
                if not hints.is_plain:
                    _check_head(message, hints)
            wants_text = self._text_bytes is not None
            asked = _read(message, self.wires[transport], hints, self._resource_at, wants_text=wants_text)
            if hints is not None and asked.modern:
                _keep_pattern(hints, asked)
            return asked
        except ProtocolFault as fault:
            return McpRequest(fault.request_id, reply=fault.reply())

    def answer(self, asked: Asked, visible: Visible, found: Sequence[Any] = ()) -> Reply:
        """Greetings, lists, and what is wrong as a message."""
        assert isinstance(asked, McpRequest)
        if asked.reply is not None:
            return asked.reply
        try:
            return answer_plain(asked, visible, found)
        except ProtocolFault as fault:
            return fault.reply()

    def render(self, asked: Asked, answer: Answer) -> Reply:
        """One answer of the road. The end of one call is a result, with `isError` if it is a bad one; what is wrong with the
        message or the key is a JSON-RPC error."""
        assert isinstance(asked, McpRequest)
        if asked.method in _CALLS and asked.call is not None and _ends_an_offer(answer.ending):
            return render_offer(asked, answer)
        is_ok = answer.ending is OK
        if asked.call is None or not (is_ok or _ends_one_call(answer.ending)):
            return refusal_reply(answer, request_id=asked.id, modern=asked.modern)
        if answer.asks is not None or (not is_ok and answer.ending is Ending.CLIENT_CANNOT and asked.modern):
            return render_question(asked, answer)
        if answer.adopted:
            return render_adopted(asked, answer)
        if answer.envelope is not None:
            envelope, is_error = answer.envelope_json, answer.envelope.is_error
        else:
            envelope, is_error = refusal_json(answer), True
        text = envelope.decode() if self._text_bytes is None else _text(answer, self._text_bytes)
        skeleton = _MODERN_ANSWER if asked.modern else _HANDSHAKE_ANSWER
        if answer.content:
            skeleton = skeleton.replace(
                b"[", b"[" + strictjson.dumps(answer.content)[1:-1].replace(b"%", b"%%") + b",", 1
            )
        parts = (strictjson.dumps(asked.id), strictjson.dumps(text), envelope, b"true" if is_error else b"false")
        return Reply(200, skeleton % parts, (JSON,), answer.request_id)


def _check_head(message: Any, hints: Routing) -> None:
    """Raises: ProtocolFault."""
    if not hints.takes_json:
        raise ProtocolFault(INVALID_REQUEST, "Not Acceptable: the client must accept application/json", status=406)
    if hints.twice is not None:
        text = f"{hints.twice} appears more than once"
        raise ProtocolFault(HEADER_MISMATCH, text, request_id=request_id_of(message))
    if not hints.modern and hints.version is not None:
        _check_era(message, hints.version)


def _read(body: Any, wire: Wire, routing: Routing | None, at: offers.ResourceAt, *, wants_text: bool) -> McpRequest:
    """What a decoded message is. Raises: ProtocolFault."""
    modern = _has_envelope(body) if routing is None else routing.modern
    if not modern and _is_response(body):
        return McpRequest(reply=_NO_ANSWER.reply, response=body)
    method = body.get("method") if isinstance(body, dict) else None
    if not isinstance(method, str) or body.get("jsonrpc") != "2.0":
        raise ProtocolFault(INVALID_REQUEST, _NOT_A_MESSAGE)
    params = body.get("params")
    if params is None:
        params = _NO_PARAMS
    if "id" not in body:
        return _notification(method, params, routing if modern else None, wire)
    request_id = body["id"]
    if type(request_id) is not int:
        _check_text_id(request_id)
    if not isinstance(params, dict):
        raise ProtocolFault(INVALID_REQUEST, _NOT_A_MESSAGE, request_id=request_id)
    meta = params.get("_meta")
    if modern and routing is not None and routing.meta is not None and routing.meta == meta:
        _check_headers(method, params, routing, request_id)
        facts = routing.facts
    else:
        facts = _facts_of(method, params, meta, routing, request_id, modern=modern)
    try:
        key, session = (None, None) if routing is None else (routing.key, routing.session)
        if method == "tools/call":
            asked: Call | None = _call(params, wire, facts.key, key, wants_text=wants_text)
        else:
            asked = Call(wire, *offers.call_of(method, params, at)) if method in _CALLS else None
        if modern and asked is not None and (facts.can or not _ANSWERED.isdisjoint(params)):
            asked = offers.with_answers(asked, params, facts.can)
        besides = None
        if session is not None or method in _WISHES:
            besides = _besides(method, params, request_id, session)
    except offers.WrongParams as wrong:
        raise ProtocolFault(
            INVALID_PARAMS, f"{method}: {wrong}", request_id=request_id, status=400 if modern else 200
        ) from None
    return McpRequest(
        request_id,
        asked,
        note=facts.note,
        trace=facts.trace,
        besides=besides,
        log=offers.logged,
        log_level=facts.level,
        ask=None if modern else offers.requested,
        method=method,
        params=params,
        modern=modern,
    )


def _keep_pattern(routing: Routing, asked: McpRequest) -> None:
    """Of a call that says nothing beside a tool, its arguments and the `_meta` that is kept."""
    call, params, kept = asked.call, asked.params, routing.facts
    if call is None or asked.method != "tools/call" or call.tool != params["name"] or routing.meta != params["_meta"]:
        return
    if not (kept.can or kept.key or call.idempotency_key or call.state or call.answers or asked.besides):
        routing.pattern = replace(asked, id=None, params=_NO_PARAMS, call=replace(call, arguments={}))


def _again(body: Any, routing: Routing, before: McpRequest) -> McpRequest | None:
    """A message that differs from one before it, under the same head, in nothing but its id and its arguments: what the ladder
    found then holds now, and a third of the work of reading is left. None: it differs in more, and climbs like any other.

    Raises: ProtocolFault: its id.
    """
    call = before.call
    try:
        if body["method"] != before.method or body["jsonrpc"] != "2.0" or len(body) != 4:
            return None
        request_id, params = body["id"], body["params"]
        if call is None or params["name"] != call.tool or params["_meta"] != routing.meta or len(params) != 3:
            return None
        arguments = params["arguments"]
    except (KeyError, TypeError, IndexError):
        return None
    if type(arguments) is not dict:
        return None
    if type(request_id) is not int:
        _check_text_id(request_id)
    return replace(before, id=request_id, params=params, call=replace(call, arguments=arguments))


def _check_text_id(request_id: Any) -> None:
    """Raises: ProtocolFault."""
    if not isinstance(request_id, str):
        raise ProtocolFault(INVALID_REQUEST, _NOT_A_MESSAGE)
    if len(request_id) > MAX_ID:
        raise ProtocolFault(INVALID_REQUEST, f"id must be an integer or a string of at most {MAX_ID} characters")


def _facts_of(
    method: str,
    params: Mapping[str, Any],
    meta: Any,
    routing: Routing | None,
    request_id: str | int,
    *,
    modern: bool,
) -> MetaFacts:
    """The rungs of the ladder from the envelope to the method, and what `_meta` says. Raises: ProtocolFault."""
    if modern:
        _check_revision(method, params, meta, routing, request_id)
    if method not in (_MODERN_METHODS if modern else _HANDSHAKE_METHODS):
        status = 404 if modern else 200
        data = method[:128]
        raise ProtocolFault(METHOD_NOT_FOUND, "Method not found", request_id=request_id, status=status, data=data)
    if meta is None:
        return _NO_FACTS
    _check_meta(meta, request_id, modern=modern)
    note = _note(meta, request_id, modern=modern)
    trace = trace_context(meta["traceparent"], meta.get("tracestate")) if "traceparent" in meta else None
    if not modern:
        return MetaFacts(note, trace, key=meta.get(META_IDEMPOTENCY))
    level = meta.get(META_LOG_LEVEL)
    can = offers.askable(meta[META_CAPABILITIES])
    facts = MetaFacts(note, trace, level if level in LEVELS else None, can, meta.get(META_IDEMPOTENCY))
    if routing is not None and routing.is_short and "progressToken" not in meta:
        routing.meta, routing.facts, routing.pattern = meta, facts, None
    return facts


def _same_key(key: Any, header: str | None) -> str:
    """An idempotency key that the message and its head agree on. Raises: WrongParams."""
    if header is not None and header != key:
        raise offers.WrongParams(f"Idempotency-Key is not what params._meta says; on MCP give {META_IDEMPOTENCY} there")
    if not isinstance(key, str) or not IDEMPOTENCY_KEY.fullmatch(key):
        raise offers.WrongParams(f"{META_IDEMPOTENCY} is refused: {KEY_FORM}")
    return key


_WISHES: Final[Mapping[str, Wish]] = {
    "initialize": "session",
    "logging/setLevel": "level",
    "resources/subscribe": "subscribe",
    "resources/unsubscribe": "unsubscribe",
    "resources/list": "resources",
    "subscriptions/listen": "listen",
}


def _besides(method: str, params: Mapping[str, Any], request_id: str | int, session: str | None) -> Besides:
    """What a message asks of the road beside a call. Raises: WrongParams."""
    wish = _WISHES.get(method)
    if wish is None:
        return Besides(session=session)
    if wish == "session":
        declared = params.get("capabilities")
        can = tuple(sorted(offers.askable(declared))) if isinstance(declared, dict) else ()
        return Besides(wish, capabilities=can)  # whatever session a greeting names, it gets one of its own
    if wish == "level":
        return Besides(wish, session, level=offers.level_of(params))
    if wish in ("subscribe", "unsubscribe"):
        return Besides(wish, session, offers.uri_of(params))
    if wish == "listen":
        lists, uris = offers.wanted_of(params)
        last = {"resultType": "complete", "_meta": {META_SERVER: SERVER_INFO, META_SUBSCRIPTION: request_id}}
        ended = strictjson.dumps({"jsonrpc": "2.0", "id": request_id, "result": last})
        return Besides(wish, lists=lists, uris=uris, told=partial(offers.told, request_id), ended=ended)
    return Besides(wish, session)


def _stream_of_a_session(session: str | None) -> McpRequest:
    besides = Besides("stream", session, lists=_ALL_LISTS, told=partial(offers.told, None))
    return McpRequest(besides=besides, reply=Reply(200))


_ANSWERED: Final = frozenset({"requestState", "inputResponses"})
_NO_FACTS: Final = MetaFacts()


def _check_era(body: Any, version: str) -> None:
    """A header of the handshake era around a message of the stateless one: who reads only the header would judge another
    message than we do. Raises: ProtocolFault."""
    if _has_envelope(body) and body["params"]["_meta"][META_VERSION] != version:
        text = "MCP-Protocol-Version does not match params._meta"
        raise ProtocolFault(HEADER_MISMATCH, text, request_id=request_id_of(body))


def _call(params: Mapping[str, Any], wire: Wire, key: Any, header: str | None, *, wants_text: bool) -> Call:
    """The call inside a `tools/call`. `key`, `header`: its idempotency key, said in two places. Raises: WrongParams."""
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str) or not (arguments is None or isinstance(arguments, dict)):
        raise offers.WrongParams("a call needs a string name and an object of arguments")
    if name.startswith(_NO_TOOLS):
        name = f"tool:{name}"  # prompts and resources have such names on the road, and are no tools
    named = None if key is None and header is None else _same_key(key, header)
    arguments = {} if arguments is None else arguments
    return Call(wire, name, arguments, wants_text=wants_text, is_brief=True, idempotency_key=named)


def _note(meta: Mapping[str, Any], request_id: str | int, *, modern: bool) -> Note | None:
    """How to spell the progress that a message asks for. Raises: ProtocolFault."""
    token = meta.get("progressToken")
    if isinstance(token, str) and len(token) > MAX_ID:
        text = f"progressToken must be an integer or a string of at most {MAX_ID} characters"
        raise ProtocolFault(INVALID_PARAMS, text, request_id=request_id, status=400 if modern else 200)
    return partial(offers.stepped, token) if isinstance(token, str) or type(token) is int else None


_NO_PARAMS: Final[dict[str, Any]] = {}


_NO_ANSWER: Final = McpRequest(reply=Reply(202))
_STREAM_OF_A_PIPE: Final = McpRequest(
    besides=Besides("stream", lists=_ALL_LISTS, told=partial(offers.told, None)), reply=Reply(202)
)
"""A client of the handshake era hears of changes on the pipe itself, once it is ready."""


def _notification(method: str, params: Any, routing: Routing | None, wire: Wire) -> McpRequest:
    """`routing` of a modern message over HTTP, else None. Raises: ProtocolFault."""
    if not isinstance(params, dict):
        raise ProtocolFault(INVALID_REQUEST, _NOT_A_MESSAGE)
    if routing is not None and routing.version not in MODERN_VERSIONS:
        raise _not_served(routing.version or "", None)
    if method == "notifications/initialized" and wire.transport == "stdio":
        return _STREAM_OF_A_PIPE
    cancels = params.get("requestId") if method == "notifications/cancelled" else None
    if not isinstance(cancels, str) and type(cancels) is not int:
        return _NO_ANSWER
    return McpRequest(cancels=cancels, reply=_NO_ANSWER.reply)


def _has_envelope(body: Any) -> bool:
    params = body.get("params") if isinstance(body, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and META_VERSION in meta


def _is_response(body: Any) -> bool:
    return isinstance(body, dict) and "method" not in body and ("result" in body or "error" in body)


def _check_revision(
    method: str, params: Mapping[str, Any], meta: Any, routing: Routing | None, request_id: str | int
) -> None:
    """The rungs of revision 2026-07-28. Raises: ProtocolFault."""
    if not isinstance(meta, dict):
        raise ProtocolFault(
            INVALID_PARAMS,
            f"params._meta must be an object with {META_VERSION} and {META_CAPABILITIES}",
            request_id=request_id,
        )
    if META_VERSION not in meta or META_CAPABILITIES not in meta:
        missing = [key for key in (META_VERSION, META_CAPABILITIES) if key not in meta]
        raise ProtocolFault(INVALID_PARAMS, f"params._meta is missing {', '.join(missing)}", request_id=request_id)
    version = meta[META_VERSION]
    if routing is not None:
        if routing.version != version:
            raise ProtocolFault(
                HEADER_MISMATCH, "MCP-Protocol-Version does not match params._meta", request_id=request_id
            )
        _check_headers(method, params, routing, request_id)
    if not isinstance(version, str):
        raise ProtocolFault(INVALID_PARAMS, f"{META_VERSION} must be a string", request_id=request_id)
    if version not in MODERN_VERSIONS:
        raise _not_served(version, request_id)


def _check_headers(method: str, params: Mapping[str, Any], routing: Routing, request_id: str | int) -> None:
    """Raises: ProtocolFault."""
    if routing.method != method:
        raise ProtocolFault(HEADER_MISMATCH, "Mcp-Method does not match the method of the body", request_id=request_id)
    key = _NAME_BEARING.get(method)
    if key and params.get(key) is not None and routing.name != params[key]:
        raise ProtocolFault(HEADER_MISMATCH, f"Mcp-Name does not match params.{key}", request_id=request_id)


def _check_meta(meta: Any, request_id: str | int, *, modern: bool) -> None:
    """The shape of what a client says about itself. Raises: ProtocolFault."""
    if not isinstance(meta, dict):
        status = 400 if modern else 200
        raise ProtocolFault(INVALID_PARAMS, "params._meta must be an object", request_id=request_id, status=status)
    if not modern:
        return
    if not isinstance(meta[META_CAPABILITIES], dict):
        raise ProtocolFault(INVALID_PARAMS, f"{META_CAPABILITIES} must be an object", request_id=request_id)
    if meta.get(META_CLIENT) is not None and not is_implementation(meta[META_CLIENT]):
        raise ProtocolFault(INVALID_PARAMS, f"{META_CLIENT} must hold a name and a version", request_id=request_id)


def _not_served(version: str, request_id: str | int | None) -> ProtocolFault:
    data = {"supported": list(MODERN_VERSIONS), "requested": version[:64]}
    return ProtocolFault(UNSUPPORTED_VERSION, "Unsupported protocol version", request_id=request_id, data=data)


_ANSWER: Final = (
    b'{"jsonrpc":"2.0","id":%b,"result":'
    b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"isError":%b{more}}}'
)
"""One encode, two places: the envelope as it is, and as text."""
_HANDSHAKE_ANSWER: Final = _ANSWER.replace(b"{more}", b"")
_MODERN_ANSWER: Final = _ANSWER.replace(
    b"{more}", b"," + strictjson.dumps(modern_result({}))[1:-1].replace(b"%", b"%%")
)


def _text(answer: Answer, most: int) -> str:
    """For a reader: what the tool says in its own words, or what went wrong; and one line of how far it counts."""
    envelope = answer.envelope
    if envelope is None:
        return words_of(answer)
    said = answer.stdout if envelope.success else envelope.message or "The tool said no."
    if len(said) * UTF8_BYTES > most:
        said, is_cut = clip(said, most)
        said += "… (cut; structuredContent has all of it)" if is_cut else ""
    return f"{said}\n{_verdict_line(envelope)}" if said else _verdict_line(envelope)


def _verdict_line(envelope: Envelope) -> str:
    words = f"{envelope.tier}, {envelope.environment}"
    if envelope.decision is not None:
        words += f", {envelope.decision}"
    if envelope.success and envelope.code is not None:
        words += f", {envelope.code}"
    if envelope.degraded:
        words += ", degraded"
    for clamp in envelope.clamps:
        words += f", {clamp.field} {clamp.before} clamped to {clamp.after or 'none'}"
    return f"[{words}]"


def _ends_one_call(ending: Ending) -> bool:
    return ending is OK or VERDICTS[ending].mcp_code is None


def _ends_an_offer(happening: Ending) -> bool:
    return _ends_one_call(happening) or happening in (Ending.UNKNOWN_TOOL, Ending.STATE_REFUSED)
