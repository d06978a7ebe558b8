"""Our server with an audit log that goes to /dev/null: what the guarantee is measured against, and nothing else.

python -m benchmarks.unwritten serve ...

Every record is made, chained and handed to write(2) as always; only the file takes nothing in and is not synced.
"""

from __future__ import annotations

import os
from pathlib import Path

from toolgate.cli.main import run
from toolgate.ledger import files


def nowhere(path: Path) -> int:  # noqa: ARG001 (the shape of what it replaces)
    return os.open(os.devnull, os.O_WRONLY)


def unsynced(descriptor: int) -> None:
    """/dev/null has nothing to sync, and says so with an error."""


if __name__ == "__main__":
    files.create_segment = nowhere
    files.sync_data = unsynced
    run()
