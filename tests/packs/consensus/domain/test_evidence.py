"""Evidence convinces whoever holds the arbiter set, and nobody can be framed with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.packs.consensus.domain.people import checkpoint, network_of, replica, statement, vote
from toolgate.packs.consensus.domain.arbiters import Network, max_faulty
from toolgate.packs.consensus.domain.evidence import (
    MAX_EVIDENCE_BYTES,
    Certificate,
    Equivocation,
    EvidenceFault,
    Level,
    Rise,
    certificate_of,
    decode,
    guilty,
    verify,
)
from toolgate.packs.consensus.domain.messages import ABSTAIN, ACCEPT, REJECT
from toolgate.packs.consensus.domain.rounds import Rose

FOUR = network_of(4)


def certificate(network: Network, said: int = 0, kind: int = ACCEPT, round_id: int = 1, first: int = 0) -> Certificate:
    votes = [vote(network, i, round_id, statement(said, kind)) for i in range(first, first + network.quorum)]
    return certificate_of(network, round_id, statement(said, kind), votes)


def holds(data: bytes, network: Network = FOUR) -> bool:
    try:
        verify(network, decode(data))
    except EvidenceFault:
        return False
    return True


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 100])
def test_certificate_convinces_by_bytes_and_arbiter_set_alone(n: int) -> None:
    network = network_of(n)
    assert holds(certificate(network).to_bytes(), network)
    assert holds(certificate(network, kind=REJECT).to_bytes(), network)


def test_certificate_of_other_arbiters_convinces_nobody_else() -> None:
    assert not holds(certificate(FOUR).to_bytes(), network_of(5))


def test_certificate_needs_a_quorum_of_distinct_signers_who_signed_this() -> None:
    good = certificate(FOUR)
    other = certificate(FOUR, said=1)
    wrong = {
        "too few": good._replace(signers=good.signers[:2]),
        "one twice": good._replace(signers=(*good.signers[:2], good.signers[1])),
        "another round": good._replace(round=2),
        "another statement": good._replace(statement=statement(1)),
        "a signature from elsewhere": good._replace(signers=(*good.signers[:2], other.signers[2])),
        "out of order": good._replace(signers=good.signers[::-1]),
        "abstentions": certificate(FOUR, kind=ABSTAIN),
    }
    assert [name for name, each in wrong.items() if holds(each.to_bytes())] == []


@given(data=st.data())
@cases(100, 300)
def test_any_changed_byte_of_evidence_convinces_nobody(data: st.DataObject) -> None:
    kinds = [
        certificate(FOUR).to_bytes(),
        Equivocation(*sorted_pair(0, 1)).to_bytes(),
        vote(FOUR, 0, 1, statement(0)).to_bytes(),
    ]
    broken = bytearray(data.draw(st.sampled_from(kinds)))
    broken[data.draw(st.integers(0, len(broken) - 1))] ^= data.draw(st.integers(1, 255))
    assert not holds(bytes(broken))


@given(st.binary(max_size=300))
@cases(100, 300)
def test_any_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    for prefix in (b"", b"toolgate-cert-1\x00", b"toolgate-rise-1\x00", b"toolgate-evid-1\x00", b"toolgate-vote-1\x00"):
        assert not holds(prefix + data)


def test_oversized_evidence_is_refused_unread() -> None:
    assert not holds(b"toolgate-cert-1\x00" + bytes(MAX_EVIDENCE_BYTES))


def sorted_pair(one: int, two: int, index: int = 0) -> tuple:  # type: ignore[type-arg]
    votes = sorted((vote(FOUR, index, 1, statement(each)) for each in (one, two)), key=lambda each: each.statement)
    return votes[0], votes[1]


def test_two_conflicting_votes_of_one_arbiter_convict_it() -> None:
    assert holds(Equivocation(*sorted_pair(0, 1)).to_bytes())
    both_types = sorted((vote(FOUR, 0, 1, statement(0, kind)) for kind in (ACCEPT, REJECT)), key=lambda v: v.statement)
    assert holds(Equivocation(*both_types).to_bytes())


def test_nobody_is_framed() -> None:
    first, second = sorted_pair(0, 1)
    frames = {
        "the same vote twice": (first, first),
        "another logical time": (first, vote(FOUR, 0, 1, first.statement, logical=9)),
        "votes of two arbiters": (first, vote(FOUR, 1, 1, second.statement)),
        "votes of two rounds": (first, vote(FOUR, 0, 2, second.statement)),
        "votes of two networks": (first, vote(network_of(5), 0, 1, second.statement)),
        "a sender put in the place of another": (
            first,
            vote(FOUR, 1, 1, second.statement)._replace(sender=first.sender),
        ),
        "a changed statement": (first, second._replace(statement=statement(2))),
        "the wrong order": (second, first),
    }
    assert [name for name, pair in frames.items() if holds(Equivocation(*pair).to_bytes())] == []


@given(data=st.data())
@cases(30, 150)
def test_two_conflicting_certificates_name_more_liars_than_are_tolerated(data: st.DataObject) -> None:
    """I5: from the certificates alone."""
    n = data.draw(st.sampled_from([1, 2, 3, 4, 7, 10]))
    network = network_of(n)
    everybody = st.permutations(range(n))
    pair = []
    for said in (0, 1):
        group = data.draw(everybody)[: network.quorum]
        pair.append(certificate_of(network, 1, statement(said), [vote(network, i, 1, statement(said)) for i in group]))
    liars = guilty(*pair)
    assert len(liars) >= max(2 * network.quorum - n, max_faulty(n) + 1)
    votes = [{each.sender: each for each in one.votes()} for one in pair]
    for liar in liars:
        both = sorted((votes[0][liar], votes[1][liar]), key=lambda each: each.statement)
        verify(network, Equivocation(*both))


def test_guilty_are_exactly_those_in_both() -> None:
    """Three for one tuple, three for another, of four: the two in the middle lied."""
    assert guilty(certificate(FOUR, said=0, first=1), certificate(FOUR, said=1, first=0)) == sorted(FOUR.senders[1:3])


def test_rises_to_hard_and_absolute_verify_offline_and_only_as_they_are() -> None:
    network, machine = FOUR, replica(FOUR)
    for index in range(4):
        machine.see(vote(network, index, 1, statement(0)))
    rises = []
    for epoch in range(4):
        round_id = 5 + 4 * epoch
        seal = checkpoint(network, 0, round_id, epoch, [machine.shelf.get(each) for each in range(1, round_id)])
        machine.see(seal)
        for index in range(3):
            effects = machine.see(vote(network, index, round_id, seal.statement()))
            rises += [effect for number, effect in effects if number == 1 and isinstance(effect, Rose)]
    assert [(each.after, each.epoch) for each in rises] == [(Level.HARD, 1), (Level.ABSOLUTE, 3)]
    assert all(holds(each.evidence.to_bytes()) for each in rises)
    hard, absolute = (decode(each.evidence.to_bytes()) for each in rises)
    assert isinstance(hard, Rise)
    assert isinstance(absolute, Rise)
    wrong = {
        "hard in the same epoch": hard._replace(epoch=0),
        "absolute before the window": absolute._replace(since=2),
        "another position": absolute._replace(position=absolute.position + 1),
        "no path": absolute._replace(path=()),
        "hard called absolute": hard._replace(level=Level.ABSOLUTE),
        "absolute called hard": absolute._replace(level=Level.HARD),
        "another certificate": absolute._replace(certificate=certificate(FOUR, said=3, round_id=2)),
        "another seal": absolute._replace(seal=certificate(FOUR, said=3, round_id=2)),
        "a rejection": absolute._replace(certificate=certificate(FOUR, kind=REJECT)),
        "no such level": hard._replace(level=2),
    }
    assert [name for name, each in wrong.items() if holds(each.to_bytes())] == []
