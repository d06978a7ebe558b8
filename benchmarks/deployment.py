"""A home with the bench pack, made like any deployment's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SITE = Path(__file__).parent / "site"
sys.path[:0] = [str(SITE), str(Path(__file__).parents[1])]

from tests.homes import Home, make_home  # noqa: E402 (found through the line above)

ECHO_ARGUMENTS = {"text": "hello", "count": 3, "flag": True}


def bench_home(path: Path, settings: str = "", *, rows: Mapping[str, dict[str, Any]] | None = None) -> Home:
    """`rows`: fields of the manifest's rows, by the tool's name."""
    return make_home(path, packs=("bench",), settings=settings, rows=dict(rows or {}))
