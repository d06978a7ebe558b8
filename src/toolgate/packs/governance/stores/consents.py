"""Consent: what an operation needs, what an organisation has granted, and a refusal of everything else.

The states follow from a record, the clock and the policy version; nothing here has a default that grants.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from msgspec import Struct

from toolgate.model.clock import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POLICY_VERSION: Final = "1.2"
"""The text people consent to. A new version needs new consent."""


class ConsentResource(Struct, frozen=True):
    name: str
    risk: Literal["low", "medium", "high"]
    retention_days: int
    about: str


RESOURCES: Final[Mapping[str, ConsentResource]] = {
    resource.name: resource
    for resource in (
        ConsentResource("fp_patterns", "medium", 90, "which findings were false positives"),
        ConsentResource("fp_metrics", "low", 365, "how often rules were wrong"),
        ConsentResource(
            "cross_org_benchmarks", "high", 30, "rates compared across organisations, never fewer than ten"
        ),
        ConsentResource("rule_calibration", "medium", 60, "reviews used to tune rules"),
        ConsentResource("audit_logs", "high", 180, "records of who called what"),
        ConsentResource("drift_baselines", "low", 365, "digests of governed files"),
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


class ConsentStatus(Struct, frozen=True):
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


def status_of(resource: str, record: Record | None, now: int) -> ConsentStatus:
    """Pure. Expiry is exclusive: at its very millisecond a consent is over."""
    if resource not in RESOURCES:
        return ConsentStatus(resource, "unknown_resource")
    if record is None:
        return ConsentStatus(resource, "not_requested")
    if record.revoked_at is not None:
        return ConsentStatus(resource, "revoked", record)
    if record.expires_at is not None and record.expires_at <= now:
        return ConsentStatus(resource, "expired", record)
    if record.policy_version != POLICY_VERSION:
        return ConsentStatus(resource, "outdated", record)
    return ConsentStatus(resource, "granted", record)


class Consents(Protocol):
    """The store as the pack uses it. Each method is atomic; every one raises StoreUnavailable."""

    def records(self, org_id: str) -> list[Record]:
        """What an organisation has granted, revoked and expired ones too."""
        ...

    def grant(self, records: Sequence[Record], actor: str) -> None:
        """Give or renew consent, to all of it or to none."""
        ...

    def revoke(self, org_id: str, resource: str, actor: str, now: int) -> bool:
        """Take consent back; False when there is none to take. A second time changes nothing and is no fault."""
        ...


def statuses(kept: Consents, org_id: str, resources: Sequence[str], now: int) -> list[ConsentStatus]:
    """The state of each resource, in the order asked for."""
    records = {record.resource: record for record in kept.records(org_id)}
    return [status_of(resource, records.get(resource), now) for resource in resources]


Happened = Literal["granted", "renewed", "revoked"]


class Happening(Struct, frozen=True):
    """One line of a consent's history."""

    org_id: str
    resource: str
    event: Happened
    actor: str
    """A digest: who it was can be confirmed, not read."""
    happened_at: int
    policy_version: str

    @property
    def event_id(self) -> str:
        parts = (self.org_id, self.resource, self.event, self.actor, str(self.happened_at))
        return sha256("\0".join(parts).encode()).hexdigest()[:32]


def happening(record: Record, event: Happened, actor: str, now: int) -> Happening:
    who = sha256(actor.encode()).hexdigest()
    return Happening(record.org_id, record.resource, event, who, now, POLICY_VERSION)
