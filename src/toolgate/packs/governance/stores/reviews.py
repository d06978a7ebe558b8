"""What the store of false positives keeps: reviews, suppressions, nonces, counters, baselines. In SQL, or in a table."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolgate.packs.governance.stores.statistics import Counts

K_ANONYMITY: Final = 10
"""Organisations that must stand behind a number before one of them may see it (enforced in the query)."""
DAY_MS: Final = 86_400_000
WEEK_MS: Final = 7 * DAY_MS
HOUR_MS: Final = 3_600_000
MAX_NONCE_AGE_S: Final = 86_400
"""The largest `maxAgeSeconds`: a nonce must stay remembered for longer than any call may still accept it."""
NONCE_KEPT_MS: Final = 2 * MAX_NONCE_AGE_S * 1000
BLOCKS_KEPT_HOURS: Final = 24
MAX_BASELINE_BYTES: Final = 64 * 1024 * 1024

Verdict = Literal["pending", "false_positive", "true_positive"]


class ReviewEvent(Struct, frozen=True):
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

    def check(self) -> None:
        """Raises: ValueError: a verdict without a reviewer, a time and a ticket is hearsay."""
        if self.verdict != "pending" and (self.reviewed_by is None or self.reviewed_at is None or self.ticket is None):
            raise ValueError("a review needs a reviewer, a time and a ticket")


class Suppression(Struct, frozen=True):
    repository: str
    fingerprint: str
    rule_id: str
    reason: str
    reviewer: str
    ticket: str
    created_at: int
    expires_at: int


class Pattern(Struct, frozen=True):
    """One finding that was called a false positive, and how often."""

    fingerprint: str
    frequency: int
    first_seen: int
    last_seen: int


class FalsePositives(Protocol):
    """The store as the pack uses it. Each method but one is atomic; every one raises StoreUnavailable."""

    def record(self, event: ReviewEvent, suppression: Suppression | None = None) -> bool:
        """Add an event; False when it is there already. `suppression` is kept with it, or neither is.

        Raises: ValueError: the event is hearsay.
        """
        ...

    def record_all(self, events: Sequence[ReviewEvent]) -> int:
        """Add those that are not there; how many that were. What was added when the store fails stays.

        Raises: ValueError: one is hearsay.
        """
        ...

    def events(self, *, org_id: str | None = None, rule_id: str | None = None, limit: int = 1000) -> list[ReviewEvent]:
        """Newest first."""
        ...

    def reviewed_among(self, event_ids: Sequence[str]) -> int:
        """How many of these events exist and were reviewed by somebody."""
        ...

    def counts(self, org_id: str, rule_id: str, since: int, until: int) -> Counts:
        """Of the events from `since` to before `until`."""
        ...

    def same_until(self, org_id: str, rule_id: str, since: int, until: int) -> int:
        """As `counts`: the last end of a window as long as this one that counts the same events; at least `until`."""
        ...

    def patterns(self, org_id: str, rule_id: str, since: int, limit: int) -> list[Pattern]:
        """False positives of one rule by finding, most frequent first."""
        ...

    def across_organisations(self, rule_id: str, since: int) -> Counts | None:
        """All organisations' reviewed events of one rule, or None when fewer than K_ANONYMITY stand behind them."""
        ...

    def counts_here(self, repository: str) -> dict[str, Counts]:
        """Reviewed findings of each rule in one repository, of all organisations and times."""
        ...

    def rules_of(self, org_id: str) -> list[str]:
        """The rules that an organisation has reviews of."""
        ...

    def suppress(self, suppression: Suppression) -> None:
        """In place of the one that the repository has for this finding."""
        ...

    def suppressions(self, repository: str) -> list[Suppression]:
        """Everything that was suppressed in a repository, expired ones too."""
        ...

    def all_suppressions(self, limit: int) -> list[Suppression]:
        """Of all repositories, by repository and fingerprint."""
        ...

    def use_nonce(self, nonce: str, now: int) -> bool:
        """Claim a nonce: True for exactly one caller ever, however many ask at once. Only its digest is kept."""
        ...

    def blocked_this_hour(self, repository: str, now: int) -> int:
        """Distinct reports of a repository that were blocked in the current clock hour (UTC)."""
        ...

    def count_block(self, repository: str, report: str, now: int) -> None:
        """A report that is blocked again counts once: a retry loop must not open the breaker."""
        ...

    def write_baseline(self, repository: str, baseline: Mapping[str, Any], now: int) -> None:
        """Replace the repository's baseline."""
        ...

    def read_baseline(self, repository: str) -> tuple[int, dict[str, Any]] | None:
        """When it was made, and what it holds; None when there is none."""
        ...


def weekly(kept: FalsePositives, org_id: str, rule_id: str, since: int, until: int) -> list[tuple[int, Counts]]:
    """Counts per seven days, oldest first, weeks without events included; the last bucket ends at `until`."""
    weeks = max(1, -(-(until - since) // WEEK_MS))
    starts = [until - (weeks - i) * WEEK_MS for i in range(weeks)]
    return [(start, kept.counts(org_id, rule_id, max(start, since), start + WEEK_MS)) for start in starts]


def nonce_digest(nonce: str) -> str:
    return sha256(nonce.encode()).hexdigest()
