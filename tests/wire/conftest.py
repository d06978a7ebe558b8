"""One deployment and one reference for all tests of the wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.world import Deployment, reference_serving


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return Deployment.make(tmp_path_factory.mktemp("wire") / "home")


@pytest.fixture(scope="session")
def ours(deployment: Deployment) -> Iterator[str]:
    """The address of a running Toolgate."""
    with deployment.serving() as ready:
        yield ready["url"]


@pytest.fixture(scope="session")
def reference() -> Iterator[str]:
    """The address of the same tools on the official SDK."""
    with reference_serving() as url:
        yield url
