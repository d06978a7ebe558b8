"""RFC 9381 ECVRF-EDWARDS25519-SHA512-TAI: published examples, and every step a wrong implementation gets away with."""

from __future__ import annotations

from hashlib import sha512

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings as sodium
from nacl.exceptions import RuntimeError as SodiumError

from tests.cases import cases
from toolgate.packs.consensus.domain import vrf

# RFC 9381 appendix B.3, examples 16 to 18: secret, public, alpha, proof, output.
EXAMPLES = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "8657106690b5526245a92b003bb079ccd1a92130477671f6fc01ad16f26f723f26f8a57ccaed74ee1b190bed1f479d9727d2d0f9b005a6e456a35d4fb0daab1268a1b0db10836d9826a528ca76567805",
        "90cf1df3b703cce59e2a35b925d411164068269d7b2d29f3301c03dd757876ff66b71dda49d2de59d03450451af026798e8f81cd2e333de5cdf4f3e140fdd8ae",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "f3141cd382dc42909d19ec5110469e4feae18300e94f304590abdced48aed5933bf0864a62558b3ed7f2fea45c92a465301b3bbf5e3e54ddf2d935be3b67926da3ef39226bbc355bdc9850112c8f4b02",
        "eb4440665d3891d668e7e0fcaf587f1b4bd7fbfe99d0eb2211ccec90496310eb5e33821bc613efb94db5e5b54c70a848a0bef4553a41befc57663b56373a5031",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "9bc0f79119cc5604bf02d23b4caede71393cedfbb191434dd016d30177ccbf8096bb474e53895c362d8628ee9f9ea3c0e52c7a5c691b6c18c9979866568add7a2d41b00b05081ed0f58ee5e31b3a970e",
        "645427e5d00c62a23fb703732fa5d892940935942101e456ecca7bb217c61c452118fec1219202a0edcf038bb6373241578be7217ba85a2687f7a0310b2df19f",
    ),
]
SECRET, PUBLIC, ALPHA, PROOF, OUTPUT = (bytes.fromhex(part) for part in EXAMPLES[2])


@pytest.mark.parametrize(("secret", "public", "alpha", "proof", "output"), EXAMPLES)
def test_published_examples_come_out_byte_for_byte(
    secret: str, public: str, alpha: str, proof: str, output: str
) -> None:
    made = vrf.prove(bytes.fromhex(secret), bytes.fromhex(alpha))
    assert (made.public_key.hex(), made.proof.hex(), made.output.hex()) == (public, proof, output)
    assert vrf.verify(bytes.fromhex(public), bytes.fromhex(alpha), bytes.fromhex(proof)) == bytes.fromhex(output)


@given(seed=st.binary(min_size=32, max_size=32), alpha=st.binary(max_size=80))
@cases(50, 300)
def test_what_is_proved_verifies_and_has_the_promised_sizes(seed: bytes, alpha: bytes) -> None:
    made = vrf.prove(seed, alpha)
    assert (len(made.output), len(made.proof)) == (64, 80)
    assert vrf.verify(made.public_key, alpha, made.proof) == made.output
    assert vrf.prove(seed, alpha) == made


