"""A lock that processes share: one holds it, a holder that is killed gives it back, one that is stopped keeps nobody waiting."""

from __future__ import annotations

import errno
import mmap
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.homes import PATIENCE_S
from toolgate.errors import Ending, Refusal
from toolgate.gate import process_lock
from toolgate.gate.process_lock import LOCK_BYTES, PAUSE_S, SPINS, WAIT_S, ProcessLock, make_lock

KINDS = ["mutex", "file"]
HOLDER = """
import mmap, os, signal, sys
from toolgate.gate import process_lock
if sys.argv[2] == "file":
    process_lock._libc = lambda: None
memory = mmap.mmap(int(sys.argv[1]), 4096)
with process_lock.ProcessLock(memory, 128, int(sys.argv[1])):
    print("inside", flush=True)
    sys.stdin.readline()
print("outside", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "file":
        monkeypatch.setattr(process_lock, "_libc", lambda: None)
    elif process_lock._libc() is None:
        pytest.skip("this system has no robust mutexes")
    return str(request.param)


@pytest.fixture
def lock(kind: str) -> Iterator[tuple[ProcessLock, int]]:
    with tempfile.TemporaryFile() as file:
        file.truncate(4096)
        with mmap.mmap(file.fileno(), 4096) as memory:
            make_lock(memory, LOCK_BYTES)
            made = ProcessLock(memory, LOCK_BYTES, file.fileno())
            yield made, file.fileno()
            made.close()


@contextmanager
def holding(file: int, kind: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds it until it reads a line."""
    command = [sys.executable, "-c", HOLDER, str(file), kind]
    process = subprocess.Popen(command, pass_fds=(file,), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"inside\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def test_one_process_holds_it_and_the_next_has_it_afterwards(lock: tuple[ProcessLock, int], kind: str) -> None:
    own, file = lock
    with holding(file, kind) as process:
        with pytest.raises(Refusal) as refused, own:
            pass
        assert refused.value.ending is Ending.UNAVAILABLE
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"outside\n"
        with own:
            pass
        with own:
            pass


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_holder(lock: tuple[ProcessLock, int], kind: str, end: signal.Signals) -> None:
    own, file = lock
    for _ in range(2):
        with holding(file, kind) as process:
            process.send_signal(end)
            process.wait(PATIENCE_S)
            with own:
                pass


def test_a_stopped_holder_keeps_it_until_it_is_killed(lock: tuple[ProcessLock, int], kind: str) -> None:
    own, file = lock
    with holding(file, kind) as process:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(Refusal), own:
            pass
        process.kill()
        process.wait(PATIENCE_S)
        with own:
            pass


def test_a_fault_within_gives_it_back(lock: tuple[ProcessLock, int]) -> None:
    own, _ = lock
    with pytest.raises(ZeroDivisionError), own:
        raise ZeroDivisionError
    with own:
        pass


def test_a_lock_whose_state_nobody_knows_lets_nobody_in(
    lock: tuple[ProcessLock, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _ = lock
    monkeypatch.setattr(own, "_take", lambda _: errno.ENOTRECOVERABLE)
    with pytest.raises(Refusal), own:
        pass


def test_it_asks_a_few_times_at_once_then_with_pauses_and_refuses_when_the_time_is_over(
    lock: tuple[ProcessLock, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _ = lock
    now, asked, pauses = [1000.0], [], []

    def pause(length: float) -> None:
        pauses.append(length)
        now[0] = 1000.0 + WAIT_S / 2 * len(pauses)

    monkeypatch.setattr(process_lock, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=pause))
    monkeypatch.setattr(own, "_take", lambda _: asked.append(1) or errno.EBUSY)
    with pytest.raises(Refusal) as refused, own:
        pass
    assert pauses == [PAUSE_S, PAUSE_S]
    assert len(asked) == 1 + SPINS + len(pauses)
    assert refused.value.details == {"reason": "limits_unreachable", "retry_after_s": 1}


def test_it_is_a_mutex_where_the_system_has_those_that_outlive_their_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    for runtime in (SimpleNamespace(pthread_mutexattr_setrobust=None), SimpleNamespace()):
        monkeypatch.setattr("ctypes.PyDLL", lambda _, runtime=runtime: runtime)
        assert (process_lock._libc() is runtime) is hasattr(runtime, "pthread_mutexattr_setrobust")
