"""Counts that several processes share: never more than the limit, whoever is killed, and nothing lost afterwards."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.homes import PATIENCE_S
from tests.waiting import until
from toolgate.errors import Ending, Refusal
from toolgate.gate.counted import CountTable, TableRate, TableSlots, make_table
from toolgate.model.call import Caller

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
