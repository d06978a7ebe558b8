"""False-positive events and suppressions in their store: functions of a connection, one statement where it must be atomic."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import asdict

from toolgate.kit.sql import sql
from toolgate.packs.governance.statistics import Counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine import Connection

K_ANONYMITY: Final = 10
"""Organisations that must stand behind a number before one of them may see it (enforced in the query)."""
DAY_MS: Final = 86_400_000
WEEK_MS: Final = 7 * DAY_MS

Verdict = Literal["pending", "false_positive", "true_positive"]


class Event(Struct, frozen=True):
    """One finding that somebody looked at, or still has to."""

    org_id: str
    rule_id: str
    rule_version: int
    fingerprint: str
    repository: str
    verdict: Verdict
    occurred_at: int
    reviewed_by: str | None = None
    reviewed_at: int | None = None
    ticket: str | None = None
    reason: str | None = None

    @property
    def event_id(self) -> str:
        """Known by its content, so importing a file twice counts nothing twice."""
        parts = (
            self.org_id,
            self.rule_id,
            self.fingerprint,
            self.repository,
            str(self.occurred_at),
            self.reviewed_by or "",
        )
        return sha256("\0".join(parts).encode()).hexdigest()[:32]


class Suppression(Struct, frozen=True):
    repository: str
    fingerprint: str
    rule_id: str
    reason: str
    reviewer: str
    ticket: str
    created_at: int
    expires_at: int


def record(connection: Connection, event: Event) -> bool:
    """Add an event; False when it is there already."""
    row = asdict(event) | {"event_id": event.event_id}
    columns = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    # Column names come from the class above, never from a caller.
    statement = f"INSERT INTO fp_events ({columns}) VALUES ({values}) ON CONFLICT (event_id) DO NOTHING"  # noqa: S608
    return connection.execute(sql(statement), row).rowcount == 1


def events(
    connection: Connection, *, org_id: str | None = None, rule_id: str | None = None, limit: int = 1000
) -> list[Event]:
    """Newest first."""
    rows = connection.execute(
        sql(
            "SELECT org_id, rule_id, rule_version, fingerprint, repository, verdict, occurred_at, reviewed_by, reviewed_at,"
            " ticket, reason FROM fp_events WHERE (CAST(:org AS TEXT) IS NULL OR org_id = :org)"
            " AND (CAST(:rule AS TEXT) IS NULL OR rule_id = :rule) ORDER BY occurred_at DESC, event_id LIMIT :limit"
        ),
        {"org": org_id, "rule": rule_id, "limit": limit},
    )
    return [Event(**row) for row in rows.mappings()]


def reviewed_among(connection: Connection, event_ids: Sequence[str]) -> int:
    """How many of these events exist and were reviewed by somebody."""
    found = 0
    for event_id in sorted(set(event_ids)):
        found += connection.execute(
            sql("SELECT COUNT(*) FROM fp_events WHERE event_id = :id AND verdict <> 'pending'"), {"id": event_id}
        ).scalar_one()
    return found


_COUNTED: Final = (
    "COUNT(*) AS total,"
    " COALESCE(SUM(CASE WHEN verdict = 'false_positive' THEN 1 ELSE 0 END), 0) AS fp,"
    " COALESCE(SUM(CASE WHEN verdict = 'true_positive' THEN 1 ELSE 0 END), 0) AS tp"
)
_COUNT_RULE: Final = (
    f"SELECT {_COUNTED} FROM fp_events"  # noqa: S608 (constants of this file)
    " WHERE org_id = :org AND rule_id = :rule AND occurred_at >= :since AND occurred_at < :until"
)
_COUNT_ALL: Final = (
    f"SELECT {_COUNTED} FROM fp_events"  # noqa: S608 (constants of this file)
    " WHERE rule_id = :rule AND occurred_at >= :since AND verdict <> 'pending'"
    " GROUP BY rule_id HAVING COUNT(DISTINCT org_id) >= :k"
)


def counts(connection: Connection, org_id: str, rule_id: str, since: int, until: int) -> Counts:
    row = connection.execute(sql(_COUNT_RULE), {"org": org_id, "rule": rule_id, "since": since, "until": until}).one()
    return Counts(int(row.total), int(row.fp), int(row.tp))


def weekly(connection: Connection, org_id: str, rule_id: str, since: int, until: int) -> list[tuple[int, Counts]]:
    """Counts per seven days, oldest first, weeks without events included; the last bucket ends at `until`."""
    weeks = max(1, -(-(until - since) // WEEK_MS))
    starts = [until - (weeks - i) * WEEK_MS for i in range(weeks)]
    return [(start, counts(connection, org_id, rule_id, max(start, since), start + WEEK_MS)) for start in starts]


def patterns(connection: Connection, org_id: str, rule_id: str, since: int, limit: int) -> list[dict[str, Any]]:
    """False positives of one rule by finding, most frequent first."""
    rows = connection.execute(
        sql(
            "SELECT fingerprint, COUNT(*) AS frequency, MIN(occurred_at) AS first_seen, MAX(occurred_at) AS last_seen"
            " FROM fp_events WHERE org_id = :org AND rule_id = :rule AND verdict = 'false_positive' AND occurred_at >= :since"
            " GROUP BY fingerprint ORDER BY COUNT(*) DESC, fingerprint LIMIT :limit"
        ),
        {"org": org_id, "rule": rule_id, "since": since, "limit": limit},
    )
    return [dict(row) for row in rows.mappings()]


def across_organisations(connection: Connection, rule_id: str, since: int) -> Counts | None:
    """All organisations' reviewed events of one rule, or None when fewer than K_ANONYMITY stand behind them."""
    row = connection.execute(sql(_COUNT_ALL), {"rule": rule_id, "since": since, "k": K_ANONYMITY}).one_or_none()
    return None if row is None else Counts(int(row.total), int(row.fp), int(row.tp))


def suppress(connection: Connection, suppression: Suppression) -> None:
    connection.execute(
        sql(
            "INSERT INTO suppressions (repository, fingerprint, rule_id, reason, reviewer, ticket, created_at, expires_at)"
            " VALUES (:repository, :fingerprint, :rule_id, :reason, :reviewer, :ticket, :created_at, :expires_at)"
            " ON CONFLICT (repository, fingerprint) DO UPDATE SET rule_id = excluded.rule_id, reason = excluded.reason,"
            " reviewer = excluded.reviewer, ticket = excluded.ticket, created_at = excluded.created_at,"
            " expires_at = excluded.expires_at"
        ),
        asdict(suppression),
    )


def suppressions(connection: Connection, repository: str, now: int) -> dict[str, Suppression]:
    """What is suppressed now, by fingerprint."""
    rows = connection.execute(
        sql(
            "SELECT repository, fingerprint, rule_id, reason, reviewer, ticket, created_at, expires_at FROM suppressions"
            " WHERE repository = :repository AND expires_at > :now"
        ),
        {"repository": repository, "now": now},
    )
    return {row["fingerprint"]: Suppression(**row) for row in rows.mappings()}
