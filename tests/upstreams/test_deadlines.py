"""One timer for all requests of a connection: each fails when its own time is up, and none because of another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from toolgate.powers.mcp.transport import Deadlines


class Timer:
    def __init__(self, at: float, fire: Callable[[], None]) -> None:
        self.at, self.fire, self.is_cancelled = at, fire, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clockwork:
    """The part of an event loop that tells the time, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, fire: Callable[[], None]) -> Timer:
        self.timers.append(Timer(at, fire))
        return self.timers[-1]

    def go_to(self, moment: float) -> None:
        self.now = moment
        for timer in [each for each in self.timers if each.at <= moment and not each.is_cancelled]:
            self.timers.remove(timer)
            timer.fire()

    def set_timers(self) -> list[float]:
        return [each.at for each in self.timers if not each.is_cancelled]


@pytest.fixture
def clockwork() -> Clockwork:
    return Clockwork()


@pytest.fixture
def deadlines(clockwork: Clockwork) -> Deadlines:
    return Deadlines(cast("asyncio.AbstractEventLoop", clockwork))


@pytest.fixture
def waiting() -> Any:
    loop = asyncio.new_event_loop()
    yield loop.create_future
    loop.close()


def test_each_request_fails_when_its_own_time_is_up(clockwork: Clockwork, deadlines: Deadlines, waiting: Any) -> None:
    long, short, middle = waiting(), waiting(), waiting()
    deadlines.begin(long, 60.0)
    deadlines.begin(short, 1.0)
    deadlines.begin(middle, 2.0)
    assert clockwork.set_timers() == [1.0]
    clockwork.go_to(1.0)
    assert isinstance(short.exception(), TimeoutError)
    assert not middle.done()
    clockwork.go_to(2.5)
    assert isinstance(middle.exception(), TimeoutError)
    assert not long.done()
    assert clockwork.set_timers() == [60.0]


def test_a_timer_that_fires_too_early_is_set_again(clockwork: Clockwork, deadlines: Deadlines, waiting: Any) -> None:
    request = waiting()
    deadlines.begin(request, 1.0)
    timer = clockwork.timers.pop()
    clockwork.now = 0.999
    timer.fire()
    assert not request.done()
    clockwork.go_to(1.0)
    assert isinstance(request.exception(), TimeoutError)


def test_what_has_ended_does_not_fail(clockwork: Clockwork, deadlines: Deadlines, waiting: Any) -> None:
    ended, answered = waiting(), waiting()
    deadlines.begin(ended, 1.0)
    deadlines.begin(answered, 1.0)
    deadlines.end(ended)
    answered.set_result("answer")
    clockwork.go_to(1.0)
    assert not ended.done()
    assert answered.result() == "answer"
    assert not clockwork.set_timers()


def test_a_request_after_all_others_have_ended_has_a_timer_again(
    clockwork: Clockwork, deadlines: Deadlines, waiting: Any
) -> None:
    first, second = waiting(), waiting()
    deadlines.begin(first, 1.0)
    deadlines.end(first)
    clockwork.go_to(1.0)
    deadlines.begin(second, 1.0)
    clockwork.go_to(2.0)
    assert isinstance(second.exception(), TimeoutError)


def test_a_connection_that_ends_leaves_no_timer(clockwork: Clockwork, deadlines: Deadlines, waiting: Any) -> None:
    deadlines.begin(waiting(), 1.0)
    deadlines.close()
    assert not clockwork.set_timers()
