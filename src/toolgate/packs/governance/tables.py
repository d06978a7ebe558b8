"""The two stores, and their tables in SQL as numbered steps. A step that has shipped is never edited: add the next one.

Times are milliseconds since the epoch: exact, sortable, and the same in every engine. What stands in a DynamoDB table is
described in `stores.table`; a change that an older Toolgate would misread raises TABLE_VERSION.
"""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Migration, StoreSpec, TableSpec

FALSE_POSITIVES: Final = "false_positives"
CONSENT: Final = "consent"

TABLE_VERSION: Final = 1

STORES: Final = (
    StoreSpec(
        FALSE_POSITIVES,
        "the database of reviews and suppressions",
        binding=True,
        table=TableSpec("fpTableName", TABLE_VERSION),
    ),
    StoreSpec(CONSENT, "the database of consent", binding=True, table=TableSpec("consentTableName", TABLE_VERSION)),
)

MIGRATIONS: Final = (
    Migration(
        FALSE_POSITIVES,
        1,
        (
            """CREATE TABLE fp_events (
                event_id TEXT PRIMARY KEY,
                org_id TEXT NOT NULL,
                rule_id TEXT NOT NULL,
                rule_version INTEGER NOT NULL,
                fingerprint TEXT NOT NULL,
                repository TEXT NOT NULL,
                verdict TEXT NOT NULL CHECK (verdict IN ('pending', 'false_positive', 'true_positive')),
                reviewed_by TEXT,
                reviewed_at BIGINT,
                ticket TEXT,
                reason TEXT,
                occurred_at BIGINT NOT NULL,
                CHECK (verdict = 'pending' OR (reviewed_by IS NOT NULL AND reviewed_at IS NOT NULL AND ticket IS NOT NULL))
            )""",
            "CREATE INDEX fp_events_by_org ON fp_events (org_id, rule_id, occurred_at)",
            "CREATE INDEX fp_events_by_rule ON fp_events (rule_id, occurred_at)",
            """CREATE TABLE suppressions (
                repository TEXT NOT NULL,
                fingerprint TEXT NOT NULL,
                rule_id TEXT NOT NULL,
                reason TEXT NOT NULL,
                reviewer TEXT NOT NULL,
                ticket TEXT NOT NULL,
                created_at BIGINT NOT NULL,
                expires_at BIGINT NOT NULL,
                PRIMARY KEY (repository, fingerprint)
            )""",
            "CREATE TABLE nonces (digest TEXT PRIMARY KEY, seen_at BIGINT NOT NULL)",
            "CREATE INDEX nonces_by_time ON nonces (seen_at)",
            """CREATE TABLE blocked_reports (
                repository TEXT NOT NULL,
                hour BIGINT NOT NULL,
                report TEXT NOT NULL,
                PRIMARY KEY (repository, hour, report)
            )""",
            """CREATE TABLE baselines (
                repository TEXT PRIMARY KEY,
                created_at BIGINT NOT NULL,
                files TEXT NOT NULL
            )""",
        ),
    ),
    Migration(
        CONSENT,
        1,
        (
            """CREATE TABLE consents (
                org_id TEXT NOT NULL,
                resource TEXT NOT NULL,
                policy_version TEXT NOT NULL,
                granted_by TEXT NOT NULL,
                granted_at BIGINT NOT NULL,
                expires_at BIGINT,
                revoked_at BIGINT,
                PRIMARY KEY (org_id, resource)
            )""",
            """CREATE TABLE consent_events (
                event_id TEXT PRIMARY KEY,
                org_id TEXT NOT NULL,
                resource TEXT NOT NULL,
                happened_at BIGINT NOT NULL,
                actor TEXT NOT NULL,
                event TEXT NOT NULL CHECK (event IN ('granted', 'renewed', 'revoked')),
                policy_version TEXT NOT NULL
            )""",
            "CREATE INDEX consent_events_by_org ON consent_events (org_id, happened_at)",
        ),
    ),
)
