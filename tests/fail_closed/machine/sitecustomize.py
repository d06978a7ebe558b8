"""Loaded by Python itself, before anything of a server: system calls of that process that a test can spoil.

The file that FAULTS_FILE names holds a word: `slow` (a sync does not return), `readonly` (the log's files cannot be written), or
`clock SECONDS` (the wall clock is off by so much). What a server does about it is its own.
"""

import errno
import os
import threading
import time
from pathlib import Path

_FILE = Path(os.environ["FAULTS_FILE"])
_PAUSE = threading.Event()
_time, _write, _sync = time.time, os.write, os.fdatasync


def _fault() -> str:
    try:
        return _FILE.read_text()
    except OSError:
        return ""


def _is_log(descriptor: int) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").readlink().suffix == ".jsonl"


def _wall() -> float:
    word, _, seconds = _fault().partition(" ")
    return _time() + (float(seconds) if word == "clock" else 0.0)


def _written(descriptor: int, data: bytes) -> int:
    if _fault() == "readonly" and _is_log(descriptor):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    return _write(descriptor, data)


def _synced(descriptor: int) -> None:
    while _fault() == "slow":
        _PAUSE.wait(0.05)
    _sync(descriptor)


time.time, os.write, os.fdatasync = _wall, _written, _synced
