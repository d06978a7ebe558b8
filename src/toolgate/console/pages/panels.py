"""Pages that packs bring through their door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from toolgate.console.index.filters import CallFilter
from toolgate.console.pages.shared import ConsolePage
from toolgate.console.rendering import clock_time, day, tone
from toolgate.console.web import NotFound
from toolgate.errors import StoreUnavailable, ToolError, WorkFailed
from toolgate.ledger import record
from toolgate.model.threads import in_thread
from toolgate.model.tool import PanelCalls, PanelCell, PanelStrip

if TYPE_CHECKING:
    from toolgate.console.index.reading import Entry, IndexReader
    from toolgate.console.pages.shared import Desk
    from toolgate.model.tool import PanelTable

MAX_ROWS: Final = 100
"""Of one table."""
MAX_TABLES: Final = 12
MAX_MARKS: Final = 400
MAX_CALLS: Final = 25
"""Of a table that is made of calls."""
_CALL: Final = ("Time", "Caller", "Verdict", "Decision")


async def panel(desk: Desk, pack: str, name: str) -> ConsolePage:
    """Raises: NotFound."""
    found = next((each for each in desk.ports.panels if (each.pack, each.name) == (pack, name)), None)
    if found is None or not desk.session.sees_all:
        raise NotFound
    tables: Sequence[PanelTable | PanelCalls | PanelStrip] = ()
    fault = ""
    try:
        tables = list(await found.make())[:MAX_TABLES]
    except StoreUnavailable as unavailable:
        fault = str(unavailable)
    except (ToolError, WorkFailed) as failed:
        fault = failed.text if isinstance(failed, ToolError) else str(failed)
    shown = await in_thread(_shaped, desk, tables)
    values = {"panel": found, "pack": pack, "tables": shown, "fault": fault, "ever": desk.window()}
    return ConsolePage("panel", found.title, values)


def _shaped(desk: Desk, tables: Sequence[PanelTable | PanelCalls | PanelStrip]) -> list[dict[str, Any]]:
    """Each with the number of calls that it came about by, of all that the index holds."""
    ids = {grant.tool.name: grant.tool_id for grant in desk.ports.grants()}
    with desk.index() as index:
        counted = {each.name: each.calls for each in index.by("tool", 0)}
        return [
            {
                "title": table.title,
                "note": table.note,
                "tool": table.tool,
                "calls": counted.get(ids.get(table.tool, ""), 0),
                **(_of_calls(desk, index, table) if isinstance(table, PanelCalls) else _of_rows(table)),
            }
            if not isinstance(table, PanelStrip)
            else {"title": table.title, "note": table.note, "tool": "", "marks": table.marks[:MAX_MARKS]}
            for table in tables
        ]


def _of_rows(table: PanelTable) -> dict[str, Any]:
    rows = [[_cell(cell) for cell in row] for row in table.rows[:MAX_ROWS]]
    return {"columns": table.columns, "rows": rows, "more": max(0, len(table.rows) - MAX_ROWS)}


def _of_calls(desk: Desk, index: IndexReader, table: PanelCalls) -> dict[str, Any]:
    """The newest calls of a tool: what the index knows of each, and the numbers that its record has."""
    people = desk.people()
    rows = [
        [*_about(entry, people), *_counts(record.read(index.line(entry) or b""), table.counts, entry.request)]
        for entry in index.entries(CallFilter(tool=table.tool), desk.now, MAX_CALLS)
    ]
    return {"columns": [*_CALL, *(name.capitalize() for name in table.counts)], "rows": rows, "more": 0}


def _about(entry: Entry, people: Mapping[str, tuple[str, str]]) -> list[dict[str, Any]]:
    label, _ = people.get(entry.caller, ("", ""))
    return [
        {**_cell(f"{day(entry.ts)} {clock_time(entry.ts)}"), "request": entry.request},
        _cell(label or entry.caller or None),
        _cell(PanelCell(entry.verdict, tone(entry.verdict))),
        _cell(entry.decision or None),
    ]


def _counts(found: Mapping[str, Any] | None, names: Sequence[str], request: str) -> list[dict[str, Any]]:
    """A call that was refused, or is older than these numbers, has none."""
    counts = (found or {}).get("counts")
    known = counts if isinstance(counts, dict) else {}
    return [{**_cell(known.get(name)), "request": request if known.get(name) else ""} for name in names]


def _cell(cell: object) -> dict[str, Any]:
    if isinstance(cell, PanelCell):
        return {"text": cell.text, "tone": cell.tone, "is_number": False, "request": ""}
    return {"text": cell, "tone": "", "is_number": isinstance(cell, int | float), "request": ""}
