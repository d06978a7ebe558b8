"""What the kernel knows about a process: CPU time, memory, cores. Linux only, because these numbers are.

Reading /proc needs no dependency and no sampling thread that would take part in what it measures.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from functools import cache
from pathlib import Path

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
CPU_CLOCK = 2
"""The scheduler's count, rather than ticks."""
KIB = 1024


def require_linux() -> None:
    if not sys.platform.startswith("linux"):
        raise SystemExit("The comparison reads /proc and pins processes to cores: run it on Linux.")


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads, live and ended, to the nanosecond: /proc tells it in hundredths of a second.

    The number of the clock is what clock_getcpuclockid(3) makes of a process on Linux; Python has no name for that.
    Raises: ProcessLookupError: no such process.
    """
    try:
        return time.clock_gettime((~pid << 3) | CPU_CLOCK)
    except OSError as fault:
        raise ProcessLookupError(f"no process {pid}") from fault


def memory_mib(pid: int) -> float:
    """Proportional set size: memory of its own, plus its share of what it shares. Children included."""
    return sum(_pss_kib(each) for each in (pid, *_children(pid))) / KIB


def _pss_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise RuntimeError(f"the kernel tells no memory of process {pid}")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has ended since
            found += [int(word) for word in (task / "children").read_text().split()]
    return found


@cache
def cores() -> tuple[set[int], set[int]]:
    """(for the server, for the load). On one core both share it, and the numbers say so through `describe`.

    Asked of the kernel once: a trial that has moved itself to the load's core would find no other for the server.
    """
    usable = sorted(os.sched_getaffinity(0))
    return {usable[0]}, {usable[-1]}


def pin(pid: int, to: set[int]) -> None:
    os.sched_setaffinity(pid, to)


def pin_below(pid: int, to: set[int]) -> None:
    """Every process that this one has started, and theirs."""
    for each in _children(pid):
        with contextlib.suppress(ProcessLookupError):
            pin(each, to)
            pin_below(each, to)


def busy_seconds() -> float:
    """CPU seconds that all processes of the machine have used: the disturbance is this, less what we used ourselves."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    idle = fields[3] + fields[4]
    return (sum(fields[:8]) - idle) / TICKS_A_SECOND


def describe() -> dict[str, str | int]:
    """What a reader needs to judge the numbers; nothing that names the machine."""
    server, load = cores()
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "server_and_load_on_different_cores": str(server != load).lower(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
