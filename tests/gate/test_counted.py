"""Counts that several processes share: never more than the limit, whoever is killed, and nothing lost afterwards."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.homes import PATIENCE_S
from tests.waiting import until
from toolgate.errors import Ending, Refusal
from toolgate.gate.counted import LEASE_S, CountTable, TableRate, TableSlots, make_table, table_bytes
from toolgate.model.call import Caller, CallerBounds

PROCESSES = 4
ANN, BEN = Caller("ann", "builder"), Caller("ben", "builder")


@pytest.fixture
def tables() -> Iterator[list[CountTable]]:
    """As each process has it. In one process they do not exclude each other: the lock is a process's."""
    file = make_table(PROCESSES)
    found = [CountTable(os.dup(file), PROCESSES, number) for number in range(PROCESSES)]
    yield found
    for table in found:
        table.close()
    os.close(file)


def slots(table: CountTable, per_caller: int = 3, total: int = 5) -> TableSlots:
    return TableSlots(table, per_caller=per_caller, total=total)


def test_slots_of_a_caller_are_counted_over_all_processes(tables: list[CountTable]) -> None:
    one, other = slots(tables[0]), slots(tables[1])
    for each in (one, other, one):
        each.take(ANN)
    for each in (one, other):
        with pytest.raises(Refusal) as refused:
            each.take(ANN)
        assert refused.value.ending is Ending.TOO_MANY
        with pytest.raises(Refusal):
            each.check(ANN)
    one.give_back(ANN)
    other.take(ANN)
    assert (one.held(), other.held(), tables[2].all_held()) == (1, 2, 3)


def test_the_total_is_counted_over_all_processes(tables: list[CountTable]) -> None:
    one, other = slots(tables[0]), slots(tables[1])
    for each, caller in ((one, ANN), (other, ANN), (one, BEN), (other, BEN), (other, BEN)):
        each.take(caller)
    with pytest.raises(Refusal, match="5 calls are running on this server"):
        one.take(ANN)


