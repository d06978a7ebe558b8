"""What the road tells the ledger: one entry per event, facts only, no secrets.

The ledger adds sequence, run and tree; see `toolgate.ledger`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from toolgate.model.call import NO_ORIGIN, Origin

if TYPE_CHECKING:
    from toolgate.model.call import Caller, Environment, Tier, Wire
    from toolgate.model.clock import Ids
    from toolgate.model.envelope import Clamp
    from toolgate.model.tool import Decision


class LedgerEntry(Struct, frozen=True):
    """One event on the road."""

    event: Literal["intent", "outcome"]
    wire: Wire
    ids: Ids
    timestamp: str
    tool_id: str | None
    """Canonical id (`mcp.tool:notes.add`), or None when no tool was reached."""
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
    origin: Origin = NO_ORIGIN
    more: Mapping[str, Any] | None = None
    """Fields that few records have: `askedTool`, `refusedKey`, `keyScopes`, `arguments` (those that the settings keep),
    `counts` (numbers that the tool gave), `repeats` (the request that had the same idempotency key first)."""


class RecordPlace(Struct, frozen=True):
    """Where an entry is recorded. Its fields travel to the caller as `audit`."""

    run: str
    seq: int
    leaf: str


class LedgerStanding(Struct, frozen=True):
    """How a log is doing, for those who watch it."""

    records: int
    """Written by this run."""
    unsynced: int
    unsigned: int
    """That no checkpoint covers yet."""
    checkpoint_age_s: float
    """Since the last checkpoint, while something waits for the next."""
    syncs: int
    sync_s: float
    """How long they took, together."""
    is_writable: bool
    free_bytes: int | None
    """On its disk, as last looked at; None: nobody looks."""
    lost: int
    """Gathered records that could not be written: their answers were withheld."""


class Ledger(Protocol):
    """`is_held`: the answer that belongs to this record waits until `flush` has written it, so that one write(2) may do for
    several. Records of effects and of strangers are written at once all the same."""

    def append(self, entry: LedgerEntry, *, is_held: bool = False) -> RecordPlace:
        """Raises: LedgerUnavailable: nothing may happen unrecorded."""
        ...

    def append_refusal(self, entry: LedgerEntry, *, is_held: bool = False) -> RecordPlace | None:
        """The same for a call of which nothing ran; None: its caller has too many of these, so it was counted instead.

        Raises: LedgerUnavailable.
        """
        ...

    def flush(self) -> None:
        """One write(2) for all records that wait for it. Raises: LedgerUnavailable: then none of them is recorded."""
        ...

    async def durable(self, place: RecordPlace) -> None:
        """Wait until the record at `place` survives a power cut (grouped with its neighbours). Raises: LedgerUnavailable."""
        ...
