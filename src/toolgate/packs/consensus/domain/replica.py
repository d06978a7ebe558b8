"""All rounds of one network on one replica: the epoch, what a seal does to other rounds, the logical clock.

The rounds themselves come from a `RoundStore`: a dictionary in tests, SQL in the engine. The rules are these, once.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol

from toolgate.packs.consensus.domain.evidence import Level
from toolgate.packs.consensus.domain.messages import MAX_LEAVES, SealingCheckpoint, Vote
from toolgate.packs.consensus.domain.rounds import Effect, Round, TookEffect

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolgate.packs.consensus.domain.arbiters import Network
    from toolgate.packs.consensus.domain.messages import Message

MAX_CLOCK_JUMP: Final = 2**20
"""How far one message may move the logical clock: a liar must not exhaust it."""
STATE_TAG: Final = b"toolgate-hash-1\x00"


class RoundStore(Protocol):
    """Where a replica finds its rounds."""

    def get(self, round_id: int) -> Round:
        """The round; a new, empty one when nothing of it is known."""
        ...

    def load(self, ids: Iterable[int]) -> None:
        """These rounds will be asked for next: one look for all of them."""
        ...

    def at_level(self, level: Level) -> list[int]:
        """Ids of the rounds at exactly this level, ascending."""
        ...


class Replica:
    def __init__(self, network: Network, shelf: RoundStore, *, epoch: int = 0, clock: int = 0) -> None:
        self.network = network
        self.shelf = shelf
        self.epoch = epoch
        """The number of checkpoints that took effect. Grows only; equal on replicas that know the same messages."""
        self.clock = clock

    def see(self, message: Message) -> list[tuple[int, Effect]]:
        """Take in one checked message; each effect with the round it belongs to."""
        if isinstance(message, Vote):
            self.clock = merged_clock(self.clock, message.logical)
        effects: list[tuple[int, Effect]] = []
        for effect in self.shelf.get(message.round).see(message, self.epoch):
            effects.append((message.round, effect))
            if isinstance(effect, TookEffect):
                effects += self._seal(message.round, effect)
        return effects

    def _seal(self, sealing_round: int, seal: TookEffect) -> list[tuple[int, Effect]]:
        """One epoch more: every other standing quorum rises to HARD, covered HARD rounds past their window to ABSOLUTE."""
        self.epoch += 1
        effects: list[tuple[int, Effect]] = []
        for round_id in self.shelf.at_level(Level.QUORUM):
            if round_id == sealing_round:
                continue
            effects += [(round_id, each) for each in self.shelf.get(round_id).reach(self.epoch, seal.certificate)]
        self.shelf.load(round_id for round_id, _ in seal.checkpoint.leaves)
        for round_id, _ in seal.checkpoint.leaves:
            rises = self.shelf.get(round_id).anchor(self.epoch, seal.certificate, seal.checkpoint)
            effects += [(round_id, each) for each in rises]
        # The sealing round belongs to the epoch it opens: it must not carry itself to HARD.
        sealing = self.shelf.get(sealing_round)
        if sealing.level == Level.QUORUM:
            sealing.quorum_epoch = self.epoch
        return effects


def merged_clock(local: int, seen: int) -> int:
    """Lamport's rule, bounded: max(local, seen) + 1; a leap beyond the bound is not followed."""
    return max(local, seen) + 1 if seen <= local + MAX_CLOCK_JUMP else local + 1


def checkpoint_for(
    network: Network, sender: bytes, round_id: int, epoch: int, rounds: Iterable[Round]
) -> SealingCheckpoint:
    """The unsigned checkpoint over the certificates of `rounds`, those nearest to ABSOLUTE first when not all fit."""
    certified = [(each.level != Level.HARD, each.hard_epoch, each.id, each.accepted()) for each in rounds]
    ripest = sorted((key[:3], key[3].leaf()) for key in certified if key[3] is not None)[:MAX_LEAVES]
    leaves = tuple(sorted((number, leaf) for (_, _, number), leaf in ripest))
    return SealingCheckpoint(network.id, round_id, sender, epoch, leaves)


def may_accept(checkpoint: SealingCheckpoint, epoch: int, shelf: RoundStore) -> str | None:
    """Why an honest arbiter must not (yet) accept this checkpoint, as an error code; None when it may.

    It vouches only for certificates it holds itself, and only for the epoch it stands in.
    """
    if checkpoint.epoch != epoch:
        return "STALE_EPOCH"
    shelf.load(round_id for round_id, _ in checkpoint.leaves)
    for round_id, leaf in checkpoint.leaves:
        certificate = shelf.get(round_id).accepted()
        if certificate is None or certificate.leaf() != leaf:
            return "ROUND_NOT_FOUND"
    return None


def state_hash(network: Network, digests: Iterable[tuple[int, bytes]]) -> bytes:
    """One hash over every round's digest; equal on replicas that know the same messages."""
    hashed = sha256(STATE_TAG + network.id)
    for round_id, digest in sorted(digests):
        hashed.update(round_id.to_bytes(8, "big") + digest)
    return hashed.digest()
