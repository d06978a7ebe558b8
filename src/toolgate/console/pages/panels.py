"""Pages that packs bring through their door."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from toolgate.console.index.filters import CallFilter
from toolgate.console.pages.shared import ConsolePage
from toolgate.console.rendering import clock_time, day, tone
from toolgate.console.web import NotFound
from toolgate.errors import StoreUnavailable, ToolError, WorkFailed
from toolgate.ledger import record
from toolgate.model.threads import in_thread
from toolgate.model.tool import PanelCalls, PanelCell, PanelStrip, PanelTable

if TYPE_CHECKING:
    from toolgate.console.index.reading import Entry, IndexReader
    from toolgate.console.pages.shared import Desk
    from toolgate.console.ports import PackPanel

MAX_ROWS: Final = 100
"""Of one table on one page."""
MAX_TABLES: Final = 12
MAX_MARKS: Final = 400
MAX_CALLS: Final = 25
"""Of a table that is made of calls."""
_CALL: Final = ("Time", "Caller", "Verdict", "Decision")
_PLAIN: Final[Mapping[str, Any]] = {"text": None, "tone": "", "is_number": False, "request": "", "of": ""}

Tables = Sequence["PanelTable | PanelCalls | PanelStrip"]


async def panel(desk: Desk, pack: str, name: str) -> ConsolePage:
    """All of it, or the one table that the address asks for. Raises: NotFound."""
    found = next((each for each in desk.ports.panels if (each.pack, each.name) == (pack, name)), None)
    if found is None or not desk.session.sees_all:
        raise NotFound
    tables: Tables = ()
    fault = ""
    try:
        tables = list(await found.make())[:MAX_TABLES]
    except StoreUnavailable as unavailable:
        fault = str(unavailable)
    except (ToolError, WorkFailed) as failed:
        fault = failed.text if isinstance(failed, ToolError) else str(failed)
    asked = desk.visit.query.get("of", "")
    make = _one_list if asked and not fault else _all_tables
    return await in_thread(make, desk, found, tables, fault or asked)


def _all_tables(desk: Desk, found: PackPanel, tables: Tables, fault: str) -> ConsolePage:
    shown = _shaped(desk, tables, 0)
    return ConsolePage("panel", found.title, _values(desk, found) | {"tables": shown, "fault": fault})


def _one_list(desk: Desk, found: PackPanel, tables: Tables, asked: str) -> ConsolePage:
    """One table whole, page by page. Raises: NotFound: it has none of that name, or no longer."""
    whole = next((each for each in _lists(tables) if name_of(each) == asked), None)
    if whole is None:
        raise NotFound
    begins = desk.visit.query.get("from", "")
    first = int(begins) // MAX_ROWS * MAX_ROWS if begins.isdecimal() and len(begins) < 8 else 0
    values = {"tables": _shaped(desk, [whole], first), "fault": "", "of": asked, "first": first, "step": MAX_ROWS}
    return ConsolePage("panel", whole.title, _values(desk, found) | values)


def _values(desk: Desk, found: PackPanel) -> dict[str, Any]:
    return {"panel": found, "pack": found.pack, "ever": desk.window(), "of": ""}


def _lists(tables: Iterable[Any]) -> Iterator[PanelTable]:
    """The tables of a panel, and those behind their cells."""
    for table in tables:
        if isinstance(table, PanelTable):
            yield table
            yield from _lists(_behind(cell) for row in table.rows for cell in row)


def _behind(cell: object) -> object:
    return cell.records if isinstance(cell, PanelCell) else cell


def name_of(table: PanelTable) -> str:
    """In an address, which its title would make too long."""
    return sha256(table.title.encode(errors="replace")).hexdigest()[:16]


def _shaped(desk: Desk, tables: Tables, first: int) -> list[dict[str, Any]]:
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
                **(_of_calls(desk, index, table) if isinstance(table, PanelCalls) else _of_rows(table, first)),
            }
            if not isinstance(table, PanelStrip)
            else {"title": table.title, "note": table.note, "tool": "", "marks": table.marks[:MAX_MARKS]}
            for table in tables
        ]


def _of_rows(table: PanelTable, first: int = 0) -> dict[str, Any]:
    rows = [[_cell(cell) for cell in row] for row in table.rows[first : first + MAX_ROWS]]
    return {"columns": table.columns, "rows": rows, "count": len(table.rows), "of": name_of(table)}


def _of_calls(desk: Desk, index: IndexReader, table: PanelCalls) -> dict[str, Any]:
    """The newest calls of a tool: what the index knows of each, and the numbers that its record has."""
    people = desk.people()
    rows = [
        [*_about(entry, people), *_counts(record.read(index.line(entry) or b""), table.counts, entry.request)]
        for entry in index.entries(CallFilter(tool=table.tool), desk.now, MAX_CALLS)
    ]
    columns = [*_CALL, *(name.capitalize() for name in table.counts)]
    return {"columns": columns, "rows": rows, "count": len(rows)}


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
    if isinstance(cell, PanelTable):
        return {**_PLAIN, "text": len(cell.rows), "is_number": True, "of": name_of(cell) if cell.rows else ""}
    if isinstance(cell, PanelCell):
        of = name_of(cell.records) if cell.records is not None and cell.records.rows else ""
        return {**_PLAIN, "text": cell.text, "tone": cell.tone.removesuffix("plain"), "of": of}
    return {**_PLAIN, "text": cell, "is_number": isinstance(cell, int | float)}
