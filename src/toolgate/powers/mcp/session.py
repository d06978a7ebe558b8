"""Which era an upstream speaks, and lists and calls in that era.

The probe: ask as a modern client would. Who answers so is modern; who says one of the errors that only modern servers know is
modern, and not for us; whoever refuses for another reason (no key, too fast, out of order) has said nothing about its era, and
is asked again another time; everyone else is greeted with the handshake. Nothing that is sent to find out has an effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from toolgate import __version__
from toolgate.kit.pins import Offer
from toolgate.model.mcpwire import (
    HANDSHAKE_VERSIONS,
    META_CAPABILITIES,
    META_CLIENT,
    META_LOG_LEVEL,
    META_SERVER,
    META_VERSION,
    METHOD_NOT_FOUND,
    MODERN_ERRORS,
    MODERN_VERSIONS,
    NOTHING,
    Era,
)
from toolgate.powers.mcp.failures import Incompatible, Lost, RefusedByStatus, Unusable
from toolgate.powers.mcp.relay.logs import MESSAGE, UnnamedLogs

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from toolgate.model.mcpwire import RelayedCall
    from toolgate.powers.mcp.bounds import Bounds
    from toolgate.powers.mcp.messages import Notification, Response
    from toolgate.powers.mcp.transport import Transport

PROBE_S: Final = 5.0
"""For an answer to the modern greeting: a server of the handshake era may leave it unanswered."""
INCONCLUSIVE: Final = frozenset({401, 403, 407, 408, 429, *range(500, 600)})
"""Statuses that say nothing about the era."""
DEFAULT_TTL_S: Final = 300.0
LONGEST_TTL_S: Final = 3600.0
SHORTEST_TTL_S: Final = 5.0
"""How long a list is believed: what the upstream says, within these, else the first."""
LEAST_LEVEL: Final = "debug"
"""What a call asks to hear of logs; who hears less is told less by the gate."""
_CLIENT: Final = {"name": "toolgate", "version": __version__}
LISTS: Final = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resourceTemplates": "resources/templates/list",
    "resources": "resources/list",
}
_CAPABILITY: Final = {
    "tools": "tools",
    "prompts": "prompts",
    "resourceTemplates": "resources",
    "resources": "resources",
}
_KEY: Final = {"tools": "name", "prompts": "name", "resourceTemplates": "uriTemplate", "resources": "uri"}


class Session:
    """An upstream that has been greeted."""

    def __init__(self, transport: Transport, version: str, era: Era, hello: dict[str, Any]) -> None:
        self.transport = transport
        self.version = version
        self.era = era
        self._hello = hello
        self._own_meta = _stamp(version) if era == "modern" else {}
        self.logs = UnnamedLogs(names_calls=transport.names_calls)

    async def request(self, method: str, params: dict[str, Any], *, seconds: float) -> Response:
        """Raises: as `Transport.request`."""
        return await self.transport.request(method, self._params(params, NOTHING), seconds=seconds)

    def relay(self, call: RelayedCall, *, seconds: float) -> Coroutine[Any, Any, Response]:
        """To be awaited at once. Raises: as `Transport.request`."""
        if call.log is not None:
            return self._relay_with_log(call, seconds)
        self.logs.used_by(call.caller)
        return self._asked(call, seconds)

    async def _relay_with_log(self, call: RelayedCall, seconds: float) -> Response:
        self.logs.begin(call)
        try:
            return await self._asked(call, seconds)
        finally:
            self.logs.end(call)

    def _asked(self, call: RelayedCall, seconds: float) -> Coroutine[Any, Any, Response]:
        params = self._params(call.params, call.meta)
        if self.era == "modern" and (call.capabilities or call.log is not None):
            level = {META_LOG_LEVEL: LEAST_LEVEL} if call.log is not None else {}
            own = {**self._own_meta, META_CAPABILITIES: dict(call.capabilities), **level}
            params = {**call.params, "_meta": {**call.meta, **own}}
        return self.transport.request(
            call.method, params, seconds=seconds, step=call.step, mirrored=call.mirrored, log=call.log
        )

    def hear(self, on_note: Callable[[Notification], None]) -> None:
        """From now on this is told of notifications; what is logged goes to whoever reads along."""

        def heard(note: Notification) -> None:
            (self.logs.heard if note.method == MESSAGE else on_note)(note)

        self.transport.on_note = heard

    def offers(self, capability: str, part: str = "") -> bool:
        """What it says about itself: that it has this, or this part of it."""
        found = _object(self._hello.get("capabilities")).get(capability)
        return isinstance(found, dict) and (not part or found.get(part) is True)

    @property
    def tells_changes(self) -> bool:
        """It says that it will tell when one of its lists, or a resource, changes."""
        return any(self.offers(each, "listChanged") for each in ("tools", "prompts", "resources")) or self.offers(
            "resources", "subscribe"
        )

    async def listen(self, uris: Sequence[str], seconds: float) -> None:
        """Stay for notifications that no request asked for, until the upstream ends it. `uris`: resources whose changes are
        wanted, too; in the handshake era each is asked for by itself. Raises: as `Transport.request`."""
        if self.era == "handshake":
            await self.transport.watch(seconds)
            return
        wanted: dict[str, Any] = {
            f"{each}ListChanged": True for each in ("tools", "prompts", "resources") if self.offers(each, "listChanged")
        }
        if uris:
            wanted["resourceSubscriptions"] = list(uris)
        answer = await self.request("subscriptions/listen", {"notifications": wanted}, seconds=seconds)
        if answer.error is not None:
            raise RefusedByStatus(answer.status)

    async def describe(self, bounds: Bounds, *, seconds: float) -> Offer:
        """Everything that is pinned. Raises: as `Transport.request`; Unusable: a list breaks a bound."""
        lists: dict[str, dict[str, dict[str, Any]]] = {}
        ttls: list[float] = []
        for kind in LISTS:
            if kind != "tools" and not self.offers(_CAPABILITY[kind]):
                lists[kind] = {}
                continue
            lists[kind] = await self._list(kind, bounds, seconds, ttls)
        server = self._hello.get("serverInfo") or _object(self._hello.get("_meta")).get(META_SERVER)
        instructions = self._hello.get("instructions")
        return Offer(
            self.version,
            _object(server),
            instructions if isinstance(instructions, str) else None,
            lists["tools"],
            lists["prompts"],
            lists["resourceTemplates"],
            min(ttls, default=DEFAULT_TTL_S),
            lists["resources"],
            self.offers("logging"),
        )

    async def _list(self, kind: str, bounds: Bounds, seconds: float, ttls: list[float]) -> dict[str, dict[str, Any]]:
        """All of its pages. `ttls`: gets how long each page is believed."""
        found: dict[str, dict[str, Any]] = {}
        cursor: str | None = None
        size = 0
        for _ in range(bounds.pages):
            params = self._params({} if cursor is None else {"cursor": cursor}, NOTHING)
            answer = await self.transport.request(LISTS[kind], params, seconds=seconds)
            if answer.error is not None:
                if answer.error.code == METHOD_NOT_FOUND and not (kind == "tools" and self.offers("tools")):
                    return {}  # it has nothing of the kind
                raise Unusable("list_refused", f"{LISTS[kind]} was answered with error {answer.error.code}")
            size += len(answer.raw)
            if size > bounds.list_bytes:
                raise Unusable("list_too_large", f"{LISTS[kind]} has more than {bounds.list_bytes} bytes")
            _gather(kind, answer.result.get(kind), found, bounds.items)
            ttls.append(_ttl(answer.result.get("ttlMs")))
            following = answer.result.get("nextCursor")
            if following is None:
                return found
            if not isinstance(following, str) or following == cursor:
                raise Unusable("endless_list", f"{LISTS[kind]} leads from one page back to the same")
            cursor = following
        raise Unusable("endless_list", f"{LISTS[kind]} has more than {bounds.pages} pages")

    def _params(self, own: dict[str, Any], meta: Mapping[str, Any]) -> dict[str, object]:
        stamped = {**meta, **self._own_meta} if meta else self._own_meta
        return {**own, "_meta": stamped} if stamped else own


def _gather(kind: str, items: Any, found: dict[str, dict[str, Any]], most: int) -> None:
    """Raises: Unusable."""
    if not isinstance(items, list):
        raise Unusable("bad_list", f"{LISTS[kind]} holds no list of {kind}")
    for item in items:
        name = item.get(_KEY[kind]) if isinstance(item, dict) else None
        if not isinstance(name, str) or not name:
            raise Unusable("bad_list", f"{LISTS[kind]} holds something without a name")
        if name in found:
            raise Unusable("bad_list", f"{LISTS[kind]} holds two of one name")
        found[name] = cast("dict[str, Any]", item)
    if len(found) > most:
        raise Unusable("list_too_large", f"{LISTS[kind]} holds more than {most}")


def _ttl(milliseconds: Any) -> float:
    if type(milliseconds) not in (int, float):
        return DEFAULT_TTL_S
    return float(min(LONGEST_TTL_S, max(SHORTEST_TTL_S, milliseconds / 1000)))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _stamp(version: str) -> dict[str, Any]:
    return {META_VERSION: version, META_CAPABILITIES: {}, META_CLIENT: _CLIENT}


async def greet(transport: Transport, *, seconds: float, era: Era | None = None) -> Session:
    """Find out which era the upstream speaks, unless an earlier connection did.

    Raises: as `Transport.request`; Incompatible.
    """
    if era != "handshake":
        session = await _probe(transport, min(seconds, PROBE_S))
        if session is not None:
            return session
    session = await shake_hands(transport, seconds)
    if session is None:
        # A modern server that was slow to start let the first greeting wait: it is one after all.
        session = await _probe(transport, seconds)
    if session is None:
        raise Incompatible("it neither shakes hands nor answers the modern greeting")
    return session


async def _probe(transport: Transport, seconds: float) -> Session | None:
    """None: not modern. Raises: as `greet`."""
    version = MODERN_VERSIONS[-1]
    transport.speak(version)
    try:
        answer = await transport.request("server/discover", {"_meta": _stamp(version)}, seconds=seconds)
    except RefusedByStatus as refused:
        if refused.status in INCONCLUSIVE:
            raise
        return None
    except Lost as lost:
        if lost.reason == "no_answer" and transport.may_ignore_probe:
            return None
        raise
    if answer.error is not None:
        if answer.error.code in MODERN_ERRORS:
            raise Incompatible(f"it speaks a newer protocol than {version} (error {answer.error.code})")
        if answer.status in INCONCLUSIVE:
            raise RefusedByStatus(answer.status)
        return None
    offered = answer.result.get("supportedVersions")
    if not isinstance(offered, list) or version not in offered:
        return None
    return Session(transport, version, "modern", answer.result)


async def shake_hands(
    transport: Transport, seconds: float, capabilities: Mapping[str, Any] = NOTHING
) -> Session | None:
    """`capabilities`: what may be asked on this connection. None: it says that it is modern. Raises: as `greet`."""
    transport.speak(None)
    hello = {"protocolVersion": HANDSHAKE_VERSIONS[-1], "capabilities": dict(capabilities), "clientInfo": _CLIENT}
    answer = await transport.request("initialize", cast("dict[str, object]", hello), seconds=seconds)
    if answer.error is not None:
        if answer.status in INCONCLUSIVE:
            raise RefusedByStatus(answer.status)
        if answer.error.code in MODERN_ERRORS:
            return None
        raise Incompatible(f"it answered the handshake with error {answer.error.code}")
    version = answer.result.get("protocolVersion")
    if version not in HANDSHAKE_VERSIONS:
        raise Incompatible("it agrees to no version of the protocol that we speak")
    transport.speak(version)
    await transport.note("notifications/initialized")
    return Session(transport, version, "handshake", answer.result)
