"""Step 3 where several processes share the limits: each call is admitted by an engine that counts for all of them (ADR-0024).

A process still counts its own calls (`Slots`), and asks the engine about those that it would admit itself. Questions of
many calls travel together: one is under way at a time, and what comes meanwhile goes with the next. An engine that does
not answer lets nobody in: the call is refused, or gets a slot out of this process's share of the limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct, field

from toolgate.errors import Ending, Refusal, StoreUnavailable
from toolgate.gate.admit import SECONDS_A_MINUTE, own_limit, too_fast, too_many
from toolgate.model.limits import LimitClaim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolgate.gate.admit import Lender, Slots
    from toolgate.model.call import Caller
    from toolgate.model.limits import LimitsEngine, Ruling, Standing

WAIT_S: Final = 0.2
"""How long a call waits for the engine. With the way to the client, a refusal is out within 250 ms."""
RETRY_S: Final = 0.1
"""Between two attempts to reach an engine that does not answer: it is used again within a second of its return."""
RENEWALS: Final = 3
"""In one lease, so that a single late one does not end it."""
CALLERS_AT_ONCE: Final = 512
"""In one question: a script that runs for long keeps every other process waiting."""
TELL_EVERY_S: Final = 10.0
"""Between two reports that the engine is gone, should it come and go."""


class SharedBounds(Struct, frozen=True):
    per_caller: int
    per_minute: int
    """0: no limit."""
    lease_s: float
    share_slots: bool
    share_rate: bool
    """While the engine does not answer: each process admits its share of the limit. Otherwise it refuses."""

    may_exceed: bool = False
    """A key's own limits may be above these."""

    def most_of(self, caller: Caller) -> int:
        """Slots of one caller."""
        own = None if caller.bounds is None else caller.bounds.concurrency
        return own_limit(own, self.per_caller, may_exceed=self.may_exceed)

    def pace_of(self, caller: Caller) -> int:
        """Its calls in a minute; 0: no limit."""
        own = None if caller.bounds is None else caller.bounds.per_minute
        return own_limit(own, self.per_minute, may_exceed=self.may_exceed)

    def may_share(self, per_minute: int) -> bool:
        """A call is refused if one of its limits says so."""
        return self.share_slots and (self.share_rate or not per_minute)


class Entrant(Protocol):
    """Who asks to be admitted: a call's ticket, or what else is counted as one."""

    caller: Caller
    slots: Lender | None
    """Where its slot goes back to; None: it needs none."""


class _Waiting(Struct, eq=False):
    """A call that waits to be admitted."""

    ticket: Entrant
    decided: asyncio.Future[Refusal | None]
    due: float

    def decide(self, refusal: Refusal | None) -> None:
        if not self.decided.done():
            self.decided.set_result(refusal)


class _Group(Struct, eq=False):
    """Of one caller, the calls that wait."""

    to_hold: list[_Waiting] = field(default_factory=list)
    to_pass: list[_Waiting] = field(default_factory=list)

    def all(self) -> Iterator[_Waiting]:
        yield from self.to_hold
        yield from self.to_pass


