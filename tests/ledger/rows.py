"""What document 002 requires of logs and ids."""

from __future__ import annotations

ROWS: dict[str, str] = {
    "002-L1": "document 002: structured logs lie under runs/mcp_server/envelope_validation/",
    "002-L2": "document 002: a *.latest.jsonl link points at the most recent attempt",
    "002-L3": "document 002: without volatile identifiers and transport-local fields, HTTP and STDIO entries are identical",
    "002-L4": "document 002: the golden fixture tests/fixtures/mcp/envelope_validation_golden.jsonl holds the agreed log",
    "002-L5": "document 002: golden logs ignore exactly the volatile fields, by DeepDiff",
    "002-L6": "document 002: --deterministic-ids seeds UUID5 generation",
}
