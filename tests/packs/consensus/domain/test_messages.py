"""Messages: one spelling, every field bound by the signature, every foreign byte refused with a stable code."""

from __future__ import annotations

import base64
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.packs.consensus.domain.people import checkpoint, key_of, network_of, statement, vote
from tests.support import need
from toolgate.kit.ed25519 import SigningKey, VerifyKey
from toolgate.packs.consensus.domain.arbiters import Network
from toolgate.packs.consensus.domain.messages import (
    ABSTAIN,
    MAX_LEAVES,
    MAX_MESSAGE_BYTES,
    VOTE_BYTES,
    MessageFault,
    SealingCheckpoint,
    Statement,
    Vote,
    check,
    decode,
    statement_hash,
)
from toolgate.packs.consensus.domain.rounds import Round

FOUR = network_of(4)
VOTE = vote(FOUR, 1, 7, statement(0), logical=3)


def fault_of(data: bytes, network: Network = FOUR) -> str:
    try:
        check(network, decode(data))
    except MessageFault as fault:
        return fault.code
    return "ok"


@given(
    round_id=st.integers(1, 2**63 - 1),
    logical=st.integers(0, 2**63 - 1),
    root=st.binary(min_size=32, max_size=32),
    rule=st.binary(min_size=32, max_size=32),
    kind=st.integers(1, 3),
    index=st.integers(0, 3),
)
def test_vote_survives_the_wire(round_id: int, logical: int, root: bytes, rule: bytes, kind: int, index: int) -> None:
    made = vote(FOUR, index, round_id, Statement(root, rule, kind), logical)
    data = made.to_bytes()
    assert len(data) == VOTE_BYTES
    assert decode(data) == made
    assert data == made.signed_bytes() + made.signature
    assert fault_of(data) == "ok"


