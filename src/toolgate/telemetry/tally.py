"""Counts calls as they are written down: plain integers, no labels and no locks until somebody asks. Only the event loop's
thread writes and reads here.

The log is told of every call once, however it ended. `CountingLedger` stands before it where a server shows numbers; where none
are shown, the road has the log itself and nothing is counted.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from toolgate.errors import LedgerUnavailable
from toolgate.telemetry.gathering import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolgate.app import App
    from toolgate.model.record import Ledger, LedgerEntry, RecordPlace
    from toolgate.telemetry.families import Numbers, Samples

BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of a duration's buckets, in seconds: from an inline tool to the longest deadline that tools usually have."""
_BOUNDS_MS: Final = tuple(bound * 1000 for bound in BOUNDS_S)
MAX_SERIES: Final = 2000
"""Pairs of tool and verdict that are counted by name; what comes later counts under `OTHER`."""
MOST_WAITING: Final = 256
"""Calls that wait to be counted."""
OTHER: Final = "other"
NO_TOOL: Final = "none"
"""Of a call that reached no tool: a name that a caller made up never becomes a label."""
OK: Final = "ok"


class Series:
    """The calls of one tool that ended in one way."""

    __slots__ = ("buckets", "count", "milliseconds", "ran")

    def __init__(self) -> None:
        self.count = 0
        self.ran = 0
        """Those of them that ran: refusals have no duration."""
        self.milliseconds = 0.0
        self.buckets = [0] * (len(BOUNDS_S) + 1)


class Tally:
    """What one process has counted."""

    def __init__(self, name_of: Callable[[str], str]) -> None:
        """`name_of`: a canonical id's short name."""
        self._name_of = name_of
        self._ok: dict[str | None, Series] = {}
        """By tool, of calls that ended well: found without making a key."""
        self._others: dict[tuple[str | None, str], Series] = {}
        self._clamps: dict[tuple[str | None, str], int] = {}
        self._decisions: dict[tuple[str, str, str], int] = {}
        self.refusals: dict[str, int] = {}
        """Calls of which nothing ran, by verdict."""
        self.withheld = 0
        """Calls that the log could not take, one by one; what it lost of a group it counts itself."""
        self.ran: list[LedgerEntry] = []
        """Told to the log and not counted yet."""
        self.refused: list[LedgerEntry] = []
        """Likewise, of which nothing ran."""

    def of(self, ledger: Ledger) -> CountingLedger:
        """The log as the road gets it."""
        return CountingLedger(ledger, self)

    def beside(self, app: App) -> Telemetry:
        """These numbers, and those of the server's parts."""
        return Telemetry(app, self)

    def count(self) -> None:
        """What waits to be counted. Many at once cost each of them less: the code stays in the processor's cache."""
        for entry in self.ran:
            if entry.event == "outcome":
                self._count_ran(entry)
        self.ran.clear()
        for entry in self.refused:
            self._count_refused(entry)
        self.refused.clear()

    def _count_ran(self, entry: LedgerEntry) -> None:
        series = self._ok.get(entry.tool_id) if entry.status == OK else None
        if series is None:
            series = self._series(entry)
        series.count += 1
        series.ran += 1
        duration = entry.duration_ms
        series.milliseconds += duration
        series.buckets[bisect_left(_BOUNDS_MS, duration)] += 1
        if entry.clamps:
            self._clamped(entry)
        if entry.decision is not None:
            place = (str(entry.tier), str(entry.environment), entry.decision)
            self._decisions[place] = self._decisions.get(place, 0) + 1

    def _count_refused(self, entry: LedgerEntry) -> None:
        self._series(entry).count += 1
        verdict = verdict_of(entry)
        self.refusals[verdict] = self.refusals.get(verdict, 0) + 1

    def _series(self, entry: LedgerEntry) -> Series:
        verdict, tool = verdict_of(entry), entry.tool_id
        found = self._ok.get(tool) if verdict == OK else self._others.get((tool, verdict))
        if found is None:
            if len(self._ok) + len(self._others) >= MAX_SERIES:
                tool = OTHER
            found = (
                self._ok.setdefault(tool, Series())
                if verdict == OK
                else self._others.setdefault((tool, verdict), Series())
            )
        return found

    def _clamped(self, entry: LedgerEntry) -> None:
        for clamp in entry.clamps:
            tool = entry.tool_id if len(self._clamps) < MAX_SERIES else OTHER
            place = (tool, clamp.rule)
            self._clamps[place] = self._clamps.get(place, 0) + 1

    def numbers(self) -> Numbers:
        self.count()
        every = [((self._label(tool), OK), series) for tool, series in self._ok.items()]
        every += [((self._label(tool), verdict), series) for (tool, verdict), series in self._others.items()]
        durations: Samples = [
            (labels, [series.milliseconds / 1000, *series.buckets]) for labels, series in every if series.ran
        ]
        return {
            "toolgate_calls": [(labels, series.count) for labels, series in every],
            "toolgate_call_duration_seconds": durations,
            "toolgate_refusals": [((verdict,), count) for verdict, count in self.refusals.items()],
            "toolgate_clamps": [((self._label(tool), rule), count) for (tool, rule), count in self._clamps.items()],
            "toolgate_decisions": list(self._decisions.items()),
        }

    def _label(self, tool: str | None) -> str:
        return NO_TOOL if tool is None else tool if tool == OTHER else self._name_of(tool)


def verdict_of(entry: LedgerEntry) -> str:
    return OK if entry.status == OK or entry.error is None else str(entry.error["happening"])


class CountingLedger:
    """The log, and a list of what it was told, to be counted later. Implements `toolgate.model.record.Ledger`."""

    __slots__ = ("_append", "_append_refusal", "_ran", "_refused", "_tally", "durable", "flush")

    def __init__(self, ledger: Ledger, tally: Tally) -> None:
        self._tally, self._ran, self._refused = tally, tally.ran, tally.refused
        self._append, self._append_refusal = ledger.append, ledger.append_refusal
        self.durable, self.flush = ledger.durable, ledger.flush

    def append(self, entry: LedgerEntry, *, is_held: bool = False) -> RecordPlace:
        """Raises: LedgerUnavailable."""
        try:
            place = self._append(entry, is_held=is_held)
        except LedgerUnavailable:
            self._tally.withheld += 1
            raise
        self._ran.append(entry)
        if len(self._ran) >= MOST_WAITING:
            self._tally.count()
        return place

    def append_refusal(self, entry: LedgerEntry, *, is_held: bool = False) -> RecordPlace | None:
        """Raises: LedgerUnavailable."""
        try:
            place = self._append_refusal(entry, is_held=is_held)
        except LedgerUnavailable:
            self._tally.withheld += 1
            raise
        self._refused.append(entry)
        if len(self._refused) >= MOST_WAITING:
            self._tally.count()
        return place
