"""The `[packs.consensus]` table: who the arbiters are, which keys are ours, how gossip travels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from toolgate.model.tool import Hosts
from toolgate.packs.consensus.domain.bounds import MAX_ARBITERS, MAX_DISPUTE_WINDOW

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECRET: Final = {
    "type": "string",
    "maxLength": 200,
    "pattern": "^(env|file):[A-Za-z0-9_][A-Za-z0-9._-]*$",
}
_KEY_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9_][A-Za-z0-9._-]*$"}

SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "arbiters": {
            "description": "Every arbiter, this server's own included. Empty: this server's key alone.",
            "type": "array",
            "maxItems": MAX_ARBITERS,
            "default": [],
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["public_key"],
                "properties": {
                    "public_key": {
                        "description": "Ed25519 public key, 64 hex digits (toolgate consensus keys).",
                        "type": "string",
                        "maxLength": 64,
                        "pattern": "^[0-9a-f]{64}$",
                    },
                    "url": {
                        "description": "Where its server is, like https://arbiter-2.example:8443. Not needed with NATS.",
                        "type": "string",
                        "maxLength": 300,
                        "pattern": "^https?://[A-Za-z0-9.:_\\[\\]-]+$",
                    },
                    "api_key": {
                        "description": "The key that server gave us: env:NAME or file:NAME (in paths.secrets).",
                        **_SECRET,
                    },
                },
            },
        },
        "dispute_window": {
            "description": "Epochs between HARD and ABSOLUTE.",
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_DISPUTE_WINDOW,
            "default": 2,
        },
        "voting_key": {"description": "Name of the key that votes.", **_KEY_NAME, "default": "arbiter.key"},
        "vrf_key": {
            "description": "Name of the key for vrf_eval; never the voting key.",
            **_KEY_NAME,
            "default": "vrf.key",
        },
        "ephemeral": {
            "description": "Development only: keys that die with the process. Every answer says so.",
            "type": "boolean",
            "default": False,
        },
        "gossip_ms": {
            "description": "Milliseconds between exchanges with other arbiters.",
            "type": "integer",
            "minimum": 50,
            "maximum": 3_600_000,
            "default": 1000,
        },
        "fanout": {
            "description": "Arbiters asked in one exchange.",
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_ARBITERS,
            "default": 3,
        },
        "nats": {"description": "URL of a NATS server to gossip over: env:NAME or file:NAME.", **_SECRET},
        "seal_every_s": {
            "description": "Seconds between checkpoints; 0: only by `toolgate consensus seal`.",
            "type": "integer",
            "minimum": 0,
            "maximum": 31_536_000,
            "default": 0,
        },
    },
}
DEFAULTS: Final = {name: about["default"] for name, about in SCHEMA["properties"].items() if "default" in about}


USES: Final = {"vrf_key": "vrf", "voting_key": "voting"}
"""What each key that the settings name is for."""


def key_uses(settings: Mapping[str, Any]) -> dict[str, str]:
    """Name -> use of our keys. One name for both is a voting key; what asks for the other says what is wrong."""
    return {settings[which]: use for which, use in USES.items()}


def secrets(settings: Mapping[str, Any]) -> list[str]:
    """Where the keys that other arbiters gave us are kept, and the broker's address."""
    found = [arbiter["api_key"] for arbiter in settings["arbiters"] if "api_key" in arbiter]
    return found + ([settings["nats"]] if "nats" in settings else [])


def hosts(settings: Mapping[str, Any]) -> Hosts:
    """The other arbiters, wherever the settings say they are."""
    return Hosts(private=addresses(settings))


def addresses(settings: Mapping[str, Any]) -> list[str]:
    """`host:port` of every arbiter: what this pack's services may reach (ADR-0013)."""
    found = []
    for arbiter in settings["arbiters"]:
        if "url" in arbiter:
            parts = urlsplit(arbiter["url"])
            host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
            found.append(f"{host}:{parts.port or {'http': 80, 'https': 443}[parts.scheme]}")
    return found
