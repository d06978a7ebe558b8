"""A verifiable random function: RFC 9381, suite ECVRF-EDWARDS25519-SHA512-TAI.

Every operation on a secret is libsodium's (constant time); there is no curve arithmetic here. Profile: strict, which
means that Gamma and the public key must lie in the prime-order group; the RFC would also allow proofs whose Gamma
carries a small-order part. Try-and-increment takes time that depends on alpha, so alpha must not be a secret.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha512
from hmac import compare_digest
from typing import Final

from msgspec import Struct
from nacl import bindings as sodium
from nacl.exceptions import RuntimeError as SodiumError

SEED_BYTES: Final = 32
OUTPUT_BYTES: Final = 64
PROOF_BYTES: Final = 80
"""Gamma 32, c 16, s 32."""

SUITE: Final = b"\x03"
GROUP_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
FIELD_PRIME: Final = 2**255 - 19
IDENTITY: Final = b"\x01" + bytes(31)

SEEDED_TAG: Final = b"toolgate/consensus/vrf-alpha/1\x00"
"""Begins every alpha that is made of a seed and an input, so that it cannot be read as an input alone."""


class VrfFault(ValueError):
    """The key, proof or alpha is not one this suite takes."""


class Evaluation(Struct, frozen=True):
    output: bytes
    proof: bytes
    public_key: bytes


def alpha_of(seed: bytes, data: bytes) -> bytes:
    """What is hashed to the curve: `data` alone when there is no seed, else tag, length of seed, seed, data.

    Raises: VrfFault: no seed, and data that begins with the tag (two questions would get one answer).
    """
    if seed:
        return SEEDED_TAG + len(seed).to_bytes(8, "big") + seed + data
    if data.startswith(SEEDED_TAG):
        raise VrfFault("an input without a seed must not begin with the tag of seeded inputs")
    return data


def public_key_of(seed: bytes) -> bytes:
    """Raises: VrfFault: not 32 bytes."""
    scalar, _ = _expand(seed)
    return sodium.crypto_scalarmult_ed25519_base_noclamp(scalar)


def prove(seed: bytes, alpha: bytes) -> Evaluation:
    """Output and proof of `alpha` under the RFC 8032 key `seed` (RFC 9381 5.1). Raises: VrfFault."""
    require_sound_library()
    x, nonce_key = _expand(seed)
    public_key = sodium.crypto_scalarmult_ed25519_base_noclamp(x)
    point = _hash_to_curve(public_key, alpha)
    gamma = sodium.crypto_scalarmult_ed25519_noclamp(x, point)
    k = sodium.crypto_core_ed25519_scalar_reduce(sha512(nonce_key + point).digest())
    u = sodium.crypto_scalarmult_ed25519_base_noclamp(k)
    v = sodium.crypto_scalarmult_ed25519_noclamp(k, point)
    c = _challenge(public_key, point, gamma, u, v)
    s = sodium.crypto_core_ed25519_scalar_add(k, sodium.crypto_core_ed25519_scalar_mul(c + bytes(16), x))
    return Evaluation(_output(gamma), gamma + c + s, public_key)


def verify(public_key: bytes, alpha: bytes, proof: bytes) -> bytes | None:
    """The output that `proof` proves, or None (RFC 9381 5.3). Never raises on a stranger's bytes."""
    require_sound_library()
    if len(public_key) != 32 or len(proof) != PROOF_BYTES:
        return None
    gamma, c, s = proof[:32], proof[32:48], proof[48:]
    if int.from_bytes(s, "little") >= GROUP_ORDER or not sodium.crypto_core_ed25519_is_valid_point(public_key):
        return None
    point = _hash_to_curve(public_key, alpha)
    try:
        # The products refuse points outside the prime-order group, and the zero scalar: chance never gives c = 0 or s = 0.
        wide_c = c + bytes(16)
        u = sodium.crypto_core_ed25519_sub(
            sodium.crypto_scalarmult_ed25519_base_noclamp(s),
            sodium.crypto_scalarmult_ed25519_noclamp(wide_c, public_key),
        )
        v = sodium.crypto_core_ed25519_sub(
            sodium.crypto_scalarmult_ed25519_noclamp(s, point), sodium.crypto_scalarmult_ed25519_noclamp(wide_c, gamma)
        )
    except SodiumError:
        return None
    if not compare_digest(c, _challenge(public_key, point, gamma, u, v)):
        return None
    return _output(gamma)


def _expand(seed: bytes) -> tuple[bytes, bytes]:
    """The secret scalar (clamped, then reduced) and the key of the nonce: RFC 8032 5.1.5."""
    if len(seed) != SEED_BYTES:
        raise VrfFault(f"the private key has {len(seed)} bytes; an Ed25519 seed has {SEED_BYTES}")
    digest = sha512(seed).digest()
    low = bytearray(digest[:32])
    low[0] &= 0xF8
    low[31] = (low[31] & 0x7F) | 0x40
    return sodium.crypto_core_ed25519_scalar_reduce(bytes(low) + bytes(32)), digest[32:]


def _hash_to_curve(salt: bytes, alpha: bytes) -> bytes:
    """Try-and-increment (RFC 9381 5.4.1.1); the salt is the public key. About two attempts on average."""
    start = sha512(SUITE + b"\x01" + salt + alpha)
    for counter in range(256):
        attempt = start.copy()
        attempt.update(bytes((counter, 0)))
        candidate = attempt.digest()[:32]
        if int.from_bytes(candidate, "little") & (2**255 - 1) >= FIELD_PRIME:
            continue  # libsodium would read y modulo p; the RFC's decoding refuses it
        try:
            point = _times_eight(candidate)
        except SodiumError:
            continue  # not on the curve
        if point != IDENTITY:
            return point
    raise VrfFault("no point found for this input")  # 2^-256: never seen


def _times_eight(point: bytes) -> bytes:
    """By doubling: a scalar product would refuse a point that is not yet in the prime-order group."""
    for _ in range(3):
        point = sodium.crypto_core_ed25519_add(point, point)
    return point


def _challenge(*points: bytes) -> bytes:
    """RFC 9381 5.4.3: (Y, H, Gamma, U, V). Drafts before 11 left Y out: same output, forgeable binding to the key."""
    return sha512(SUITE + b"\x02" + b"".join(points) + b"\x00").digest()[:16]


def _output(gamma: bytes) -> bytes:
    return sha512(SUITE + b"\x03" + _times_eight(gamma) + b"\x00").digest()


class UnsoundLibrary(RuntimeError):
    """The libsodium below us accepts points it must refuse."""


@cache
def require_sound_library() -> None:
    """Ask the library itself, once: CVE-2025-69277 is patched in some builds with an old version number.

    Raises: UnsoundLibrary.
    """
    base = sodium.crypto_scalarmult_ed25519_base_noclamp(b"\x01" + bytes(31))
    order_two = (FIELD_PRIME - 1).to_bytes(32, "little")
    mixed = sodium.crypto_core_ed25519_add(base, order_two)
    refused = (mixed, order_two, IDENTITY, FIELD_PRIME.to_bytes(32, "little"))
    if not sodium.crypto_core_ed25519_is_valid_point(base) or any(
        sodium.crypto_core_ed25519_is_valid_point(point) for point in refused
    ):
        raise UnsoundLibrary(
            "libsodium accepts a point outside the prime-order group (CVE-2025-69277): install PyNaCl 1.6.2 or newer"
        )
