"""Tools of packs and of upstreams in one table; one tool; and what an upstream changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolgate.console.pages.changes import side_by_side
from toolgate.console.pages.shared import DAY_MS, ConsolePage, first_of_bucket
from toolgate.console.rendering import ManyLines
from toolgate.console.web import NotFound

if TYPE_CHECKING:
    from toolgate.console.index.reading import CallSum
    from toolgate.console.pages.shared import Desk
    from toolgate.console.ports import UpstreamChange
    from toolgate.gate.admit import Grant

WINDOW_MS: Final = 30 * DAY_MS
"""Of calls and error rates."""


def tools(desk: Desk) -> ConsolePage:
    grants = [grant for grant in desk.ports.grants() if _is_seen(desk, grant)]
    text = desk.visit.query.get("q", "").strip().lower()[:160]
    since = first_of_bucket(desk.now_ms - WINDOW_MS)
    with desk.index() as index:
        used = {each.name: each for each in index.by("tool", since)}
        failed = index.refusals_by_tool(since)
    refused = _refused(desk)
    rows = [_row(grant, used.get(grant.tool_id), failed.get(grant.tool_id, 0), refused) for grant in grants]
    rows = [row for row in rows if text in f"{row['name']} {row['pack']} {row['tier']} {row['effect']}".lower()]
    values = {"rows": rows, "q": text, "count": len(grants), "window": desk.window(since), "now": desk.now}
    return ConsolePage("tools", "Tools", values)


def one_tool(desk: Desk, name: str) -> ConsolePage:
    """Raises: NotFound."""
    grant = next((each for each in desk.ports.grants() if each.tool.name == name and _is_seen(desk, each)), None)
    if grant is None:
        raise NotFound
    since = first_of_bucket(desk.now_ms - WINDOW_MS)
    with desk.index() as index:
        used = {each.name: each for each in index.by("tool", since)}.get(grant.tool_id)
        failed = index.refusals_by_tool(since).get(grant.tool_id, 0)
    tool = grant.tool
    values: dict[str, Any] = {
        "row": _row(grant, used, failed, _refused(desk)),
        "summary": ManyLines(tool.summary),
        "codes": sorted(grant.codes),
        "input": tool.input_schema,
        "output": tool.output_schema,
        "pin": (grant.facts or {}).get("pin", ""),
        "deadline": tool.deadline_s,
        "window": desk.window(since),
        "now": desk.now,
    }
    return ConsolePage("tool", f"Tool {name}", values)


def _is_seen(desk: Desk, grant: Grant) -> bool:
    """What a role does not hold is not told to it; completions and the like go by another row."""
    return not grant.tool.row and (desk.session.sees_all or grant.is_held_by(desk.session.caller))


def _refused(desk: Desk) -> dict[tuple[str, str], str]:
    return {(each.name, tool): reason for each in desk.ports.upstreams() for tool, reason in each.refused.items()}


def _row(grant: Grant, used: CallSum | None, failed: int, refused: dict[tuple[str, str], str]) -> dict[str, Any]:
    foreign = grant.tool.foreign
    state = "contract"
    if foreign is not None:
        state = refused.get((foreign.upstream, str(foreign.definition.get("name"))), "pinned")
    return {
        "name": grant.tool.name,
        "id": grant.tool_id,
        "kind": grant.tool.kind,
        "pack": grant.pack,
        "upstream": foreign.upstream if foreign is not None else "",
        "tier": grant.tier,
        "effect": grant.tool.effect,
        "roles": sorted(grant.roles),
        "hint": grant.hint,
        "state": state,
        "is_held": state in ("contract", "pinned"),
        "calls": used.calls if used else 0,
        "last": used.last if used else None,
        "failed": failed,
        "rate": failed / used.calls if used else None,
    }


# -- what an upstream changed -----------------------------------------------------------------------------------


def upstream(desk: Desk, name: str, change: UpstreamChange | None, fault: str) -> ConsolePage:
    """Raises: NotFound."""
    state = next((each for each in desk.ports.upstreams() if each.name == name), None)
    if state is None or not desk.session.sees_all:
        raise NotFound
    diffs = [] if change is None else [(row, list(side_by_side(row.before, row.after))) for row in change.rows]
    values = {"state": state, "change": change, "diffs": diffs, "fault": fault}
    return ConsolePage("upstream", f"Upstream {name}", values)
