"""What is counted of calls, and under which names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolgate.errors import Ending, LedgerUnavailable
from toolgate.model.call import Caller, Wire
from toolgate.model.clock import Ids
from toolgate.model.envelope import Clamp
from toolgate.model.record import LedgerEntry, RecordPlace
from toolgate.telemetry import tally as tally_module
from toolgate.telemetry.tally import BOUNDS_S, MOST_WAITING, Tally

WIRE = Wire("mcp", "http", "/mcp")


class Log:
    """A log that takes everything, or nothing."""

    def __init__(self) -> None:
        self.is_full = False

    def append(self, entry: LedgerEntry, *, is_held: bool = False) -> RecordPlace:
        self.flush()
        return RecordPlace("run", 1, "leaf")

    append_refusal = append

    def flush(self) -> None:
        if self.is_full:
            raise LedgerUnavailable("full")

    async def durable(self, place: RecordPlace) -> None:
        await asyncio.sleep(0)


def entry(tool: str | None = "mcp.tool:a.b", ending: Ending = Ending.OK, **more: Any) -> LedgerEntry:
    ok = ending is Ending.OK
    return LedgerEntry(
        event=more.pop("event", "outcome"),
        wire=WIRE,
        ids=Ids("request", "trace", "span"),
        timestamp="2026-11-18T00:00:00Z",
        tool_id=tool,
        status="ok" if ok else "error",
        caller=Caller("k", "builder"),
        error=None if ok else {"happening": ending, "code": None, "reason": None},
        **more,
    )


def counted() -> tuple[Tally, Any, Log]:
    log, tally = Log(), Tally(lambda tool_id: tool_id.rpartition(":")[2].replace(".", "_"))
    return tally, tally.of(log), log


def numbers(tally: Tally, family: str) -> dict[tuple[str, ...], Any]:
    return dict(tally.numbers()[family])


def test_calls_are_counted_by_tool_and_by_how_they_ended() -> None:
    tally, ledger, _ = counted()
    for _ in range(3):
        ledger.append(entry())
    ledger.append(entry(ending=Ending.TOOL_FAILED))
    ledger.append_refusal(entry(ending=Ending.TOO_MANY))
    assert numbers(tally, "toolgate_calls") == {
        ("a_b", "ok"): 3,
        ("a_b", "tool_failed"): 1,
        ("a_b", "too_many"): 1,
    }
    assert numbers(tally, "toolgate_refusals") == {("too_many",): 1}


def test_an_intent_is_no_call() -> None:
    tally, ledger, _ = counted()
    ledger.append(entry(event="intent"))
    assert numbers(tally, "toolgate_calls") == {}


def test_a_name_that_a_caller_made_up_is_no_label() -> None:
    tally, ledger, _ = counted()
    for name in ("one", "two"):
        ledger.append_refusal(entry(None, Ending.UNKNOWN_TOOL, more={"askedTool": name}))
    assert numbers(tally, "toolgate_calls") == {("none", "unknown_tool"): 2}


def test_tools_beyond_the_bound_share_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally_module, "MAX_SERIES", 3)
    tally, ledger, _ = counted()
    for number in range(10):
        ledger.append(entry(f"mcp.tool:t.{number}"))
        ledger.append(entry(f"mcp.tool:t.{number}", Ending.TOOL_FAILED))
    found = numbers(tally, "toolgate_calls")
    assert sum(found.values()) == 20
    assert set(found) == {
        ("t_0", "ok"),
        ("t_0", "tool_failed"),
        ("t_1", "ok"),
        ("other", "ok"),
        ("other", "tool_failed"),
    }


def test_a_duration_falls_into_the_bucket_of_its_upper_bound() -> None:
    tally, ledger, _ = counted()
    for milliseconds in (0.2, 0.5, 0.6, 30_000.0, 30_001.0):
        ledger.append(entry(duration_ms=milliseconds))
    ((labels, (seconds, *buckets)),) = tally.numbers()["toolgate_call_duration_seconds"]
    assert labels == ("a_b", "ok")
    assert seconds == pytest.approx(60.0023)
    assert buckets[0] == 2
    assert buckets[1] == 1
    assert buckets[-2:] == [1, 1]
    assert len(buckets) == len(BOUNDS_S) + 1


def test_a_refusal_has_no_duration() -> None:
    tally, ledger, _ = counted()
    ledger.append_refusal(entry(ending=Ending.BAD_ARGUMENTS, duration_ms=1.0))
    assert tally.numbers()["toolgate_call_duration_seconds"] == []


def test_clamps_and_decisions_are_counted() -> None:
    tally, ledger, _ = counted()
    clamps = (Clamp("F1", "decision", "block", "warn"), Clamp("F2", "code", "X", None))
    ledger.append(entry(clamps=clamps, decision="warn", tier="experimental", environment="cloud"))
    assert numbers(tally, "toolgate_clamps") == {("a_b", "F1"): 1, ("a_b", "F2"): 1}
    assert numbers(tally, "toolgate_decisions") == {("experimental", "cloud", "warn"): 1}


def test_what_the_log_could_not_take_is_counted_as_withheld_and_not_as_a_call() -> None:
    tally, ledger, log = counted()
    log.is_full = True
    for write in (ledger.append, ledger.append_refusal):
        with pytest.raises(LedgerUnavailable):
            write(entry(ending=Ending.TOO_FAST))
    assert tally.withheld == 2
    assert numbers(tally, "toolgate_calls") == {}


def test_what_is_gathered_and_synced_is_the_logs_own_affair() -> None:
    _, ledger, log = counted()
    assert ledger.durable == log.durable
    assert ledger.flush == log.flush


def test_no_more_than_a_few_calls_wait_to_be_counted() -> None:
    tally, ledger, _ = counted()
    for _ in range(2 * MOST_WAITING + 1):
        ledger.append(entry())
        ledger.append_refusal(entry(ending=Ending.TOO_FAST))
        assert len(tally.ran) < MOST_WAITING
        assert len(tally.refused) < MOST_WAITING
    found = numbers(tally, "toolgate_calls")
    assert found == {("a_b", "ok"): 2 * MOST_WAITING + 1, ("a_b", "too_fast"): 2 * MOST_WAITING + 1}
