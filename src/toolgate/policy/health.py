"""How long the contract check has been green: from recorded checks, or from the runs that a CI provider exports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from operator import itemgetter
from typing import Any, Final, Literal

from msgspec import Struct

from toolgate.errors import StartRefused
from toolgate.model import strictjson

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
MAX_COMMIT: Final = 64
Day = Literal["green", "red", "none"]
_MARKS: Final[dict[Day, str]] = {"green": "+", "red": "x", "none": "."}
_COLOURS: Final[dict[Day, str]] = {"green": "#2e7d32", "red": "#c62828", "none": "#616161"}
_ENDED: Final = frozenset({"success", "failure", "timed_out", "startup_failure"})
"""Conclusions of a CI run that tell of the contract; one that was cancelled or skipped tells nothing."""


class ContractRun(Struct, frozen=True):
    moment: datetime
    is_green: bool
    commit: str = ""


class GreenWindow(Struct, frozen=True):
    """Of one window. A day is red if one of its checks was."""

    days: tuple[tuple[date, Day], ...]
    runs: tuple[ContractRun, ...]
    """Its checks, oldest first."""
    now: Day
    """What the last check said."""
    longest_red: timedelta
    """From a red check to the next green one, or to now."""
    red_runs: tuple[ContractRun, ...]
    """The checks of that time: the green one that ended it is the last."""
    first_red: ContractRun | None
    """The first red check of the window."""

    @property
    def checks(self) -> int:
        return len(self.runs)

    @property
    def strip(self) -> str:
        return "".join(_MARKS[day] for _, day in self.days)

    @property
    def is_green(self) -> bool:
        """Green now, and on every day of the window that had a check."""
        return self.now == "green" and all(day != "red" for _, day in self.days)

    def as_json(self) -> dict[str, Any]:
        first = self.first_red
        return {
            "green": self.is_green,
            "now": self.now,
            "checks": self.checks,
            "days": [{"day": day.isoformat(), "state": state} for day, state in self.days],
            "longestRedSeconds": int(self.longest_red.total_seconds()),
            "firstRed": None if first is None else {"ts": first.moment.isoformat(), "commit": first.commit},
        }


def read_checks(data: bytes, name: str) -> list[ContractRun]:
    """Lines that `contract check --record` wrote, or the list that `gh run list --json ...` prints. Raises: StartRefused."""
    if len(data) > MAX_FILE_BYTES:
        raise StartRefused(f"{name} is larger than {MAX_FILE_BYTES // 2**20} MB.\nKeep the newest part of it.")
    try:
        if data.lstrip().startswith(b"["):
            return [check for run in strictjson.loads(data) if (check := _of_run(run)) is not None]
        return [_of_line(strictjson.loads(line)) for line in data.splitlines() if line.strip()]
    except (strictjson.JsonFault, KeyError, TypeError, ValueError, AttributeError):
        raise StartRefused(
            f"{name} is not a file of contract checks.\nGive one that `toolgate contract check --record` wrote, or the output of "
            "`gh run list --workflow FILE --json conclusion,createdAt,headSha`."
        ) from None


def _of_line(line: Any) -> ContractRun:
    if type(line["ok"]) is not bool:
        raise TypeError
    return ContractRun(_moment(line["ts"]), line["ok"], str(line.get("commit") or "")[:MAX_COMMIT])


def _of_run(run: Any) -> ContractRun | None:
    if run["conclusion"] not in _ENDED:
        return None
    return ContractRun(
        _moment(run["createdAt"]), run["conclusion"] == "success", str(run.get("headSha") or "")[:MAX_COMMIT]
    )


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def health_of(checks: Iterable[ContractRun], now: datetime, days: int) -> GreenWindow:
    """Of the last `days` days, today among them, by the days of UTC."""
    first_day = now.date() - timedelta(days=days - 1)
    ordered = sorted(checks, key=lambda check: check.moment)
    within = [check for check in ordered if first_day <= check.moment.date() <= now.date()]
    by_day: dict[date, Day] = {}
    for check in within:
        day = check.moment.date()
        by_day[day] = "green" if check.is_green and by_day.get(day) != "red" else "red"
    each_day = [first_day + timedelta(days=number) for number in range(days)]
    longest_red, red_runs = _longest_red(within, now)
    return GreenWindow(
        days=tuple((day, by_day.get(day, "none")) for day in each_day),
        runs=tuple(within),
        now="none" if not within else "green" if within[-1].is_green else "red",
        longest_red=longest_red,
        red_runs=red_runs,
        first_red=next((check for check in within if not check.is_green), None),
    )


def _longest_red(checks: Sequence[ContractRun], now: datetime) -> tuple[timedelta, tuple[ContractRun, ...]]:
    """How long, and its checks."""
    longest: tuple[timedelta, tuple[ContractRun, ...]] = (timedelta(0), ())
    red: list[ContractRun] = []
    for check in checks:
        if check.is_green and red:
            longest = max(longest, (check.moment - red[0].moment, (*red, check)), key=itemgetter(0))
            red = []
        elif not check.is_green:
            red.append(check)
    return max(longest, (now - red[0].moment, tuple(red)), key=itemgetter(0)) if red else longest


def badge(health: GreenWindow) -> str:
    """An SVG of one line that needs nothing beside it."""
    days = len(health.days)
    state: Day = "green" if health.is_green else "none" if health.now == "none" else "red"
    checked = sum(day != "none" for _, day in health.days)
    green = f"green for {days} days" if checked == days else f"green, {checked} of {days} days checked"
    words = {"green": green, "none": "no checks", "red": "red now"}[state]
    if state == "red" and health.now == "green":
        words = f"green now, red within {days} days"
    left, right = 62, 14 + 7 * len(words)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="contract: {words}">
<title>contract: {words}</title>
<rect width="{left}" height="20" fill="#37474f"/>
<rect x="{left}" width="{right}" height="20" fill="{_COLOURS[state]}"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{left / 2}" y="14">contract</text>
<text x="{left + right / 2}" y="14">{words}</text>
</g>
</svg>
"""
