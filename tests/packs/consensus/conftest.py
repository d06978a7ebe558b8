from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.packs.consensus.nodes import Office, council

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """One arbiter alone, on SQLite, as a fresh installation is."""
    one = Office(tmp_path / "one")
    yield one
    one.close()


@pytest.fixture
def four(tmp_path: Path) -> Iterator[list[Office]]:
    offices = [Office(tmp_path / name) for name in ("a", "b", "c", "d")]
    council(offices)
    yield offices
    for each in offices:
        each.close()
