"""One call on its way: who asks, for what, over which wire."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, field

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

    from toolgate.model.mcpwire import Era
    from toolgate.model.tool import Level

    Address = IPv4Address | IPv6Address
    Network = IPv4Network | IPv6Network

FaceName = Literal["mcp", "mrt", "rpc", "cli", "metrics", "approvals"]
Transport = Literal["http", "stdio"]
Role = Literal["builder", "committer", "admin", "auditor"]
CALLING_ROLES: Final[tuple[Role, ...]] = ("builder", "committer", "admin")
"""Those that the policy can give a tool to."""
ROLES: Final[tuple[Role, ...]] = (*CALLING_ROLES, "auditor")
"""An auditor reads records and proofs, and calls no tool: no policy can give it one."""
ROLE_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
"""Of a role that a deployment's policy adds."""
Tier = Literal["authoritative", "experimental"]
Environment = Literal["local", "cloud"]


MAX_SCOPES: Final = 32
MAX_RANGES: Final = 32
MAX_LIMIT: Final = 1_000_000
MAX_SCOPE: Final = 73
"""Characters: as many as the name of a row has."""
SHOWN: Final = 5
"""Scopes that a refusal names."""


class CallerBounds(Struct, frozen=True):
    """What a key may do less than its role. An empty tuple bounds nothing."""

    scopes: tuple[str, ...] = ()
    """Globs over the names of manifest rows: `git_*`, `prompt:*`, `resource:paper`."""
    ranges: tuple[str, ...] = ()
    """Addresses or networks."""
    per_minute: int | None = None
    """Calls in a minute. None: as many as every key."""
    concurrency: int | None = None
    """Calls at once. None: as many as every key."""

    def covers(self, row: str) -> bool:
        """May a tool of this row be used?"""
        return not self.scopes or _covers(self.scopes, row)

    def admits(self, address: str | None) -> bool:
        """May a call come from there? One without an address is not from any range."""
        return not self.ranges or (address is not None and _admits(self.ranges, address))

    def told_scopes(self) -> str:
        more = f" and {len(self.scopes) - SHOWN} more" if len(self.scopes) > SHOWN else ""
        return ", ".join(self.scopes[:SHOWN]) + more

    def told(self) -> str:
        """For people, in one line."""
        parts = [f"tools {self.told_scopes()}"] if self.scopes else []
        parts += [f"from {', '.join(self.ranges)}"] if self.ranges else []
        parts += [f"{self.per_minute} a minute"] if self.per_minute is not None else []
        parts += [f"{self.concurrency} at once"] if self.concurrency is not None else []
        return "; ".join(parts)


NO_BOUNDS: Final = CallerBounds()


def check_bounds(bounds: CallerBounds) -> None:
    """Raises: ValueError: what is wrong with one."""
    scopes, ranges = bounds.scopes, bounds.ranges
    if len(scopes) > MAX_SCOPES or len(ranges) > MAX_RANGES:
        raise ValueError(f"a key has at most {MAX_SCOPES} scopes and {MAX_RANGES} address ranges")
    for scope in scopes:
        if not 0 < len(scope) <= MAX_SCOPE or not scope.isascii() or not scope.isprintable() or " " in scope:
            raise ValueError(f"a scope is a glob over names of tools of at most {MAX_SCOPE} characters, like git_*")
    _networks(ranges)
    for limit in (bounds.per_minute, bounds.concurrency):
        if limit is not None and not 1 <= limit <= MAX_LIMIT:
            raise ValueError(f"a limit is a whole number from 1 to {MAX_LIMIT}")


@lru_cache(maxsize=4096)
def _covers(scopes: tuple[str, ...], row: str) -> bool:
    return any(fnmatchcase(row, scope) for scope in scopes)


@lru_cache(maxsize=4096)
def _admits(ranges: tuple[str, ...], address: str) -> bool:
    found = _address(address)
    return found is not None and any(found in network for network in _networks(ranges))