@given(position=st.integers(0, VOTE_BYTES * 8 - 1))
@cases(100, 500)
def test_any_changed_bit_of_a_vote_is_refused(position: int) -> None:
    data = bytearray(VOTE.to_bytes())
    data[position // 8] ^= 1 << position % 8
    assert fault_of(bytes(data)) in {"INVALID_INPUT", "WRONG_NETWORK", "NOT_ARBITER", "BAD_SIGNATURE"}


def test_vote_of_another_network_round_or_arbiter_is_refused_by_name() -> None:
    other = network_of(5)
    stranger = vote(other, 4, 7, statement(0))
    assert fault_of(vote(other, 0, 7, statement(0)).to_bytes()) == "WRONG_NETWORK"
    assert fault_of(stranger._replace(network=FOUR.id, sender=bytes(32)).to_bytes()) == "NOT_ARBITER"
    assert fault_of(VOTE._replace(round=8).to_bytes()) == "BAD_SIGNATURE"
    assert fault_of(VOTE._replace(sender=FOUR.senders[2]).to_bytes()) == "BAD_SIGNATURE"
    assert fault_of(VOTE._replace(signature=bytes(64)).to_bytes()) == "BAD_SIGNATURE"


@given(st.binary(max_size=400))
@cases(100, 500)
def test_any_bytes_are_refused_with_a_code_and_nothing_else(data: bytes) -> None:
    assert fault_of(data) == "INVALID_INPUT"


@given(st.integers(0, VOTE_BYTES + 8), st.binary(max_size=8))
def test_vote_cut_short_or_with_a_tail_is_refused(length: int, tail: bytes) -> None:
    data = (VOTE.to_bytes() + tail)[:length]
    assert fault_of(data) == ("ok" if data == VOTE.to_bytes() else "INVALID_INPUT")


@pytest.mark.parametrize(
    "vote_",
    [
        VOTE._replace(round=0),
        VOTE._replace(round=2**63),
        VOTE._replace(logical=2**63),
        VOTE._replace(statement=statement(0, 0)),
        VOTE._replace(statement=statement(0, 4)),
    ],
    ids=["round zero", "round too large", "time too large", "type zero", "type four"],
)
def test_field_out_of_range_is_refused(vote_: Vote) -> None:
    assert fault_of(vote_.to_bytes()) == "INVALID_INPUT"


def test_fault_never_quotes_the_bytes() -> None:
    with pytest.raises(MessageFault) as caught:
        decode(b"secret-secret-secret" * 20)
    assert "secret" not in str(caught.value)


def _certified(network: Network, round_id: int) -> Round:
    done = Round(network, round_id)
    for index in range(network.size):
        done.see(vote(network, index, round_id, statement(round_id)), 0)
    return done


def test_checkpoint_survives_the_wire_and_names_its_root() -> None:
    made = checkpoint(FOUR, 0, 9, 0, [_certified(FOUR, number) for number in (3, 1, 2)])
    assert [number for number, _ in made.leaves] == [1, 2, 3]
    assert decode(made.to_bytes()) == made
    assert fault_of(made.to_bytes()) == "ok"
    assert made.leaves[0][1] == statement_hash(FOUR.id, 1, statement(1))


def test_only_the_rounds_proposer_gives_it_a_checkpoint() -> None:
    assert fault_of(checkpoint(FOUR, 1, 9, 0, [_certified(FOUR, 1)]).to_bytes()) == "NOT_ARBITER"


@given(position=st.integers(0, 8 * 300))
@cases(100, 500)
def test_any_changed_bit_of_a_checkpoint_is_refused(position: int) -> None:
    data = bytearray(checkpoint(FOUR, 0, 9, 0, [_certified(FOUR, number) for number in (1, 2, 3)]).to_bytes())
    data[position // 8 % len(data)] ^= 1 << position % 8
    assert fault_of(bytes(data)) != "ok"


def test_checkpoint_that_lists_a_round_twice_or_out_of_order_is_refused() -> None:
    made = checkpoint(FOUR, 0, 9, 0, [_certified(FOUR, number) for number in (1, 2)])
    for leaves in (made.leaves[::-1], made.leaves[:1] * 2):
        assert fault_of(made._replace(leaves=leaves).to_bytes()) == "INVALID_INPUT"


def test_checkpoint_has_a_largest_size() -> None:
    full = SealingCheckpoint(
        FOUR.id, 9, FOUR.senders[0], 0, tuple((i + 1, bytes(32)) for i in range(MAX_LEAVES)), bytes(64)
    )
    assert len(full.to_bytes()) == MAX_MESSAGE_BYTES
    assert fault_of(full.to_bytes()) == "BAD_SIGNATURE"
    larger = full._replace(leaves=(*full.leaves, (MAX_LEAVES + 1, bytes(32))))
    assert fault_of(larger.to_bytes()) == "INVALID_INPUT"


def test_logical_time_is_signed_but_is_no_part_of_what_is_said() -> None:
    later = vote(FOUR, 1, 7, statement(0), logical=4)
    assert later.signature != VOTE.signature
    four = Round(FOUR, 7)
    assert four.see(VOTE, 0)
    assert not four.see(later, 0)
    assert not four.equivocations()


def test_abstention_and_acceptance_have_different_bytes() -> None:
    assert vote(FOUR, 1, 7, statement(0, ABSTAIN)).signed_bytes() != VOTE.signed_bytes()


NODE_CHECK = """
const crypto = require('crypto');
const [key, vote] = process.argv.slice(1).map(text => Buffer.from(text, 'base64'));
const der = Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), key]);
const publicKey = crypto.createPublicKey({key: der, format: 'der', type: 'spki'});
console.log(crypto.verify(null, vote.subarray(0, 161), publicKey, vote.subarray(161)));
"""


def test_node_verifies_a_vote_by_its_bytes_alone() -> None:
    """Another implementation of Ed25519, in another language, given the documented layout: 161 bytes, then 64."""
    node = need("node")
    holder = next(key_of(number) for number in range(4) if key_of(number).public_key == FOUR.public_keys[1])
    answers = []
    for data in (VOTE.to_bytes(), VOTE._replace(round=8).to_bytes()):
        arguments = [base64.b64encode(part).decode() for part in (holder.public_key, data)]
        done = subprocess.run(
            [node, "-e", NODE_CHECK, *arguments], capture_output=True, text=True, timeout=20, check=True
        )
        answers.append(done.stdout.strip())
    assert answers == ["true", "false"]


# RFC 8032 section 7.1, tests 1 to 3: seed, message, signature.
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]


@pytest.mark.parametrize(("seed", "message", "signature"), RFC_8032)
def test_keys_that_vote_sign_and_verify_as_rfc_8032_prints(seed: str, message: str, signature: str) -> None:
    key = SigningKey(bytes.fromhex(seed))
    assert key.sign(bytes.fromhex(message)).hex() == signature
    assert VerifyKey(key.public_key).verify(bytes.fromhex(message), bytes.fromhex(signature))
    assert not VerifyKey(key.public_key).verify(bytes.fromhex(message) + b"x", bytes.fromhex(signature))
