"""What must be remembered between calls: nonces seen, reports blocked this hour, a repository's baseline."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from toolgate.kit.sql import sql
from toolgate.model import strictjson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.engine import Connection

HOUR_MS: Final = 3_600_000
MAX_NONCE_AGE_S: Final = 86_400
"""The largest `maxAgeSeconds`: a nonce must stay remembered for longer than any call may still accept it."""
NONCE_KEPT_MS: Final = 2 * MAX_NONCE_AGE_S * 1000


def use_nonce(connection: Connection, nonce: str, now: int) -> bool:
    """Claim a nonce: True for exactly one caller ever, however many ask at once. Only its digest is kept."""
    connection.execute(sql("DELETE FROM nonces WHERE seen_at < :before"), {"before": now - NONCE_KEPT_MS})
    claimed = connection.execute(
        sql("INSERT INTO nonces (digest, seen_at) VALUES (:digest, :now) ON CONFLICT (digest) DO NOTHING"),
        {"digest": sha256(nonce.encode()).hexdigest(), "now": now},
    )
    return claimed.rowcount == 1


def blocked_this_hour(connection: Connection, repository: str, now: int) -> int:
    """Distinct reports of a repository that were blocked in the current clock hour (UTC)."""
    return int(
        connection.execute(
            sql("SELECT COUNT(*) FROM blocked_reports WHERE repository = :repository AND hour = :hour"),
            {"repository": repository, "hour": now // HOUR_MS},
        ).scalar_one()
    )


def count_block(connection: Connection, repository: str, report: str, now: int) -> None:
    """A report that is blocked again counts once: a retry loop must not open the breaker."""
    hour = now // HOUR_MS
    connection.execute(
        sql("DELETE FROM blocked_reports WHERE repository = :repository AND hour < :before"),
        {"repository": repository, "before": hour - 24},
    )
    connection.execute(
        sql(
            "INSERT INTO blocked_reports (repository, hour, report) VALUES (:repository, :hour, :report)"
            " ON CONFLICT (repository, hour, report) DO NOTHING"
        ),
        {"repository": repository, "hour": hour, "report": report},
    )


def write_baseline(connection: Connection, repository: str, files: Mapping[str, str], now: int) -> None:
    """Replace the repository's baseline: path -> SHA-256 of its bytes."""
    connection.execute(
        sql(
            "INSERT INTO baselines (repository, created_at, files) VALUES (:repository, :now, :files)"
            " ON CONFLICT (repository) DO UPDATE SET created_at = excluded.created_at, files = excluded.files"
        ),
        {"repository": repository, "now": now, "files": strictjson.dumps_sorted(dict(files)).decode()},
    )


def read_baseline(connection: Connection, repository: str) -> tuple[int, dict[str, str]] | None:
    """When it was made, and its files; None when there is none."""
    row = connection.execute(
        sql("SELECT created_at, files FROM baselines WHERE repository = :repository"), {"repository": repository}
    ).one_or_none()
    return (
        None if row is None else (int(row.created_at), strictjson.loads(row.files.encode(), max_bytes=16 * 1024 * 1024))
    )
