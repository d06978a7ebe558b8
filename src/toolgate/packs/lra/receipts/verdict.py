"""Did the verification that a receipt tells of succeed? This is said before anything about its signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolgate.kit.reports.printable import printable


def failures(receipt: Mapping[str, Any]) -> list[str]:
    """Which checks failed, in the receipt's own words or, of older receipts, in ours. Empty when none did, or nothing is said."""
    told = receipt.get("failed")
    found = [printable(str(step)) for step in told] if isinstance(told, list) else []
    if not found:
        found = [*_of_fields(receipt), *_of_claims(receipt)]
    if not found and receipt.get("verified") is False:
        found = ["it does not say which check"]
    return found


def headline(receipt: Mapping[str, Any]) -> str:
    failed = failures(receipt)
    if failed:
        return f"VERIFICATION FAILED: {len(failed)} check{'' if len(failed) == 1 else 's'} failed"
    if receipt.get("verified") is True:
        return "VERIFICATION PASSED: every check passed"
    return "VERIFICATION UNKNOWN: the receipt does not say whether it succeeded"


def lines(receipt: Mapping[str, Any]) -> list[str]:
    return [headline(receipt), *(f"  ✗ {text}" for text in failures(receipt))]


def word(receipt: Mapping[str, Any]) -> str:
    """`passed`, `failed` or `unknown`."""
    return headline(receipt).split()[1].rstrip(":").lower()


def _of_fields(receipt: Mapping[str, Any]) -> list[str]:
    found = []
    if receipt.get("integrity") == "mismatch":
        found.append("the content differs from the registry")
    if receipt.get("compliance_tier") == "NONE":
        found.append("Compliance tier: NONE")
    return found


def _of_claims(receipt: Mapping[str, Any]) -> list[str]:
    claims = receipt.get("claims")
    return [
        f"Claim {printable(str(claim.get('number')))}: its evidence {'gave another value' if claim.get('ran') else 'did not run'}"
        for claim in (claims if isinstance(claims, list) else ())
        if isinstance(claim, dict) and (claim.get("matched") is False or claim.get("ran") is False)
    ]
