"""What consent and statistics were read is answered again, and never once somebody has changed the store."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.homes import PATIENCE_S
from tests.packs.governance.desk import NOW, TOOLS
from tests.packs.governance.tools.test_consent_and_fp import CONSENT, FP, NOW_MS, add, ask, grant
from toolgate.errors import ToolError
from toolgate.packs.governance.stores.known import MAX_ORGANISATIONS
from toolgate.packs.governance.stores.reviews import DAY_MS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.packs.governance.desk import Desk
    from toolgate.model.tool import Result

RATE = {"queryType": "fp_rate", "orgId": "acme", "ruleId": "MD-001"}
SUMMARY = {"checkType": "summary", "orgId": "acme"}
ELSEWHERE = """
import asyncio, sys
from pathlib import Path
from toolgate.packs.governance import PACK
from toolgate.packs.governance.stores import opened
from toolgate.packs.governance.stores.reviews import ReviewEvent
from toolgate.powers.stores import OpenStores
stores, now = OpenStores({}, Path(sys.argv[1]), PACK.migrations), int(sys.argv[2])
event = ReviewEvent("acme", "MD-001", 1, "f" * 64, "r", "pending", now - 1000)
"""
REVOKE = "asyncio.run(opened.consents(stores, lambda kept: kept.revoke('acme', 'fp_metrics', 'ann', now)))"
RECORD = "asyncio.run(opened.false_positives(stores, lambda kept: kept.record(event)))"


def elsewhere(tmp_path: Path, change: str) -> None:
    """Another process changes the stores."""
    program = f"{ELSEWHERE}{change}\nstores.close()"
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "state"), str(NOW_MS)], check=True, timeout=PATIENCE_S
    )


def at_once(desk: Desk, tool: str, args: dict[str, Any]) -> Result | None:
    answer: Any = TOOLS[tool].at_once
    found: Result | None = answer(desk.clock, desk.memory, args)
    return found


def warm(desk: Desk, tool: str, args: dict[str, Any]) -> None:
    """A store that this process has not opened has no mark: the second call is remembered."""
    for _ in range(2):
        desk.call(tool, args)
    assert at_once(desk, tool, args) is not None


def test_consent_is_answered_from_memory_as_from_the_store(desk: Desk) -> None:
    grant(desk, "fp_metrics", expires=NOW_MS + 1000)
    first = desk.call(CONSENT, SUMMARY)
    warm(desk, CONSENT, SUMMARY)
    assert at_once(desk, CONSENT, SUMMARY) == first
    assert at_once(desk, CONSENT, {"checkType": "summary"}) is None, "nobody has asked about the settings' own"


def test_consent_that_another_process_takes_back_is_gone_at_once(desk: Desk, tmp_path: Path) -> None:
    grant(desk, "fp_metrics")
    warm(desk, CONSENT, SUMMARY)
    warm(desk, FP, RATE)
    elsewhere(tmp_path, REVOKE)
    assert at_once(desk, CONSENT, SUMMARY) is None
    assert at_once(desk, FP, RATE) is None
    assert ask(desk, "validate", resources=["fp_metrics"])["resources"][0]["state"] == "revoked"
    with pytest.raises(ToolError, match="no consent for fp_metrics"):
        desk.call(FP, RATE)


def test_consent_that_is_remembered_ends_at_the_millisecond_it_expires(desk: Desk) -> None:
    grant(desk, "fp_metrics", expires=NOW_MS + 1000)
    warm(desk, FP, RATE)
    desk.clock.now = NOW + 1.0
    with pytest.raises(ToolError, match="the consent has expired"):
        at_once(desk, FP, RATE)


def test_a_finding_that_another_process_records_is_counted_at_once(desk: Desk, tmp_path: Path) -> None:
    grant(desk, "fp_metrics")
    add(desk, false=3, true=9)
    warm(desk, FP, RATE)
    elsewhere(tmp_path, RECORD)
    assert at_once(desk, FP, RATE) is None
    assert desk.call(FP, RATE).data["rate"]["total"] == 13


@pytest.mark.parametrize("beyond_ms", [0, 1])
def test_a_rate_is_remembered_until_the_first_event_leaves_its_window(desk: Desk, beyond_ms: int) -> None:
    grant(desk, "fp_metrics")
    add(desk, 1, 0, age_days=10)
    add(desk, 0, 1, age_days=5)
    warm(desk, FP, RATE)
    desk.clock.now = NOW + 20 * 86_400 + beyond_ms / 1000
    remembered = at_once(desk, FP, RATE)
    assert (remembered is not None) is (beyond_ms == 0)
    assert desk.call(FP, RATE).data["rate"]["total"] == 2 - beyond_ms


@pytest.mark.parametrize("beyond_ms", [0, 1])
def test_a_rate_is_remembered_until_an_event_of_the_future_comes_into_its_window(desk: Desk, beyond_ms: int) -> None:
    grant(desk, "fp_metrics")
    add(desk, 1, 0, age_days=-5000 / DAY_MS)
    warm(desk, FP, RATE)
    desk.clock.now = NOW + 5 + beyond_ms / 1000
    remembered = at_once(desk, FP, RATE)
    assert (remembered is not None) is (beyond_ms == 0)
    assert desk.call(FP, RATE).data["rate"]["total"] == beyond_ms


def test_a_rate_is_not_remembered_for_a_clock_that_was_set_back(desk: Desk) -> None:
    grant(desk, "fp_metrics")
    warm(desk, FP, RATE)
    desk.clock.now = NOW - 1
    assert at_once(desk, FP, RATE) is None


def test_only_rates_are_remembered_and_each_by_its_own_question(desk: Desk) -> None:
    grant(desk, "fp_metrics")
    warm(desk, FP, RATE)
    for other in ({"daysBack": 7}, {"ruleId": "MD-002"}, {"orgId": "other"}, {"queryType": "trend_analysis"}):
        assert at_once(desk, FP, RATE | other) is None


def test_what_is_remembered_is_bounded(desk: Desk) -> None:
    for number in range(MAX_ORGANISATIONS + 5):
        desk.call(CONSENT, SUMMARY | {"orgId": f"o{number}"})
    assert len(desk.memory.consents._kept) == MAX_ORGANISATIONS
