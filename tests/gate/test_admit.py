"""Limits per caller: counted exactly, refused at once, given back always."""

from __future__ import annotations

from contextlib import suppress
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import Ending, Refusal
from toolgate.gate import admit
from toolgate.gate.admit import Rate, Slots, own_limit
from toolgate.model.call import Caller, CallerBounds

ONE, TWO = Caller("one", "admin"), Caller("two", "admin")


@pytest.mark.req("000-C-08", "000-D-05")
def test_one_caller_s_limit_is_not_another_s() -> None:
    slots = Slots(per_caller=2, total=10)
    slots.take(ONE)
    slots.take(ONE)
    with pytest.raises(Refusal) as caught:
        slots.take(ONE)
    assert caught.value.ending is Ending.TOO_MANY
    slots.take(TWO)
    slots.give_back(ONE)
    slots.take(ONE)


def test_all_callers_together_have_a_limit_too() -> None:
    slots = Slots(per_caller=2, total=3)
    for caller in (ONE, ONE, TWO):
        slots.take(caller)
    with pytest.raises(Refusal):
        slots.take(TWO)


@given(st.lists(st.sampled_from([(ONE, True), (TWO, True), (ONE, False), (TWO, False)]), max_size=60))
def test_slots_count_exactly_what_is_held(steps: list[tuple[Caller, bool]]) -> None:
    slots, held = Slots(per_caller=3, total=5), {ONE: 0, TWO: 0}
    for caller, take in steps:
        if take:
            fits = held[caller] < 3 and sum(held.values()) < 5
            try:
                slots.take(caller)
            except Refusal:
                assert not fits
            else:
                assert fits
                held[caller] += 1
        elif held[caller]:
            slots.give_back(caller)
            held[caller] -= 1
        assert slots.held() == sum(held.values())


def test_a_rate_allows_a_burst_and_then_its_pace() -> None:
    rate = Rate(per_minute=6)
    for _ in range(6):
        rate.take(ONE, 1000.0)
    with pytest.raises(Refusal) as caught:
        rate.take(ONE, 1000.0)
    assert caught.value.ending is Ending.TOO_FAST
    assert caught.value.details == {"retry_after_s": 11}
    rate.take(TWO, 1000.0)
    rate.take(ONE, 1010.0)
    with pytest.raises(Refusal):
        rate.take(ONE, 1010.0)


@given(st.lists(st.floats(0, 30, allow_nan=False), max_size=80))
def test_no_minute_sees_more_than_twice_the_rate_and_no_hour_more_than_its_share(pauses: list[float]) -> None:
    rate = Rate(per_minute=5)
    taken: list[float] = []
    for now in accumulate(pauses, initial=1000.0):
        try:
            rate.take(ONE, now)
        except Refusal:
            continue
        taken.append(now)
    for start in taken:
        assert sum(start <= moment < start + 60 for moment in taken) <= 10
    if taken:
        assert len(taken) <= 5 + (taken[-1] - taken[0]) / 12 + 1


def test_a_rate_of_many_callers_looks_at_two_of_them_a_call_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admit, "KNOWN_CALLERS", 64)
    rate, looked_at = Rate(per_minute=6), 0
    for number in range(5_000):
        before = rate._due
        rate.take(Caller(str(number), "admin"), 0.0)
        looked_at += len(before) if rate._due is not before else 0
    assert looked_at <= 2 * 5_000


def test_callers_who_have_waited_long_enough_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admit, "KNOWN_CALLERS", 64)
    rate = Rate(per_minute=6)
    for number in range(5_000):
        rate.take(Caller(str(number), "admin"), float(number))
    assert len(rate._due) <= 128


def test_zero_is_no_rate_limit() -> None:
    rate = Rate(per_minute=0)
    for _ in range(1000):
        rate.take(ONE, 1000.0)


OWN = Caller("own", "builder", bounds=CallerBounds(per_minute=6, concurrency=2))


def _held(slots: Slots, caller: Caller) -> int:
    count = 0
    with suppress(Refusal):
        while count < 100:
            slots.take(caller)
            count += 1
    return count


def _passed(rate: Rate, caller: Caller) -> int:
    count = 0
    with suppress(Refusal):
        while count < 200:
            rate.take(caller, 100.0)
            count += 1
    return count


@pytest.mark.parametrize(
    ("per_caller", "may_exceed", "most"), [(10, False, 2), (1, False, 1), (1, True, 2), (10, True, 2)]
)
def test_a_key_has_its_own_slots_and_no_more_than_all_unless_it_may(
    per_caller: int, may_exceed: bool, most: int
) -> None:
    slots = Slots(per_caller=per_caller, total=50, may_exceed=may_exceed)
    assert _held(slots, OWN) == most
    with pytest.raises(Refusal, match=f"{most} calls of this key are running"):
        slots.check(OWN)
    assert _held(slots, Caller("plain", "builder")) == per_caller
    assert _held(slots, Caller("scoped", "builder", bounds=CallerBounds(scopes=("*",)))) == per_caller


def test_the_total_holds_for_a_key_that_may_exceed() -> None:
    many = Caller("many", "builder", bounds=CallerBounds(concurrency=90))
    assert _held(Slots(per_caller=2, total=5, may_exceed=True), many) == 5


@pytest.mark.parametrize(
    ("per_minute", "may_exceed", "most"), [(60, False, 6), (0, False, 6), (3, False, 3), (3, True, 6), (60, True, 6)]
)
def test_a_key_has_its_own_rate_and_no_more_than_all_unless_it_may(
    per_minute: int, may_exceed: bool, most: int
) -> None:
    rate = Rate(per_minute=per_minute, may_exceed=may_exceed)
    assert _passed(rate, OWN) == most
    rate.take(OWN, 100.0 + 60.0 / most)
    assert _passed(rate, Caller("plain", "builder")) == (per_minute or 200)


def test_where_an_engine_counts_no_process_counts_rates() -> None:
    assert _passed(Rate(per_minute=0, counts=False), OWN) == 200


@given(own=st.integers(1, 50), common=st.integers(0, 50))
def test_an_own_limit_never_widens(own: int, common: int) -> None:
    found = own_limit(own, common, may_exceed=False)
    assert found <= own
    assert not common or found <= common
    assert own_limit(None, common, may_exceed=True) == common
