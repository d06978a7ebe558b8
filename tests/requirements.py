"""Every MUST of the four documents that is built, as a row with an id; tests carry the ids.

The rows live beside the tests that prove them (`rows.py` in their folders); `project/test_requirements.py` checks both
directions.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent


@cache
def rows() -> dict[str, str]:
    """Every row of every folder. An id may stand in one folder only."""
    found: dict[str, str] = {}
    for path in sorted(HERE.rglob("rows.py")):
        module = ".".join(("tests", *path.relative_to(HERE).with_suffix("").parts))
        for key, sentence in import_module(module).ROWS.items():
            if key in found:
                raise ValueError(f"{key} is a row twice; the second one is in {module}")
            found[key] = sentence
    return found
