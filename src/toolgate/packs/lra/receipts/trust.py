"""Whose signatures count: a trust file in OpenSSH's allowed-signers form, so that ssh-keygen reads the same file.

    # lra-threshold: 2
    alice@example.org namespaces="lra-receipt",valid-before="20270101Z" ssh-ed25519 AAAAC3... Alice
    bob@example.org ssh-ed25519 AAAAC3...

A window is held against the time the signer claims, as git does; a key known to be stolen is removed, not windowed.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from toolgate.kit import ed25519
from toolgate.packs.lra.receipts.receipt import ReceiptFault
from toolgate.packs.lra.receipts.sshsig import KEY_TYPE, NAMESPACE, parse_key_blob

MAX_TRUST_BYTES: Final = 256 * 1024
"""Some two thousand signers."""
MAX_THRESHOLD: Final = 64
_THRESHOLD: Final = re.compile(r"#\s*lra-threshold:\s*([0-9]{1,3})\s*")
_LINE: Final = re.compile(
    r'(?P<who>"[^"]+"|\S+)\s+(?:(?P<options>(?:"[^"]*"|[^\s"])+)\s+)?ssh-ed25519\s+(?P<key>\S+)(?:\s.*)?'
)
_OPTION: Final = re.compile(r'([a-z-]+)(?:="([^"]*)")?(?:,|$)', re.IGNORECASE)
_STAMP: Final = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:([0-9]{2})([0-9]{2})([0-9]{2})?)?Z?")


class Trusted(Struct, frozen=True):
    """One line: who, by which key, from when until when (UTC; None = no bound)."""

    identity: str
    public: bytes
    valid_after: datetime | None = None
    valid_before: datetime | None = None

    def holds_at(self, when: datetime) -> bool:
        if self.valid_after is not None and when < self.valid_after:
            return False
        return self.valid_before is None or when < self.valid_before


class Trust(Struct, frozen=True):
    signers: tuple[Trusted, ...] = ()
    threshold: int = 1

    def identities(self, keys: Iterable[bytes], when: datetime) -> set[str]:
        """Who of the trusted stands behind these keys at that time; two keys of one person count once."""
        present = set(keys)
        return {signer.identity for signer in self.signers if signer.public in present and signer.holds_at(when)}


def parse(text: str) -> Trust:
    """Raises: ReceiptFault: a line that cannot be understood is never passed over; it might have been a limit."""
    if len(text) > MAX_TRUST_BYTES:
        raise ReceiptFault(f"the trust file is larger than {MAX_TRUST_BYTES} bytes")
    signers: list[Trusted] = []
    threshold = 1
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith("#"):
            stated = _THRESHOLD.fullmatch(line)
            threshold = int(stated[1]) if stated else threshold
        elif line:
            signer = _signer(line, number)
            signers += [signer] if signer else []
    if not 1 <= threshold <= MAX_THRESHOLD:
        raise ReceiptFault(f"lra-threshold is between 1 and {MAX_THRESHOLD}")
    return Trust(tuple(signers), threshold)


def _signer(line: str, number: int) -> Trusted | None:
    """None for a line that is about another namespace."""
    found = _LINE.fullmatch(line)
    if not found:
        raise ReceiptFault(f"line {number} of the trust file is not: who [options] ssh-ed25519 key")
    options = _options(found["options"] or "", number)
    namespaces = options.pop("namespaces", None)
    after, before = options.pop("valid-after", None), options.pop("valid-before", None)
    if options:
        raise ReceiptFault(f"line {number} of the trust file has an option that is not supported: {min(options)}")
    if namespaces is not None and NAMESPACE not in namespaces.split(","):
        return None
    return Trusted(found["who"].strip('"'), _key(found["key"], number), _stamp(after, number), _stamp(before, number))


def _options(text: str, number: int) -> dict[str, str]:
    options: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _OPTION.match(text, position)
        name = found[1].lower() if found else ""
        if not found or name in options:
            raise ReceiptFault(f"line {number} of the trust file has options that cannot be read")
        options[name] = found[2] or ""
        position = found.end()
    return options


def _key(text: str, number: int) -> bytes:
    try:
        public = parse_key_blob(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        raise ReceiptFault(f"line {number} of the trust file has a key that is not {KEY_TYPE.decode()}") from None
    if not ed25519.is_valid_public_key(public):
        raise ReceiptFault(f"line {number} of the trust file has a key that anyone could sign for (small order)")
    return public


def _stamp(text: str | None, number: int) -> datetime | None:
    """YYYYMMDD[HHMM[SS]][Z], read as UTC."""
    if text is None:
        return None
    found = _STAMP.fullmatch(text)
    try:
        if not found:
            raise ValueError
        year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise ReceiptFault(f"line {number} of the trust file has a date that is not YYYYMMDD[HHMM[SS]][Z]") from None
