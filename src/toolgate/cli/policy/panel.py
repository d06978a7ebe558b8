"""What the console shows of the contract's health: the window that `toolgate contract health` tells, from the same store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from toolgate.cli.policy import checks
from toolgate.console.ports import PackPanel
from toolgate.errors import StartRefused, StoreUnavailable
from toolgate.model.threads import in_thread
from toolgate.model.tool import PanelCell, PanelMark, PanelStrip, PanelTable
from toolgate.policy.health import health_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from toolgate.model.tool import PanelValue
    from toolgate.policy.health import ContractRun, Day, GreenWindow
    from toolgate.settings import Settings

Row = list["PanelValue"]

WINDOW_DAYS: Final = 30
UNSET: Final = (
    f"Nothing keeps the results: set stores.{checks.STORE} where checks run (toolgate contract check) and here."
)
KEPT: Final = (
    f"Counted from the checks that stores.{checks.STORE} holds; a check is no call, so the log has no record of it."
)
_TONES: Final[dict[Day, Literal["good", "bad", "quiet"]]] = {"green": "good", "red": "bad", "none": "quiet"}
_WORDS: Final[dict[Day, str]] = {"green": "green", "red": "red", "none": "no check"}


def health_panel(settings: Settings) -> PackPanel:
    summary = "Whether the contract check was green, day by day."
    return PackPanel("toolgate", "contract-health", "Contract health", summary, partial(_window, settings))


async def _window(settings: Settings) -> Sequence[PanelTable | PanelStrip]:
    """Raises: StoreUnavailable."""
    if not checks.is_configured(settings):
        return [PanelTable("The last 30 days", ["What", "Value"], [], note=UNSET)]
    now = datetime.now(UTC)
    found = health_of(await in_thread(_kept, settings, now), now, WINDOW_DAYS)
    facts = await in_thread(_facts, found)
    marks = [PanelMark(day.isoformat(), _WORDS[state], _TONES[state]) for day, state in found.days]
    return [
        PanelStrip(f"The last {WINDOW_DAYS} days", marks, note="By the days of UTC; today is the last."),
        facts,
    ]


def _kept(settings: Settings, now: datetime) -> list[ContractRun]:
    try:
        return checks.kept(settings, now - timedelta(days=WINDOW_DAYS))
    except StartRefused as fault:
        raise StoreUnavailable(" ".join(str(fault).split("\n"))) from None


def _facts(found: GreenWindow) -> PanelTable:
    rows: list[Row] = [
        ["Now", PanelCell(_WORDS[found.now], _TONES[found.now])],
        ["Checks", _count(_checks(f"Checks of the last {WINDOW_DAYS} days", found.runs))],
    ]
    rows += [[f"Days: {word}", _count(_days(found, state, word))] for state, word in _WORDS.items()]
    first = found.first_red
    rows += [
        ["Longest red time", _longest_red(found)],
        ["First red check", None if first is None else f"{first.moment:%Y-%m-%d %H:%M} UTC"],
        ["First red commit", None if first is None else first.commit or "not told"],
    ]
    return PanelTable("In numbers", ["What", "Value"], rows, note=KEPT)


def _count(table: PanelTable) -> PanelCell:
    """As a text, beside others in its column."""
    return PanelCell(str(len(table.rows)), "plain", table)


def _checks(title: str, runs: Sequence[ContractRun]) -> PanelTable:
    rows = [
        [f"{run.moment:%Y-%m-%d %H:%M:%S} UTC", PanelCell(_WORDS[state], _TONES[state]), run.commit or None]
        for run in reversed(runs)
        for state in [_state(run)]
    ]
    return PanelTable(title, ["Checked", "Result", "Commit"], rows)


def _state(run: ContractRun) -> Day:
    return "green" if run.is_green else "red"


def _days(found: GreenWindow, wanted: Day, word: str) -> PanelTable:
    """Days of one kind, each with its checks."""
    runs: dict[date, list[ContractRun]] = {}
    for run in found.runs:
        runs.setdefault(run.moment.date(), []).append(run)
    rows: list[Row] = [
        [day.isoformat(), _checks(f"Checks of {day}", runs.get(day, []))]
        for day, state in found.days
        if state == wanted
    ]
    return PanelTable(f"Days: {word}", ["Day", "Checks"], rows)


def _longest_red(found: GreenWindow) -> PanelCell:
    hours = found.longest_red.total_seconds() / 3600
    return PanelCell(f"{hours:.1f} h", "plain", _checks("Checks of the longest red time", found.red_runs))
