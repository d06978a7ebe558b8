"""Where a fault of our own ends: one line for the operator, a plain answer for the caller, and the server goes on."""

from __future__ import annotations

import logging
import traceback
from typing import Final

_log: Final = logging.getLogger("toolgate")


def report(fault: Exception) -> None:
    """Which kind, and where in our code: enough to find it, and nothing of what the caller sent."""
    frame = traceback.extract_tb(fault.__traceback__)[-1]
    _log.error("internal error: %s in %s line %s", type(fault).__name__, frame.name, frame.lineno)
