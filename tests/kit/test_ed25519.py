"""Strict Ed25519: the public vector collections, each with the number of signatures that may pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from tests.support import need
from toolgate.kit import ed25519

IDENTITY = (1).to_bytes(32, "little")
IDENTITY_SIGNATURE = IDENTITY + bytes(32)
ORDER = 2**252 + 27742317777372353535851937790883648493
FIELD = 2**255 - 19


def vectors(name: str) -> Any:
    return json.loads((Path(need("vectors")) / name).read_bytes())


def test_rfc_8032_vectors_sign_and_verify() -> None:
    cases = vectors("rfc8032_ed25519_vectors.json")["vectors"]
    assert cases
    for case in cases:
        seed, public, message, signature = (bytes.fromhex(case[name]) for name in ("sk", "pk", "msg", "sig"))
        assert ed25519.public_key(seed) == public
        assert ed25519.sign(seed, message) == ed25519.SigningKey(seed).sign(message) == signature
        assert ed25519.verify(public, message, signature)


def test_wycheproof_agrees_on_all_151() -> None:
    judged = 0
    for group in vectors("wycheproof_ed25519_test.json")["testGroups"]:
        public = bytes.fromhex(group["publicKey"]["pk"])
        for case in group["tests"]:
            verdict = ed25519.verify(public, bytes.fromhex(case["msg"]), bytes.fromhex(case["sig"]))
            assert verdict == (case["result"] == "valid"), case["tcId"]
            judged += 1
    assert judged == 151


def test_speccheck_accepts_none_of_12() -> None:
    verdicts = [
        ed25519.verify(*(bytes.fromhex(case[name]) for name in ("pub_key", "message", "signature")))
        for case in vectors("speccheck_ed25519_cases.json")
    ]
    assert verdicts == [False] * 12


def test_cctv_accepts_1_of_914() -> None:
    verdicts = [
        ed25519.verify(bytes.fromhex(case["key"]), case["msg"].encode(), bytes.fromhex(case["sig"]))
        for case in vectors("cctv_ed25519vectors.json")
    ]
    assert (len(verdicts), sum(verdicts)) == (914, 1)


@pytest.mark.parametrize(
    "public",
    [
        IDENTITY,
        (1 | 1 << 255).to_bytes(32, "little"),  # the identity, spelt with the other sign
        bytes(32),  # order 4
        (FIELD - 1).to_bytes(32, "little"),  # order 2
        (FIELD + 1).to_bytes(32, "little"),  # the identity, not reduced
        b"\xff" * 32,
        b"",
        IDENTITY[:31],
    ],
)
def test_keys_that_would_accept_anything_are_refused(public: bytes) -> None:
    assert not ed25519.is_valid_public_key(public)
    assert not ed25519.verify(public, b"any message", IDENTITY_SIGNATURE)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200), st.integers(0, 511))
def test_we_agree_with_another_library_and_notice_every_flipped_bit(seed: bytes, message: bytes, bit: int) -> None:
    theirs = Ed25519PrivateKey.from_private_bytes(seed)
    signature = ed25519.sign(seed, message)
    public = ed25519.public_key(seed)
    assert (public, signature) == (theirs.public_key().public_bytes_raw(), theirs.sign(message))
    flipped = (int.from_bytes(signature, "little") ^ (1 << bit)).to_bytes(64, "little")
    assert ed25519.verify(public, message, signature)
    assert not ed25519.verify(public, message, flipped)
    assert not ed25519.verify(public, message + b"!", signature)


def test_a_second_spelling_of_s_is_refused() -> None:
    seed = bytes(range(32))
    signature = ed25519.sign(seed, b"m")
    shifted = int.from_bytes(signature[32:], "little") + ORDER
    assert not ed25519.verify(ed25519.public_key(seed), b"m", signature[:32] + shifted.to_bytes(32, "little"))


def test_a_seed_of_another_length_is_refused_and_a_key_never_shows_itself() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        ed25519.sign(b"short", b"m")
    seed = bytes(range(32))
    assert seed.hex() not in repr(ed25519.SigningKey(seed))
