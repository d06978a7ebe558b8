"""Every number that a server shows: its name, what it means, and how the numbers of several processes become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

Value = float | list[float]
"""Of a histogram: the sum, then the count in each bucket (not cumulated), the last one without a bound."""
Samples = list[tuple[tuple[str, ...], Value]]
"""Each with the values of the family's labels, in their order."""
Numbers = Mapping[str, Samples]
"""The numbers of one process, by family: plain data, which another process can be sent as JSON."""


class Family(Struct, frozen=True):
    name: str
    """Without the `_total` that a counter is shown with."""
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    labels: tuple[str, ...] = ()
    joins: Literal["sum", "max", "min"] = "sum"
    """What the numbers of several processes become."""


FAMILIES: Final = (
    Family("toolgate_calls", "counter", "Calls by tool and by how they ended; refusals are among them.", ("tool", "verdict")),
    Family("toolgate_call_duration_seconds", "histogram", "Admission to record, of calls that ran.", ("tool", "verdict")),
    Family("toolgate_refusals", "counter", "Calls of which nothing ran, by verdict.", ("verdict",)),
    Family("toolgate_clamps", "counter", "What the floor took back from an answer, by rule.", ("tool", "rule")),
    Family("toolgate_decisions", "counter", "Decisions that left the floor.", ("tier", "environment", "decision")),
    Family("toolgate_answers_withheld", "counter", "Calls refused, or left without answer, because of the log."),
    Family("toolgate_slots_held", "gauge", "Calls that hold a slot now."),
    Family("toolgate_slots_limit", "gauge", "Slots of all callers (limits.concurrency_total).", joins="max"),
    Family("toolgate_slots_busiest_caller", "gauge", "Slots that the busiest caller holds now.", joins="max"),
    Family("toolgate_slots_per_caller_limit", "gauge", "Slots of one caller (limits.concurrency_per_caller).", joins="max"),
    Family("toolgate_limits_engine_up", "gauge", "1 while the engine of shared limits answers.", joins="min"),
    Family("toolgate_connections", "gauge", "Open connections."),
    Family("toolgate_streams", "gauge", "Open streams of changes."),
    Family("toolgate_ledger_records", "counter", "Records written to the audit log by this run."),
    Family("toolgate_ledger_unsynced_records", "gauge", "Records written and not yet synced to disk."),
    Family("toolgate_ledger_unsigned_records", "gauge", "Records that no checkpoint covers yet.", joins="max"),
    Family("toolgate_ledger_checkpoint_age_seconds", "gauge", "Since the last checkpoint, while records wait.", joins="max"),
    Family("toolgate_ledger_syncs", "counter", "Syncs of the audit log."),
    Family("toolgate_ledger_sync_seconds", "counter", "Time that these syncs took."),
    Family("toolgate_ledger_writable", "gauge", "1 while the audit log can be written.", joins="min"),
    Family("toolgate_ledger_free_bytes", "gauge", "Free space for the audit log, as last looked at.", joins="min"),
    Family("toolgate_store_up", "gauge", "1 while a shared store answers.", ("store",), joins="min"),
    Family("toolgate_upstream_state", "gauge", "Processes that see the upstream in this state.", ("upstream", "state")),
    Family("toolgate_spans_sent", "counter", "Spans that the collector took."),
    Family("toolgate_spans_dropped", "counter", "Spans that it did not get, by reason.", ("reason",)),
    Family("toolgate_loop_lag_seconds", "gauge", "The longest delay of the event loop within the last minute.", joins="max"),
    Family("toolgate_environment", "gauge", "Processes in this environment.", ("environment",)),
    Family("toolgate_build", "gauge", "Processes of this version.", ("version",)),
    Family("toolgate_processes", "gauge", "Processes in these numbers."),
    Family("process_cpu_seconds", "counter", "CPU time used."),
    Family("process_resident_memory_bytes", "gauge", "Memory in use."),
    Family("process_open_fds", "gauge", "Open files and sockets."),
    Family("process_start_time_seconds", "gauge", "When the oldest process started, as Unix time.", joins="min"),
)  # fmt: skip
_JOIN: Final = {"max": max, "min": min}


def total(processes: Sequence[Numbers]) -> dict[str, Samples]:
    """The numbers of several processes as those of one. A family that no process has is left out."""
    return {
        family.name: _joined(family, [numbers.get(family.name, []) for numbers in processes])
        for family in FAMILIES
        if any(family.name in numbers for numbers in processes)
    }


def _joined(family: Family, several: Iterable[Samples]) -> Samples:
    found: dict[tuple[str, ...], Value] = {}
    for samples in several:
        for labels, value in samples:
            place = tuple(labels)  # JSON has made a list of it
            found[place] = value if place not in found else _together(family, found[place], value)
    return sorted(found.items())


def _together(family: Family, one: Value, other: Value) -> Value:
    if isinstance(one, list) and isinstance(other, list):
        return [left + right for left, right in zip(one, other, strict=True)]
    assert not isinstance(one, list)
    assert not isinstance(other, list)
    return one + other if family.joins == "sum" else _JOIN[family.joins](one, other)
