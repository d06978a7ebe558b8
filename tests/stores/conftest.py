from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    server = Postgres(tmp_path_factory.mktemp("postgres"))
    yield server
    server.close()