class SharedLimits:
    """`tell` hears when the engine is lost (with the reason) and when it is back (with None)."""

    def __init__(
        self,
        engine: LimitsEngine,
        slots: Slots,
        bounds: SharedBounds,
        monotonic: Callable[[], float],
        tell: Callable[[str | None], None],
    ) -> None:
        self._engine, self._slots, self._bounds = engine, slots, bounds
        self._monotonic, self._tell = monotonic, tell
        self._running: dict[str, int] = {}
        """Calls that were admitted here and hold a slot, by caller."""
        self._changed: set[str] = set()
        """Callers of whom the engine does not know how many run here now."""
        self._queue: dict[str, _Group] = {}
        """What goes with the next question, by caller."""
        self._asked: dict[str, _Group] = {}
        """What went with the one under way."""
        self._in_order: deque[_Waiting] = deque()
        """Everything that waits or was decided lately, the oldest first."""
        self._alarm: asyncio.TimerHandle | None = None
        self._work: asyncio.Future[None] | None = None
        """Pending while there is nothing to ask."""
        self._loop: asyncio.AbstractEventLoop
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._fault: str | None = None
        """Why the engine is not asked; None while it answers, or has never been asked."""
        self._joined = False
        self._processes = 0
        self._refuse_until = 0.0
        self._told_at = float("-inf")
        self._told_lost = False
        self._paces: dict[str, float] = {}

    # What the road calls ---------------------------------------------------------------------------------------------

    async def admit(self, ticket: Entrant) -> None:
        """Raises: Refusal TOO_MANY, TOO_FAST, UNAVAILABLE. Waits for `WAIT_S` at most."""
        if self._task is None:
            self.start()
        now = self._monotonic()
        if self._fault is not None:
            refusal = self._decide_alone(ticket, now)
        elif now < self._refuse_until:
            refusal = _fenced(self._refuse_until - now)
        else:
            refusal = await self._queued(ticket, now)
        if refusal is not None:
            raise refusal

    def give_back(self, caller: Caller) -> None:
        """A call that `admit` let in has ended."""
        self._slots.give_back(caller)
        left = self._running[caller.key_id] - 1
        if left:
            self._running[caller.key_id] = left
        else:
            del self._running[caller.key_id]
        self._changed.add(caller.key_id)
        self._wake()

    # What the server calls -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to reach the engine. Side effects: a task on the running loop, until `close`."""
        if self._task is None:
            self._loop = asyncio.get_running_loop()
            self._task = self._loop.create_task(self._keep_asking(), name="shared-limits")

    async def reached(self) -> None:
        """Return when the first attempt to reach the engine has ended, well or badly."""
        self.start()
        await self._tried.wait()

    def fault(self) -> str | None:
        """What stands in the way of calls, in words for the operator; None: nothing does."""
        if self._fault is not None:
            return f"shared limits: {self._fault}"
        if self._monotonic() < self._refuse_until:
            return "shared limits: nobody is let in for one lease, because the engine does not know all running calls"
        return None if self._processes else "shared limits: the engine has not answered yet"

    async def close(self) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._settle_alone(self._monotonic())
        try:
            await self._engine.leave()
        except StoreUnavailable:
            return  # then the lease ends by itself

    # Waiting ---------------------------------------------------------------------------------------------------------

    def _queued(self, ticket: Entrant, now: float) -> asyncio.Future[Refusal | None]:
        waiting = _Waiting(ticket, self._loop.create_future(), now + WAIT_S)
        group = self._queue.get(ticket.caller.key_id)
        if group is None:
            group = self._queue[ticket.caller.key_id] = _Group()
        (group.to_pass if ticket.slots is None else group.to_hold).append(waiting)
        self._in_order.append(waiting)
        if self._alarm is None:
            self._alarm = self._loop.call_later(WAIT_S, self._look_at_overdue)
        self._wake()
        return waiting.decided

    def _look_at_overdue(self) -> None:
        """One alarm for all: those whose time is up are decided without the engine."""
        now, queue = self._monotonic(), self._in_order
        while queue and (queue[0].decided.done() or queue[0].due <= now):
            waiting = queue.popleft()
            if not waiting.decided.done():
                waiting.decide(self._decide_alone(waiting.ticket, now))
        self._alarm = self._loop.call_later(queue[0].due - now, self._look_at_overdue) if queue else None

    def _wake(self) -> None:
        if self._work is not None and not self._work.done():
            self._work.set_result(None)

    # Asking ----------------------------------------------------------------------------------------------------------

    async def _keep_asking(self) -> None:
        while True:
            try:
                await self._join()
                await self._ask_until_unknown()
            except StoreUnavailable as fault:
                self._lose(str(fault))
                await asyncio.sleep(RETRY_S)

    async def _join(self) -> None:
        """Raises: StoreUnavailable."""
        standing = await self._engine.join([LimitClaim(*each) for each in self._running.items()], again=self._joined)
        self._changed.clear()
        self._joined = True
        self._learn(standing)
        self._fault = None
        self._tried.set()
        if self._told_lost:
            self._told_lost = False
            self._tell(None)

    async def _ask_until_unknown(self) -> None:
        """Raises: StoreUnavailable."""
        loop = self._loop
        renewal = loop.time() + self._bounds.lease_s / RENEWALS
        while True:
            if not self._queue and not self._changed and loop.time() < renewal:
                await self._until_work(renewal)
            if loop.time() >= renewal:
                self._changed.update(self._running)
                renewal = loop.time() + self._bounds.lease_s / RENEWALS
            claims = self._next_claims()
            standing, rulings = await self._engine.ask(claims)
            if not standing.is_known:
                self._refuse_asked(self._bounds.lease_s)
                return
            self._learn(standing)
            wait = self._refuse_until - self._monotonic()
            if wait > 0:
                self._refuse_asked(wait)
            else:
                self._settle(claims, rulings)

    async def _until_work(self, renewal: float) -> None:
        self._work = self._loop.create_future()
        alarm = self._loop.call_at(renewal, self._wake)
        try:
            await self._work
        finally:
            alarm.cancel()
            self._work = None

    def _next_claims(self) -> list[LimitClaim]:
        callers = list(islice(dict.fromkeys([*self._queue, *self._changed]), CALLERS_AT_ONCE))
        self._changed.difference_update(callers)
        self._asked = {caller: self._queue.pop(caller) for caller in callers if caller in self._queue}
        claims = []
        for caller in callers:
            group = self._asked.get(caller)
            counts = (len(group.to_hold), len(group.to_pass)) if group is not None else (0, 0)
            claims.append(LimitClaim(caller, self._running.get(caller, 0), *counts, *self._own_limits(group)))
        return claims

    def _own_limits(self, group: _Group | None) -> tuple[int | None, int | None]:
        """Of a caller that asks for something and has limits of its own."""
        first = next(group.all(), None) if group is not None else None
        if first is None or first.ticket.caller.bounds is None:
            return None, None
        return self._bounds.most_of(first.ticket.caller), self._bounds.pace_of(first.ticket.caller)

    def _settle(self, claims: Sequence[LimitClaim], rulings: Sequence[Ruling]) -> None:
        asked, self._asked = self._asked, {}
        for claim, ruling in zip(claims, rulings, strict=True):
            group = asked.get(claim.caller)
            if group is None:
                continue
            for place, waiting in enumerate(group.to_hold):
                if waiting.decided.done():
                    self._changed.add(claim.caller)  # it may have been given a slot that nobody uses
                elif place < ruling.held:
                    self._let_in(waiting.ticket)
                    waiting.decide(None)
                else:
                    waiting.decide(self._refusal(waiting.ticket, ruling, is_in_time=place < ruling.in_time))
            for place, waiting in enumerate(group.to_pass, len(group.to_hold)):
                is_in_time = place < ruling.in_time
                is_free = is_in_time and ruling.has_room
                waiting.decide(None if is_free else self._refusal(waiting.ticket, ruling, is_in_time=is_in_time))
        while self._in_order and self._in_order[0].decided.done():
            self._in_order.popleft()

    def _refusal(self, ticket: Entrant, ruling: Ruling, *, is_in_time: bool) -> Refusal:
        return too_many(self._bounds.most_of(ticket.caller)) if is_in_time else too_fast(ruling.wait_s)

    def _refuse_asked(self, seconds: float) -> None:
        """Whatever they were given is not used: the next question says so."""
        asked, self._asked = self._asked, {}
        for caller, group in asked.items():
            self._changed.add(caller)
            for waiting in group.all():
                waiting.decide(_fenced(seconds))

    def _let_in(self, ticket: Entrant) -> None:
        if ticket.slots is not None:
            ticket.slots = self
            self._running[ticket.caller.key_id] = self._running.get(ticket.caller.key_id, 0) + 1

    def _learn(self, standing: Standing) -> None:
        self._processes = standing.processes
        self._refuse_until = max(self._refuse_until, self._monotonic() + standing.refuse_s)

    # Without the engine ----------------------------------------------------------------------------------------------

    def _lose(self, why: str) -> None:
        now = self._monotonic()
        if self._fault is None and now - self._told_at >= TELL_EVERY_S:
            self._told_at, self._told_lost = now, True
            self._tell(why)
        self._fault = why
        self._tried.set()
        self._settle_alone(now)

    def _settle_alone(self, now: float) -> None:
        groups = [*self._asked.values(), *self._queue.values()]
        self._asked, self._queue = {}, {}
        for group in groups:
            for waiting in group.all():
                if not waiting.decided.done():
                    waiting.decide(self._decide_alone(waiting.ticket, now))
        self._in_order.clear()

    def _decide_alone(self, ticket: Entrant, now: float) -> Refusal | None:
        """Refused, or let in out of this process's share: the limit divided among the processes that were seen last."""
        bounds, caller = self._bounds, ticket.caller.key_id
        slots = bounds.most_of(ticket.caller) // self._processes if self._processes else 0
        per_minute = bounds.pace_of(ticket.caller)
        if not bounds.may_share(per_minute) or not slots or now < self._refuse_until:
            return _unreachable()
        if self._running.get(caller, 0) >= slots:
            return too_many(slots)
        if per_minute and (wait := self._pace(caller, per_minute, now)):
            return too_fast(wait)
        self._let_in(ticket)
        return None

    def _pace(self, caller: str, per_minute: int, now: float) -> float:
        """The seconds that a call comes too early. A share has no burst: the engine may have let one through just before."""
        interval = SECONDS_A_MINUTE * self._processes / per_minute
        due = self._paces.get(caller, 0.0)
        if due > now:
            return due - now
        if len(self._paces) > 4096:
            self._paces = {key: second for key, second in self._paces.items() if second > now}
        self._paces[caller] = now + interval
        return 0.0


def _unreachable() -> Refusal:
    text = "The limits that this server shares with others cannot be checked now; try again shortly."
    return Refusal(Ending.UNAVAILABLE, text, reason="limits_unreachable", retry_after_s=1)


def _fenced(seconds: float) -> Refusal:
    text = "The limits that this server shares with others are being counted anew; try again shortly."
    return Refusal(Ending.UNAVAILABLE, text, reason="limits_recounted", retry_after_s=max(1, ceil(seconds)))
