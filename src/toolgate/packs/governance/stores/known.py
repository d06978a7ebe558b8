"""What the tools share between calls: what they have read of the pack's stores, answered again while nobody has changed them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.kit.sql import SharedReads, Views

if TYPE_CHECKING:
    from toolgate.packs.governance.invariants.block import Measurements
    from toolgate.packs.governance.stores.consents import Record
    from toolgate.packs.governance.stores.statistics import Counts

MAX_ORGANISATIONS: Final = 1024
"""Whose consents are remembered: a few hundred bytes for each resource that the policy knows."""
MAX_RATES: Final = 4096
"""Counts that are remembered: 200 bytes each."""


class OrgConsents(Struct, frozen=True):
    """What one organisation has granted, by resource."""

    org_id: str
    records: Mapping[str, Record] | None
    """None: the store does not answer, and nothing counts as granted."""


class CountedRate(Struct, frozen=True):
    """Reviewed findings of a window that ends now: as time goes by, events leave it and others come into it."""

    counts: Counts
    first: int
    last: int
    """Milliseconds: while the window ends between these two, the same events are in it."""


class GovernanceMemory:
    """By the organisation that a caller names; None: the settings' own, which stays the same while a server runs."""

    def __init__(self) -> None:
        self.consents: Views[str | None, OrgConsents] = Views(MAX_ORGANISATIONS)
        self.reading_consents: SharedReads[str, list[Record]] = SharedReads()
        self.reading_rates: SharedReads[tuple[str, str, int], CountedRate] = SharedReads()
        self.rates: Views[tuple[str | None, str, int], CountedRate] = Views(MAX_RATES)
        self.steady: Measurements = {}
