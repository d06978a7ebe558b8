"""Which calls become spans. The event loop's thread only chooses; spans are made of the chosen entries where they are sent
(`toolgate.telemetry.exporting`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from toolgate.model.call import Origin
    from toolgate.model.clock import Ids
    from toolgate.model.record import Ledger, LedgerEntry, RecordPlace
    from toolgate.telemetry.exporting import SpanExporter

_DIGITS: Final = 14
"""Hexadecimal digits at the end of a trace's id that decide: 56 bits, as other samplers take them, so that all choose alike."""
_TRACE_DIGITS: Final = 32
_SPAN_DIGITS: Final = 16
_SAMPLED: Final = 1
"""The flag of a `traceparent`."""


class Sampler:
    """Chooses a share of the calls; a known caller that says whether its trace is sampled decides for itself."""

    __slots__ = ("_from",)

    def __init__(self, share: float) -> None:
        """`share`: from 0 to 1, of calls without a trace."""
        self._from = (
            f"{round((1 - share) * 16**_DIGITS):0{_DIGITS}x}" if share > 0 else "none"
        )  # greater than any digit

    def wants(self, ids: Ids, origin: Origin, *, is_known: bool) -> bool:
        """`is_known`: the caller has a key. A stranger decides nothing."""
        parent = origin.traceparent
        if parent is not None and is_known:
            return bool(int(parent[-2:], 16) & _SAMPLED)
        return own_trace(ids)[-_DIGITS:] >= self._from

    def onward(self, ids: Ids, origin: Origin) -> Mapping[str, str]:
        """The trace context for an upstream: the call's own span is the parent of what happens there."""
        if not ids.span:
            return origin.trace  # another process made it
        flags = _SAMPLED if self.wants(ids, origin, is_known=True) else 0
        trace = own_trace(ids) if origin.traceparent is None else origin.traceparent[3:35]
        context = {"traceparent": f"00-{trace}-{own_span(ids)}-{flags:02x}"}
        return context if origin.tracestate is None else {**context, "tracestate": origin.tracestate}


def own_trace(ids: Ids) -> str:
    """In the size that the standard wants; ids of tests are longer."""
    return ids.trace if len(ids.trace) == _TRACE_DIGITS else ids.trace.replace("-", "")[:_TRACE_DIGITS]


def own_span(ids: Ids) -> str:
    return ids.span if len(ids.span) == _SPAN_DIGITS else ids.span.replace("-", "")[:_SPAN_DIGITS]


class Traces(Struct, frozen=True):
    """The spans of one process: which calls become some, and where they go."""

    sampler: Sampler
    exporter: SpanExporter

    def of(self, ledger: Ledger) -> TracedLedger:
        """The log as the road gets it."""
        return TracedLedger(ledger, self.sampler, self.exporter.take)


class TracedLedger:
    """The log, and a choice of what it was told. Implements `toolgate.model.record.Ledger`."""

    __slots__ = ("_append", "_append_refusal", "_take", "_wants", "durable", "flush")

    def __init__(self, ledger: Ledger, sampler: Sampler, take: Callable[[LedgerEntry], None]) -> None:
        """`take`: gets each chosen entry; never waits."""
        self._append, self._append_refusal = ledger.append, ledger.append_refusal
        self.durable, self.flush = ledger.durable, ledger.flush
        self._wants, self._take = sampler.wants, take

    def append(self, entry: LedgerEntry, *, is_held: bool = False) -> RecordPlace:
        """Raises: LedgerUnavailable."""
        place = self._append(entry, is_held=is_held)
        if entry.event == "outcome" and self._wants(entry.ids, entry.origin, is_known=True):
            self._take(entry)
        return place

    def append_refusal(self, entry: LedgerEntry, *, is_held: bool = False) -> RecordPlace | None:
        """Without a record there is no span. Raises: LedgerUnavailable."""
        place = self._append_refusal(entry, is_held=is_held)
        if place is not None and self._wants(entry.ids, entry.origin, is_known=entry.caller is not None):
            self._take(entry)
        return place
