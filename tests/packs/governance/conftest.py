from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.packs.governance.desk import Desk
from tests.powers.sql.dynamodb import DynamoDb, shared_dynamodb
from tests.powers.sql.postgres import Postgres, shared_postgres
from tests.support import let_stores_wait
from toolgate.powers.compute import ComputePool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from toolgate.powers.stores import Place


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


@pytest.fixture
def dynamodb(monkeypatch: pytest.MonkeyPatch) -> DynamoDb:
    """On a machine whose AWS is this server."""
    server = shared_dynamodb()
    let_stores_wait(monkeypatch)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture(params=["sqlite", "postgresql", pytest.param("dynamodb", marks=pytest.mark.guard)])
def any_desk(request: pytest.FixtureRequest, tmp_path: Path, pool: ComputePool) -> Iterator[Desk]:
    """The same desk on every engine."""
    places: dict[str, Place] = {}
    if request.param == "postgresql":
        place: Place = request.getfixturevalue("postgres").new_database()
        places = {"false_positives": place, "consent": place}
    if request.param == "dynamodb":
        place = request.getfixturevalue("dynamodb").new_place()
        places = {"false_positives": place, "consent": place}
    made = Desk(tmp_path, pool, places)
    yield made
    made.close()
    if request.param == "dynamodb":
        request.getfixturevalue("dynamodb").drop(place)
