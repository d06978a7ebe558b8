"""What is decided about calls with an engine and without, by a clock that is turned by hand; how it goes with real engines is in
`test_shared.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.homes import PATIENCE_S
from tests.waiting import soon
from toolgate.errors import Ending, Refusal, StoreUnavailable
from toolgate.gate.admit import Slots
from toolgate.gate.shared import RENEWALS, TELL_EVERY_S, WAIT_S, SharedBounds, SharedLimits
from toolgate.model.call import Caller, CallerBounds
from toolgate.model.limits import LimitClaim, Ruling, Standing

ANN = Caller("ann", "builder")


@dataclass
class Engine:
    """Lets everybody in, unless it is told otherwise."""

    refuse_s: float = 0.0
    joined: list[tuple[list[LimitClaim], bool]] = field(default_factory=list)
    asked: list[list[LimitClaim]] = field(default_factory=list)
    fault: str = ""

    def _answer(self) -> Standing:
        if self.fault:
            raise StoreUnavailable(self.fault)
        return Standing(True, 2, self.refuse_s)

    async def join(self, running: Sequence[LimitClaim], *, again: bool) -> Standing:
        self.joined.append(([*running], again))
        return self._answer()

    async def ask(self, claims: Sequence[LimitClaim]) -> tuple[Standing, Sequence[Ruling]]:
        self.asked.append([*claims])
        return self._answer(), [Ruling(9, 9, True, 0.0) for _ in claims]

    async def leave(self) -> None:
        self._answer()


class Scene:
    def __init__(self, now: float = 100.0, *, per_minute: int = 0, lease_s: float = 3.0) -> None:
        self.now, self.engine, self.told = now, Engine(), list[str | None]()
        bounds = SharedBounds(4, per_minute, lease_s, share_slots=True, share_rate=True)
        self.slots = Slots(per_caller=4, total=9)
        self.limits = SharedLimits(self.engine, self.slots, bounds, lambda: self.now, self.told.append)

    def ticket(self, caller: Caller = ANN, *, holds: bool = True) -> Any:
        if holds:
            self.slots.take(caller)
        return SimpleNamespace(caller=caller, slots=self.slots if holds else None)

    def alone(self, caller: Caller = ANN) -> Refusal | None:
        """What is decided without the engine."""
        return self.limits._decide_alone(self.ticket(caller, holds=False), self.now)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


def test_the_first_call_reaches_for_the_engine_and_is_let_in() -> None:
    async def work() -> None:
        scene = Scene()
        first, second = scene.ticket(), scene.ticket()
        await scene.limits.admit(first)
        await scene.limits.admit(second)
        scene.limits.give_back(ANN)
        await soon(lambda: scene.engine.asked[-1] == [LimitClaim("ann", 1)], "the engine knows that one has ended")
        await scene.limits.close()

    run(work())


def test_a_server_ends_in_peace_when_its_engine_is_gone() -> None:
    async def work() -> None:
        scene = Scene()
        await scene.limits.reached()
        scene.engine.fault = "gone"
        await scene.limits.close()

    run(work())


def test_a_process_says_that_it_was_there_before_and_tells_of_loss_and_return_once() -> None:
    async def work() -> None:
        scene = Scene()
        limits = scene.limits
        await limits._join()
        limits._lose("gone")
        scene.now += 2 * TELL_EVERY_S
        limits._lose("still gone")
        await limits._join()
        await limits._join()
        assert [again for _, again in scene.engine.joined] == [False, True, True]
        assert scene.told == ["gone", None]
        limits._lose("gone again")
        assert scene.told == ["gone", None, "gone again"]

    run(work())


def test_a_loss_is_told_when_the_last_report_is_old_enough() -> None:
    async def work() -> None:
        scene = Scene()
        for _ in range(2):
            scene.limits._lose("gone")
            await scene.limits._join()
            scene.now += TELL_EVERY_S
        assert scene.told == ["gone", None, "gone", None]

    run(work())


@pytest.mark.parametrize(("left", "said"), [(5.0, 5), (0.4, 1)])
def test_nobody_is_let_in_until_all_are_counted_and_everybody_from_then_on(left: float, said: int) -> None:
    async def work() -> None:
        scene = Scene()
        scene.engine.refuse_s = 5.0
        await scene.limits.reached()
        scene.engine.refuse_s = 0.0
        scene.now = 105.0 - left
        assert "nobody is let in" in (scene.limits.fault() or "")
        with pytest.raises(Refusal) as refused:
            await scene.limits.admit(scene.ticket())
        assert refused.value.details == {"reason": "limits_recounted", "retry_after_s": said}
        scene.now = 105.0
        assert scene.limits.fault() is None
        await scene.limits.admit(scene.ticket())
        assert scene.alone() is None
        await scene.limits.close()

    run(work())


def test_a_call_that_asks_while_all_are_counted_anew_is_refused_for_however_short_a_time() -> None:
    async def work() -> None:
        scene = Scene()
        await scene.limits.reached()
        scene.engine.refuse_s = 0.5
        with pytest.raises(Refusal) as refused:
            await scene.limits.admit(scene.ticket())
        assert refused.value.details["reason"] == "limits_recounted"
        await scene.limits.close()

    run(work())


def test_a_keys_own_limits_are_not_above_those_of_all_unless_the_settings_say_so() -> None:
    own = Caller("own", "builder", bounds=CallerBounds(per_minute=600, concurrency=9))
    bounds = SharedBounds(4, 60, 3.0, share_slots=True, share_rate=True)
    assert (bounds.most_of(own), bounds.pace_of(own)) == (4, 60)


def test_a_server_that_has_just_been_switched_on_lets_callers_in() -> None:
    async def work() -> None:
        scene = Scene(now=0.5, per_minute=60)
        await scene.limits.reached()
        assert scene.alone() is None
        assert scene.limits.fault() is None
        await scene.limits.close()

    run(work())


def test_calls_that_wait_too_long_are_decided_each_at_its_own_time() -> None:
    async def work() -> None:
        scene, delays = Scene(), list[float]()
        limits, loop = scene.limits, asyncio.get_running_loop()
        alarm = lambda delay, _: delays.append(delay) or True  # noqa: E731 (a stand-in)
        limits._loop = SimpleNamespace(create_future=loop.create_future, call_later=alarm)  # type: ignore[assignment]
        found = []
        for later in (0.0, 0.05, 0.1, 0.15):
            scene.now = 100.0 + later
            found.append(limits._queued(scene.ticket(), scene.now))
        assert delays == [WAIT_S]
        found[1].set_result(None)
        scene.now = 100.0 + WAIT_S
        limits._look_at_overdue()
        assert [each.done() for each in found] == [True, True, False, False]
        refusal = found[0].result()
        assert refusal is not None
        assert refusal.ending is Ending.UNAVAILABLE
        assert delays[1:] == [pytest.approx(0.1)]
        scene.now = 101.0
        limits._look_at_overdue()
        assert all(each.done() for each in found)
        assert (len(delays), limits._alarm) == (2, None)

    run(work())


def test_what_runs_is_told_again_three_times_in_a_lease() -> None:
    async def work() -> None:
        scene, alarms = Scene(lease_s=3.0), list[float]()
        limits, loop = scene.limits, asyncio.get_running_loop()
        limits._let_in(scene.ticket())
        alarm = lambda at, _: (alarms.append(at), SimpleNamespace(cancel=lambda: None))[1]  # noqa: E731 (a stand-in)
        limits._loop = SimpleNamespace(  # type: ignore[assignment]
            create_future=loop.create_future, time=lambda: scene.now, call_at=alarm
        )
        asking = asyncio.ensure_future(limits._ask_until_unknown())
        for turn in range(1, 2 * RENEWALS):
            await soon(lambda turn=turn: len(alarms) == turn, "it waits for work")  # type: ignore[misc]
            scene.now = 100.0 + turn
            limits._wake()
        await soon(lambda: len(alarms) == 2 * RENEWALS, "it waits for work")
        assert alarms == [100.0 + turn for turn in range(1, 2 * RENEWALS + 1)]
        assert scene.engine.asked == [[LimitClaim("ann", 1)]] * (2 * RENEWALS - 1)
        asking.cancel()

    run(work())


def test_a_ruling_lets_in_as_many_as_got_a_slot_and_says_to_the_others_what_they_lack() -> None:
    async def work() -> None:
        scene = Scene()
        limits = scene.limits
        limits._loop = asyncio.get_running_loop()
        found = [limits._queued(scene.ticket(), scene.now) for _ in range(3)]
        claims = limits._next_claims()
        last = limits._queued(scene.ticket(), scene.now)
        limits._settle(claims, [Ruling(2, 1, False, 7.5)])
        endings = [None if each.result() is None else each.result().ending for each in found]  # type: ignore[union-attr]
        assert endings == [None, Ending.TOO_MANY, Ending.TOO_FAST]
        assert [waiting.decided for waiting in limits._in_order] == [last]

    run(work())


def test_a_share_of_the_rate_is_paced_for_each_caller_and_forgotten_in_time() -> None:
    scene = Scene(per_minute=60)  # two processes: one call every two seconds here
    scene.limits._learn(Standing(True, 2, 0.0))
    assert scene.alone() is None
    scene.now = 101.0
    refusal = scene.alone()
    assert refusal is not None
    assert (refusal.ending, refusal.details) == (Ending.TOO_FAST, {"retry_after_s": 2})
    scene.now = 102.0
    assert scene.alone() is None
    for number in range(4096):
        assert scene.alone(Caller(str(number), "builder")) is None
    scene.now = 103.0
    assert scene.alone(Caller("one more", "builder")) is None
    assert scene.alone() is not None
    assert len(scene.limits._paces) == 4098
    scene.now = 110.0
    scene.alone()
    assert len(scene.limits._paces) == 1


def test_the_paces_of_callers_are_looked_through_when_there_are_more_than_4096() -> None:
    scene = Scene(per_minute=60)
    scene.limits._learn(Standing(True, 2, 0.0))
    for number in range(4096):
        scene.alone(Caller(str(number), "builder"))
        assert number or len(scene.limits._paces) == 1
    scene.now = 110.0
    scene.alone()
    assert len(scene.limits._paces) == 4097
    scene.now = 120.0
    scene.alone()
    assert len(scene.limits._paces) == 1
    scene.now = 130.0
    scene.alone(Caller("another", "builder"))
    assert len(scene.limits._paces) == 2


def test_a_share_of_one_slot_is_one_call() -> None:
    scene = Scene()
    scene.limits._learn(Standing(True, 4, 0.0))
    first = scene.ticket()
    assert scene.limits._decide_alone(first, scene.now) is None
    assert first.slots is scene.limits
    refusal = scene.alone()
    assert refusal is not None
    assert refusal.text.startswith("1 calls of this key")
