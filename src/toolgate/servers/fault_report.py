"""Reports internal faults: one line for the operator; the caller gets a generic answer and the server keeps running."""

from __future__ import annotations

import logging
import traceback
from typing import Final

LAST_WORDS_S: Final = 0.5
"""Between giving up and ending: cancelled handlers unwind, their outcomes are written and told."""

_log: Final = logging.getLogger("toolgate")


def report(fault: Exception) -> None:
    """Which kind, and where in our code: enough to find it, and nothing of what the caller sent."""
    frame = traceback.extract_tb(fault.__traceback__)[-1]
    _log.error("internal error: %s in %s line %s", type(fault).__name__, frame.name, frame.lineno)
