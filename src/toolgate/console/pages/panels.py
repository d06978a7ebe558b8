"""Pages that packs bring through their door."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from toolgate.console.pages.shared import ConsolePage
from toolgate.console.web import NotFound
from toolgate.errors import StoreUnavailable, ToolError, WorkFailed
from toolgate.model.threads import in_thread
from toolgate.model.tool import PanelCell

if TYPE_CHECKING:
    from toolgate.console.pages.shared import Desk

MAX_ROWS: Final = 100
"""Of one table."""
MAX_TABLES: Final = 12


async def panel(desk: Desk, pack: str, name: str) -> ConsolePage:
    """Raises: NotFound."""
    found = next((each for each in desk.ports.panels if (each.pack, each.panel.name) == (pack, name)), None)
    if found is None or not desk.session.sees_all:
        raise NotFound
    tables, fault = [], ""
    try:
        tables = list(await found.panel.make(found.context()))[:MAX_TABLES]
    except StoreUnavailable as unavailable:
        fault = str(unavailable)
    except (ToolError, WorkFailed) as failed:
        fault = failed.text if isinstance(failed, ToolError) else str(failed)
    calls = await in_thread(_calls_of, desk, {table.tool for table in tables if table.tool})
    shown = [
        {
            "table": table,
            "calls": calls.get(table.tool, 0),
            "rows": [[_cell(cell) for cell in row] for row in table.rows[:MAX_ROWS]],
            "more": max(0, len(table.rows) - MAX_ROWS),
        }
        for table in tables
    ]
    values = {"panel": found.panel, "pack": pack, "tables": shown, "fault": fault, "ever": desk.window()}
    return ConsolePage("panel", found.panel.title, values)


def _calls_of(desk: Desk, tools: Collection[str]) -> dict[str, int]:
    """By their names, of all that the index holds."""
    ids = {grant.tool_id: grant.tool.name for grant in desk.ports.grants() if grant.tool.name in tools}
    with desk.index() as index:
        return {ids[each.name]: each.calls for each in index.by("tool", 0) if each.name in ids}


def _cell(cell: object) -> dict[str, object]:
    if isinstance(cell, PanelCell):
        return {"text": cell.text, "tone": cell.tone, "is_number": False}
    return {"text": cell, "tone": "", "is_number": isinstance(cell, int | float)}
