"""What the console is given: the log's files, and small windows into the running server. It holds nothing else of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from toolgate.gate.admit import Grant
    from toolgate.gate.authority.stops import Stop
    from toolgate.gate.counted import CountTable
    from toolgate.gate.keys import KeyRing
    from toolgate.kit.conditions.approval import ApprovalStore
    from toolgate.ledger.acts import ActLog
    from toolgate.model.clock import Clock
    from toolgate.model.powers import Compute
    from toolgate.model.tool import PanelCalls, PanelStrip, PanelTable


class UpstreamState(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def pin(self) -> str: ...
    @property
    def refused(self) -> Mapping[str, str]:
        """Tools that are not served, each with the reason."""
        ...


class PackPanel(Struct, frozen=True):
    """A page, at `panels/PACK/NAME`."""

    pack: str
    name: str
    title: str
    summary: str
    make: Callable[[], Awaitable[Sequence[PanelTable | PanelCalls | PanelStrip]]]


class Ports(Struct, frozen=True):
    """Everything is asked when a page needs it; nothing is kept."""

    home: Path
    log: Path
    index: Path
    seal_key: Callable[[], bytes]
    """Of this home, the same in every process."""
    log_key: str
    """The log's public key, `name+id+key`."""
    clock: Clock
    keys: KeyRing
    ledger: ActLog
    compute: Compute
    grants: Callable[[], Sequence[Grant]]
    roles: Callable[[], Sequence[str]]
    """Those that a key may have."""
    answerers: Callable[[], frozenset[str]]
    """Those that answer requests for approval."""
    environment: Callable[[], tuple[str, tuple[str, ...]]]
    ready: Callable[[], Awaitable[Mapping[str, bool]]]
    stores: Callable[[], Sequence[tuple[str, str, str]]]
    """(name, where it is, why it does not answer) of each."""
    upstreams: Callable[[], Sequence[UpstreamState]]
    running: Callable[[], Mapping[str, int]]
    """Calls under way in this process, by key."""
    limits_fault: Callable[[], str | None]
    stops: Callable[[], Sequence[Stop]]
    """What an operator has stopped. Raises (when called): StopsFault."""
    approvals: ApprovalStore
    digests: Callable[[], Mapping[str, str]] = dict
    """Of policy and contract, as they are in force."""
    counts: CountTable | None = None
    """What the processes of this server count together; None: it is one."""
    panels: Sequence[PackPanel] = ()
    changes: UpstreamChanges | None = None


class UpstreamChanges(Protocol):
    """What an upstream offers now beside what was approved, and what a person decides about it."""

    async def look(self, name: str) -> UpstreamChange:
        """Raises: ToolgateError: it does not answer, or is not adopted; the text says so."""
        ...

    async def approve(self, name: str, digest: str, recorded: Callable[[Mapping[str, Any]], Any]) -> str:
        """What `look` showed under this digest, and nothing else. Raises: ToolgateError."""
        ...


class UpstreamChange(Struct, frozen=True):
    digest: str
    """Of the difference: what a person saw is what is approved."""
    rows: Sequence[FieldChange]
    notes: Sequence[str] = ()
    """What differs beside the tools; findings about what changed."""
    blocked: str = ""
    """Why it cannot be approved here."""


class FieldChange(Struct, frozen=True):
    tool: str
    field: str
    before: str
    after: str
