"""The `[packs.lra]` table, and what it says about the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolgate.model.tool import Hosts
from toolgate.packs.lra.deployed import drafts

DEFAULT_KEY: Final = "lra-identity.key"
WALKTHROUGH_KEY: Final = "identity.key"
KEY_USE: Final = "receipts"
"""What a key that signs receipts is for, and for nothing else."""
REGISTRY_FILE: Final = "lra-registry.json"
"""Where the registry is, in the workspace, unless the settings say otherwise."""
_CHARACTER: Final = r"[^/\\\u0000-\u001f\u007f-\u009f]"
_NO_DOT: Final = r"[^/\\.\u0000-\u001f\u007f-\u009f]"
_SEGMENT: Final = rf"(?:{_NO_DOT}{_CHARACTER}*|\.(?:{_NO_DOT}{_CHARACTER}*)?|\.\.{_CHARACTER}+)"
PATH_PATTERN: Final = rf"^{_SEGMENT}(?:/+{_SEGMENT})*/*$"
"""A path (ADR-0011) as a pattern: relative, forward slashes, no control character, no segment `..`; `a..b` is a name."""

SCHEMA: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "registry": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": PATH_PATTERN,
            "default": REGISTRY_FILE,
            "description": "The registry file, in the workspace.",
        },
        "allow": {
            "type": "array",
            "maxItems": 64,
            "items": {"type": "string", "minLength": 3, "maxLength": 300},
            "default": [],
            "description": "host:port pairs that lra_verify may reach although they are private or without TLS.",
        },
        "ca_file": {
            "type": "string",
            "maxLength": 1024,
            "default": "",
            "description": "PEM file of authorities that lra_verify trusts beside the system's: an intranet's own.",
        },
    },
}


def hosts(settings: Mapping[str, Any]) -> Hosts:
    """A reviewer names the paper to verify, so any public host; what else this deployment opens, it opens by name."""
    return Hosts(private=drafts.with_twins(settings["allow"]), any_public=True)


def keys(_: Mapping[str, Any]) -> Mapping[str, str]:
    """What a new home is furnished with: the key that lra_sign takes by itself, and the one of the walkthrough (ADR-0012)."""
    return {DEFAULT_KEY: KEY_USE, WALKTHROUGH_KEY: KEY_USE}
