"""One round as a state machine: messages and epochs go in, the state changes and effects come out as data.

Votes form a grow-only set, so order, duplication and partition make no difference (invariants I2, I3). An equivocator's
votes count for each statement it signed: discounting them would let a level fall and replicas disagree. Signatures are
checked before a message comes here (`messages.check`).
"""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from toolgate.kit import merkle
from toolgate.packs.consensus.domain.evidence import Certificate, Equivocation, Evidence, Level, Rise, certificate_of
from toolgate.packs.consensus.domain.messages import (
    ABSTAIN,
    ACCEPT,
    Message,
    SealingCheckpoint,
    Statement,
    Vote,
    message_hash,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolgate.packs.consensus.domain.arbiters import Network

MAX_STATEMENTS: Final = 8
"""Different votes kept of one arbiter in one round: two convict it, honest arbiters sign one. Of more, the smallest are
kept, so that all replicas keep the same ones whatever came first."""
_NEXT: Final = dict(pairwise(Level))
ROUND_TAG: Final = b"toolgate-stat-1\x00"
OUTCOMES: Final = ("OPEN", "ACCEPTED", "REJECTED", "SPLIT", "SAFETY_FAULT")


class KeptMessage(NamedTuple):
    """A message is new here, or a smaller copy of a known one."""

    message: Message


class Dropped(NamedTuple):
    """A kept message gave way to a smaller one."""

    message: Message


class Certified(NamedTuple):
    certificate: Certificate


class Convicted(NamedTuple):
    """The proof against this arbiter is now this one (it may replace a proof with larger votes)."""

    proof: Equivocation


class Rose(NamedTuple):
    before: Level
    after: Level
    epoch: int
    evidence: Evidence
    """What proves it; `to_bytes` gives what others can check."""


class TookEffect(NamedTuple):
    """A certified checkpoint and its content are both here: one more epoch is sealed."""

    checkpoint: SealingCheckpoint
    certificate: Certificate


Effect = KeptMessage | Dropped | Certified | Convicted | Rose | TookEffect


class Round:
    """The state of one round on one replica."""

    __slots__ = (
        "_counts",
        "certificates",
        "checkpoints",
        "hard_epoch",
        "id",
        "level",
        "network",
        "quorum_epoch",
        "sealed",
        "votes",
    )

    def __init__(self, network: Network, round_id: int) -> None:
        self.network = network
        self.id = round_id
        self.votes: dict[bytes, dict[Statement, Vote]] = {}
        self.checkpoints: dict[bytes, SealingCheckpoint] = {}
        """By rule hash: which checkpoint a vote's rule hash means."""
        self.certificates: dict[Statement, Certificate] = {}
        self.level = Level.PENDING
        self.quorum_epoch = 0
        self.hard_epoch = 0
        self.sealed = False
        """A checkpoint of this round took effect."""
        self._counts: dict[Statement, int] = {}

    # What it is

    def count(self, statement: Statement) -> int:
        """How many distinct arbiters signed `statement`."""
        return self._counts.get(statement, 0)

    def accepted(self) -> Certificate | None:
        """The certificate that counts: the only one, and an ACCEPT."""
        found = [each for each in self.certificates.values() if each.statement.kind == ACCEPT]
        return found[0] if len(found) == 1 and not self.faulted else None

    @property
    def faulted(self) -> bool:
        """Two conflicting certificates: more than a third of the arbiters lied. The round is frozen where it is."""
        return len(self.certificates) > 1

    @property
    def outcome(self) -> str:
        if self.faulted:
            return "SAFETY_FAULT"
        if not self.certificates:
            return "OPEN" if self.decidable else "SPLIT"
        return "ACCEPTED" if self.accepted() else "REJECTED"

    @property
    def decidable(self) -> bool:
        """Can the arbiters who are still silent make a quorum? If not, only one who contradicts itself could."""
        most = max((count for said, count in self._counts.items() if said.kind != ABSTAIN), default=0)
        return most + len(self.silent()) >= self.network.quorum

    def silent(self) -> list[bytes]:
        """Arbiters nothing is known of in this round, in the order of the set."""
        return [sender for sender in self.network.senders if not self.votes.get(sender)]

    def support(self) -> int:
        """Arbiters behind the most accepted statement."""
        return max((count for statement, count in self._counts.items() if statement.kind == ACCEPT), default=0)

    def equivocations(self) -> list[Equivocation]:
        """One proof for each arbiter that contradicted itself, ascending by arbiter."""
        return [_proof(self.votes[sender]) for sender in sorted(self.votes) if len(self.votes[sender]) > 1]

    def digest(self) -> bytes:
        """A hash over messages, certified statements and convictions; not over levels, which depend on arrival."""
        messages: list[Message] = [vote for mine in self.votes.values() for vote in mine.values()]
        messages += self.checkpoints.values()
        hashed = sha256(ROUND_TAG + self.network.id + self.id.to_bytes(8, "big"))
        for part in (
            sorted(message_hash(message.to_bytes()) for message in messages),
            sorted(certificate.leaf() for certificate in self.certificates.values()),
            [message_hash(proof.to_bytes()) for proof in self.equivocations()],
        ):
            hashed.update(len(part).to_bytes(4, "big") + b"".join(part))
        return hashed.digest()

    # What happens to it

    def see(self, message: Message, epoch: int) -> list[Effect]:
        """Take in one checked message of this round. An empty list: it was known, or there is no room for it."""
        effects = self._see_vote(message, epoch) if isinstance(message, Vote) else self._see_checkpoint(message)
        if effects and self.checkpoints and not self.sealed:
            self._take_effect(effects)
        return effects

    def reach(self, epoch: int, seal: Certificate) -> list[Effect]:
        """An epoch was sealed: QUORUM becomes HARD if its group still stands, unopposed, one epoch later."""
        certificate = self.accepted()
        if self.level != Level.QUORUM or certificate is None or epoch <= self.quorum_epoch:
            return []
        if self.count(certificate.statement) < self.network.quorum:
            return []
        self.hard_epoch = epoch
        return [self._rise(Rise(Level.HARD, self.quorum_epoch, epoch, certificate, seal), epoch)]

    def anchor(self, epoch: int, seal: Certificate, checkpoint: SealingCheckpoint) -> list[Effect]:
        """A checkpoint that covers this round took effect: HARD becomes ABSOLUTE once the dispute window has passed."""
        certificate = self.accepted()
        if self.level != Level.HARD or certificate is None or epoch < self.hard_epoch + self.network.dispute_window:
            return []
        leaf = (self.id, certificate.leaf())
        if leaf not in checkpoint.leaves:
            return []
        index = checkpoint.leaves.index(leaf)
        path = tuple(merkle.inclusion_proof(checkpoint.leaf_hashes(), index))
        rise = Rise(Level.ABSOLUTE, self.hard_epoch, epoch, certificate, seal, index, len(checkpoint.leaves), path)
        return [self._rise(rise, epoch)]

    def _see_vote(self, vote: Vote, epoch: int) -> list[Effect]:
        mine = self.votes.setdefault(vote.sender, {})
        known = mine.get(vote.statement)
        if known is not None:
            # Only a liar signs one statement twice with different bytes. The smaller copy stays, or replicas would differ.
            if (vote.logical, vote.signature) >= (known.logical, known.signature):
                return []
            mine[vote.statement] = vote
            return [Dropped(known), KeptMessage(vote), *_conviction(mine)]
        effects: list[Effect] = []
        if len(mine) >= MAX_STATEMENTS:
            largest = max(mine)
            if vote.statement > largest:
                return []
            effects.append(Dropped(mine.pop(largest)))
            self._counts[largest] -= 1
        mine[vote.statement] = vote
        self._counts[vote.statement] = self.count(vote.statement) + 1
        effects.append(KeptMessage(vote))
        if len(mine) > 1:
            effects += _conviction(mine)
        self._raise_level(vote, epoch, effects)
        return effects

    def _raise_level(self, vote: Vote, epoch: int, effects: list[Effect]) -> None:
        statement = vote.statement
        if statement.kind == ACCEPT and self.level == Level.PENDING:
            effects.append(self._rise(vote, epoch))
        if statement.kind == ABSTAIN or self._counts[statement] < self.network.quorum or statement in self.certificates:
            return
        group = [mine[statement] for mine in self.votes.values() if statement in mine]
        certificate = self.certificates[statement] = certificate_of(self.network, self.id, statement, group)
        effects.append(Certified(certificate))
        if statement.kind == ACCEPT and self.level == Level.SOFT:
            self.quorum_epoch = epoch
            effects.append(self._rise(certificate, epoch))

    def _see_checkpoint(self, checkpoint: SealingCheckpoint) -> list[Effect]:
        rule = checkpoint.statement().rule
        known = self.checkpoints.get(rule)
        if known is not None and checkpoint.signature >= known.signature:
            return []
        effects: list[Effect] = [] if known is None else [Dropped(known)]
        if known is None and len(self.checkpoints) >= MAX_STATEMENTS:
            largest = max(self.checkpoints)
            if rule > largest:
                return []
            effects.append(Dropped(self.checkpoints.pop(largest)))
        self.checkpoints[rule] = checkpoint
        return [*effects, KeptMessage(checkpoint)]

    def _take_effect(self, effects: list[Effect]) -> None:
        certificate = self.accepted()
        if certificate is None:
            return
        checkpoint = self.checkpoints.get(certificate.statement.rule)
        if checkpoint is not None and checkpoint.statement() == certificate.statement:
            self.sealed = True
            effects.append(TookEffect(checkpoint, certificate))

    def _rise(self, evidence: Evidence, epoch: int) -> Rose:
        before, self.level = self.level, _NEXT[self.level]
        return Rose(before, self.level, epoch, evidence)

    def restore(
        self,
        messages: Iterable[Message],
        certificates: Iterable[Certificate],
        *,
        level: Level,
        quorum_epoch: int,
        hard_epoch: int,
        sealed: bool,
    ) -> Round:
        """The round as it was stored: no effect happens a second time."""
        for message in messages:
            if isinstance(message, Vote):
                self.votes.setdefault(message.sender, {})[message.statement] = message
                self._counts[message.statement] = self.count(message.statement) + 1
            else:
                self.checkpoints[message.statement().rule] = message
        self.certificates = {certificate.statement: certificate for certificate in certificates}
        self.level, self.quorum_epoch, self.hard_epoch, self.sealed = level, quorum_epoch, hard_epoch, sealed
        return self


def _conviction(mine: dict[Statement, Vote]) -> list[Effect]:
    return [Convicted(_proof(mine))] if len(mine) > 1 else []


def _proof(mine: dict[Statement, Vote]) -> Equivocation:
    """The two smallest votes: the same proof on every replica that knows the same votes."""
    first, second, *_ = sorted(mine)
    return Equivocation(mine[first], mine[second])
