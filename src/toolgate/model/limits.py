"""Limits that several processes share: what a process asks of the engine that counts for all, and what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class LimitClaim(Struct, frozen=True):
    """Of one caller: how many of its calls run in this process, and how many more want to."""

    caller: str
    running: int
    """Those that hold a slot. Said anew each time, so that an engine that lost count finds it again."""
    to_hold: int = 0
    """Calls that want a slot."""
    to_pass: int = 0
    """Calls that end before another can begin: there must be a free slot, and they hold none."""
    per_caller: int | None = None
    """Of a caller with a limit of its own: how many slots it may hold. None: as the engine knows it."""
    per_minute: int | None = None
    """Likewise: how many calls it may make in a minute; 0: as many as it likes."""


class Ruling(Struct, frozen=True):
    """The answer to one claim. Calls that want a slot come first."""

    in_time: int
    """How many of the calls came no faster than they may."""
    held: int
    """How many got a slot."""
    has_room: bool
    """Whether a slot is left."""
    wait_s: float
    """For those that came too fast."""


class Standing(Struct, frozen=True):
    """What the engine says of the process that asks."""

    is_known: bool
    """False: its lease has expired, or the engine lost its data. It has to join again."""
    processes: int
    """How many share the limits, this one included."""
    refuse_s: float
    """For so long nobody is let in: others may be running calls that the engine does not know of yet."""


class LimitsEngine(Protocol):
    """Raises, in every method: StoreUnavailable: no answer in time, or none that can be used. Then `join` again."""

    async def join(self, running: Sequence[LimitClaim], *, again: bool) -> Standing:
        """Begin a lease, on a connection of its own, and say what runs. `again`: this process had one before."""
        ...

    async def ask(self, claims: Sequence[LimitClaim]) -> tuple[Standing, Sequence[Ruling]]:
        """Renew the lease and get the rulings, in one step. Unless the process is known there are none."""
        ...

    async def leave(self) -> None:
        """Give back everything, and close."""
        ...
