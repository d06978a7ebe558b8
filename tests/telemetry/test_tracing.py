"""Which calls become spans, and what an upstream is told of them."""

from __future__ import annotations

import pytest

from tests.telemetry.test_tally import Log, entry
from toolgate.errors import Ending
from toolgate.model.call import NO_ORIGIN, Origin
from toolgate.model.clock import DeterministicIds, Ids, RandomIds
from toolgate.model.record import LedgerEntry, RecordPlace
from toolgate.model.trace import trace_context
from toolgate.telemetry.tracing import Sampler, TracedLedger

TRACE, THEIRS = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = Origin(traceparent=f"00-{TRACE}-{THEIRS}-01", tracestate="a=1")
UNSAMPLED = Origin(traceparent=f"00-{TRACE}-{THEIRS}-00")
OWN = Ids("request", "f" * 32, "1" * 16)


def test_a_share_of_the_calls_is_chosen() -> None:
    source, sampler = RandomIds(), Sampler(0.25)
    chosen = sum(sampler.wants(source.for_call(None, None), NO_ORIGIN, is_known=True) for _ in range(4000))
    assert 800 < chosen < 1200  # six deviations from the mean


@pytest.mark.parametrize(("share", "expected"), [(0.0, False), (1.0, True)])
@pytest.mark.parametrize("trace", ["0" * 32, "f" * 32])
def test_none_and_all_of_them_can_be_asked_for(share: float, expected: bool, trace: str) -> None:
    assert Sampler(share).wants(Ids("", trace, "1" * 16), NO_ORIGIN, is_known=True) is expected


def test_the_last_56_bits_of_a_traces_id_decide_as_in_other_samplers() -> None:
    sampler = Sampler(0.5)
    assert sampler.wants(Ids("", "0" * 18 + "80000000000000", ""), NO_ORIGIN, is_known=True)
    assert not sampler.wants(Ids("", "f" * 18 + "7fffffffffffff", ""), NO_ORIGIN, is_known=True)


def test_a_known_callers_flag_decides_and_a_strangers_does_not() -> None:
    never, always = Sampler(0), Sampler(1)
    assert never.wants(OWN, SAMPLED, is_known=True)
    assert not always.wants(OWN, UNSAMPLED, is_known=True)
    assert not never.wants(OWN, SAMPLED, is_known=False)
    assert always.wants(OWN, UNSAMPLED, is_known=False)


def test_an_upstream_is_told_our_span_as_its_parent() -> None:
    sampler = Sampler(1)
    assert sampler.onward(OWN, SAMPLED) == {"traceparent": f"00-{TRACE}-{'1' * 16}-01", "tracestate": "a=1"}
    assert sampler.onward(OWN, UNSAMPLED) == {"traceparent": f"00-{TRACE}-{'1' * 16}-00"}
    assert sampler.onward(OWN, NO_ORIGIN) == {"traceparent": f"00-{'f' * 32}-{'1' * 16}-01"}
    assert Sampler(0).onward(OWN, NO_ORIGIN)["traceparent"].endswith("-00")


def test_a_call_of_another_process_keeps_the_context_that_process_made() -> None:
    assert Sampler(1).onward(Ids("", "", ""), SAMPLED) == SAMPLED.trace


def test_repeatable_ids_make_a_context_of_the_standards_form() -> None:
    ids = DeterministicIds().for_call("mcp.tool:a.b", {})
    made = Sampler(1).onward(ids, NO_ORIGIN)["traceparent"]
    assert trace_context(made) == (made, None)


def taken(sampler: Sampler, log: Log) -> tuple[TracedLedger, list[LedgerEntry]]:
    found: list[LedgerEntry] = []
    return TracedLedger(log, sampler, found.append), found


def test_an_intent_becomes_no_span_and_a_refusal_does() -> None:
    ledger, found = taken(Sampler(1), Log())
    ledger.append(entry(event="intent"))
    ledger.append(entry())
    ledger.append_refusal(entry(ending=Ending.TOO_MANY))
    assert [each.status for each in found] == ["ok", "error"]


def test_a_refusal_without_a_record_becomes_no_span() -> None:
    class Flooded(Log):
        def append_refusal(self, entry: LedgerEntry, *, is_held: bool = False) -> RecordPlace | None:  # type: ignore[override]
            return None

    ledger, found = taken(Sampler(1), Flooded())
    ledger.append_refusal(entry(ending=Ending.TOO_MANY))
    assert found == []
