"""What the tests give to worker processes: module-level functions, as packs have them."""

from __future__ import annotations

import ctypes
import os
import pickle
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.waiting import until
from toolgate.errors import ToolError
from toolgate.powers import worker

PATIENCE_S = 30.0


class Pair(Struct, frozen=True):
    name: str
    numbers: tuple[int, ...]


def pair(name: str) -> Pair:
    return Pair(name, (1, 2))


def untold(value: Any):  # type: ignore[no-untyped-def]
    return value


def wrongly_told(value: Any) -> list[int]:
    return value  # type: ignore[no-any-return]


def says_no(_: Any) -> None:
    raise ToolError("SOME_CODE", "some text", missing=True, data={"why": 1})


def raises(_: Any) -> None:
    raise ValueError("with a secret")


def pid(_: Any) -> int:
    return os.getpid()


def wait_for(path: str) -> str:
    """Shows that it is inside, then waits for a file."""
    Path(path + ".inside").touch()
    until(Path(path).exists)
    return path


def hang(path: str) -> None:
    Path(path + ".inside").touch()
    while True:
        pass


def stop_reading(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def take_memory(size: int) -> int:
    return len(bytearray(size))


def write_file(path: str) -> int:
    return Path(path).write_bytes(b"x")


def segfault(_: Any) -> None:
    ctypes.string_at(0)


def surroundings(_: Any) -> dict[str, Any]:
    return {
        "memory": resource.getrlimit(resource.RLIMIT_AS),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "file": resource.getrlimit(resource.RLIMIT_FSIZE),
        "environment": sorted(os.environ),
        "directory": str(Path.cwd()),
        "path": sys.path,
        "isolated": sys.flags.isolated,
        "safe_path": sys.flags.safe_path,
    }


class Canary:
    """Unpickling this runs code."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)


def take_over(path: str) -> None:
    """The next answer of this worker is what an attacker would send."""
    worker._answer = lambda *_: pickle.dumps(("result", Canary(path)))  # type: ignore[assignment]


def take_over_with_length(size: int) -> None:
    worker._answer = lambda *_: bytes(size)  # type: ignore[assignment]
