"""Our server without what its tools remember between calls: what remembering is measured against, and nothing else.

python -m benchmarks.forgetful serve ...

Stores, files and papers are read anew for each call, and papers judged anew; all else is as always.
"""

from __future__ import annotations

from typing import Any

from toolgate.cli.main import run
from toolgate.kit.sql import Views
from toolgate.packs.library.search.index import Index
from toolgate.packs.lra.checks.known import Reports


def nothing(memory: Any, key: Any) -> None:
    """As if it had never been asked before."""


def never(memory: Any, path: str, now: float) -> None:
    """As above."""


if __name__ == "__main__":
    Views.get = nothing  # type: ignore[method-assign, assignment]
    Index.answered = nothing  # type: ignore[method-assign, assignment]
    Reports.get = nothing  # type: ignore[method-assign, assignment]
    Reports.again = never  # type: ignore[method-assign, assignment]
    run()
