"""Where every fault of a command becomes one line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from toolgate.cli import output
from toolgate.errors import ExitCode, ToolError, ToolgateError


def told(act: Callable[[], Any]) -> Any:
    """What `act` returns. Side effect: both streams speak UTF-8, for check marks on any locale. Raises: SystemExit."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]  # text streams, or a Terminal
    try:
        return act()
    except ToolgateError as fault:
        report_fault(fault.text if isinstance(fault, ToolError) else str(fault))
    except OSError as fault:
        report_fault(f"{fault.strerror or type(fault).__name__}{f': {fault.filename}' if fault.filename else ''}")
    raise SystemExit(ExitCode.FAILED)


def report_fault(text: str) -> None:
    note(f"error: {text}")


def say(text: str) -> None:
    output.write(text)


def note(text: str) -> None:
    output.write(text + "\n", stderr=True)
