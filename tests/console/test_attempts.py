"""Signing in is tried so often by one address, in one process and in all of a server's together."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.visiting import Visitor, console
from tests.servers.processes.workers import only, until_all_serve
from toolgate.console.attempts import FORGOTTEN_S, MAX_ADDRESSES, MAX_FAILED, Attempts, TooManyAttempts
from toolgate.gate.counted import CountTable, make_table


class Clock:
    now = 1000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def tables() -> Iterator[list[CountTable]]:
    file = make_table(2)
    found = [CountTable(os.dup(file), 2, number) for number in range(2)]
    yield found
    for table in found:
        table.close()
    os.close(file)


@pytest.fixture(params=["own", "shared"])
def counted(request: pytest.FixtureRequest, tables: list[CountTable]) -> tuple[Attempts, Clock]:
    clock = Clock()
    return Attempts(clock, None if request.param == "own" else tables[0]), clock


def use_up(attempts: Attempts, address: str) -> None:
    for _ in range(MAX_FAILED):
        attempts.begin(address)


def test_an_address_has_so_many_attempts_and_others_have_theirs(counted: tuple[Attempts, Clock]) -> None:
    attempts, clock = counted
    use_up(attempts, "a")
    with pytest.raises(TooManyAttempts):
        attempts.begin("a")
    attempts.begin("b")
    clock.now += FORGOTTEN_S / MAX_FAILED
    attempts.begin("a")
    with pytest.raises(TooManyAttempts):
        attempts.begin("a")
    clock.now += FORGOTTEN_S
    use_up(attempts, "a")


def test_an_attempt_that_worked_does_not_count(counted: tuple[Attempts, Clock]) -> None:
    attempts, _ = counted
    for _ in range(3 * MAX_FAILED):
        attempts.begin("a")
        attempts.worked("a")
    use_up(attempts, "a")
    with pytest.raises(TooManyAttempts):
        attempts.begin("a")


def test_processes_count_the_attempts_of_an_address_together(tables: list[CountTable]) -> None:
    one, other = (Attempts(Clock(), table) for table in tables)
    use_up(one, "a")
    with pytest.raises(TooManyAttempts):
        other.begin("a")
    other.begin("b")


def test_so_many_addresses_are_remembered_and_the_rest_of_the_table_is_the_callers(tables: list[CountTable]) -> None:
    clock = Clock()
    attempts = Attempts(clock, tables[0])
    for number in range(MAX_ADDRESSES + 50):
        attempts.begin(f"address {number}")
    held = [tables[0].known(f"sign-in from address {number}") for number in range(MAX_ADDRESSES + 50)]
    live = [place for place in held if place is not None and tables[0].second(place) > clock.now]
    assert len(live) == MAX_ADDRESSES


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the lock is a process's, and this is one")
def test_nobody_signs_in_while_nobody_can_count(tables: list[CountTable]) -> None:
    with tables[1].changing(), pytest.raises(TooManyAttempts):
        Attempts(Clock(), tables[0]).begin("a")


@pytest.mark.guard
def test_an_address_has_no_more_attempts_at_two_workers_than_at_one(tmp_path: Path) -> None:
    with console(tmp_path / "home", "--workers", "2") as (home, server):
        until_all_serve(home)
        person, statuses = Visitor(server.port), []
        for number in range(MAX_FAILED + 2):
            with only(home, number % 2):
                statuses.append(person.post("sign-in", {"key": f"tg_{number}"}, X_Forwarded_For="192.0.2.9").status)
        assert statuses == [403] * MAX_FAILED + [429] * 2
        assert person.post("sign-in", {"key": home.keys["admin"]}).status == 303, "others are not kept out"
