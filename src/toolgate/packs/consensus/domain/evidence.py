"""Bytes that convince a third party who holds nothing but the arbiter set: certificates, rises, equivocation proofs."""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from toolgate.kit import merkle
from toolgate.packs.consensus.domain.arbiters import MAX_ROUND
from toolgate.packs.consensus.domain.bounds import MAX_ARBITERS
from toolgate.packs.consensus.domain.messages import (
    ACCEPT,
    KIND_NAMES,
    REJECT,
    VOTE_BYTES,
    VOTE_TAG,
    MessageFault,
    Statement,
    Vote,
    check,
    decode_vote,
    statement_hash,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolgate.packs.consensus.domain.arbiters import Network


class Level(IntEnum):
    """The ladder of ADR-0013. A round climbs one step at a time and never comes down."""

    PENDING = 0
    """Open; nobody accountable has accepted."""
    SOFT = 1
    """At least one arbiter accepted."""
    QUORUM = 2
    """More than two thirds accepted one statement; there is a certificate."""
    HARD = 3
    """The quorum still stood one epoch later, unopposed."""
    ABSOLUTE = 4
    """Sealed under a checkpoint after the dispute window, with a Merkle proof."""


CERTIFICATE_TAG: Final = b"toolgate-cert-1\x00"
RISE_TAG: Final = b"toolgate-rise-1\x00"
EQUIVOCATION_TAG: Final = b"toolgate-evid-1\x00"

_CERTIFICATE_HEAD: Final = Struct(">16s32sQ32s32sBH")
_SIGNER: Final = Struct(">32sQ64s")
_RISE_HEAD: Final = Struct(">16sBQQIIIIB")
MAX_EVIDENCE_BYTES: Final = 2 * (_CERTIFICATE_HEAD.size + MAX_ARBITERS * _SIGNER.size) + _RISE_HEAD.size + 64 * 32
"""Two full certificates and the longest Merkle path."""


class EvidenceFault(ValueError):
    """These bytes prove nothing. The text says at which point."""


class Certificate(NamedTuple):
    """A quorum's votes for one statement of one round."""

    network: bytes
    round: int
    statement: Statement
    signers: tuple[tuple[bytes, int, bytes], ...]
    """(sender, logical time, signature), ascending by sender."""

    def to_bytes(self) -> bytes:
        head = _CERTIFICATE_HEAD.pack(CERTIFICATE_TAG, self.network, self.round, *self.statement, len(self.signers))
        return head + b"".join(_SIGNER.pack(*signer) for signer in self.signers)

    def votes(self) -> list[Vote]:
        return [Vote(self.network, self.round, self.statement, *signer) for signer in self.signers]

    def leaf(self) -> bytes:
        return statement_hash(self.network, self.round, self.statement)


class Rise(NamedTuple):
    """Why a certified round rose to HARD (no path) or ABSOLUTE (with the Merkle path into the sealing round's root)."""

    level: int
    since: int
    epoch: int
    certificate: Certificate
    seal: Certificate
    position: int = 0
    size: int = 0
    path: tuple[bytes, ...] = ()

    def to_bytes(self) -> bytes:
        certificate, seal = self.certificate.to_bytes(), self.seal.to_bytes()
        head = _RISE_HEAD.pack(
            RISE_TAG,
            self.level,
            self.since,
            self.epoch,
            len(certificate),
            len(seal),
            self.position,
            self.size,
            len(self.path),
        )
        return head + certificate + seal + b"".join(self.path)


class Equivocation(NamedTuple):
    """Two signed votes of one arbiter in one round that say different things."""

    first: Vote
    second: Vote

    def to_bytes(self) -> bytes:
        return EQUIVOCATION_TAG + self.first.to_bytes() + self.second.to_bytes()


Evidence = Vote | Certificate | Rise | Equivocation


def certificate_of(network: Network, round_id: int, statement: Statement, votes: Iterable[Vote]) -> Certificate:
    """The certificate of the quorum's smallest senders, so that equal votes give equal bytes."""
    signers = [(vote.sender, vote.logical, vote.signature) for vote in votes]
    signers.sort()
    return Certificate(network.id, round_id, statement, tuple(signers[: network.quorum]))


def decode_certificate(data: bytes) -> Certificate:
    """Raises: EvidenceFault."""
    if len(data) < _CERTIFICATE_HEAD.size:
        raise EvidenceFault("the certificate is cut short")
    tag, network, round_id, root, rule, kind, count = _CERTIFICATE_HEAD.unpack_from(data)
    if tag != CERTIFICATE_TAG or len(data) != _CERTIFICATE_HEAD.size + count * _SIGNER.size:
        raise EvidenceFault("the certificate's length is not what its count of signers asks for")
    if kind not in KIND_NAMES or not 1 <= round_id <= MAX_ROUND:
        raise EvidenceFault("a field of the certificate is out of range")
    signers = tuple(_SIGNER.iter_unpack(data[_CERTIFICATE_HEAD.size :]))
    if any(logical > MAX_ROUND for _, logical, _ in signers):
        raise EvidenceFault("a field of the certificate is out of range")
    return Certificate(network, round_id, Statement(root, rule, kind), signers)


def decode(data: bytes) -> Evidence:
    """Read any evidence this pack gives out. Raises: EvidenceFault."""
    if len(data) > MAX_EVIDENCE_BYTES:
        raise EvidenceFault(f"evidence has at most {MAX_EVIDENCE_BYTES} bytes")
    tag = data[:16]
    if tag == CERTIFICATE_TAG:
        return decode_certificate(data)
    if tag == RISE_TAG:
        return _decode_rise(data)
    try:
        if tag == EQUIVOCATION_TAG:
            return Equivocation(decode_vote(data[16 : 16 + VOTE_BYTES]), decode_vote(data[16 + VOTE_BYTES :]))
        if tag == VOTE_TAG:
            return decode_vote(data)
    except MessageFault as fault:
        raise EvidenceFault(str(fault)) from None
    raise EvidenceFault("the bytes do not begin like evidence of this protocol version")


def _decode_rise(data: bytes) -> Rise:
    if len(data) < _RISE_HEAD.size:
        raise EvidenceFault("the evidence is cut short")
    _, level, since, epoch, first, second, position, size, steps = _RISE_HEAD.unpack_from(data)
    start = _RISE_HEAD.size
    if len(data) != start + first + second + steps * merkle.HASH_BYTES:
        raise EvidenceFault("the evidence's length is not what its parts ask for")
    path = data[start + first + second :]
    return Rise(
        level,
        since,
        epoch,
        decode_certificate(data[start : start + first]),
        decode_certificate(data[start + first : start + first + second]),
        position,
        size,
        tuple(path[i : i + merkle.HASH_BYTES] for i in range(0, len(path), merkle.HASH_BYTES)),
    )


def verify(network: Network, evidence: Evidence) -> None:
    """Does this hold, by the arbiter set alone? Raises: EvidenceFault: names the first thing that does not."""
    if isinstance(evidence, Vote):
        _verify_vote(network, evidence)
    elif isinstance(evidence, Certificate):
        _verify_certificate(network, evidence)
    elif isinstance(evidence, Rise):
        _verify_rise(network, evidence)
    else:
        _verify_equivocation(network, evidence)


def _verify_vote(network: Network, vote: Vote) -> None:
    try:
        check(network, vote)
    except MessageFault as fault:
        raise EvidenceFault(f"{fault.code}: {fault}") from None


def _verify_certificate(network: Network, certificate: Certificate) -> None:
    if certificate.statement.kind not in (ACCEPT, REJECT):
        raise EvidenceFault("an ABSTAIN certifies nothing")
    if len(certificate.signers) < network.quorum:
        raise EvidenceFault(f"{len(certificate.signers)} signers; the quorum of {network.size} is {network.quorum}")
    if any(first[0] >= second[0] for first, second in pairwise(certificate.signers)):
        raise EvidenceFault("the signers are not in ascending order, each once")
    for vote in certificate.votes():
        _verify_vote(network, vote)


def _verify_rise(network: Network, rise: Rise) -> None:
    _verify_certificate(network, rise.certificate)
    _verify_certificate(network, rise.seal)
    if rise.certificate.statement.kind != ACCEPT or rise.seal.statement.kind != ACCEPT:
        raise EvidenceFault("a rejection does not rise")
    if rise.level == Level.HARD and not rise.path and not rise.size:
        if rise.epoch <= rise.since:
            raise EvidenceFault("HARD needs a later epoch than QUORUM")
    elif rise.level == Level.ABSOLUTE:
        if rise.epoch < rise.since + network.dispute_window:
            raise EvidenceFault("the dispute window had not passed")
        leaf = merkle.leaf_hash(rise.certificate.leaf())
        if not merkle.verify_inclusion(leaf, rise.position, rise.size, rise.path, rise.seal.statement.root):
            raise EvidenceFault("the certificate is not under the sealed Merkle root")
    else:
        raise EvidenceFault("the evidence names no level it could prove")


def _verify_equivocation(network: Network, proof: Equivocation) -> None:
    first, second = proof
    if (first.sender, first.round, first.network) != (second.sender, second.round, second.network):
        raise EvidenceFault("the two votes are not of one arbiter in one round")
    if first.statement >= second.statement:
        raise EvidenceFault("the two votes say the same, or stand in the wrong order")
    _verify_vote(network, first)
    _verify_vote(network, second)


def guilty(first: Certificate, second: Certificate) -> list[bytes]:
    """Who signed both of two conflicting certificates, ascending; at least 2q - n arbiters (invariant I5)."""
    others = {sender for sender, _, _ in second.signers}
    return [sender for sender, _, _ in first.signers if sender in others]
