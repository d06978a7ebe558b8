"""minisign files: a detached signature over the BLAKE2b hash, with a comment that is signed too."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from hashlib import blake2b, sha256
from typing import Final

from toolgate.kit import ed25519
from toolgate.packs.lra.receipts.receipt import ReceiptFault

_KEY_ID_BYTES: Final = 8
_UNTRUSTED: Final = "untrusted comment: "
_TRUSTED: Final = "trusted comment: "


def key_id(public: bytes) -> bytes:
    """minisign draws key ids at random; ours follow from the key, so the same key always has the same id."""
    return sha256(b"minisign key id\0" + public).digest()[:_KEY_ID_BYTES]


def public_key_file(public: bytes) -> str:
    shown = key_id(public)[::-1].hex().upper()
    return f"{_UNTRUSTED}minisign public key {shown}\n{_to_base64(b'Ed' + key_id(public) + public)}\n"


def parse_public_key(text: str) -> tuple[bytes, bytes]:
    """Key id and key of a minisign public key file. Raises: ReceiptFault."""
    raw = _from_base64(text.strip().split("\n")[-1])
    if raw[:2] != b"Ed" or len(raw) != 2 + _KEY_ID_BYTES + ed25519.PUBLIC_BYTES:
        raise ReceiptFault("not a minisign public key")
    return raw[2 : 2 + _KEY_ID_BYTES], raw[2 + _KEY_ID_BYTES :]


def sign(message: bytes, public: bytes, sign_bytes: Callable[[bytes], bytes], comment: str) -> str:
    """`comment` is one line and is covered by the second signature."""
    signature = sign_bytes(blake2b(message).digest())
    over_all = sign_bytes(signature + comment.encode())
    head = _to_base64(b"ED" + key_id(public) + signature)
    return f"{_UNTRUSTED}signature of a verification receipt\n{head}\n{_TRUSTED}{comment}\n{_to_base64(over_all)}\n"


def verify(message: bytes, text: str, key: tuple[bytes, bytes]) -> str:
    """The trusted comment; `key` is a key id with its key. Raises: ReceiptFault: malformed, of another key, or wrong."""
    expected_id, public = key
    lines = text.split("\n")
    if len(lines) < 4 or not lines[0].startswith(_UNTRUSTED) or not lines[2].startswith(_TRUSTED) or any(lines[4:]):
        raise ReceiptFault("not a minisign signature file")
    head, over_all = _from_base64(lines[1]), _from_base64(lines[3])
    algorithm, ident, signature = head[:2], head[2:10], head[10:]
    covered = {b"ED": blake2b(message).digest(), b"Ed": message}.get(algorithm)
    if covered is None or ident != expected_id:
        raise ReceiptFault("the minisign signature is of another key or algorithm")
    comment = lines[2].removeprefix(_TRUSTED)
    if not ed25519.verify(public, covered, signature):
        raise ReceiptFault("the minisign signature does not belong to this file")
    if not ed25519.verify(public, signature + comment.encode(), over_all):
        raise ReceiptFault("the minisign signature's trusted comment was changed")
    return comment


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ReceiptFault("not a minisign signature file") from None
