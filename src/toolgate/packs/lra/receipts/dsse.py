"""DSSE v1: an envelope whose signature covers exact bytes, so no canonical form stands between signer and verifier."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from msgspec import Struct

from toolgate.kit import ed25519
from toolgate.model import strictjson
from toolgate.packs.lra.receipts.receipt import MAX_RECEIPT_BYTES, ReceiptFault

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
MAX_ENVELOPE_BYTES: Final = 2 * MAX_RECEIPT_BYTES
"""A receipt twice (as statement and in base64) with its signatures."""
MAX_SIGNATURES: Final = 64


class Signature(Struct, frozen=True):
    key_id: str
    """A hint which key to try. Never a reason to trust."""
    value: bytes


class DsseEnvelope(Struct, frozen=True):
    payload: bytes
    signatures: tuple[Signature, ...]
    payload_type: str = PAYLOAD_TYPE

    @property
    def signed_bytes(self) -> bytes:
        return pae(self.payload_type, self.payload)

    def as_json(self) -> dict[str, Any]:
        return {
            "payload": _to_base64(self.payload),
            "payloadType": self.payload_type,
            "signatures": [
                {"keyid": signature.key_id, "sig": _to_base64(signature.value)} for signature in self.signatures
            ],
        }

    def to_bytes(self) -> bytes:
        return strictjson.dumps_pretty(self.as_json())


def pae(payload_type: str, payload: bytes) -> bytes:
    """Pre-authentication encoding: lengths in front, so that no two (type, payload) pairs share one encoding."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def is_envelope(value: Any) -> bool:
    return isinstance(value, dict) and "payload" in value and "payloadType" in value


def parse(data: bytes) -> DsseEnvelope:
    """Raises: ReceiptFault."""
    try:
        value = strictjson.loads(data, max_bytes=MAX_ENVELOPE_BYTES)
    except strictjson.JsonFault as fault:
        raise ReceiptFault(str(fault)) from None
    if not is_envelope(value):
        raise ReceiptFault("not a DSSE envelope")
    if value["payloadType"] != PAYLOAD_TYPE:
        raise ReceiptFault(f"the envelope's payload type is not {PAYLOAD_TYPE}")
    signatures = value.get("signatures")
    if not isinstance(signatures, list) or not 1 <= len(signatures) <= MAX_SIGNATURES:
        raise ReceiptFault(f"an envelope carries 1 to {MAX_SIGNATURES} signatures")
    return DsseEnvelope(_from_base64(value["payload"]), tuple(_signature(signature) for signature in signatures))


def _signature(value: Any) -> Signature:
    if not isinstance(value, dict) or not isinstance(value.get("keyid", ""), str):
        raise ReceiptFault("a signature of the envelope is not an object with keyid and sig")
    raw = _from_base64(value.get("sig"))
    if len(raw) != ed25519.SIGNATURE_BYTES:
        raise ReceiptFault("a signature of the envelope is not an Ed25519 signature")
    return Signature(value.get("keyid", ""), raw)


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: Any) -> bytes:
    """Either alphabet, as DSSE requires of readers; nothing else, because decoders drop what they do not know."""
    if not isinstance(text, str) or not text.isascii():
        raise ReceiptFault("the envelope's payload and signatures are base64")
    standard = text.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4 if "=" not in standard else 0), validate=True)
    except binascii.Error:
        raise ReceiptFault("the envelope's payload and signatures are base64") from None
