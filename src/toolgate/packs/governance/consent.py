"""Consent: what an operation needs, what an organisation has granted, and the answer no to everything else.

The states follow from a record, the clock and the policy version; nothing here has a default that grants.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from toolgate.kit.sql import sql
from toolgate.model.clock import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.engine import Connection

POLICY_VERSION: Final = "1.2"
"""The text people consent to. A new version needs new consent."""


class Resource(Struct, frozen=True):
    name: str
    risk: Literal["low", "medium", "high"]
    retention_days: int
    about: str


RESOURCES: Final[Mapping[str, Resource]] = {
    one.name: one
    for one in (
        Resource("fp_patterns", "medium", 90, "which findings were false positives"),
        Resource("fp_metrics", "low", 365, "how often rules were wrong"),
        Resource("cross_org_benchmarks", "high", 30, "rates compared across organisations, never fewer than ten"),
        Resource("rule_calibration", "medium", 60, "reviews used to tune rules"),
        Resource("audit_logs", "high", 180, "records of who called what"),
        Resource("drift_baselines", "low", 365, "digests of governed files"),
    )
}

REQUIRED: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("query_fp_store", "fp_rate"): ("fp_metrics",),
    ("query_fp_store", "trend_analysis"): ("fp_metrics",),
    ("query_fp_store", "recent_patterns"): ("fp_patterns",),
    ("query_fp_store", "cross_rule_comparison"): ("cross_org_benchmarks", "fp_patterns"),
    ("query_fp_store", "calibration"): ("rule_calibration",),
    ("check_adr_compliance", "audit"): ("audit_logs",),
    ("analyze_dissonance", "baseline"): ("drift_baselines",),
}
"""What each operation needs. An operation that is not here is not allowed: unknown is not the same as harmless."""

State = Literal["granted", "expired", "revoked", "outdated", "not_requested", "unknown_resource", "unavailable"]

_REASONS: Final[Mapping[State, str]] = {
    "granted": "granted and in force",
    "expired": "the consent has expired",
    "revoked": "the consent was revoked",
    "outdated": "the consent was given under an older policy version",
    "not_requested": "no consent has been given",
    "unknown_resource": "the policy knows no such resource",
    "unavailable": "the consent store does not answer, so nothing counts as granted",
}


class Record(Struct, frozen=True):
    org_id: str
    resource: str
    policy_version: str
    granted_by: str
    granted_at: int
    expires_at: int | None
    revoked_at: int | None


class Status(Struct, frozen=True):
    resource: str
    state: State
    record: Record | None = None

    @property
    def granted(self) -> bool:
        return self.state == "granted"

    def as_json(self) -> dict[str, Any]:
        record = self.record
        return {
            "resource": self.resource,
            "valid": self.granted,
            "state": self.state,
            "reason": _REASONS[self.state],
            "grantedAt": rfc3339(record.granted_at / 1000) if record else None,
            "expiresAt": rfc3339(record.expires_at / 1000) if record and record.expires_at is not None else None,
            "version": record.policy_version if record else None,
        }


def status_of(resource: str, record: Record | None, now: int) -> Status:
    """Pure. Expiry is exclusive: at its very millisecond a consent is over."""
    if resource not in RESOURCES:
        return Status(resource, "unknown_resource")
    if record is None:
        return Status(resource, "not_requested")
    if record.revoked_at is not None:
        return Status(resource, "revoked", record)
    if record.expires_at is not None and record.expires_at <= now:
        return Status(resource, "expired", record)
    if record.policy_version != POLICY_VERSION:
        return Status(resource, "outdated", record)
    return Status(resource, "granted", record)


def statuses(connection: Connection, org_id: str, resources: Sequence[str], now: int) -> list[Status]:
    """The state of each resource, in the order asked for."""
    rows = connection.execute(
        sql(
            "SELECT org_id, resource, policy_version, granted_by, granted_at, expires_at, revoked_at FROM consents"
            " WHERE org_id = :org"
        ),
        {"org": org_id},
    )
    records = {row["resource"]: Record(**row) for row in rows.mappings()}
    return [status_of(resource, records.get(resource), now) for resource in resources]


def grant(connection: Connection, record: Record, actor: str) -> None:
    """Give or renew consent. `actor` is kept as a digest: who it was can be confirmed, not read."""
    had = connection.execute(
        sql("SELECT COUNT(*) FROM consents WHERE org_id = :org AND resource = :resource"),
        {"org": record.org_id, "resource": record.resource},
    ).scalar_one()
    connection.execute(
        sql(
            "INSERT INTO consents (org_id, resource, policy_version, granted_by, granted_at, expires_at, revoked_at)"
            " VALUES (:org, :resource, :version, :by, :at, :expires, NULL) ON CONFLICT (org_id, resource) DO UPDATE SET"
            " policy_version = excluded.policy_version, granted_by = excluded.granted_by,"
            " granted_at = excluded.granted_at, expires_at = excluded.expires_at, revoked_at = NULL"
        ),
        {
            "org": record.org_id,
            "resource": record.resource,
            "version": record.policy_version,
            "by": record.granted_by,
            "at": record.granted_at,
            "expires": record.expires_at,
        },
    )
    _remember(connection, record.org_id, record.resource, "renewed" if had else "granted", actor, record.granted_at)


def revoke(connection: Connection, org_id: str, resource: str, actor: str, now: int) -> bool:
    """Take consent back; False when there is none to take. A second time changes nothing and is no fault."""
    exists = connection.execute(
        sql("SELECT revoked_at FROM consents WHERE org_id = :org AND resource = :resource"),
        {"org": org_id, "resource": resource},
    ).one_or_none()
    if exists is None:
        return False
    if exists.revoked_at is None:
        connection.execute(
            sql("UPDATE consents SET revoked_at = :now WHERE org_id = :org AND resource = :resource"),
            {"now": now, "org": org_id, "resource": resource},
        )
        _remember(connection, org_id, resource, "revoked", actor, now)
    return True


def _remember(connection: Connection, org_id: str, resource: str, event: str, actor: str, now: int) -> None:
    event_id = sha256("\0".join((org_id, resource, event, actor, str(now))).encode()).hexdigest()[:32]
    connection.execute(
        sql(
            "INSERT INTO consent_events (event_id, org_id, resource, happened_at, actor, event, policy_version)"
            " VALUES (:id, :org, :resource, :now, :actor, :event, :version) ON CONFLICT (event_id) DO NOTHING"
        ),
        {
            "id": event_id,
            "org": org_id,
            "resource": resource,
            "now": now,
            "actor": sha256(actor.encode()).hexdigest(),
            "event": event,
            "version": POLICY_VERSION,
        },
    )
