"""Copies of checkpoints for someone else to keep: the only thing that shows a cut or rolled-back log (a file, a command).

Runs on its own thread: an anchor that hangs delays no record. When checkpoints come faster than they are copied the file
gets all and the command the newest, which covers those before it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from toolgate.ledger.files import RunName

_log: Final = logging.getLogger("toolgate.ledger")
COMMAND_SECONDS: Final = 10.0
"""How long an anchor command may take before it is killed and the copy counts as failed."""
RETRY_SECONDS: Final = 1.0
"""Between attempts of an anchor that does not work: a program is not started for every checkpoint of a busy server."""
MAX_PENDING: Final = 1000
"""Checkpoints kept for an anchor that does not work: some minutes under load. The newest matter, the oldest go."""


class Anchors(Struct, frozen=True):
    """Where checkpoints are copied to. Nothing set: nowhere."""

    file: Path | None = None
    command: Sequence[str] = ()

    def __bool__(self) -> bool:
        return self.file is not None or bool(self.command)

    def copy(self, notes: Sequence[str]) -> None:
        """Raises: OSError, subprocess.SubprocessError: not copied."""
        if self.file is not None:
            _append(self.file, "".join(f"{note}\n" for note in notes))
        if self.command:
            subprocess.run(  # noqa: S603 (argv from the operator's settings; no shell, nothing of a caller)
                list(self.command),
                input=notes[-1].encode(),
                check=True,
                timeout=COMMAND_SECONDS,
                env=_without_our_secrets(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )


class AnchorWorker:
    """Copies what is handed to `add`, in order; `on_copied` is told the newest note of each run that arrived."""

    def __init__(self, anchors: Anchors, on_copied: Callable[[RunName, str], None]) -> None:
        self._anchors = anchors
        self._on_copied = on_copied
        self._pending: list[tuple[RunName, str]] = []
        self._changed = threading.Condition()
        self._closing = False
        self._over = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._work, name="toolgate-anchor", daemon=True)
        self._thread.start()

    def add(self, run: RunName, note: str) -> None:
        with self._changed:
            self._pending.append((run, note))
            del self._pending[:-MAX_PENDING]
            self._changed.notify()

    def close(self) -> None:
        """Copies what is left, once; waits for it as long as one command may take."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._over.set()
        self._thread.join(2 * COMMAND_SECONDS)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._pending and not self._closing:
                    self._changed.wait()
                notes, self._pending = self._pending, []
                closing = self._closing
            if notes and not self._copy(notes) and not closing:
                with self._changed:
                    self._pending[:0] = notes
                self._over.wait(RETRY_SECONDS)
            if closing:
                return

    def _copy(self, notes: Sequence[tuple[RunName, str]]) -> bool:
        try:
            self._anchors.copy([note for _, note in notes])
        except (OSError, subprocess.SubprocessError) as fault:
            if not self._failing:
                # Once per outage: the log itself goes on, and says so where operators look.
                _log.warning("checkpoints cannot be copied: %s", type(fault).__name__)
            self._failing = True
            return False
        self._failing = False
        for run, note in dict(notes).items():
            self._on_copied(run, note)
        return True


def _without_our_secrets() -> dict[str, str]:
    """On stdio the caller's key is in our environment; a program that keeps checkpoints has no use for it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}


def _append(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
