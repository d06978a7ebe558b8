"""SSHSIG: the detached signature that `ssh-keygen -Y` makes and checks (OpenSSH PROTOCOL.sshsig).

Ours are byte for byte what ssh-keygen writes for the same key, message and namespace.
"""

from __future__ import annotations

import base64
import binascii
import struct
import textwrap
from collections.abc import Callable
from hashlib import sha256, sha512
from typing import Final

from toolgate.kit import ed25519
from toolgate.packs.lra.receipts.receipt import ReceiptFault

NAMESPACE: Final = "lra-receipt"
"""Keeps a receipt's signature from passing as one for a commit, a login or anything else the key signs."""
KEY_TYPE: Final = b"ssh-ed25519"
MAX_SIGNATURE_BYTES: Final = 4096
_MAGIC: Final = b"SSHSIG"
_BEGIN: Final = "-----BEGIN SSH SIGNATURE-----"
_END: Final = "-----END SSH SIGNATURE-----"
_HASH: Final = b"sha512"
_HASHES: Final = {b"sha256": sha256, b"sha512": sha512}


def key_blob(public: bytes) -> bytes:
    return _string(KEY_TYPE) + _string(public)


def parse_key_blob(blob: bytes) -> bytes:
    """Raises: ReceiptFault: not an Ed25519 key."""
    kind, rest = _take(blob)
    public, rest = _take(rest)
    if kind != KEY_TYPE or rest or len(public) != ed25519.PUBLIC_BYTES:
        raise ReceiptFault("not an ssh-ed25519 key")
    return public


def fingerprint(public: bytes) -> str:
    """`SHA256:...`, as `ssh-keygen -l` prints it."""
    return "SHA256:" + base64.b64encode(sha256(key_blob(public)).digest()).decode().rstrip("=")


def sign(message: bytes, public: bytes, sign_bytes: Callable[[bytes], bytes], namespace: str = NAMESPACE) -> str:
    signature = sign_bytes(_covered(message, namespace.encode(), _HASH))
    blob = (
        _MAGIC
        + struct.pack(">I", 1)
        + _string(key_blob(public))
        + _string(namespace.encode())
        + _string(b"")
        + _string(_HASH)
        + _string(_string(KEY_TYPE) + _string(signature))
    )
    lines = textwrap.wrap(base64.b64encode(blob).decode(), 70)
    return "\n".join([_BEGIN, *lines, _END, ""])


def verify(message: bytes, armoured: str, namespace: str = NAMESPACE) -> bytes:
    """The public key that signed `message`. Raises: ReceiptFault: malformed, for another purpose, or wrong."""
    blob = _dearmour(armoured)
    if blob[:10] != _MAGIC + struct.pack(">I", 1):
        raise ReceiptFault("not an SSH signature of version 1")
    key, rest = _take(blob[10:])
    purpose, rest = _take(rest)
    _, rest = _take(rest)
    algorithm, rest = _take(rest)
    wrapped, rest = _take(rest)
    if rest:
        raise ReceiptFault("the SSH signature has bytes behind its end")
    if purpose != namespace.encode():
        raise ReceiptFault("the SSH signature was made for another purpose (namespace)")
    if algorithm not in _HASHES:
        raise ReceiptFault("the SSH signature uses an unknown hash")
    kind, inner = _take(wrapped)
    signature, behind = _take(inner)
    public = parse_key_blob(key)
    if kind != KEY_TYPE or behind or not ed25519.verify(public, _covered(message, purpose, algorithm), signature):
        raise ReceiptFault("the SSH signature does not belong to this file")
    return public


def _covered(message: bytes, namespace: bytes, algorithm: bytes) -> bytes:
    digest = _HASHES[algorithm](message).digest()
    return _MAGIC + _string(namespace) + _string(b"") + _string(algorithm) + _string(digest)


def _dearmour(text: str) -> bytes:
    lines = [line.strip() for line in text.strip().splitlines()]
    if len(text) > MAX_SIGNATURE_BYTES or len(lines) < 3 or lines[0] != _BEGIN or lines[-1] != _END:
        raise ReceiptFault("not an SSH signature file")
    try:
        return base64.b64decode("".join(lines[1:-1]), validate=True)
    except (binascii.Error, ValueError):
        raise ReceiptFault("the SSH signature is not base64") from None


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _take(data: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(data[:4], "big")
    if len(data) < 4 or len(data) - 4 < length:
        raise ReceiptFault("the SSH signature or key is cut short")
    return data[4 : 4 + length], data[4 + length :]
