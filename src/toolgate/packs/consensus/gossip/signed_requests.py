"""A request that travels over a broker: NATS says nothing about who asks, so the arbiter who asks signs it.

What comes in is refused from cheap to dear, and before anything of it is read: length, form, member, seen before, signature.
A request is at most one signature check, whatever it holds; what its sender may cost beyond that is the sender's own quota.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING, Final, NamedTuple

from toolgate.model import strictjson

if TYPE_CHECKING:
    from toolgate.model.clock import Clock
    from toolgate.packs.consensus.arbiter.guard import VoteSigner
    from toolgate.packs.consensus.domain.arbiters import Network

ASK_TAG: Final = b"toolgate-ask--1\x00"
_HEAD: Final = Layout(">16s32sdQ")
"""Tag, who asks, its time and its count of requests: the same question twice is two requests. Nobody reads the time."""
SIGNATURE_BYTES: Final = 64
MAX_ASKED_BYTES: Final = _HEAD.size + SIGNATURE_BYTES + strictjson.MAX_BYTES
MAX_SEEN: Final = 4096
"""Requests remembered, so that a copy costs nothing. An older copy is answered once more: it brings nothing new."""


class SignedRequest(NamedTuple):
    sender: bytes
    body: bytes


class RequestRejected(Exception):
    """This is not a request to us. The text is one word, for counting."""


class RequestSigner:
    """Who signs requests of one arbiter."""

    def __init__(self, signer: VoteSigner, network: Network, clock: Clock) -> None:
        self._signer = signer
        self._network = network
        self._clock = clock
        self._count = 0

    def sign(self, to: bytes, body: bytes) -> bytes:
        self._count += 1
        head = _HEAD.pack(ASK_TAG, self._signer.sender, self._clock.wall(), self._count)
        return head + self._signer.sign(_signed(head, self._network, to, body)) + body


def _signed(head: bytes, network: Network, to: bytes, body: bytes) -> bytes:
    return head + network.id + to + body


class RequestVerifier:
    """Where requests to one arbiter come in."""

    def __init__(self, network: Network, own: bytes) -> None:
        self._network = network
        self._own = own
        self._seen: dict[bytes, None] = {}

    def open(self, data: bytes) -> SignedRequest:
        """Raises: RequestRejected."""
        if not _HEAD.size + SIGNATURE_BYTES <= len(data) <= MAX_ASKED_BYTES:
            raise RequestRejected("length")
        head = data[: _HEAD.size]
        signature = data[_HEAD.size : _HEAD.size + SIGNATURE_BYTES]
        body = data[_HEAD.size + SIGNATURE_BYTES :]
        tag, sender, _, _ = _HEAD.unpack(head)
        if tag != ASK_TAG:
            raise RequestRejected("unsigned")
        if sender not in self._network.keys or sender == self._own:
            raise RequestRejected("stranger")
        if signature in self._seen:
            raise RequestRejected("repeated")
        if not self._network.keys[sender].verify(_signed(head, self._network, self._own, body), signature):
            raise RequestRejected("forged")
        self._remember(signature)
        return SignedRequest(sender, body)

    def _remember(self, signature: bytes) -> None:
        self._seen[signature] = None
        while len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]
