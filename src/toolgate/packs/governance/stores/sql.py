"""Both stores in SQL: methods over one transaction's connection, one statement where it must be atomic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from toolgate.kit.sql import sql
from toolgate.model import strictjson
from toolgate.packs.governance.stores.consents import Record, happening
from toolgate.packs.governance.stores.reviews import (
    BLOCKS_KEPT_HOURS,
    HOUR_MS,
    K_ANONYMITY,
    MAX_BASELINE_BYTES,
    NONCE_KEPT_MS,
    Pattern,
    ReviewEvent,
    Suppression,
    nonce_digest,
)
from toolgate.packs.governance.stores.statistics import Counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import CursorResult
    from sqlalchemy.engine import Connection

    from toolgate.packs.governance.stores.consents import Happened

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
_COUNT_HERE: Final = (
    f"SELECT rule_id, {_COUNTED} FROM fp_events"  # noqa: S608 (constants of this file)
    " WHERE repository = :repository AND verdict <> 'pending' GROUP BY rule_id"
)
_NEXT_EVENT: Final = (
    "SELECT MIN(occurred_at) FROM fp_events"
    " WHERE org_id = :org AND rule_id = :rule AND occurred_at >= :since AND occurred_at < :until"
)
_FOREVER: Final = 2**63 - 1
_SUPPRESSIONS: Final = (
    "SELECT repository, fingerprint, rule_id, reason, reviewer, ticket, created_at, expires_at FROM suppressions"
)


class SqlFalsePositives:
    """See `reviews.FalsePositives`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def record(self, event: ReviewEvent, suppression: Suppression | None = None) -> bool:
        event.check()
        row = asdict(event) | {"event_id": event.event_id}
        columns = ", ".join(row)
        values = ", ".join(f":{name}" for name in row)
        # Column names come from the class, never from a caller.
        statement = f"INSERT INTO fp_events ({columns}) VALUES ({values}) ON CONFLICT (event_id) DO NOTHING"  # noqa: S608
        is_new = self._run(statement, **row).rowcount == 1
        if suppression is not None:
            self.suppress(suppression)
        return is_new

    def record_all(self, events: Sequence[ReviewEvent]) -> int:
        return sum(self.record(event) for event in events)

    def events(self, *, org_id: str | None = None, rule_id: str | None = None, limit: int = 1000) -> list[ReviewEvent]:
        rows = self._run(
            "SELECT org_id, rule_id, rule_version, fingerprint, repository, verdict, occurred_at, reviewed_by, reviewed_at,"
            " ticket, reason FROM fp_events WHERE (CAST(:org AS TEXT) IS NULL OR org_id = :org)"
            " AND (CAST(:rule AS TEXT) IS NULL OR rule_id = :rule) ORDER BY occurred_at DESC, event_id LIMIT :limit",
            org=org_id,
            rule=rule_id,
            limit=limit,
        )
        return [ReviewEvent(**row) for row in rows.mappings()]

    def reviewed_among(self, event_ids: Sequence[str]) -> int:
        statement = "SELECT COUNT(*) FROM fp_events WHERE event_id = :id AND verdict <> 'pending'"
        return sum(self._run(statement, id=event_id).scalar_one() for event_id in sorted(set(event_ids)))

    def counts(self, org_id: str, rule_id: str, since: int, until: int) -> Counts:
        row = self._run(_COUNT_RULE, org=org_id, rule=rule_id, since=since, until=until).one()
        return Counts(int(row.total), int(row.fp), int(row.tp))

    def same_until(self, org_id: str, rule_id: str, since: int, until: int) -> int:
        place = {"org": org_id, "rule": rule_id}
        leaves = self._run(_NEXT_EVENT, **place, since=since, until=until).scalar()
        comes = self._run(_NEXT_EVENT, **place, since=until, until=_FOREVER).scalar()
        return min(_FOREVER if leaves is None else leaves + until - since, _FOREVER if comes is None else comes)

    def patterns(self, org_id: str, rule_id: str, since: int, limit: int) -> list[Pattern]:
        rows = self._run(
            "SELECT fingerprint, COUNT(*) AS frequency, MIN(occurred_at) AS first_seen, MAX(occurred_at) AS last_seen"
            " FROM fp_events WHERE org_id = :org AND rule_id = :rule AND verdict = 'false_positive' AND occurred_at >= :since"
            " GROUP BY fingerprint ORDER BY COUNT(*) DESC, fingerprint LIMIT :limit",
            org=org_id,
            rule=rule_id,
            since=since,
            limit=limit,
        )
        return [Pattern(**row) for row in rows.mappings()]

    def across_organisations(self, rule_id: str, since: int) -> Counts | None:
        row = self._run(_COUNT_ALL, rule=rule_id, since=since, k=K_ANONYMITY).one_or_none()
        return None if row is None else Counts(int(row.total), int(row.fp), int(row.tp))

    def counts_here(self, repository: str) -> dict[str, Counts]:
        rows = self._run(_COUNT_HERE, repository=repository)
        return {row.rule_id: Counts(int(row.total), int(row.fp), int(row.tp)) for row in rows}

    def rules_of(self, org_id: str) -> list[str]:
        rows = self._run("SELECT DISTINCT rule_id FROM fp_events WHERE org_id = :org", org=org_id)
        return sorted(row.rule_id for row in rows)

    def suppress(self, suppression: Suppression) -> None:
        self._run(
            "INSERT INTO suppressions (repository, fingerprint, rule_id, reason, reviewer, ticket, created_at, expires_at)"
            " VALUES (:repository, :fingerprint, :rule_id, :reason, :reviewer, :ticket, :created_at, :expires_at)"
            " ON CONFLICT (repository, fingerprint) DO UPDATE SET rule_id = excluded.rule_id, reason = excluded.reason,"
            " reviewer = excluded.reviewer, ticket = excluded.ticket, created_at = excluded.created_at,"
            " expires_at = excluded.expires_at",
            **asdict(suppression),
        )

    def suppressions(self, repository: str) -> list[Suppression]:
        rows = self._run(f"{_SUPPRESSIONS} WHERE repository = :repository", repository=repository)
        return [Suppression(**row) for row in rows.mappings()]

    def all_suppressions(self, limit: int) -> list[Suppression]:
        rows = self._run(f"{_SUPPRESSIONS} ORDER BY repository, fingerprint LIMIT :limit", limit=limit)
        return [Suppression(**row) for row in rows.mappings()]

    def use_nonce(self, nonce: str, now: int) -> bool:
        self._run("DELETE FROM nonces WHERE seen_at < :before", before=now - NONCE_KEPT_MS)
        claimed = self._run(
            "INSERT INTO nonces (digest, seen_at) VALUES (:digest, :now) ON CONFLICT (digest) DO NOTHING",
            digest=nonce_digest(nonce),
            now=now,
        )
        return claimed.rowcount == 1

    def blocked_this_hour(self, repository: str, now: int) -> int:
        statement = "SELECT COUNT(*) FROM blocked_reports WHERE repository = :repository AND hour = :hour"
        return int(self._run(statement, repository=repository, hour=now // HOUR_MS).scalar_one())

    def count_block(self, repository: str, report: str, now: int) -> None:
        hour = now // HOUR_MS
        self._run(
            "DELETE FROM blocked_reports WHERE repository = :repository AND hour < :before",
            repository=repository,
            before=hour - BLOCKS_KEPT_HOURS,
        )
        self._run(
            "INSERT INTO blocked_reports (repository, hour, report) VALUES (:repository, :hour, :report)"
            " ON CONFLICT (repository, hour, report) DO NOTHING",
            repository=repository,
            hour=hour,
            report=report,
        )

    def write_baseline(self, repository: str, baseline: Mapping[str, Any], now: int) -> None:
        self._run(
            "INSERT INTO baselines (repository, created_at, files) VALUES (:repository, :now, :files)"
            " ON CONFLICT (repository) DO UPDATE SET created_at = excluded.created_at, files = excluded.files",
            repository=repository,
            now=now,
            files=strictjson.dumps_sorted(dict(baseline)).decode(),
        )

    def read_baseline(self, repository: str) -> tuple[int, dict[str, Any]] | None:
        row = self._run(
            "SELECT created_at, files FROM baselines WHERE repository = :repository", repository=repository
        ).one_or_none()
        if row is None:
            return None
        return int(row.created_at), strictjson.loads(row.files.encode(), max_bytes=MAX_BASELINE_BYTES, max_values=None)

    def _run(self, statement: str, **values: Any) -> CursorResult[Any]:
        return self._connection.execute(sql(statement), values)


class SqlConsents:
    """See `consents.Consents`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def records(self, org_id: str) -> list[Record]:
        rows = self._run(
            "SELECT org_id, resource, policy_version, granted_by, granted_at, expires_at, revoked_at FROM consents"
            " WHERE org_id = :org",
            org=org_id,
        )
        return [Record(**row) for row in rows.mappings()]

    def grant(self, records: Sequence[Record], actor: str) -> None:
        for record in records:
            had = self._one(record.org_id, record.resource) is not None
            self._run(
                "INSERT INTO consents (org_id, resource, policy_version, granted_by, granted_at, expires_at, revoked_at)"
                " VALUES (:org_id, :resource, :policy_version, :granted_by, :granted_at, :expires_at, NULL)"
                " ON CONFLICT (org_id, resource) DO UPDATE SET policy_version = excluded.policy_version,"
                " granted_by = excluded.granted_by, granted_at = excluded.granted_at, expires_at = excluded.expires_at,"
                " revoked_at = NULL",
                **asdict(record),
            )
            self._remember(record, "renewed" if had else "granted", actor, record.granted_at)

    def revoke(self, org_id: str, resource: str, actor: str, now: int) -> bool:
        found = self._one(org_id, resource)
        if found is None:
            return False
        if found.revoked_at is None:
            self._run(
                "UPDATE consents SET revoked_at = :now WHERE org_id = :org AND resource = :resource",
                now=now,
                org=org_id,
                resource=resource,
            )
            self._remember(found, "revoked", actor, now)
        return True

    def _one(self, org_id: str, resource: str) -> Record | None:
        return next((record for record in self.records(org_id) if record.resource == resource), None)

    def _remember(self, record: Record, event: Happened, actor: str, now: int) -> None:
        consent_event = happening(record, event, actor, now)
        self._run(
            "INSERT INTO consent_events (event_id, org_id, resource, happened_at, actor, event, policy_version)"
            " VALUES (:event_id, :org_id, :resource, :happened_at, :actor, :event, :policy_version)"
            " ON CONFLICT (event_id) DO NOTHING",
            **asdict(consent_event),
            event_id=consent_event.event_id,
        )

    def _run(self, statement: str, **values: Any) -> CursorResult[Any]:
        return self._connection.execute(sql(statement), values)
