"""Who runs where: the server alone on one core, those who call it on another, so that nobody merely starves it of time.

Where this user may, all of them go before whatever else the machine is doing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

AUTOGROUP = Path("/proc/self/autogroup")
"""Linux shares a core among terminal sessions first, and only then among the processes of each by their niceness."""


@contextmanager
def before_other_sessions() -> Iterator[None]:
    found = re.search(r"nice (-?[0-9]+)", AUTOGROUP.read_text() if AUTOGROUP.exists() else "")
    if found is None:
        yield
        return
    with suppress(PermissionError):
        AUTOGROUP.write_text("-20")
    try:
        yield
    finally:
        with suppress(PermissionError):
            AUTOGROUP.write_text(found[1])


def cores() -> tuple[set[int], set[int]]:
    """The server's, and everybody else's. On a machine with one core they are the same."""
    usable = sorted(os.sched_getaffinity(0))
    return {usable[0]}, set(usable[1:2] or usable)


def place_server(pid: int) -> None:
    """All of its threads; those it starts later inherit it, and so do its worker processes."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        _place(int(thread.name), cores()[0], -15)


def place_caller() -> None:
    """This process measures: it goes before the attackers, which share its core, and it needs little of it."""
    _place(0, cores()[1], -20)
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def place_attacker() -> None:
    _place(0, cores()[1], -5)
    if os.getpriority(os.PRIO_PROCESS, 0) >= 0:
        os.setpriority(os.PRIO_PROCESS, 0, 5)


def _place(thread: int, where: set[int], niceness: int) -> None:
    with suppress(ProcessLookupError):  # it has ended
        os.sched_setaffinity(thread, where)
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, thread, niceness)