@lru_cache(maxsize=4096)
def _networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """Raises: ValueError."""
    from ipaddress import ip_network  # noqa: PLC0415 (3 ms, for keys that have ranges)

    found = []
    for text in texts:
        try:
            found.append(ip_network(text))
        except ValueError:
            raise ValueError(
                f"{text[:64]!r} is neither an address nor a network, like 10.0.0.0/8 or 2001:db8::/32"
            ) from None
    return tuple(found)


def _address(text: str) -> Address | None:
    from ipaddress import IPv6Address, ip_address  # noqa: PLC0415 (as above)

    try:
        found = ip_address(text)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


class Caller(Struct, frozen=True):
    """An authenticated caller. There is no anonymous one: without a key there is no Caller at all."""

    key_id: str
    role: str
    label: str = ""
    base: str = ""
    """Of a custom role, for a handler: the role that it was made of."""
    bounds: CallerBounds | None = None
    """What its key may do less than its role. Most have none."""
    owner: str = ""
    """Who is behind the key, where its label says something else."""

    @property
    def acts_as(self) -> str:
        """The role that code which only knows the built-in ones goes by."""
        return self.base or self.role

    @property
    def administers(self) -> bool:
        """May it do what is not a call: act in the console, read the numbers, see other callers' jobs? A key that is held to
        some tools may not: it could make itself another."""
        return self.role == "admin" and not self.is_scoped

    @property
    def is_scoped(self) -> bool:
        return self.bounds is not None and len(self.bounds.scopes) > 0


class Wire(Struct, frozen=True):
    """Where a call came in. Recorded, never decided upon."""

    face: FaceName
    transport: Transport
    route: str


class Origin(Struct, frozen=True):
    """Where a request comes from and what its sender calls it. Recorded, never decided upon."""

    address: str | None = None
    """Of the client: the peer's, or what trusted proxies say. None on a pipe."""
    request_id: str | None = None
    """The sender's own (`X-Request-ID`)."""
    traceparent: str | None = None
    tracestate: str | None = None

    @property
    def trace(self) -> Mapping[str, str]:
        """As it is passed on."""
        if self.traceparent is None:
            return NO_TRACE
        state = {} if self.tracestate is None else {"tracestate": self.tracestate}
        return {"traceparent": self.traceparent, **state}


IDEMPOTENCY_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
"""What a caller may name a call by: opaque, printable, without spaces."""
IDEMPOTENCY_HEADER: Final = "idempotency-key"
NO_TRACE: Final[Mapping[str, str]] = {}
NO_ORIGIN: Final = Origin()


def no_progress(done: int, total: int | None, message: str) -> None:
    """For callers that did not ask."""


def no_log(level: Level, data: Any) -> None:
    """Likewise, of what a tool logs."""


class Call(Struct, frozen=True):
    """A tool and its arguments, as one face read them from the wire. `tool` is the short name on every face."""

    wire: Wire
    tool: str
    arguments: Any = field(default_factory=dict)
    wants_text: bool = False
    """The face shows the tool's plain-text form (stdout)."""
    is_brief: bool = False
    """Where a tool has no such form, its data as one line of JSON, not as indented JSON."""
    progress: Callable[[int, int | None, str], None] = no_progress
    log: Callable[[Level, Any], None] = no_log
    answers: Any = None
    """To what an earlier call like this one asked of its client (`toolgate.model.tool.Ask`)."""
    state: str | None = None
    """What that call gave the client to keep, sealed. Without it there are no answers."""
    capabilities: frozenset[str] = frozenset()
    """What may be asked of the client, as it says itself."""
    era: Era = "modern"
    """Of the client, as far as it can be asked: in the handshake era it is, within its call."""
    idempotency_key: str | None = None
    """The same caller's calls of a tool with an effect under one key are one call: `toolgate.gate.idempotency`."""
