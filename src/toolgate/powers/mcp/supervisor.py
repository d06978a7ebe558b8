"""The small program between the gate and a child. Run as a script, with the standard library alone.

It is told over its lifeline (descriptor 3) what to start, starts it in a session of its own and waits. When the child ends,
when it is told to, or when the lifeline breaks because the gate has died, it ends the child and everything the child
started: standard input is closed already, then TERM to the group, then KILL to every descendant. On Linux it adopts
orphans, so that a grandchild which left the group is found, too; elsewhere the group is all that can be reached.

It writes one line of JSON for each event: started, failed, ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

LIFELINE = 3
MAX_ORDER = 1 << 20
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
LINUX = sys.platform == "linux"
SWEEPS = 100
"""Looks for descendants that are left. Each look kills all that it finds; one that forks faster is met by the next."""


def main() -> None:
    lifeline = socket.socket(fileno=LIFELINE)
    lifeline.set_inheritable(False)
    order = _read_order(lifeline)
    if order is None:
        return
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake = _wake_on_child()
    child, fault = _start(order)
    for descriptor in (0, 1, 2):  # they are the child's: its end must be seen at the other ends
        with suppress(OSError):
            os.close(descriptor)
    if fault:
        _say(lifeline, {"failed": fault})
        return
    _say(lifeline, {"started": child})
    ended = _wait(child, lifeline, wake)
    if ended is None:
        ended = _stop(child, order["grace_s"], wake)
    _sweep(child)
    _say(lifeline, {"ended": ended})


def _read_order(lifeline: socket.socket) -> dict[str, Any] | None:
    data = b""
    while not data.endswith(b"\n"):
        piece = lifeline.recv(65_536)
        if not piece or len(data) > MAX_ORDER:
            return None
        data += piece
    order: dict[str, Any] = json.loads(data)
    return order


def _say(lifeline: socket.socket, event: dict[str, Any]) -> None:
    with suppress(OSError):  # the gate has gone
        lifeline.sendall(json.dumps(event).encode() + b"\n")


def _prctl(option: int, value: int) -> None:
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _wake_on_child() -> int:
    """A descriptor that is readable when a child ended, or when somebody wants us to end."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    os.set_blocking(ours, False)
    signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return ours


def _start(order: dict[str, Any]) -> tuple[int, str | None]:
    """The child, and why it could not be started."""
    ours, theirs = os.pipe()  # not inheritable: it closes when the program has replaced us
    child = os.fork()
    if not child:
        _become(order, theirs)
    os.close(theirs)
    with os.fdopen(ours, "rb") as report:
        fault = report.read(1000).decode()
    return child, fault or None


def _become(order: dict[str, Any], report: int) -> NoReturn:
    try:
        os.setsid()
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        parent = os.getppid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # if we are killed, at least the program itself goes with us
        if os.getppid() != parent:
            os._exit(1)
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_NOFILE, order["files"])
        # Not the address space: Node and Chromium reserve hundreds of gigabytes of it and use little.
        _limit(resource.RLIMIT_DATA, order["memory_bytes"])
        os.chdir(order["directory"])
        os.execvpe(order["command"][0], order["command"], order["environment"])  # noqa: S606 (the operator's own program)
    except BaseException as fault:  # noqa: BLE001 (the process ends here, whatever it was)
        reason = fault.strerror if isinstance(fault, OSError) and fault.strerror else type(fault).__name__
        os.write(report, reason.encode())
    os._exit(127)


def _limit(what: int, most: int) -> None:
    """A limit that the system refuses (macOS) is left as it is."""
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(what, (most, most))


def _wait(child: int, lifeline: socket.socket, wake: int) -> int | None:
    """How the child ended; None: it is to be ended."""
    while True:
        readable, _, _ = select.select([lifeline.fileno(), wake], [], [])
        ended = _reap(child)
        if ended is not None:
            return ended
        if lifeline.fileno() in readable:
            return None  # an order to stop, or the end of the gate
        if _drain(wake):
            return None


def _drain(wake: int) -> bool:
    """True when one of the signals asked us to end."""
    try:
        return any(number != signal.SIGCHLD for number in os.read(wake, 4096))
    except BlockingIOError:
        return False


def _reap(child: int) -> int | None:
    """How the child itself ended (a signal as its negative number). Orphans that we adopted are buried on the way."""
    found = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            if pid == child:
                found = os.waitstatus_to_exitcode(status)
    return found


def _stop(child: int, grace_s: float, wake: int) -> int:
    """Its input is closed: it has the grace to end by itself, then TERM, the grace again, then KILL."""
    for number in (None, signal.SIGTERM):
        if number is not None:
            _signal_group(child, number)
        ended = _wait_for(child, grace_s, wake)
        if ended is not None:
            return ended
    _signal_group(child, signal.SIGKILL)
    while (ended := _wait_for(child, grace_s, wake)) is None:
        pass  # a killed process ends as soon as the kernel lets go of it
    return ended


def _wait_for(child: int, seconds: float, wake: int) -> int | None:
    due = time.monotonic() + seconds
    while True:
        ended = _reap(child)
        left = due - time.monotonic()
        if ended is not None or left <= 0:
            return ended
        select.select([wake], [], [], left)
        _drain(wake)


def _signal_group(child: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, number)


def _sweep(child: int) -> None:
    """Nothing of it stays: not the rest of the group, and no descendant that left it."""
    _signal_group(child, signal.SIGKILL)
    for _ in range(SWEEPS):
        _reap(child)
        left = _descendants()
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _descendants() -> list[int]:
    """Every process below us, as the kernel tells it (Linux; elsewhere none)."""
    found: list[int] = []
    pending = [os.getpid()] if LINUX else []
    while pending:
        below = _children(pending.pop())
        found += below
        pending += below
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += [int(each) for each in (task / "children").read_text().split()]
    return found


if __name__ == "__main__":
    main()
