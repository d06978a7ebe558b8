"""What arbiters say to each other: votes and checkpoints, in one spelling of fixed-width fields, signed with Ed25519.

A message is its signed bytes followed by 64 bytes of signature. The signed bytes bind kind and version (tag), network,
round, content and sender; a signature can therefore not be moved to another round, network or meaning (ADR-0013).
"""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from toolgate.kit import merkle
from toolgate.packs.consensus.domain.arbiters import MAX_ROUND

if TYPE_CHECKING:
    from toolgate.packs.consensus.domain.arbiters import Network

ACCEPT: Final = 1
REJECT: Final = 2
ABSTAIN: Final = 3
KINDS: Final = {"ACCEPT": ACCEPT, "REJECT": REJECT, "ABSTAIN": ABSTAIN}
KIND_NAMES: Final = {number: name for name, number in KINDS.items()}

VOTE_TAG: Final = b"toolgate-vote-1\x00"
SEAL_TAG: Final = b"toolgate-seal-1\x00"
STATEMENT_TAG: Final = b"toolgate-stmt-1\x00"
SIGNATURE_BYTES: Final = 64

_VOTE: Final = Struct(">16s32sQ32s32sB32sQ")
_SIGNED_VOTE: Final = Struct(">16s32sQ32s32sB32sQ64s")
_STATEMENT: Final = Struct(">16s32sQ32s32sB")
_SEAL_HEAD: Final = Struct(">16s32sQ32sQI")
_LEAF: Final = Struct(">Q32s")

VOTE_BYTES: Final = _SIGNED_VOTE.size
MAX_LEAVES: Final = 512
"""Rounds one checkpoint covers: its message stays near 20 kB, its proofs under a second. The rest comes into the next."""
MAX_MESSAGE_BYTES: Final = _SEAL_HEAD.size + MAX_LEAVES * _LEAF.size + SIGNATURE_BYTES


class MessageFault(ValueError):
    """These bytes are not a message we take. `code` is stable; nothing of the bytes is quoted."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Statement(NamedTuple):
    """What a vote says: the unit of agreement and of equivocation. Logical time is no part of it."""

    root: bytes
    rule: bytes
    kind: int


class Vote(NamedTuple):
    network: bytes
    round: int
    statement: Statement
    sender: bytes
    logical: int
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        root, rule, kind = self.statement
        return _VOTE.pack(VOTE_TAG, self.network, self.round, root, rule, kind, self.sender, self.logical)

    def to_bytes(self) -> bytes:
        root, rule, kind = self.statement
        return _SIGNED_VOTE.pack(
            VOTE_TAG, self.network, self.round, root, rule, kind, self.sender, self.logical, self.signature
        )


class SealingCheckpoint(NamedTuple):
    """The content of a sealing round: which certificates its Merkle root covers, for which epoch."""

    network: bytes
    round: int
    sender: bytes
    epoch: int
    """How many checkpoints were sealed when this one was proposed."""
    leaves: tuple[tuple[int, bytes], ...]
    """(round, hash of its certified statement), ascending by round."""
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        head = _SEAL_HEAD.pack(SEAL_TAG, self.network, self.round, self.sender, self.epoch, len(self.leaves))
        return head + b"".join(_LEAF.pack(*leaf) for leaf in self.leaves)

    def to_bytes(self) -> bytes:
        return self.signed_bytes() + self.signature

    def statement(self) -> Statement:
        """What an arbiter accepts by voting for this checkpoint: the rule hash names the list, the root covers it."""
        return Statement(merkle.root_of(self.leaf_hashes()), sha256(self.signed_bytes()).digest(), ACCEPT)

    def leaf_hashes(self) -> list[bytes]:
        return [merkle.leaf_hash(leaf) for _, leaf in self.leaves]


Message = Vote | SealingCheckpoint


def message_hash(data: bytes) -> bytes:
    return sha256(data).digest()


def statement_hash(network: bytes, round_id: int, statement: Statement) -> bytes:
    """The name of what was certified, independent of which arbiters signed: the leaf of a checkpoint."""
    return sha256(_STATEMENT.pack(STATEMENT_TAG, network, round_id, *statement)).digest()


def decode(data: bytes) -> Message:
    """Read one message; nothing about its truth is checked. Raises: MessageFault INVALID_INPUT."""
    tag = data[:16]
    if tag == VOTE_TAG:
        return decode_vote(data)
    if tag == SEAL_TAG:
        return _decode_checkpoint(data)
    raise MessageFault("INVALID_INPUT", "the bytes do not begin like a message of this protocol version")


def decode_vote(data: bytes) -> Vote:
    """Raises: MessageFault INVALID_INPUT."""
    if len(data) != VOTE_BYTES:
        raise MessageFault("INVALID_INPUT", f"a vote has {VOTE_BYTES} bytes, this has {len(data)}")
    tag, network, round_id, root, rule, kind, sender, logical, signature = _SIGNED_VOTE.unpack(data)
    if tag != VOTE_TAG or kind not in KIND_NAMES or not 1 <= round_id <= MAX_ROUND or logical > MAX_ROUND:
        raise MessageFault("INVALID_INPUT", "a field of the vote is out of range")
    return Vote(network, round_id, Statement(root, rule, kind), sender, logical, signature)


def _decode_checkpoint(data: bytes) -> SealingCheckpoint:
    if not _SEAL_HEAD.size <= len(data) <= MAX_MESSAGE_BYTES:
        raise MessageFault("INVALID_INPUT", f"a checkpoint has at most {MAX_MESSAGE_BYTES} bytes")
    _, network, round_id, sender, epoch, count = _SEAL_HEAD.unpack_from(data)
    if count > MAX_LEAVES or len(data) != _SEAL_HEAD.size + count * _LEAF.size + SIGNATURE_BYTES:
        raise MessageFault("INVALID_INPUT", "the checkpoint's length is not what its count of rounds asks for")
    leaves = tuple(_LEAF.iter_unpack(data[_SEAL_HEAD.size : -SIGNATURE_BYTES]))
    rounds = [leaf_round for leaf_round, _ in leaves]
    ascending = all(first < second for first, second in pairwise(rounds))
    in_range = all(1 <= number <= MAX_ROUND for number in (round_id, *rounds)) and epoch <= MAX_ROUND
    if not (ascending and in_range):
        raise MessageFault("INVALID_INPUT", "a field of the checkpoint is out of range or out of order")
    return SealingCheckpoint(network, round_id, sender, epoch, leaves, data[-SIGNATURE_BYTES:])


def check_sender(network: Network, message: Message) -> None:
    """Could this be a message of this network, by a member? Costs nothing, so it is asked before signatures are.

    Raises: MessageFault WRONG_NETWORK, NOT_ARBITER.
    """
    if message.network != network.id:
        raise MessageFault("WRONG_NETWORK", "the message belongs to another arbiter set or other parameters")
    if message.sender not in network.keys:
        raise MessageFault("NOT_ARBITER", "the sender is not in the arbiter set")
    if type(message) is SealingCheckpoint and network.proposer_of(message.round) != message.sender:
        raise MessageFault("NOT_ARBITER", "only a round's proposer can give it a checkpoint")


def check(network: Network, message: Message) -> None:
    """Is this a message of this network, by a member, truly signed?

    Raises: MessageFault WRONG_NETWORK, NOT_ARBITER, BAD_SIGNATURE.
    """
    check_sender(network, message)
    if not network.keys[message.sender].verify(message.signed_bytes(), message.signature):
        raise MessageFault("BAD_SIGNATURE", "the signature does not belong to these bytes and this sender")
