"""Limits per caller: counted exactly, refused at once, given back always."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import Ending, Refusal
from toolgate.gate.admit import Rate, Slots
from toolgate.model.call import Caller

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


def test_zero_is_no_rate_limit() -> None:
    rate = Rate(per_minute=0)
    for _ in range(1000):
        rate.take(ONE, 1000.0)
