from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.powers.sql.postgres import shared_postgres
from toolgate.powers.approvals.tables import ApprovalTables


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A URL for the store, on each engine."""
    if request.param == "postgresql":
        return shared_postgres().new_database()
    return f"sqlite:///{tmp_path}/approvals.sqlite3"


@pytest.fixture
def opened(place: str) -> Iterator[Callable[[], ApprovalTables]]:
    """The same store, again and again: as other processes would."""
    found: list[ApprovalTables] = []

    def open_() -> ApprovalTables:
        found.append(ApprovalTables(place))
        return found[-1]

    yield open_
    for each in found:
        each.close()
