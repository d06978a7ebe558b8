"""One server with a console for all tests of a process that only look at it or act by their own keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.console.visiting import console
from tests.homes import Home, Server


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Server]]:
    with console(tmp_path_factory.mktemp("console") / "home") as both:
        yield both
