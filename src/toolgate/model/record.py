"""What the road tells the ledger: one entry per event, facts only, no secrets.

The ledger adds sequence, run and tree; see `toolgate.ledger`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from toolgate.model.call import Caller, Environment, Tier, Wire
    from toolgate.model.clock import Ids
    from toolgate.model.envelope import Clamp
    from toolgate.model.tool import Decision


class Entry(Struct, frozen=True):
    """One event on the road."""

    event: Literal["intent", "outcome"]
    wire: Wire
    ids: Ids
    timestamp: str
    tool_id: str | None
    """Canonical id (`mcp.tool:lra.init`), or None when no tool was reached."""
    status: Literal["ok", "error"]
    caller: Caller | None = None
    tier: Tier | None = None
    environment: Environment | None = None
    decision: Decision | None = None
    clamps: tuple[Clamp, ...] = ()
    error: Mapping[str, Any] | None = None
    """`{"happening", "code", "reason"}`: which rule decided. Never the text of an exception."""
    arguments_digest: str | None = None
    """SHA-256 over the arguments' sorted JSON with secret fields replaced."""
    input_bytes: int = 0
    output_bytes: int = 0
    duration_ms: float = 0.0
    durable: bool = False
    """True for tools with an effect: the record is synced to disk before the road goes on."""


class Place(Struct, frozen=True):
    """Where an entry is recorded. `as_json` travels to the caller as `audit`."""

    run: str
    seq: int
    leaf: str

    def as_json(self) -> dict[str, Any]:
        return {"run": self.run, "seq": self.seq, "leaf": self.leaf}


class Ledger(Protocol):
    gathering: bool
    """While this is set, the record of a read waits for `flush`. Whoever sets it sends no answer before that."""

    def append(self, entry: Entry) -> Place:
        """One write(2), unless it is gathered. Raises: LedgerUnavailable: nothing may happen unrecorded."""
        ...

    def flush(self) -> None:
        """One write(2) for all that was gathered. Raises: LedgerUnavailable: then none of it is recorded."""
        ...

    async def durable(self, place: Place) -> None:
        """Wait until the record at `place` survives a power cut (grouped with its neighbours). Raises: LedgerUnavailable."""
        ...
