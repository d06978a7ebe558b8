"""Is this signed receipt valid, and by whose word? `VALID, TRUSTED`, `VALID, UNKNOWN SIGNER` or `INVALID`.

A key carried in the receipt can make it valid (nobody changed it since that key signed), never trusted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from toolgate.kit import ed25519
from toolgate.packs.lra.receipts import dsse, sshsig
from toolgate.packs.lra.receipts import receipt as forms
from toolgate.packs.lra.receipts.receipt import ReceiptFault
from toolgate.packs.lra.receipts.trust import Trust

FUTURE_ALLOWANCE: Final = timedelta(minutes=5)
"""Clocks differ by so much; a signature from later than that was not made when it says."""


_UTC: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z")


class Validity(Enum):
    TRUSTED = "VALID, TRUSTED"
    UNKNOWN = "VALID, UNKNOWN SIGNER"
    INVALID = "INVALID"


class Judgement(Struct, frozen=True):
    word: Validity
    reason: str
    form: str = ""
    signers: tuple[str, ...] = ()
    """Fingerprints of the keys whose signatures verified."""
    identities: tuple[str, ...] = ()
    """Who of the trust file stands behind them."""
    receipt: Mapping[str, Any] | None = None
    keys: tuple[bytes, ...] = ()


class _Checked(Struct, frozen=True):
    form: str
    receipt: Mapping[str, Any]
    keys: tuple[bytes, ...]
    signed_at: datetime


def judge(data: bytes, trust: Trust, now: datetime) -> Judgement:
    """Never raises: whatever is wrong with the bytes makes them INVALID, and the reason says what."""
    try:
        checked = _check(data, trust, now)
        if checked.signed_at > now + FUTURE_ALLOWANCE:
            raise ReceiptFault("the receipt says it was signed in the future")
    except ReceiptFault as fault:
        return Judgement(Validity.INVALID, str(fault))
    return _weigh(checked, trust)


def judge_sshsig(data: bytes, armoured: str, trust: Trust, now: datetime) -> Judgement:
    """A receipt file with a detached SSH signature over its exact bytes."""
    try:
        receipt = forms.read(data)
        key = sshsig.verify(data, armoured)
        if not ed25519.is_valid_public_key(key):
            raise ReceiptFault("the signing key is not a valid Ed25519 key")
    except ReceiptFault as fault:
        return Judgement(Validity.INVALID, str(fault))
    return _weigh(_Checked("sshsig", receipt, (key,), _time(receipt.get("timestamp"), now)), trust)


def _check(data: bytes, trust: Trust, now: datetime) -> _Checked:
    value = forms.read(data)
    if dsse.is_envelope(value):
        return _check_envelope(dsse.parse(data), trust)
    return _check_flat(forms.from_nested(value), "nested" if "receipt" in value else "flat", now)


def _check_envelope(envelope: dsse.DsseEnvelope, trust: Trust) -> _Checked:
    """The exact payload bytes are verified, then those same bytes are read (DSSE's order)."""
    candidates = {forms.key_id(signer.public): signer.public for signer in trust.signers}
    statement = forms.read(envelope.payload)
    carried = _carried_key(statement)
    candidates.setdefault(forms.key_id(carried), carried)
    keys = _verified_keys(envelope, candidates)
    if not keys:
        raise ReceiptFault("no signature verifies under a known key or the key the receipt names")
    predicate = statement["predicate"]
    receipt = predicate.get("receipt")
    if not isinstance(receipt, dict) or statement.get("subject") != forms.subjects(receipt):
        raise ReceiptFault("the statement's subjects are not the files that its receipt names")
    return _Checked("dsse", receipt, keys, _time(predicate.get("timeCreated"), None))


def _carried_key(statement: Mapping[str, Any]) -> bytes:
    predicate = statement.get("predicate")
    verifier = predicate.get("verifier") if isinstance(predicate, dict) else None
    if statement.get("_type") != forms.STATEMENT_TYPE or statement.get("predicateType") != forms.PREDICATE_TYPE:
        raise ReceiptFault("the payload is not an in-toto statement of a verification result")
    if not isinstance(verifier, dict):
        raise ReceiptFault("the statement does not say who verified")
    return _valid_key(verifier.get("id"))


def _valid_key(text: Any) -> bytes:
    public = forms.parse_key_text(text)
    if not ed25519.is_valid_public_key(public):
        raise ReceiptFault("the signing key is not a valid Ed25519 key: of small order, or not canonical")
    return public


def _verified_keys(envelope: dsse.DsseEnvelope, candidates: Mapping[str, bytes]) -> tuple[bytes, ...]:
    """Signatures of keys we do not know are passed over; a wrong one that claims a key we know condemns the receipt."""
    covered = envelope.signed_bytes
    found: list[bytes] = []
    for signature in envelope.signatures:
        hinted = candidates.get(signature.key_id)
        tried = [hinted] if hinted else list(candidates.values())
        match = next((key for key in tried if ed25519.verify(key, covered, signature.value)), None)
        if match is None and hinted:
            raise ReceiptFault("a signature does not belong to this receipt: it was changed, or signed by someone else")
        if match is not None and match not in found:
            found.append(match)
    return tuple(found)


def _check_flat(value: Mapping[str, Any], form: str, now: datetime) -> _Checked:
    named = [value[key] for key in ("signer_pubkey", "public_key") if key in value]
    if not named or "signature" not in value:
        raise ReceiptFault("the receipt is not signed")
    keys = {_valid_key(text) for text in named}
    if len(keys) != 1:
        raise ReceiptFault("the receipt names two different keys")
    key = keys.pop()
    text = value["signature"]
    if not isinstance(text, str) or len(text) != 128 or not all(char in "0123456789abcdef" for char in text):
        raise ReceiptFault("a signature is 128 lower-case hex digits")
    if not ed25519.verify(key, forms.signed_bytes(value), bytes.fromhex(text)):
        raise ReceiptFault("the signature does not belong to this receipt: it was changed, or signed by someone else")
    # `signed_at` is not under this form's signature; the receipt's own time is, so windows are held against that.
    return _Checked(form, forms.unsigned(value), (key,), _time(value.get("timestamp"), now))


def _weigh(checked: _Checked, trust: Trust) -> Judgement:
    identities = trust.identities(checked.keys, checked.signed_at)
    shown = tuple(sshsig.fingerprint(key) for key in checked.keys)
    if identities and len(identities) >= trust.threshold:
        word, reason = Validity.TRUSTED, f"signed by {', '.join(sorted(identities))}"
    elif identities:
        word, reason = Validity.UNKNOWN, f"{len(identities)} of {trust.threshold} required trusted signers"
    elif any(signer.public in checked.keys for signer in trust.signers):
        word, reason = Validity.UNKNOWN, "the signer's key is not valid for the time of signing"
    else:
        word, reason = Validity.UNKNOWN, "the signature is intact; the signer is not in the trust file"
    return Judgement(word, reason, checked.form, shown, tuple(sorted(identities)), checked.receipt, checked.keys)


def _time(text: Any, otherwise: datetime | None) -> datetime:
    """RFC 3339 in UTC. `otherwise` is for receipts that say no time at all."""
    if isinstance(text, str) and _UTC.fullmatch(text):
        with suppress(ValueError):
            return datetime.fromisoformat(text)
    if text is not None or otherwise is None:
        raise ReceiptFault("the receipt does not say when, as YYYY-MM-DDThh:mm:ssZ")
    return otherwise
