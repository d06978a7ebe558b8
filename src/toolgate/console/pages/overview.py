"""The first page: what this server is, what it did in a day, and what needs a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from toolgate.console.charts import bar_chart
from toolgate.console.pages.approvals import SILENT
from toolgate.console.pages.shared import DAY_MS, ConsolePage, first_of_bucket
from toolgate.gate.authority.stops import StopsFault
from toolgate.ledger import record
from toolgate.model.clock import rfc3339

if TYPE_CHECKING:
    from toolgate.console.index.reading import IndexReader
    from toolgate.console.pages.shared import Desk

HOUR_MS: Final = 3_600_000
SPANS: Final = {"1h": HOUR_MS, "24h": DAY_MS, "7d": 7 * DAY_MS}
_STEPS: Final = {"1h": 600_000, "24h": HOUR_MS, "7d": 6 * HOUR_MS}
EXPIRES_SOON_S: Final = 14 * 86_400
TOP: Final = 8
"""Rows of a short table."""


def overview(desk: Desk, checks: Mapping[str, bool], waiting: Sequence[Mapping[str, Any]] | None = ()) -> ConsolePage:
    """`waiting`: requests for approval; None: nobody knows."""
    span = desk.visit.query.get("span", "24h")
    span = span if span in SPANS else "24h"
    since = first_of_bucket(desk.now_ms - SPANS[span])
    with desk.index() as index:
        verdicts, tools = index.by("verdict", since), index.by("tool", since)
        durations, timed_since = index.durations(since)
        calls, acts, first = index.extent()
        chart = bar_chart(index.series(since, _STEPS[span]), since, desk.now_ms, _STEPS[span])
        values = {
            "span": span,
            "spans": list(SPANS),
            "calls": sum(each.calls for each in verdicts),
            "refused": sum(each.calls for each in verdicts if each.name != "ok"),
            "clamped": sum(each.clamped for each in verdicts),
            "verdicts": verdicts,
            "tools": tools[:TOP],
            "more_tools": len(tools) > TOP,
            "sample": len(durations),
            "p50": _quantile(durations, 0.5),
            "p95": _quantile(durations, 0.95),
            "chart": chart,
            "since": since,
            "window": desk.window(since),
            "timed": f"{desk.window(timed_since)}&timed=1",
            "ever": desk.window(),
            "indexed": calls,
            "acts": acts,
            "first": first,
            "checkpoint": _checkpoint(index),
            "needs": [*_approvals(waiting), *_needs(desk, index)],
        }
    environment, notes = desk.ports.environment()
    running = desk.ports.running()
    values |= {
        "environment": environment,
        "notes": notes,
        "digests": desk.ports.digests(),
        "checks": checks,
        "stores": desk.ports.stores(),
        "upstreams": desk.ports.upstreams(),
        "running": sum(running.values()) if desk.session.sees_all else running.get(desk.session.caller.key_id, 0),
        "now_ms": desk.now_ms,
    }
    return ConsolePage("overview", "Overview", values)


def _quantile(values: Sequence[int], share: float) -> int | None:
    return values[min(len(values) - 1, int(len(values) * share))] if values else None


def _checkpoint(index: IndexReader) -> dict[str, Any] | None:
    """The newest signed one, as the log has it."""
    for entry in index.latest("checkpoint", 1):
        found = record.read(index.line(entry) or b"") or {}
        return {"entry": entry, "size": found.get("size"), "root": found.get("root"), "run": found.get("run")}
    return None


def _approvals(waiting: Sequence[Mapping[str, Any]] | None) -> Iterator[dict[str, str]]:
    if waiting is None:
        yield {"what": SILENT, "to": ""}
        return
    for row in waiting[:TOP]:
        what = f"{row['tool']} of {row['label'] or row['caller']} waits for an approval"
        yield {"what": what, "to": f"approvals/{row['id']}"}
    if len(waiting) > TOP:
        yield {"what": f"{len(waiting)} calls in all wait for an approval", "to": "approvals"}


def _needs(desk: Desk, index: IndexReader) -> Iterator[dict[str, str]]:
    """What no program decides."""
    for upstream in desk.ports.upstreams() if desk.session.sees_all else ():
        if upstream.state == "not_adopted":
            yield {"what": f"Upstream {upstream.name} is in the settings and not adopted", "to": ""}
        for tool, reason in sorted(upstream.refused.items()):
            text = f"{tool} of {upstream.name} is refused: {reason}"
            yield {"what": text, "to": f"upstreams/{upstream.name}"}
    if desk.session.sees_all:
        yield from _stopped(desk)
        yield from _in_doubt(desk, index)
    yield from _expiring(desk)
    for _, _, silent in desk.ports.stores():
        if silent:
            yield {"what": silent, "to": ""}
    fault = desk.ports.limits_fault()
    if fault is not None:
        yield {"what": fault, "to": ""}


def _stopped(desk: Desk) -> Iterator[dict[str, str]]:
    try:
        stops = desk.ports.stops()
    except StopsFault as fault:
        yield {"what": f"Every call is stopped: {fault}", "to": "calls?verdict=stopped"}
        return
    for stop in stops:
        yield {"what": f"Stopped {stop.ending()}: {stop.scope()}", "to": "calls?verdict=stopped"}


def _in_doubt(desk: Desk, index: IndexReader) -> Iterator[dict[str, str]]:
    """Effects of which a killed server left the intent and no outcome."""
    for entry in index.latest("recovered", 5, desk.now_ms - 7 * DAY_MS):
        found = (record.read(index.line(entry) or b"") or {}).get("recovered")
        left = found.get("unfinished") if isinstance(found, dict) else None
        for intent in left[:5] if isinstance(left, list) else ():
            request = str(intent.get("requestId", ""))
            what = f"Nobody knows whether call {request} happened: a server ended in the middle"
            yield {"what": what, "to": f"calls/{request}"}


def _expiring(desk: Desk) -> Iterator[dict[str, str]]:
    """Keys that end soon: one's own, or those of all."""
    sees_all, own = desk.session.sees_all, desk.session.caller.key_id
    for key in desk.ports.keys.all():
        ends = key.expires if (sees_all or key.id == own) and key.state(desk.now) == "live" else None
        if ends is not None and ends - desk.now < EXPIRES_SOON_S:
            name = f"{key.label} ({key.id})" if key.label else key.id
            yield {"what": f"Key {name} expires at {rfc3339(ends)}", "to": "keys" if sees_all else ""}
