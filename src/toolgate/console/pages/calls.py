"""Calls: the list, with filters in its address, and what leaves it as a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from toolgate.console.index.filters import read_filter, read_place
from toolgate.console.pages.shared import ConsolePage, row_of
from toolgate.errors import Ending
from toolgate.ledger import record
from toolgate.ledger.reading.export import FORMS

if TYPE_CHECKING:
    from toolgate.console.pages.shared import Desk

PER_PAGE: Final = 50
MAX_EXPORTED: Final = 20_000
"""Records of one file; `toolgate audit export` has no such bound."""
EXPORTS: Final = {
    "calls.jsonl": ("jsonl", "application/x-ndjson"),
    "calls.csv": ("csv", "text/csv; charset=utf-8"),
}
_VERDICTS: Final = ("refused", *(ending.value for ending in Ending))


def calls(desk: Desk) -> ConsolePage:
    wanted = read_filter(desk.visit.query)
    before = read_place(desk.visit.query.get("before", ""))
    people = desk.people()
    with desk.index() as index:
        found = index.entries(wanted, desk.now, PER_PAGE + 1, before)
        used = sorted(each.name for each in index.by("tool", 0) if each.name)
    shown = found[:PER_PAGE]
    values: dict[str, Any] = {
        "filter": wanted,
        "faults": wanted.faults(desk.now),
        "rows": [row_of(entry, people) for entry in shown],
        "older": str(shown[-1].place) if len(found) > PER_PAGE else "",
        "is_first": before is None,
        "query": wanted.query(),
        "tools": used,
        "callers": sorted((label, role, key) for key, (label, role) in people.items()) if desk.session.sees_all else [],
        "verdicts": _VERDICTS,
        "upstreams": [each.name for each in desk.ports.upstreams()],
        "now_ms": desk.now_ms,
        "most": MAX_EXPORTED,
    }
    return ConsolePage("calls", "Calls", values)


def exported(desk: Desk, form: str) -> tuple[bytes, bool]:
    """The file, and whether it holds all that matched."""
    wanted = read_filter(desk.visit.query)
    with desk.index() as index:
        entries = index.entries(wanted, desk.now, MAX_EXPORTED + 1)
        found = (record.read(index.line(entry) or b"") for entry in reversed(entries[:MAX_EXPORTED]))
        text = "".join(FORMS[form](_there(found)))
    return text.encode(), len(entries) <= MAX_EXPORTED


def _there(found: Iterator[dict[str, Any] | None]) -> Iterator[dict[str, Any]]:
    return (each for each in found if each is not None)