def test_what_a_process_held_is_free_when_it_is_forgotten(tables: list[CountTable]) -> None:
    one, other = slots(tables[0]), slots(tables[1])
    one.take(ANN)
    one.take(ANN)
    other.take(ANN)
    tables[2].forget(0)
    assert tables[1].all_held() == 1
    other.take(ANN)
    other.take(ANN)
    with pytest.raises(Refusal):
        other.take(ANN)


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_what_a_process_holds_is_its_own_in_every_row(monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    monkeypatch.setattr("toolgate.gate.counted.ROWS", 16)
    file = make_table(processes)
    tables = [CountTable(os.dup(file), processes, number) for number in range(processes)]
    for number in range(16):
        for table in tables:
            slots(table, per_caller=processes, total=100).take(Caller(f"caller-{number}", "builder"))
    for left, table in reversed([*enumerate(tables)]):
        tables[0].forget(table.own)
        for number in range(16):
            place = tables[-1].known(f"caller-{number}")
            assert place is not None
            assert tables[-1].held(place) == left
        assert tables[-1].all_held() == 16 * left
    for table in tables:
        table.close()
    os.close(file)


@pytest.mark.parametrize(("processes", "row"), [(1, 24), (2, 24), (3, 32), (4, 32)])
def test_a_row_takes_no_more_memory_than_its_counts(monkeypatch: pytest.MonkeyPatch, processes: int, row: int) -> None:
    monkeypatch.setattr("toolgate.gate.counted.ROWS", 0)
    head = table_bytes(processes)
    monkeypatch.setattr("toolgate.gate.counted.ROWS", 10)
    assert table_bytes(processes) - head == 10 * row


def test_a_full_server_is_full_for_callers_it_has_never_seen(tables: list[CountTable]) -> None:
    held = slots(tables[0], per_caller=3, total=2)
    held.check(ANN)
    held.take(BEN)
    held.take(BEN)
    with pytest.raises(Refusal, match="2 calls are running on this server"):
        held.check(ANN)


def test_a_keys_own_limits_do_not_exceed_those_of_all_unless_the_settings_say_so(tables: list[CountTable]) -> None:
    held, rate = slots(tables[0], per_caller=1), TableRate(tables[0], per_minute=3)
    held.take(OWN)
    with pytest.raises(Refusal, match="1 calls of this key"):
        held.take(OWN)
    for begun in (100.0, 300.0):
        for _ in range(3):
            rate.take(OWN, begun)
        with pytest.raises(Refusal):
            rate.take(OWN, begun)
        rate.limit(per_minute=3)


def test_a_call_that_a_keys_own_rate_refuses_does_not_count(tables: list[CountTable]) -> None:
    rate = TableRate(tables[0], per_minute=60)
    for _ in range(6):
        rate.take(OWN, 100.0)
    for now in (100.0, 109.5):
        with pytest.raises(Refusal):
            rate.take(OWN, now)
    rate.take(OWN, 110.0)


def test_a_rate_is_one_for_all_processes(tables: list[CountTable]) -> None:
    rates = [TableRate(table, per_minute=5) for table in tables]
    passed = 0
    for number in range(20):
        with suppress(Refusal):
            rates[number % PROCESSES].take(ANN, 100.0)
            passed += 1
    assert passed == 5
    rates[3].take(BEN, 100.0)
    rates[2].take(ANN, 112.0)


OWN = Caller("own", "builder", bounds=CallerBounds(per_minute=6, concurrency=2))


@pytest.mark.parametrize(("per_caller", "may_exceed", "most"), [(3, False, 2), (1, False, 1), (1, True, 2)])
def test_a_key_has_its_own_slots_over_all_processes(
    tables: list[CountTable], per_caller: int, may_exceed: bool, most: int
) -> None:
    found = [TableSlots(table, per_caller=per_caller, total=50, may_exceed=may_exceed) for table in tables]
    for number in range(most):
        found[number].check(OWN)
        found[number].take(OWN)
    for each in found:
        with pytest.raises(Refusal, match=f"{most} calls of this key"):
            each.take(OWN)
        with pytest.raises(Refusal):
            each.check(OWN)


@pytest.mark.parametrize(
    ("per_minute", "may_exceed", "most"), [(60_000, False, 6), (0, False, 6), (3, False, 3), (3, True, 6)]
)
def test_a_key_has_its_own_rate_over_all_processes(
    tables: list[CountTable], per_minute: int, may_exceed: bool, most: int
) -> None:
    rates = [TableRate(table, per_minute=per_minute, may_exceed=may_exceed) for table in tables]
    passed = 0
    for number in range(40):
        with suppress(Refusal):
            rates[number % PROCESSES].take(OWN, 100.0)
            passed += 1
    assert passed == most
    rates[1].take(OWN, 100.0 + 60.0 / most)


def test_a_fast_rate_never_lets_more_through_than_one_process_would(tables: list[CountTable]) -> None:
    """Calls of it are taken beforehand, so that is looked at in every stretch of time."""
    per_minute, chance, now = 12_000, random.Random(4), 1000.0
    rates = [TableRate(table, per_minute=per_minute) for table in tables]
    passed: list[float] = []
    while now < 1070.0:
        now += chance.choice([0.0, 0.0, 0.0001, 0.001, 0.005]) * chance.random()
        with suppress(Refusal):
            chance.choice(rates).take(ANN, now)
            passed.append(now)
    assert len(passed) > 2 * per_minute
    # As a bucket that drips: what is in it never exceeds a minute's worth.
    level, before = 0.0, passed[0]
    for second in passed:
        level = max(0.0, level - (second - before) * per_minute / 60) + 1
        before = second
        assert level <= per_minute + 1e-3


def test_a_fast_rates_burst_is_shorter_by_what_processes_may_have_taken_and_used_up_to_the_last_call(
    tables: list[CountTable],
) -> None:
    rate, passed = TableRate(tables[0], per_minute=7500), 0  # two calls at a time, which do not divide the burst
    with suppress(Refusal):
        while True:
            rate.take(ANN, 100.0)
            passed += 1
    assert passed == int((60 - (PROCESSES + 1) * LEASE_S) * 7500 / 60)


def test_what_was_taken_of_a_fast_rate_is_used_without_the_table_until_it_ends(tables: list[CountTable]) -> None:
    rate, full_again = TableRate(tables[0], per_minute=60_000), []
    for now in (100.0, 100.0 + 0.9 * LEASE_S, 100.0 + LEASE_S):
        rate.take(ANN, now)
        place = tables[0].known("ann")
        assert place is not None
        full_again.append(tables[0].second(place))
    assert full_again == pytest.approx([100.0 + LEASE_S, 100.0 + LEASE_S, 100.0 + 2 * LEASE_S])


def test_what_was_taken_of_a_fast_rate_and_not_used_is_given_back(tables: list[CountTable]) -> None:
    rates = [TableRate(table, per_minute=60_000) for table in tables]
    for number in range(4000):  # a tenth of what it may
        rates[number % PROCESSES].take(ANN, 1000.0 + number / 100)
    place = tables[0].known("ann")
    assert place is not None
    assert tables[0].second(place) - 1039.99 < PROCESSES * LEASE_S + 1e-6


def test_a_rate_that_is_lowered_holds_from_the_next_call_on(tables: list[CountTable]) -> None:
    rate = TableRate(tables[0], per_minute=60_000)
    rate.take(ANN, 100.0)
    rate.limit(per_minute=1)
    rate.take(ANN, 100.1)
    with pytest.raises(Refusal) as refused:
        rate.take(ANN, 100.1)
    assert refused.value.ending is Ending.TOO_FAST


def test_callers_of_whom_calls_were_taken_beforehand_are_forgotten_in_time(
    tables: list[CountTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolgate.gate.counted.LEASES", 8)
    rate, remembered = TableRate(tables[0], per_minute=60_000), []
    for number in range(100):
        rate.take(Caller(f"caller-{number}", "builder"), 100.0 + number)
        remembered.append(len(rate._leases))
    assert max(remembered) == remembered[8] == 9


def test_of_a_slow_rate_nothing_is_remembered_by_a_process(tables: list[CountTable]) -> None:
    rate = TableRate(tables[0], per_minute=60)
    rate.take(ANN, 100.0)
    assert not rate._leases


def test_many_callers_have_rows_and_those_that_say_nothing_any_more_are_used_again(
    tables: list[CountTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolgate.gate.counted.ROWS", 64)
    held = slots(tables[0], total=10_000)
    for number in range(64):
        held.take(Caller(f"held-{number}", "builder"))
    with pytest.raises(Refusal) as refused:
        held.take(Caller("one-too-many", "builder"))
    assert refused.value.ending is Ending.UNAVAILABLE
    held.give_back(Caller("held-7", "builder"))
    held.take(Caller("one-too-many", "builder"))
    assert tables[0].all_held() == 64


def test_a_row_that_is_used_again_leaves_the_others_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.gate.counted.ROWS", 8)
    file = make_table(2)
    table = CountTable(file, 2, 0)
    held, rate = slots(table, total=10_000), TableRate(table, per_minute=60)
    for number in range(8):
        held.take(Caller(f"held-{number}", "builder"))
    for number in range(8):
        held.give_back(Caller(f"held-{number}", "builder"))
        rate.take(Caller(f"new-{number}", "builder"), 1e9)
        held.take(Caller(f"new-{number}", "builder"))
    assert [table.held(table.known(f"new-{number}") or 0) for number in range(8)] == [1] * 8
    table.close()


def test_a_row_is_used_again_from_the_second_on_in_which_its_rate_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.gate.counted.ROWS", 1)
    file = make_table(1)
    table = CountTable(file, 1, 0)
    rate = TableRate(table, per_minute=60)
    rate.take(ANN, 100.0)
    with pytest.raises(Refusal) as refused:
        rate.take(BEN, 100.9)
    assert refused.value.ending is Ending.UNAVAILABLE
    rate.take(BEN, 101.0)
    table.close()


def test_a_process_remembers_where_rows_are_of_no_more_callers_than_there_are_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolgate.gate.counted.ROWS", 8)
    file = make_table(1)
    table, remembered = CountTable(file, 1, 0), []
    rate = TableRate(table, per_minute=60)
    for number in range(20):
        rate.take(Caller(f"caller-{number}", "builder"), 100.0 * number)
        remembered.append(len(table._places))
    assert remembered[:8] == list(range(1, 9))
    assert max(remembered) == 8
    table.close()


WORKER = """
import os, sys
from toolgate.gate.counted import CountTable, TableSlots
from toolgate.errors import Refusal
from toolgate.model.call import Caller
table = CountTable(int(sys.argv[1]), 4, int(sys.argv[2]))
slots, log = TableSlots(table, per_caller=3, total=100), int(sys.argv[3])
ann = Caller("ann", "builder")
print("begun", flush=True)
while True:
    try:
        slots.take(ann)
    except Refusal:
        continue
    seen = table.held(table.known("ann"))
    os.write(log, bytes([seen]))
    slots.give_back(ann)
"""


@pytest.mark.guard
def test_processes_that_are_killed_at_random_never_exceed_the_limit_and_lose_no_slot() -> None:
    file, (reading, writing) = make_table(4), os.pipe()
    os.set_blocking(reading, False)
    own = CountTable(os.dup(file), 4, -1)
    chance = random.Random(20)
    found = bytearray()

    def start(number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", WORKER, str(file), str(number), str(writing)]
        process = subprocess.Popen(command, pass_fds=(file, writing), stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def read() -> bool:
        with suppress(BlockingIOError):
            found.extend(os.read(reading, 65_536))
        return True

    def end(number: int, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
        own.forget(number)

    running = [start(number) for number in range(4)]
    try:
        for _ in range(6):
            before = len(found)
            until(lambda: read() and len(found) > before + 200, "they go on")  # noqa: B023
            number = chance.randrange(4)
            end(number, running[number])
            running[number] = start(number)
    finally:
        for number, process in enumerate(running):
            end(number, process)
    read()
    assert max(found) <= 3
    assert own.all_held() == 0
    own.close()
    for each in (file, reading, writing):
        os.close(each)


ALONE = """
import fcntl, os, sys
from toolgate.gate.counted import CountTable, TableSlots
from toolgate.errors import Refusal
from toolgate.model.call import Caller
table = CountTable(int(sys.argv[1]), 4, int(sys.argv[2]))
slots, log = TableSlots(table, per_caller=1, total=100), int(sys.argv[3])
callers = [(Caller(str(number), "builder"), os.open(f"{sys.argv[4]}/{number}", os.O_CREAT | os.O_RDWR)) for number in range(50)]
print("begun", flush=True)
while True:
    for caller, file in callers:
        try:
            slots.take(caller)
        except Refusal:
            continue
        try:  # the kernel knows whether another process runs a call of this caller
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = b"."
        except OSError:
            found = b"!"
        os.write(log, found)
        fcntl.flock(file, fcntl.LOCK_UN)
        slots.give_back(caller)
"""


@pytest.mark.guard
def test_with_one_slot_for_each_of_many_callers_no_two_run_whoever_is_killed(tmp_path: Path) -> None:
    file, (reading, writing) = make_table(4), os.pipe()
    own = CountTable(os.dup(file), 4, -1)

    def start(number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", ALONE, str(file), str(number), str(writing), str(tmp_path)]
        process = subprocess.Popen(command, pass_fds=(file, writing), stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    found = bytearray()
    running = [start(number) for number in range(4)]
    try:
        for turn in range(8):
            for _ in range(5):
                found += os.read(reading, 65_536)
            victim = running[turn % 4]
            victim.kill()
            victim.communicate(timeout=PATIENCE_S)
            own.forget(turn % 4)
            running[turn % 4] = start(turn % 4)
    finally:
        os.close(reading)  # whoever writes now ends
        for number, process in enumerate(running):
            process.kill()
            process.communicate(timeout=PATIENCE_S)
            own.forget(number)
    assert set(found) == set(b".")
    assert own.all_held() == 0
    free = slots(own, per_caller=1, total=100)
    for number in range(50):
        free.check(Caller(str(number), "builder"))
    own.close()
    os.close(writing)
    os.close(file)


def test_a_process_that_is_stopped_with_the_lock_makes_others_refuse_and_not_wait() -> None:
    file = make_table(2)
    code = (
        "import os, signal, sys; from toolgate.gate.counted import CountTable\n"
        "with CountTable(int(sys.argv[1]), 2, 0).changing():\n"
        "    print('inside', flush=True); os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(file)], pass_fds=(file,), stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    table = CountTable(os.dup(file), 2, 1)
    try:
        with pytest.raises(Refusal) as refused:
            slots(table).take(ANN)
        assert refused.value.ending is Ending.UNAVAILABLE
        process.kill()
        process.communicate(timeout=PATIENCE_S)
        slots(table).take(ANN)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)
        table.close()
        os.close(file)
