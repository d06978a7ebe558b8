"""Ed25519, strictly: one verdict on every signature, whatever library made it (RFC 8032, by libsodium).

Some verifiers take the identity point as a public key and then accept one signature for every message; others disagree
on keys of small or mixed order and on spellings that are not canonical. Here a key must be a canonical point of the
prime subgroup, and libsodium itself refuses a non-canonical S.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from nacl.bindings import crypto_core_ed25519_is_valid_point, crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError

SEED_BYTES: Final = 32
PUBLIC_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64


def public_key(seed: bytes) -> bytes:
    """Raises: ValueError: the seed is not 32 bytes."""
    return _key_pair(seed)[0]


def sign(seed: bytes, message: bytes) -> bytes:
    """64 bytes, the same for the same seed and message. Raises: ValueError: the seed is not 32 bytes."""
    return crypto_sign(message, _key_pair(seed)[1])[:SIGNATURE_BYTES]


class SigningKey:
    """A seed with its key pair made once, for whoever signs often (half the cost of `sign`)."""

    __slots__ = ("_pair", "public_key")

    def __init__(self, seed: bytes) -> None:
        public, self._pair = _key_pair(seed)
        self.public_key = public

    def sign(self, message: bytes) -> bytes:
        return crypto_sign(message, self._pair)[:SIGNATURE_BYTES]

    def __repr__(self) -> str:
        return f"SigningKey(public_key={self.public_key.hex()!r})"


@lru_cache(maxsize=4096)
def is_valid_public_key(public: bytes) -> bool:
    """A canonical point of the prime subgroup: not the identity, not of small or mixed order, one spelling only.

    As dear as a verification, and always the same for a key: answers are kept.
    """
    return len(public) == PUBLIC_BYTES and bool(crypto_core_ed25519_is_valid_point(public))


class VerifyKey:
    """A public key checked once, for whoever verifies often with known keys (half the cost of `verify`)."""

    __slots__ = ("public_key",)

    def __init__(self, public: bytes) -> None:
        """Raises: ValueError: not a canonical point of the prime subgroup."""
        if not is_valid_public_key(public):
            raise ValueError("not a valid Ed25519 public key")
        self.public_key = public

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Never raises: a malformed signature is a no."""
        return len(signature) == SIGNATURE_BYTES and _opens(self.public_key, message, signature)


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Did the holder of `public` sign `message`? Never raises: a malformed key or signature is a no."""
    if len(signature) != SIGNATURE_BYTES or not is_valid_public_key(public):
        return False
    return _opens(public, message, signature)


def _opens(public: bytes, message: bytes, signature: bytes) -> bool:
    try:
        crypto_sign_open(signature + message, public)
    except BadSignatureError:
        return False
    return True


def _key_pair(seed: bytes) -> tuple[bytes, bytes]:
    if len(seed) != SEED_BYTES:
        raise ValueError("an Ed25519 seed is 32 bytes")
    public, secret = crypto_sign_seed_keypair(seed)
    return public, secret