@given(position=st.integers(0, 80 * 8 - 1))
@cases(100, 640)
def test_every_flipped_bit_of_a_proof_is_refused(position: int) -> None:
    broken = bytearray(PROOF)
    broken[position // 8] ^= 1 << position % 8
    assert vrf.verify(PUBLIC, ALPHA, bytes(broken)) is None


def test_proof_for_another_input_or_key_is_refused() -> None:
    assert vrf.verify(PUBLIC, ALPHA + b"\0", PROOF) is None
    assert vrf.verify(bytes.fromhex(EXAMPLES[0][1]), ALPHA, PROOF) is None


@pytest.mark.parametrize("length", [0, 79, 81, 128], ids=["empty", "short", "long", "batch form of another project"])
def test_proof_of_another_length_is_refused(length: int) -> None:
    assert vrf.verify(PUBLIC, ALPHA, (PROOF + bytes(64))[:length]) is None


def test_challenge_binds_the_public_key() -> None:
    """Drafts up to 10 hashed (H, Gamma, U, V): the same output, another proof."""
    x, nonce_key = vrf._expand(SECRET)
    point = vrf._hash_to_curve(PUBLIC, ALPHA)
    gamma = sodium.crypto_scalarmult_ed25519_noclamp(x, point)
    k = sodium.crypto_core_ed25519_scalar_reduce(sha512(nonce_key + point).digest())
    u, v = sodium.crypto_scalarmult_ed25519_base_noclamp(k), sodium.crypto_scalarmult_ed25519_noclamp(k, point)
    old_c = vrf._challenge(point, gamma, u, v)
    old_s = sodium.crypto_core_ed25519_scalar_add(k, sodium.crypto_core_ed25519_scalar_mul(old_c + bytes(16), x))
    assert gamma == PROOF[:32]
    assert vrf.verify(PUBLIC, ALPHA, gamma + old_c + old_s) is None


def test_scalar_of_the_proof_must_be_below_the_group_order() -> None:
    """s + q proves the same equation: without the check a proof could be respelt (the check came in draft 10)."""
    respelt = int.from_bytes(PROOF[48:], "little") + vrf.GROUP_ORDER
    assert respelt < 2**256
    assert vrf.verify(PUBLIC, ALPHA, PROOF[:48] + respelt.to_bytes(32, "little")) is None


ORDER_TWO = (vrf.FIELD_PRIME - 1).to_bytes(32, "little")
ORDER_EIGHT = bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a")
ORDER_FOUR = bytes(32)


@pytest.mark.parametrize("small", [ORDER_TWO, ORDER_FOUR, ORDER_EIGHT])
def test_gamma_with_a_small_order_part_is_refused(small: bytes) -> None:
    """Such a proof has the same output, so the RFC-literal verifier would accept some of them: our profile is strict."""
    mixed = sodium.crypto_core_ed25519_add(PROOF[:32], small)
    assert vrf._output(mixed) == OUTPUT
    assert vrf.verify(PUBLIC, ALPHA, mixed + PROOF[32:]) is None


@pytest.mark.parametrize(
    "public",
    [
        vrf.IDENTITY,
        ORDER_TWO,
        ORDER_FOUR,
        ORDER_EIGHT,
        sodium.crypto_core_ed25519_add(PUBLIC, ORDER_TWO),
        sodium.crypto_core_ed25519_add(PUBLIC, ORDER_EIGHT),
        vrf.FIELD_PRIME.to_bytes(32, "little"),
        (vrf.FIELD_PRIME + 1).to_bytes(32, "little"),
        b"",
        PUBLIC + b"\0",
    ],
)
def test_public_key_outside_the_prime_order_group_is_refused(public: bytes) -> None:
    assert vrf.verify(public, ALPHA, PROOF) is None


def test_hash_to_curve_retries_until_a_point_is_found() -> None:
    """Some inputs need several attempts: an implementation that takes only the first hash fails on half of them."""
    attempts = []
    for number in range(64):
        alpha = bytes((number,))
        first = sha512(vrf.SUITE + b"\x01" + PUBLIC + alpha + b"\x00\x00").digest()[:32]
        attempts.append(_on_curve(first))
        assert vrf.verify(PUBLIC, alpha, vrf.prove(SECRET, alpha).proof) is not None
    assert {True, False} == set(attempts)


def _on_curve(candidate: bytes) -> bool:
    try:
        sodium.crypto_core_ed25519_add(candidate, candidate)
    except SodiumError:
        return False
    return True


def test_hash_to_curve_clears_the_cofactor_and_salts_with_the_key() -> None:
    for number in range(16):
        point = vrf._hash_to_curve(PUBLIC, bytes((number,)))
        assert sodium.crypto_core_ed25519_is_valid_point(point)
        assert point != vrf._hash_to_curve(bytes.fromhex(EXAMPLES[0][1]), bytes((number,)))


def test_output_clears_the_cofactor() -> None:
    """Hashing Gamma itself instead of 8 Gamma gives a plausible, wrong output."""
    plain = sha512(vrf.SUITE + b"\x03" + PROOF[:32] + b"\x00").digest()
    assert plain != OUTPUT == vrf._output(PROOF[:32])


def test_nonce_depends_on_the_input_so_the_key_cannot_be_computed_from_two_proofs() -> None:
    one, two = vrf.prove(SECRET, b"a"), vrf.prove(SECRET, b"b")
    x = int.from_bytes(vrf._expand(SECRET)[0], "little")
    difference = int.from_bytes(one.proof[48:], "little") - int.from_bytes(two.proof[48:], "little")
    challenges = int.from_bytes(one.proof[32:48], "little") - int.from_bytes(two.proof[32:48], "little")
    assert difference * pow(challenges, -1, vrf.GROUP_ORDER) % vrf.GROUP_ORDER != x


@given(
    seeds=st.tuples(st.binary(max_size=12), st.binary(max_size=12)),
    inputs=st.tuples(st.binary(max_size=12), st.binary(max_size=12)),
)
def test_different_questions_have_different_alphas(seeds: tuple[bytes, bytes], inputs: tuple[bytes, bytes]) -> None:
    alphas = [vrf.alpha_of(seed, data) for seed, data in zip(seeds, inputs, strict=True)]
    assert (alphas[0] == alphas[1]) == ((seeds[0], inputs[0]) == (seeds[1], inputs[1]))


def test_moving_a_byte_from_seed_to_input_changes_alpha() -> None:
    assert vrf.alpha_of(b"ab", b"c") != vrf.alpha_of(b"a", b"bc")


def test_input_that_looks_seeded_is_refused_without_a_seed() -> None:
    assert vrf.alpha_of(b"", b"plain") == b"plain"
    with pytest.raises(vrf.VrfFault):
        vrf.alpha_of(b"", vrf.alpha_of(b"s", b"i"))


@pytest.mark.parametrize("length", [0, 1, 31, 33, 64])
def test_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(vrf.VrfFault):
        vrf.prove(bytes(length), b"")


def test_library_that_accepts_a_mixed_order_point_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2025-69277, as PyNaCl 1.6.1 behaves: the version number alone does not tell."""
    vrf.require_sound_library.cache_clear()
    monkeypatch.setattr(sodium, "crypto_core_ed25519_is_valid_point", lambda point: point != vrf.IDENTITY)
    with pytest.raises(vrf.UnsoundLibrary, match="PyNaCl"):
        vrf.require_sound_library()
    monkeypatch.undo()
    vrf.require_sound_library()
