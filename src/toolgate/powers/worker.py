"""The main loop of a worker process: take work, answer, wait for more. It ends silently when either side closes the pipe.

Requests are pickles of a function by name and its data: they come from the server, which is trusted. Answers are plain data
(msgpack): what a worker says, after a stranger's document may have taken it over, runs nothing in the server.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

import msgspec

from toolgate.errors import ToolError

MEMORY_BYTES: Final = 1 << 30
"""Address space of one worker: ten times what a 10 MB document needs, far from what would hurt the machine."""
FILE_BYTES: Final = 0
"""Of one file that a worker writes: its functions get data and return data, and nothing of theirs belongs on a disk."""
OVERTIME_S: Final = 1.0
"""After its time is up the server kills a worker. One whose server has died is ended by its own alarm, this much later."""

RESULT: Final = b"r"
SAID: Final = b"s"
RAISED: Final = b"e"
NO_MEMORY: Final = b"m"
"""The first byte of an answer. SAID: what a ToolError carries. RAISED: the name of any other exception."""


def main(descriptor: int) -> None:
    """Serve the pipe until its other end is closed. Side effects: limits of this process; never returns."""
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    _limit(resource.RLIMIT_CORE, 0)  # a core file would hold a stranger's document, and our memory
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with suppress(EOFError, OSError):  # the server has gone, whatever it was doing
        _serve(Connection(descriptor))
    os._exit(0)  # nothing of ours waits to be written, and what a document left behind shall not speak


def _limit(what: int, most: int) -> None:
    """macOS knows the limits and may refuse to set them; on Linux they hold."""
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(what, (most, most))


def _serve(pipe: Connection) -> None:
    while True:
        function, data, seconds = pickle.loads(pipe.recv_bytes())  # noqa: S301 (from the server that started us)
        signal.setitimer(signal.ITIMER_REAL, seconds + OVERTIME_S)  # SIGALRM ends the process: nothing catches it
        answer = _answer(function, data)
        signal.setitimer(signal.ITIMER_REAL, 0)
        del data
        pipe.send_bytes(answer)


def _answer(function: Callable[[Any], Any], data: Any) -> bytes:
    try:
        return RESULT + msgspec.msgpack.encode(function(data))
    except ToolError as said:
        return SAID + msgspec.msgpack.encode((said.code, said.text, said.missing, said.data))
    except MemoryError:
        return NO_MEMORY
    except Exception as fault:  # noqa: BLE001 (the border of the process: only the kind of fault crosses it)
        return RAISED + type(fault).__name__.encode()
