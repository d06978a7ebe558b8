from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.homes import PATIENCE_S
from tests.powers.limits.server import Redis, wait_for_engine


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[Redis]:
    redis = Redis()
    yield redis
    redis.close()


@pytest.fixture
def redis(shared_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> Redis:
    """Without calls, and not new. Shared by the tests of one process, and waited for however busy the machine is."""
    wait_for_engine(monkeypatch, PATIENCE_S)
    shared_redis.empty()
    shared_redis.grow_old()
    return shared_redis
