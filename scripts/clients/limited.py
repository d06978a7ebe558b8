"""Run somebody else's program within a time limit, with all that it starts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 5.0
"""For pipes that a process outside the killed group still holds."""


@dataclass(frozen=True)
class Done:
    code: int | None
    """None: it was killed, because its time was up."""
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err


def run(
    command: Sequence[str],
    seconds: float,
    *,
    told: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Done:
    """`told` goes to its standard input. A client starts servers of its own; a time limit that left them running, or waited for
    the pipes they hold, would be none."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, env=env, cwd=cwd, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(told, timeout=seconds)
        return Done(process.returncode, out, err)
    except subprocess.TimeoutExpired:
        return Done(None, *_killed(process))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _killed(process: subprocess.Popen[str]) -> tuple[str, str]:
    os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        return "", "killed, but something that it started still holds its pipes\n"
