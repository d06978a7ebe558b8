from __future__ import annotations

import pytest

from tests.powers.sql.postgres import Postgres, shared_postgres


@pytest.fixture(scope="session")
def postgres() -> Postgres:
    return shared_postgres()
