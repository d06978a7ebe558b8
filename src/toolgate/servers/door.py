"""The front door: who may be connected, whose turn it is, and how much of one caller's bytes may wait.

Strangers (connections on which no key was accepted yet) share one place among the callers: together they get as much of a
turn as one caller, and when the house is full the oldest of them that is not being answered goes. Newcomers, of whom
nothing is known yet, do not wait behind strangers who were answered before.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

from msgspec import Struct

TURN_S: Final = 0.002
"""What one caller may use of a turn of the event loop before the others get theirs: some 25 small calls."""
STRANGERS_TURN_S: Final = 0.0005
"""Likewise for all together who were answered and showed no key: nothing of theirs is urgent."""
READ_BYTES: Final = 65_536
"""Read from a connection at once: a larger piece of one would only make the others wait."""
SMALL_READ_BYTES: Final = 8192
"""Likewise before a key was accepted (a head and a small body), and of a caller whose turn is used up."""
LARGE_BODY_BYTES: Final = READ_BYTES
"""A body above this is a long piece of work: a megabyte of JSON takes milliseconds to be read, checked and digested."""
NEWCOMERS: Final = "(newcomers)"
STRANGERS: Final = "(strangers)"
"""Whose turn it is when nobody's key is known; no key has such an id."""


class DoorLimits(Struct, frozen=True):
    connections: int
    """Open at once."""
    waiting_bytes_per_caller: int
    """Bodies of one caller that are still arriving, and answers that it has not read yet."""

    @property
    def strangers(self) -> int:
        """A quarter is kept for those who have shown a key."""
        return self.connections - self.connections // 4

    @property
    def per_caller(self) -> int:
        return max(1, self.connections // 4)


class TurnTaker(Protocol):
    @property
    def turn_id(self) -> str:
        """Whose turn it takes: the caller's, or that of strangers or newcomers."""
        ...

    def take_turn(self) -> None:
        """Go on with what has arrived."""
        ...


class GuestConnection(TurnTaker, Protocol):
    """A connection, as the door sees it."""

    caller_id: str
    """Whose key was accepted on it last, or `STRANGERS`."""
    turn_id: str

    def is_idle(self) -> bool:
        """Nothing is waiting or being answered on it."""
        ...

    def is_answered(self) -> bool:
        """One of its requests is being answered right now."""
        ...

    def leave(self) -> None:
        """Make room."""
        ...

    def shutdown(self) -> None:
        """The server stops: end when all that has begun to arrive is answered."""
        ...

    def abort(self) -> None:
        """End now."""
        ...


class Door:
    def __init__(self, limits: DoorLimits, loop: AbstractEventLoop) -> None:
        self.limits = limits
        self.turns = CallerTurns(loop)
        self.guests: set[GuestConnection] = set()
        self._known: dict[str, dict[GuestConnection, None]] = {NEWCOMERS: {}, STRANGERS: {}}
        """By whose turn they take, the oldest first."""
        self._waiting: dict[str, int] = {}
        self.on_empty: Callable[[], None] = _nothing
        inbox = bytearray(READ_BYTES)
        self.inbox = memoryview(inbox)
        """Where every connection's bytes arrive, one connection at a time."""
        self.small_inbox = self.inbox[:SMALL_READ_BYTES]

    def enter(self, guest: GuestConnection) -> bool:
        """False: every connection is taken by a caller that is being answered."""
        unknown = len(self._known[NEWCOMERS]) + len(self._known[STRANGERS])
        if unknown >= self.limits.strangers or len(self.guests) >= self.limits.connections:
            self._make_room()
        if len(self.guests) >= self.limits.connections:
            return False
        self.guests.add(guest)
        self._known[NEWCOMERS][guest] = None
        return True

    def heard(self, guest: GuestConnection) -> None:
        """A newcomer was answered."""
        self._forget(guest)
        guest.turn_id = STRANGERS
        self._known[STRANGERS][guest] = None

    def welcome(self, guest: GuestConnection, caller_id: str) -> None:
        """A key was accepted on this connection. One caller's connections are a share of all; beyond it its oldest goes."""
        self._forget(guest)
        own = self._known.setdefault(caller_id, {})
        guest.caller_id = guest.turn_id = caller_id
        own[guest] = None
        if len(own) > self.limits.per_caller:
            _dismiss(own, lambda other: other is not guest and other.is_idle())

    def exit(self, guest: GuestConnection) -> None:
        if guest in self.guests:
            self.guests.discard(guest)
            self._forget(guest)
        if not self.guests:
            self.on_empty()

    def reserve(self, caller_id: str, size: int) -> bool:
        """Room for bytes of this caller that have to wait. `release` gives it back."""
        waiting = self._waiting.get(caller_id, 0) + size
        if waiting > self.limits.waiting_bytes_per_caller:
            return False
        self._waiting[caller_id] = waiting
        return True

    def release(self, caller_id: str, size: int) -> None:
        left = self._waiting[caller_id] - size
        if left:
            self._waiting[caller_id] = left
        else:
            del self._waiting[caller_id]

    def _forget(self, guest: GuestConnection) -> None:
        own = self._known[guest.turn_id]
        own.pop(guest, None)
        if not own and guest.turn_id not in (NEWCOMERS, STRANGERS):
            del self._known[guest.turn_id]

    def _make_room(self) -> None:
        """Who was answered and showed no key goes before who was not heard yet, and a caller's idle one goes last.

        Of those without a key the oldest goes, also if it waits for a turn: whoever came last has not been looked at.
        """
        for unknown in (self._known[STRANGERS], self._known[NEWCOMERS]):
            if _dismiss(unknown, lambda guest: not guest.is_answered()):
                return
        _dismiss(max(self._known.values(), key=len), lambda guest: guest.is_idle())


def _dismiss(guests: dict[GuestConnection, None], may_go: Callable[[GuestConnection], bool]) -> bool:
    """Close the oldest connection that may be closed."""
    gone = next((guest for guest in guests if may_go(guest)), None)
    if gone is not None:
        gone.leave()
    return gone is not None


class CallerTurns:
    """Fair turns. In one turn of the event loop a caller gets `TURN_S`; what then still waits goes on in the next one.

    A large body is one long piece of work that cannot be cut here. One of them is answered in a turn of the loop, whoever
    sent it: callers take turns at it, and all small calls that have arrived are answered between two of them.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._used: dict[str, float] = {}
        self._queues: dict[str, deque[TurnTaker]] = {}
        self._large: dict[str, deque[TurnTaker]] = {}
        """By caller; whose turn is next comes first."""
        self._soon = False

    def may_go(self, turn_id: str) -> bool:
        """Is there time left in this caller's turn, and no other connection of the same caller ahead in the queue?"""
        return self._has_time(turn_id) and turn_id not in self._queues

    def spent(self, turn_id: str, since: float) -> None:
        self._used[turn_id] = self._used.get(turn_id, 0.0) + perf_counter() - since
        if not self._soon:
            self._call_soon()

    def wait(self, guest: TurnTaker) -> None:
        """`take_turn` will be called, not before the next turn of the loop."""
        self._queues.setdefault(guest.turn_id, deque()).append(guest)
        if not self._soon:
            self._call_soon()

    def wait_with_large(self, guest: TurnTaker) -> None:
        """Likewise, and no other large body is answered in the same turn of the loop."""
        self._large.setdefault(guest.turn_id, deque()).append(guest)
        if not self._soon:
            self._call_soon()

    def _has_time(self, turn_id: str) -> bool:
        return self._used.get(turn_id, 0.0) < (STRANGERS_TURN_S if turn_id is STRANGERS else TURN_S)

    def _call_soon(self) -> None:
        self._soon = True
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._soon = False
        self._used.clear()
        for turn_id, queue in list(self._queues.items()):
            due = len(queue)  # who comes again within this turn waits for the next one
            while due and self._has_time(turn_id):
                due -= 1
                queue.popleft().take_turn()
            if not queue:
                del self._queues[turn_id]
        if self._large:
            self._next_large()
        if (self._queues or self._large) and not self._soon:
            self._call_soon()

    def _next_large(self) -> None:
        turn_id = next(iter(self._large))
        queue = self._large.pop(turn_id)
        guest = queue.popleft()
        if queue:
            self._large[turn_id] = queue  # behind the other callers
        guest.take_turn()


def _nothing() -> None:
    pass
