"""What the tools remember between calls: quotas of callers, and what was read of the store and still holds.

Nothing of the signer guard is here: what a key of ours has said is asked of the disk, every time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolgate.kit.sql import SharedReads, Views
from toolgate.packs.consensus.gossip.exchange import Quotas

if TYPE_CHECKING:
    from toolgate.packs.consensus.domain.arbiters import Network

MAX_ANSWERS: Final = 512
"""Of each kind."""
MAX_ANSWER_CHARACTERS: Final = 16 * 1024
"""Of evidence, or of messages: what is longer is read anew, so all answers together stay below 20 MB."""


class RoundKnown(NamedTuple):
    """A round that is there, seen by who signs for a stranger."""

    network: Network
    own: bytes
    """Our own arbiter's name."""
    clock: int


class ArbiterMemory:
    def __init__(self) -> None:
        self.quotas = Quotas()
        self.finality: Views[str, dict[str, Any]] = Views(MAX_ANSWERS)
        """Answers by the round that was asked for."""
        self.reading: SharedReads[int, Any] = SharedReads()
        """Rounds that are asked for now, by number."""
        self.pages: Views[tuple[str, int, str], dict[str, Any]] = Views(MAX_ANSWERS)
        """Answers to gossip that brings nothing: by peer, number and store."""
        self.rounds: Views[int, RoundKnown] = Views(MAX_ANSWERS)
