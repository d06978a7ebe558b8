from tests.powers.limits.conftest import redis, shared_redis

__all__ = ["redis", "shared_redis"]
