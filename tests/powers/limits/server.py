"""A real Redis for tests, out of the package registry: on a socket of its own, keeping nothing on disk."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.homes import PATIENCE_S
from tests.support import need
from tests.waiting import until
from toolgate.powers.limits.redis import ANSWER_S, PREFIX

IMPATIENCE_S = ANSWER_S


def wait_for_engine(patch: pytest.MonkeyPatch, seconds: float) -> None:
    patch.setattr("toolgate.powers.limits.redis.ANSWER_S", seconds)
    patch.setattr("toolgate.gate.shared.WAIT_S", seconds)


class Redis:
    """One server that can be stopped, started again, held still and emptied."""

    def __init__(self) -> None:
        self._program = need("redis")
        self._directory = Path(
            tempfile.mkdtemp(prefix="tg-redis-")
        )  # short: the path of a socket has 108 bytes at most
        self._socket = self._directory / "socket"
        self.url = f"unix://{self._socket}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [self._program, "--port", "0", "--unixsocket", self._socket, "--save", "", "--dir", self._directory],
            stdout=subprocess.DEVNULL,
        )
        until(self._answers, "Redis answers")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE_S)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It stands still: it is connected to, and answers nothing. Meanwhile it is waited for as long as a server would."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            with pytest.MonkeyPatch.context() as patch:
                wait_for_engine(patch, IMPATIENCE_S)
                yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def forget(self) -> None:
        """What it has saved is not found again."""
        (self._directory / "dump.rdb").unlink(missing_ok=True)

    def empty(self) -> None:
        self.command("FLUSHALL")

    def grow_old(self) -> None:
        """As if what it knows had been begun long ago."""
        run_id = self.command("INFO", "server").decode().split("run_id:")[1].split("\r\n")[0]
        self.command("HSET", PREFIX + "state", "epoch", run_id, "since", "1")

    def command(self, *words: str) -> bytes:
        """What it answers, as far as one read shows it."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(PATIENCE_S)
            peer.connect(str(self._socket))
            spelt = b"".join(b"$%d\r\n%b\r\n" % (len(word.encode()), word.encode()) for word in words)
            peer.sendall(b"*%d\r\n%b" % (len(words), spelt))
            return peer.recv(1 << 20)

    def names(self) -> list[str]:
        found = self.command("KEYS", "*").decode().split("\r\n")[1:]
        return sorted(word for word in found if word and not word.startswith("$"))

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            return self.command("PING") == b"+PONG\r\n"
        except OSError:
            return False
