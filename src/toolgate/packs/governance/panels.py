"""What the console shows of the pack: what analyses found, how often rules were wrong, and what was consented to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from toolgate.model.clock import rfc3339
from toolgate.model.tool import Panel, PanelCalls, PanelCell, PanelTable
from toolgate.packs.governance.stores import consents as consent
from toolgate.packs.governance.stores.opened import consents, false_positives, nothing_kept
from toolgate.packs.governance.stores.statistics import Counts, wilson

if TYPE_CHECKING:
    from toolgate.model.tool import PanelContext, PanelValue
    from toolgate.packs.governance.stores.reviews import ReviewEvent

NEWEST: Final = 1000
"""Reviews that are counted."""
ORGANISATIONS: Final = 5
"""Whose consent is shown."""
THE_REST: Final = "toolgate consent list ORGANISATION has that of another."
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
    rows = [_rate(org, rule, found) for (org, rule), found in sorted(_by_rule(events).items())]
    columns = ["Organisation", "Rule", "Findings", "Reviewed", "False positives", "Rate", "95 % interval"]
    note = f"Of the newest {NEWEST} findings that were kept. A rate needs ten reviews."
    rates = PanelTable("False positives by rule", columns, rows, note=note, tool="query_fp_store")
    named = sorted({event.org_id for event in events} | {str(ctx.settings.get("organisation") or "")} - {""})
    cut = "" if len(named) <= ORGANISATIONS else f"The first {ORGANISATIONS} organisations are here; {THE_REST}"
    return [ANALYSES, rates, *[await _consent(ctx, org, cut) for org in named[:ORGANISATIONS]]]


def _by_rule(events: list[ReviewEvent]) -> dict[tuple[str, str], list[ReviewEvent]]:
    found: dict[tuple[str, str], list[ReviewEvent]] = {}
    for event in events:
        found.setdefault((event.org_id, event.rule_id), []).append(event)
    return found


def _rate(org: str, rule: str, events: list[ReviewEvent]) -> list[PanelValue]:
    """Each number with the findings that it counts; a rate with those that were reviewed."""
    of = f"of {rule} in {org}"
    false = [event for event in events if event.verdict == "false_positive"]
    reviewed = [event for event in events if event.verdict != "pending"]
    known = _findings(f"Reviewed findings {of}", reviewed)
    rate, interval = PanelCell("too few reviews"), PanelCell("–", "plain")
    counts = Counts(len(events), len(false), len(reviewed) - len(false))
    if counts.rate is not None:
        low, high = wilson(counts.false_positives, counts.reviewed)
        colour: Literal["good", "warn", "bad"] = "good" if counts.rate < 0.1 else "warn" if counts.rate < 0.3 else "bad"
        rate = PanelCell(f"{counts.rate:.2f}", colour, known)
        interval = PanelCell(f"{low:.2f} to {high:.2f}", "plain", known)
    return [
        org,
        rule,
        _findings(f"Findings {of}", events),
        known,
        _findings(f"False positives {of}", false),
        rate,
        interval,
    ]


def _findings(title: str, events: list[ReviewEvent]) -> PanelTable:
    columns = ["Found at", "Fingerprint", "Repository", "Verdict", "Reviewed by", "Ticket"]
    rows = [
        [
            rfc3339(event.occurred_at / 1000),
            event.fingerprint,
            event.repository,
            event.verdict.replace("_", " "),
            event.reviewed_by,
            event.ticket,
        ]
        for event in events
    ]
    return PanelTable(title, columns, rows)


async def _consent(ctx: PanelContext, org: str, note: str) -> PanelTable:
    now = int(ctx.clock.wall() * 1000)
    found = await consents(ctx.stores, lambda kept: consent.statuses(kept, org, list(consent.RESOURCES), now))
    rows: list[list[PanelValue]] = [
        [
            status.resource,
            PanelCell(status.state, "good" if status.state == "granted" else "quiet"),
            status.record.granted_by if status.record else None,
            _until(status.record),
        ]
        for status in found
    ]
    columns = ["What", "State", "Granted by", "Until"]
    return PanelTable(f"Consent of {org}", columns, rows, note=note, tool="check_consent_requirements")


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
