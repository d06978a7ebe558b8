"""When keys were last used, out of the console's index."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from toolgate.console.index.reading import reading
from toolgate.ledger.files import LOG_PATH
from toolgate.model.clock import rfc3339


def read_last_uses(index: Path, runs: Path) -> dict[str, str]:
    """Key id -> when. An index that cannot be read knows of none."""
    try:
        with reading(index, runs / LOG_PATH, None, {}) as reader:
            return {key: rfc3339(last / 1000) for key, (_, last) in reader.last_use().items()}
    except (sqlite3.Error, OSError):
        return {}
