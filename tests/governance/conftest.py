from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.governance.desk import Desk
from tests.stores.postgres import Postgres, shared_postgres
from toolgate.powers.compute import ComputePool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def pool() -> Iterator[ComputePool]:
    made = ComputePool(1)
    yield made
    made.close()


@pytest.fixture(scope="session")
def postgres() -> Postgres:
    return shared_postgres()


@pytest.fixture
def desk(tmp_path: Path, pool: ComputePool) -> Iterator[Desk]:
    made = Desk(tmp_path, pool)
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def any_desk(request: pytest.FixtureRequest, tmp_path: Path, pool: ComputePool) -> Iterator[Desk]:
    """The same desk on both engines."""
    urls = {}
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").new_database()
        urls = {"false_positives": url, "consent": url}
    made = Desk(tmp_path, pool, urls)
    yield made
    made.close()
