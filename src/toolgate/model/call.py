"""One call on its way: who asks, for what, over which wire."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, field

if TYPE_CHECKING:
    from toolgate.model.mcpwire import Era
    from toolgate.model.tool import Level

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


class Caller(Struct, frozen=True):
    """An authenticated caller. There is no anonymous one: without a key there is no Caller at all."""

    key_id: str
    role: str
    label: str = ""
    base: str = ""
    """Of a custom role, for a handler: the role that it was made of."""

    @property
    def acts_as(self) -> str:
        """The role that code which only knows the built-in ones goes by."""
        return self.base or self.role


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
