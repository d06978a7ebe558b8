"""The pack's own settings: the table `[packs.governance]`."""

from __future__ import annotations

from typing import Any, Final

SETTINGS_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "write_scopes_allowed": {
            "type": "array",
            "maxItems": 50,
            "items": {"type": "string", "minLength": 1, "maxLength": 64},
            "default": [],
            "description": "Token scopes that a workflow job may write (L0-002); none unless named.",
        },
        "blocks_per_hour": {
            "type": "integer",
            "minimum": 0,
            "maximum": 100_000,
            "default": 0,
            "description": "Circuit breaker: blocked reports an hour per repository before blocks only warn; 0 is off.",
        },
    },
}
