"""Verification receipts: what is in one, which bytes are signed, and the two forms it is published in.

The in-toto statement (inside a DSSE envelope, `receipt_dsse`) is authoritative: its subject is every file of the
artifact. The flat form is LRA-1.0's own: the receipt with a hex signature over its RFC 8785 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from toolgate.kit import canonical, merkle
from toolgate.model import strictjson

MAX_RECEIPT_BYTES: Final = 1024 * 1024
"""LRA's own bound; a receipt of 64 files and 100 claims is under 50 KB."""
SIGNATURE_FIELDS: Final = ("signature", "signer_pubkey", "public_key", "signed_at")
"""Left out of the signed bytes of the flat form: they say who signed and when, after the fact."""
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://in-toto.io/attestation/svr/v0.2"
"""Simple Verification Result: a verifier, a time and the properties it found, which is exactly what a receipt says."""
KEY_PREFIX: Final = "ed25519:"


class ReceiptFault(ValueError):
    """These bytes are not a receipt, or not a signed one. The text names the fault, never quotes the file."""


def read(data: bytes) -> dict[str, Any]:
    """A receipt as a JSON object that every reader reads alike. Raises: ReceiptFault."""
    try:
        value = strictjson.loads(data, max_bytes=MAX_RECEIPT_BYTES)
    except strictjson.JsonFault as fault:
        raise ReceiptFault(str(fault)) from None
    if not isinstance(value, dict):
        raise ReceiptFault("a receipt is a JSON object")
    if _has_float(value):
        raise ReceiptFault("a receipt has no fractional numbers: their spelling differs between readers")
    return value


def _has_float(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_float(item) for item in value.values())
    if isinstance(value, list):
        return any(_has_float(item) for item in value)
    return isinstance(value, float)


def unsigned(receipt: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in receipt.items() if key not in SIGNATURE_FIELDS}


def signed_bytes(receipt: Mapping[str, Any]) -> bytes:
    """What the flat form's signature covers."""
    return canonical.dumps(unsigned(receipt))


def digest(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def artifact_root(files: Mapping[str, bytes]) -> str:
    """One digest over all files: the RFC 9162 root over `name NUL sha256`, in the order of the names."""
    leaves = (merkle.leaf_hash(name.encode() + b"\0" + sha256(files[name]).digest()) for name in sorted(files))
    return f"sha256:{merkle.root_of(leaves).hex()}"


# -- forms ---------------------------------------------------------------------------------------------------


def flat(receipt: Mapping[str, Any], public: bytes, signature: bytes, signed_at: str) -> dict[str, Any]:
    """LRA-1.0's signed receipt. The key is spelt twice: as the specification does, and as lra_sign answers it."""
    key = key_text(public)
    return {
        **unsigned(receipt),
        "signature": signature.hex(),
        "signer_pubkey": key,
        "public_key": key,
        "signed_at": signed_at,
    }


def nested(flat_form: Mapping[str, Any]) -> dict[str, Any]:
    """The nested view that lra_sign answers with: the receipt, then who signed it and when."""
    signed_at = flat_form["signed_at"]
    return {
        "receipt": unsigned(flat_form),
        "signature": flat_form["signature"],
        "public_key": flat_form["public_key"],
        "timestamp": signed_at,
        "signed_at": signed_at,
    }


def from_nested(value: Mapping[str, Any]) -> dict[str, Any]:
    """The flat form of a nested view; a flat form passes unchanged. Raises: ReceiptFault."""
    if "receipt" not in value:
        return dict(value)
    receipt = value["receipt"]
    if not isinstance(receipt, dict) or set(value) - {"receipt", "timestamp", *SIGNATURE_FIELDS}:
        raise ReceiptFault("a signed receipt in the nested form has a receipt and signature fields, nothing else")
    if set(receipt) & set(SIGNATURE_FIELDS):
        raise ReceiptFault("the receipt inside already carries signature fields")
    return {**receipt, **{key: value[key] for key in SIGNATURE_FIELDS if key in value}}


def statement(receipt: Mapping[str, Any], public: bytes, signed_at: str, prev: str | None) -> dict[str, Any]:
    """The in-toto statement: every file as a subject, the findings as properties, the whole receipt beside them."""
    body = unsigned(receipt)
    return {
        "_type": STATEMENT_TYPE,
        "subject": subjects(body),
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "verifier": {"id": key_text(public)},
            "timeCreated": signed_at,
            "properties": properties(body),
            "receipt": body,
            "prev": prev,
        },
    }


def predicate_of(payload: bytes) -> dict[str, Any]:
    """The predicate of a statement of ours, with the receipt inside. Raises: ReceiptFault."""
    predicate = read(payload).get("predicate")
    if not isinstance(predicate, dict) or not isinstance(predicate.get("receipt"), dict):
        raise ReceiptFault("the statement carries no receipt")
    return predicate


def subjects(receipt: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every file the receipt names; for a receipt that names none, the page's hash, else the receipt itself."""
    files = receipt.get("files")
    if isinstance(files, list) and files and all(_is_file(file) for file in files):
        return [_subject(file["name"], file["sha256"]) for file in files]
    target_hash = receipt.get("target_hash")
    if isinstance(target_hash, str) and is_digest(target_hash):
        return [_subject("index.html", target_hash.removeprefix("sha256:"))]
    return [_subject("receipt", sha256(canonical.dumps(dict(receipt))).hexdigest())]


def _is_file(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and isinstance(value.get("sha256"), str)
        and is_digest(f"sha256:{value['sha256']}")
    )


def _subject(name: str, hex_digest: str) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": hex_digest}}


def properties(receipt: Mapping[str, Any]) -> list[str]:
    """The findings as the short words that policy engines match on."""
    found = []
    tier = receipt.get("compliance_tier")
    if isinstance(tier, str):
        found.append(f"LRA_1.0_{tier.upper()}")
    integrity = receipt.get("integrity")
    if isinstance(integrity, str):
        found.append(f"LRA_INTEGRITY_{integrity.upper()}")
    claims = receipt.get("claims")
    for claim in claims if isinstance(claims, list) else ():
        if isinstance(claim, dict):
            found += _claim_properties(claim)
    return found


def _claim_properties(claim: Mapping[str, Any]) -> list[str]:
    states = {"resolves": "EVIDENCE_RESOLVES", "ran": "EVIDENCE_RAN", "matched": "EVIDENCE_MATCHED"}
    number = claim.get("number")
    return [f"LRA_CLAIM_{number}_{word}" for key, word in states.items() if claim.get(key) is True]


# -- keys and digests as text --------------------------------------------------------------------------------


def is_digest(text: str) -> bool:
    value = text.removeprefix("sha256:")
    return text.startswith("sha256:") and len(value) == 64 and all(char in "0123456789abcdef" for char in value)


def key_text(public: bytes) -> str:
    return KEY_PREFIX + public.hex()


def parse_key_text(text: Any) -> bytes:
    """`ed25519:<64 hex>`, prefix optional as in LRA-1.0. Raises: ReceiptFault."""
    value = text.removeprefix(KEY_PREFIX) if isinstance(text, str) else ""
    if len(value) != 64 or not all(char in "0123456789abcdef" for char in value):
        raise ReceiptFault("a public key is written as ed25519: and 64 lower-case hex digits")
    return bytes.fromhex(value)


def key_id(public: bytes) -> str:
    """The hint in a DSSE signature, computed as securesystemslib does, so that its users find the key."""
    value = {"keytype": "ed25519", "scheme": "ed25519", "keyval": {"public": public.hex()}}
    return sha256(canonical.dumps(value)).hexdigest()
