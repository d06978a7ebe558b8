"""Arbiters for tests: keys from numbers, votes signed by them, rounds on a dictionary."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from hashlib import sha256

from toolgate.kit.ed25519 import SigningKey
from toolgate.packs.consensus.domain.arbiters import Network, sender_id
from toolgate.packs.consensus.domain.evidence import Level
from toolgate.packs.consensus.domain.messages import ACCEPT, SealingCheckpoint, Statement, Vote
from toolgate.packs.consensus.domain.replica import Replica, checkpoint_for
from toolgate.packs.consensus.domain.rounds import Round

WINDOW = 2


def seed_of(number: int) -> bytes:
    return sha256(b"arbiter %d" % number).digest()


@cache
def key_of(number: int) -> SigningKey:
    return SigningKey(seed_of(number))


@cache
def network_of(n: int, window: int = WINDOW) -> Network:
    return Network([key_of(number).public_key for number in range(n)], window)


@cache
def _keys_by_sender(n: int) -> dict[bytes, SigningKey]:
    return {sender_id(key_of(number).public_key): key_of(number) for number in range(n)}


def statement(number: int, kind: int = ACCEPT) -> Statement:
    return Statement(sha256(b"root %d" % number).digest(), sha256(b"rule %d" % (number % 2)).digest(), kind)


def unsigned(network: Network, index: int, round_id: int, said: Statement, logical: int = 1) -> Vote:
    """For the state machine, which never looks at signatures: they are checked at the door."""
    return Vote(network.id, round_id, said, network.senders[index], logical, bytes(64))


def vote(network: Network, index: int, round_id: int, said: Statement, logical: int = 1) -> Vote:
    sender = network.senders[index]
    made = Vote(network.id, round_id, said, sender, logical)
    return made._replace(signature=_keys_by_sender(network.size)[sender].sign(made.signed_bytes()))


def checkpoint(network: Network, index: int, round_id: int, epoch: int, rounds: list[Round]) -> SealingCheckpoint:
    sender = network.senders[index]
    made = checkpoint_for(network, sender, round_id, epoch, rounds)
    return made._replace(signature=_keys_by_sender(network.size)[sender].sign(made.signed_bytes()))


class DictShelf:
    """Rounds in memory. `round_type` lets a test put a wrong machine in the place of the right one."""

    def __init__(self, network: Network, round_type: type[Round] = Round) -> None:
        self.network = network
        self.round_type = round_type
        self.rounds: dict[int, Round] = {}

    def get(self, round_id: int) -> Round:
        if round_id not in self.rounds:
            self.rounds[round_id] = self.round_type(self.network, round_id)
        return self.rounds[round_id]

    def load(self, ids: Iterable[int]) -> None:
        """They are all in memory."""

    def at_level(self, level: Level) -> list[int]:
        return sorted(number for number, each in self.rounds.items() if each.level == level)


def replica(network: Network) -> Replica:
    return Replica(network, DictShelf(network))
