"""What document 002 requires of its search example."""

from __future__ import annotations

ROWS: dict[str, str] = {
    "002-T1": "document 002: input validators reject payloads missing mandatory keys such as query",
    "002-T2": "document 002: output validators guard the shape of hits[]",
}
