from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.homes import Home, Server, make_home


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return make_home(tmp_path_factory.mktemp("faces") / "home", packs=("unruly",))


@pytest.fixture(scope="session")
def server(home: Home) -> Iterator[Server]:
    with home.serving() as server:
        yield server
