"""Answers that leave together: one write puts all their records into the log, then they are sent.

A busy server finds many requests at each turn of its event loop. Answered one by one, each costs a write to the log and,
where the client has gone to sleep, a wake-up of its process; held for the rest of the turn, they share both. Nothing is
sent before its record is written, and nothing waits for a clock: the turn ends when nothing else is to be done.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from toolgate.errors import LedgerUnavailable

if TYPE_CHECKING:
    from toolgate.faces.reply import Reply
    from toolgate.model.record import Ledger
    from toolgate.servers.heads import Head

MOST_HELD: Final = 16
"""Answers held at once. More would gain little, and let the first of a long turn wait for the last."""


class Waiting(Protocol):
    """A connection whose answer is held."""

    def send_held(self, reply: Reply) -> None: ...


class Outbox:
    def __init__(self, ledger: Ledger, unrecorded: Callable[[Reply, Head, bytes], Reply]) -> None:
        """`unrecorded`: what a request is answered when the log failed, in place of the answer that was ready."""
        self.ledger = ledger
        self._unrecorded = unrecorded
        self._held: list[tuple[Waiting, Reply, Head, bytes]] = []

    def take(self, connection: Waiting, reply: Reply, head: Head, body: bytes, loop: AbstractEventLoop | None) -> None:
        """Hold it until the end of this turn of the loop, or until the outbox is full; without a loop, not at all."""
        self._held.append((connection, reply, head, body))
        if loop is None or len(self._held) == MOST_HELD:
            self.send()
        elif len(self._held) == 1:
            loop.call_soon(self.send)

    def send(self) -> None:
        """Everything that is held, after its records."""
        held, self._held = self._held, []
        try:
            self.ledger.flush()
        except LedgerUnavailable:
            for connection, reply, head, body in held:
                connection.send_held(self._unrecorded(reply, head, body))
        else:
            for connection, reply, _, _ in held:
                connection.send_held(reply)
