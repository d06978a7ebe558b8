"""One deployment and one reference for all tests of the wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.homes import Home, make_home
from tests.wire.world import PACKS, reference_serving


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return make_home(tmp_path_factory.mktemp("wire") / "home", packs=PACKS)


@pytest.fixture(scope="session")
def ours(home: Home) -> Iterator[str]:
    """The address of a running Toolgate."""
    with home.serving() as server:
        yield server.ready["url"]


@pytest.fixture(scope="session")
def reference() -> Iterator[str]:
    """The address of the same tools on the official SDK."""
    with reference_serving() as url:
        yield url
