"""Receipts and keys that the tests of this folder share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from toolgate.kit import ed25519
from toolgate.packs.lra.receipts import sshsig
from toolgate.powers.keys import to_openssh

SEED = bytes(range(32))
KEY = ed25519.SigningKey(SEED)
OTHER_SEED = bytes(range(1, 33))
OTHER = ed25519.SigningKey(OTHER_SEED)
SIGNED_AT = "2026-04-06T15:30:05Z"
NOW = datetime(2026, 4, 7, tzinfo=UTC)
FINGERPRINT = sshsig.fingerprint(KEY.public_key)


def claim(number: str, text: str, evidence: str | None, *, held: bool | None) -> dict[str, Any]:
    shown = {"number": number, "id": f"claim-{number}", "text": text, "evidence": evidence}
    return {**shown, "resolves": bool(held), "ran": held, "matched": held}


def receipt(**changes: Any) -> dict[str, Any]:
    return {
        "target_url": "https://example.org/papers/my-research-paper/",
        "target_hash": "sha256:" + "ab" * 32,
        "registry_hash": None,
        "integrity": "not_in_registry",
        "claims_found": 2,
        "claims": [
            claim("1", "Größe ≥ 2", "demo-1", held=True),
            claim("2", "no evidence", None, held=None),
        ],
        "structural_checks": {"lra_version": True, "sw_reference": True, "claims_markup": True, "capability_tag": True},
        "compliance_tier": "SILVER",
        "timestamp": "2026-04-06T15:30:00Z",
        "verifier_version": "toolgate 0.1.0",
        "files": [
            {"name": "index.html", "sha256": "ab" * 32, "bytes": 10},
            {"name": "paper.js", "sha256": "cd" * 32, "bytes": 20},
        ],
        **changes,
    }


def trust_line(public: bytes, who: str = "alice@example.org", options: str = "") -> str:
    key = " ".join(to_openssh(public, "").decode().split())
    return f"{who} {options} {key}\n" if options else f"{who} {key}\n"
