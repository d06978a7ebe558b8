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
        "write_allowed": {
            "type": "array",
            "maxItems": 500,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["workflow", "scopes"],
                "properties": {
                    "workflow": {"type": "string", "minLength": 1, "maxLength": 300},
                    "job": {"type": "string", "minLength": 1, "maxLength": 100},
                    "scopes": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": 50,
                        "items": {"type": "string", "minLength": 1, "maxLength": 64},
                    },
                    "reason": {"type": "string", "maxLength": 500},
                },
            },
            "default": [],
            "description": "Who may write what: tables of workflow, job and scopes (L0-002, MD-004).",
        },
        "least_profile": {
            "enum": ["relaxed", "default", "strict"],
            "default": "default",
            "description": "The mildest thresholds that a repository may choose for itself in .toolgate.toml.",
        },
        "organisation": {
            "type": "string",
            "minLength": 1,
            "maxLength": 255,
            "pattern": "^[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}$",
            "default": "local",
            "description": "Whose reviews and consent are meant where nobody is named.",
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
