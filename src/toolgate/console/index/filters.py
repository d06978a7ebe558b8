"""Which calls a page shows: filters that stand in its address, and stay there from page to page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import asdict, replace

from toolgate.ledger.reading.query import parse_since

MAX_VALUE: Final = 160
"""Characters of one filter."""
NAMES: Final = (
    "kind",
    "caller",
    "tool",
    "upstream",
    "verdict",
    "tier",
    "decision",
    "since",
    "until",
    "clamped",
    "timed",
)
NONE: Final = "-"
"""As a caller or a tool: calls that had none. No tool and no key is called so."""
_PLACE: Final = re.compile(r"([0-9]{1,16})\.([0-9]{1,12})\.([0-9]{1,16})")


class CallFilter(Struct, frozen=True):
    """Every field that is set must match. Texts are those of the address; `until` and `since` are moments or spans (`90m`)."""

    kind: str = ""
    """`call` (the default), `act` or `all`."""
    caller: str = ""
    tool: str = ""
    upstream: str = ""
    verdict: str = ""
    """How it ended, or `refused`: everything but ok."""
    tier: str = ""
    decision: str = ""
    since: str = ""
    until: str = ""
    clamped: str = ""
    """`1`: those of whose answer the floor took something."""
    timed: str = ""
    """`1`: those that came to their arguments, which take a time."""

    def query(self, **changes: str) -> str:
        """As the address has it, without what is not set."""
        told = {name: value for name, value in asdict(replace(self, **changes)).items() if value}
        return urlencode(told)

    @property
    def is_set(self) -> bool:
        return any(asdict(self).values())

    def moments(self, now: float) -> tuple[str | None, str | None]:
        """`since` and `until` as RFC 3339; None: not set, or not a moment."""
        since = parse_since(self.since, now) if self.since else None
        return since, parse_since(self.until, now) if self.until else None

    def faults(self, now: float) -> list[str]:
        """What cannot be understood, for the person who typed it."""
        since, until = self.moments(now)
        faults = []
        if self.since and since is None:
            faults.append("“From” is not a moment (2026-11-18T09:30Z) or a span (90m, 24h, 7d); it is ignored.")
        if self.until and until is None:
            faults.append("“To” is not a moment (2026-11-18T09:30Z) or a span (90m, 24h, 7d); it is ignored.")
        return faults


def read_filter(query: Mapping[str, str]) -> CallFilter:
    return CallFilter(**{name: query.get(name, "").strip()[:MAX_VALUE] for name in NAMES})


class EntryPlace(Struct, frozen=True):
    """Of an entry: where a page begins."""

    ts: int
    run: int
    seq: int

    def __str__(self) -> str:
        return f"{self.ts}.{self.run}.{self.seq}"


def read_place(text: str) -> EntryPlace | None:
    found = _PLACE.fullmatch(text)
    return EntryPlace(*map(int, found.groups())) if found else None


def placed(row: Mapping[str, Any]) -> EntryPlace:
    return EntryPlace(row["ts"], row["run"], row["seq"])
