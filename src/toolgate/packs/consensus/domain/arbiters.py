"""Who may vote, how many are enough, and which round ids belong to whom."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from toolgate.kit.ed25519 import VerifyKey
from toolgate.packs.consensus.domain.bounds import MAX_ARBITERS, MAX_DISPUTE_WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_ROUND: Final = 2**63 - 1
"""The largest integer both SQL engines hold; it travels as a decimal string."""
NETWORK_TAG: Final = b"toolgate-netw-1\x00"
SENDER_TAG: Final = b"toolgate-send-1\x00"


class ArbiterFault(ValueError):
    """This is not an arbiter set. The text names the fault."""


def quorum(n: int) -> int:
    """How many of `n` must agree: more than two thirds, so that two quorums share an honest arbiter."""
    return 2 * n // 3 + 1


def max_faulty(n: int) -> int:
    """How many of `n` may lie or be silent while everything promised here still holds."""
    return (n - 1) // 3


def sender_id(public_key: bytes) -> bytes:
    """The name of an arbiter in every message: it can only be claimed with the key."""
    return sha256(SENDER_TAG + public_key).digest()


class Network:
    """One arbiter set with its parameters. Its id is in every signed byte, so a set is frozen for its rounds."""

    __slots__ = ("_index", "dispute_window", "id", "keys", "public_keys", "quorum", "senders", "size")

    def __init__(self, public_keys: Iterable[bytes], dispute_window: int) -> None:
        """Raises: ArbiterFault."""
        self.public_keys = tuple(sorted(public_keys))
        self.size = len(self.public_keys)
        if not 1 <= self.size <= MAX_ARBITERS:
            raise ArbiterFault(f"{self.size} arbiters: name 1 to {MAX_ARBITERS}")
        if len(set(self.public_keys)) != self.size:
            raise ArbiterFault("one arbiter is named twice")
        if not 1 <= dispute_window <= MAX_DISPUTE_WINDOW:
            raise ArbiterFault(f"a dispute window of {dispute_window} epochs: give 1 to {MAX_DISPUTE_WINDOW}")
        self.dispute_window = dispute_window
        self.senders = tuple(sender_id(key) for key in self.public_keys)
        try:
            checked = [VerifyKey(key) for key in self.public_keys]
        except ValueError:
            raise ArbiterFault("a public key is not 32 bytes of a valid Ed25519 point") from None
        self.keys = dict(zip(self.senders, checked, strict=True))
        self._index = {sender: index for index, sender in enumerate(self.senders)}
        self.quorum = quorum(self.size)
        self.id = sha256(
            NETWORK_TAG
            + self.size.to_bytes(2, "big")
            + b"".join(self.public_keys)
            + self.dispute_window.to_bytes(4, "big")
        ).digest()

    def index_of(self, sender: bytes) -> int:
        """Raises: KeyError: not an arbiter."""
        return self._index[sender]

    def proposer_of(self, round_id: int) -> bytes:
        """Round ids are unique without asking anybody: k*n + i + 1 belongs to arbiter i."""
        return self.senders[(round_id - 1) % self.size]

    def next_round_of(self, sender: bytes, highest: int) -> int:
        """The first round id of `sender` above `highest` (0: none yet)."""
        offset = self.index_of(sender) + 1
        if highest < offset:
            return offset
        return offset + ((highest - offset) // self.size + 1) * self.size
