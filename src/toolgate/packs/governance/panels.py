"""What the console shows of the pack: what analyses found, how often rules were wrong, and what was consented to."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from toolgate.model.clock import rfc3339
from toolgate.model.tool import Panel, PanelCalls, PanelCell, PanelTable
from toolgate.packs.governance.stores import consents as consent
from toolgate.packs.governance.stores.opened import consents, false_positives, nothing_kept
from toolgate.packs.governance.stores.statistics import Counts, wilson

if TYPE_CHECKING:
    from toolgate.model.tool import PanelContext
    from toolgate.packs.governance.stores.reviews import ReviewEvent

NEWEST: Final = 1000
"""Reviews that are counted."""
ANALYSES: Final = PanelCalls(
    "Analyses",
    "analyze_dissonance",
    counts=("critical", "high", "medium", "low", "info"),
    note="The newest, with the findings that each counted by severity, as the log has them.",
)


async def reviews(ctx: PanelContext) -> list[PanelTable | PanelCalls]:
    events = (
        [] if nothing_kept(ctx.stores) else await false_positives(ctx.stores, lambda kept: kept.events(limit=NEWEST))
    )
    rows = [_rate(org, rule, counts) for (org, rule), counts in sorted(_counted(events).items())]
    columns = ["Organisation", "Rule", "Findings", "Reviewed", "False positives", "Rate", "95 % interval"]
    note = f"Of the newest {NEWEST} findings that were kept. A rate needs ten reviews."
    rates = PanelTable("False positives by rule", columns, rows, note=note, tool="query_fp_store")
    organisations = sorted({event.org_id for event in events} | {str(ctx.settings.get("organisation") or "")} - {""})[
        :5
    ]
    return [ANALYSES, rates, *[await _consent(ctx, org) for org in organisations]]


def _counted(events: list[ReviewEvent]) -> dict[tuple[str, str], Counts]:
    found: dict[tuple[str, str], Counter[str]] = {}
    for event in events:
        found.setdefault((event.org_id, event.rule_id), Counter())[event.verdict] += 1
    return {
        key: Counts(sum(verdicts.values()), verdicts["false_positive"], verdicts["true_positive"])
        for key, verdicts in found.items()
    }


def _rate(org: str, rule: str, counts: Counts) -> list[str | int | float | PanelCell | None]:
    rate: str | PanelCell = PanelCell("too few reviews")
    interval = "–"
    if counts.rate is not None:
        low, high = wilson(counts.false_positives, counts.reviewed)
        rate = PanelCell(f"{counts.rate:.2f}", "good" if counts.rate < 0.1 else "warn" if counts.rate < 0.3 else "bad")
        interval = f"{low:.2f} to {high:.2f}"
    return [org, rule, counts.total, counts.reviewed, counts.false_positives, rate, interval]


async def _consent(ctx: PanelContext, org: str) -> PanelTable:
    now = int(ctx.clock.wall() * 1000)
    found = await consents(ctx.stores, lambda kept: consent.statuses(kept, org, list(consent.RESOURCES), now))
    rows: list[list[str | int | float | PanelCell | None]] = [
        [
            status.resource,
            PanelCell(status.state, "good" if status.state == "granted" else "quiet"),
            status.record.granted_by if status.record else None,
            _until(status.record),
        ]
        for status in found
    ]
    columns = ["What", "State", "Granted by", "Until"]
    return PanelTable(f"Consent of {org}", columns, rows, tool="check_consent_requirements")


def _until(record: consent.Record | None) -> str | None:
    return None if record is None or record.expires_at is None else rfc3339(record.expires_at / 1000)


PANELS: Final = (
    Panel(
        name="reviews",
        title="Governance",
        summary=(
            "What analyses found, how often rules were wrong, by what people said of their findings, and what organisations"
            " consented to."
        ),
        make=reviews,
    ),
)
