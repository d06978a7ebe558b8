"""What an answer about decisions holds, for the tool's schema too: it is there before anybody asks."""

from __future__ import annotations

from typing import Final, Literal

Severity = Literal["critical", "high", "medium", "low"]
SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "high", "medium", "low")
MAX_ADRS: Final = 500
BUDGETS: Final = {"violations": 500_000, "skipped": 100_000, "adrDetails": 200_000}
"""Bytes of JSON for each list."""
