"""Connections on which an upstream of the handshake era may ask the caller something in the middle of a call.

Such a connection declares for good what may be asked on it, and a request on it names no call. So a call that may be asked has
one to itself, a *lane*: it declares what this caller's client can do and the tool's row allows, serves one call at a time, and
is used again by the same caller only. Whatever is asked on it is then surely asked of that caller.

A question ends the call on the road, with a record; the upstream's side of it is held here until the answer comes by a call that
goes on, once, from the same caller, or until nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from toolgate.model.mcpwire import INVALID_REQUEST, NOT_ANSWERED
from toolgate.model.work import within
from toolgate.powers.mcp import messages
from toolgate.powers.mcp.failures import Lost, NotSent, RefusedByStatus, SessionGone, Unusable, down, in_doubt
from toolgate.powers.mcp.messages import Progress, Response, UpstreamRequest

if TYPE_CHECKING:
    from toolgate.model.mcpwire import RelayedCall
    from toolgate.powers.mcp.session import Session

MAX_LANES: Final = 16
"""Of one upstream. Each is a connection, or a process of its own."""
MAX_LANES_OF_CALLER: Final = 4
HELD_S: Final = 300.0
"""For a question to be answered. As long as a client of the handshake era is waited for."""
REST_S: Final = 60.0
"""How long a lane without a call is kept."""
OPEN_S: Final = 2.0
"""For a stream that questions may come on to open. A server without one says so at once."""
MAX_QUESTIONS: Final = 8
"""That one call may ask, one after the other."""
LONGEST_S: Final = MAX_QUESTIONS * 2 * HELD_S
"""For one call with all its questions. What each part of it may take is bounded by its own deadline."""

Unanswered = Callable[[str, str], None]
"""(place, method) of a question that nobody answered in time."""
Reply = Callable[[UpstreamRequest], bytes]
"""Makes the answer to a question."""


class HeldCall:
    """One call on a lane, from its first byte to its answer."""

    def __init__(self, session: Session, call: RelayedCall) -> None:
        self.call = call
        self.timer: asyncio.TimerHandle | None = None
        self._transport = session.transport
        self._questions: deque[UpstreamRequest] = deque()
        self._asked = 0
        self._stirred = asyncio.Event()
        told = replace(
            call,
            step=None if call.step is None else self._step,
            log=None if call.log is None else self._log,
        )
        self._answer = asyncio.get_running_loop().create_task(session.relay(told, seconds=LONGEST_S))
        self._answer.add_done_callback(lambda _: self._stirred.set())

    def take(self, question: UpstreamRequest) -> bytes | None:
        """The upstream asks. Returns: an answer, if it needs no caller for that."""
        self._asked += 1
        if self._asked > MAX_QUESTIONS:
            return messages.refusal(question, INVALID_REQUEST, f"One call may ask {MAX_QUESTIONS} times.")
        self._questions.append(question)
        self._stirred.set()
        return None

    async def next(self, seconds: float) -> Response:
        """The answer, or the next question. Raises: as `Session.relay`."""
        try:
            await within(seconds, self._stirred.wait())
        except TimeoutError:
            raise Lost("no_answer", f"no answer came within {seconds:g} s") from None
        if not self._answer.done():
            return Response(0, question=self._questions[0])
        if self._answer.cancelled():
            raise Lost("connection_lost", "the connection was closed")
        return self._answer.result()

    def reply(self, data: Reply) -> UpstreamRequest:
        """To the question that `next` gave, which is returned."""
        question = self._questions.popleft()
        self._transport.send_reply(data(question))
        if not self._questions and not self._answer.done():
            self._stirred.clear()
        return question

    def end(self) -> None:
        """Nobody waits for it any more."""
        if not self._answer.cancel() and not self._answer.cancelled():
            self._answer.exception()  # seen: whoever asked for it may have left

    def hear(self, call: RelayedCall | None) -> None:
        """Whoever made this call is told of steps and logs from now on; None: nobody is."""
        self.call = replace(self.call, step=call.step if call else None, log=call.log if call else None)

    def _step(self, progress: Progress) -> None:
        if self.call.step is not None:
            self.call.step(progress)

    def _log(self, level: Any, data: Any) -> None:
        if self.call.log is not None:
            self.call.log(level, data)


class Lane:
    def __init__(self, session: Session, call: RelayedCall) -> None:
        self.session = session
        self.caller, self.capabilities = call.caller, dict(call.capabilities)
        self.held: HeldCall | None = None
        self.rests: asyncio.TimerHandle | None = None
        session.transport.on_ask = self._asked
        self._opened = asyncio.Event()
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def listen(self) -> None:
        """Some servers ask on a stream apart from the call's: it is open before the call is sent."""
        with suppress(TimeoutError):
            await within(OPEN_S, self._opened.wait())

    async def _listen(self) -> None:
        try:
            with suppress(NotSent, Lost, Unusable, RefusedByStatus, SessionGone):
                await self.session.transport.watch(LONGEST_S, self._opened.set)
        finally:
            self._opened.set()

    def leave(self) -> None:
        self._listening.cancel()
        self.session.transport.leave()

    def _asked(self, question: UpstreamRequest) -> bytes | None:
        if question.method == "ping" or self.held is None:
            return messages.reply(question)
        return self.held.take(question)

    def serves(self, call: RelayedCall) -> bool:
        return self.held is None and self.caller == call.caller and self.capabilities == call.capabilities


class Lanes:
    """Of one upstream."""

    def __init__(
        self,
        connect: Callable[[Mapping[str, Any]], Awaitable[Session]],
        drop: Callable[[Session], None],
        unanswered: Unanswered,
    ) -> None:
        """`connect`: by the handshake, with these capabilities; raises NotSent, Incompatible. `drop`: ends a connection."""
        self._connect, self._drop, self._unanswered = connect, drop, unanswered
        self._lanes: list[Lane] = []
        self._opening: list[str] = []
        """Whose lanes are being made."""
        self._held: dict[tuple[str, str], Lane] = {}
        """By caller and handle, those whose question waits for an answer."""

    async def begin(self, call: RelayedCall, seconds: float) -> Response:
        """The answer, or a question with the handle by which it is answered.

        Raises: NotSent; Incompatible: the upstream does not shake hands; UpstreamFailed; as `Session.relay`.
        """
        due = asyncio.get_running_loop().time() + seconds
        lane = await self._free(call, seconds)
        lane.held = HeldCall(lane.session, call)
        return await self._next(lane, due)

    async def go_on(self, call: RelayedCall, handle: str, data: Reply, seconds: float) -> Response:
        """Raises: UpstreamFailed: nothing waits for this answer; as `begin`."""
        lane = self._held.get((call.caller, handle))
        if lane is None or lane.held is None or lane.held.call.place != call.place:
            text = "what asked this does not wait for an answer: it had one, was given up, or ended with its connection"
            raise in_doubt("not_waiting", f"{text}. The call may have run.")
        del self._held[call.caller, handle]
        if lane.held.timer is not None:
            lane.held.timer.cancel()
        lane.held.hear(call)
        lane.held.reply(data)
        return await self._next(lane, asyncio.get_running_loop().time() + seconds)

    async def _next(self, lane: Lane, due: float) -> Response:
        assert lane.held is not None
        loop = asyncio.get_running_loop()
        try:
            answer = await lane.held.next(due - loop.time())
        except BaseException:
            self._end(lane)  # what it is doing is not known
            raise
        if answer.question is None:
            self._rest(lane)
            return answer
        place = lane.caller, token_urlsafe(16)
        self._held[place] = lane
        lane.held.hear(None)
        lane.held.timer = loop.call_later(HELD_S, self._expire, place)
        return replace(answer, handle=place[1])

    def _expire(self, place: tuple[str, str]) -> None:
        lane = self._held.pop(place)
        assert lane.held is not None
        concerned = lane.held.call.place
        question = lane.held.reply(lambda asked: messages.refusal(asked, NOT_ANSWERED, "Nobody answered in time."))
        self._end(lane)
        self._unanswered(concerned, question.method)

    # Lanes

    async def _free(self, call: RelayedCall, seconds: float) -> Lane:
        """Raises: NotSent, Incompatible, UpstreamFailed."""
        for lane in list(self._lanes):
            if lane.held is None and not lane.session.transport.open:
                self._end(lane)
            elif lane.serves(call):
                if lane.rests is not None:
                    lane.rests.cancel()
                return lane
        self._make_room(call.caller)
        self._opening.append(call.caller)
        making = asyncio.get_running_loop().create_task(self._made(call))
        making.add_done_callback(_seen)
        try:
            await asyncio.wait({making}, timeout=max(0.01, seconds))
            if not making.done():
                raise NotSent("not_ready", "no connection came about in time on which something may be asked")
            return making.result()
        finally:
            self._opening.remove(call.caller)
            making.cancel()

    async def _made(self, call: RelayedCall) -> Lane:
        lane = Lane(await self._connect(call.capabilities), call)
        self._lanes.append(lane)
        try:
            await lane.listen()
        except BaseException:
            self._end(lane)
            raise
        return lane

    def _make_room(self, caller: str) -> None:
        """Raises: UpstreamFailed."""
        own = self._opening.count(caller) + sum(lane.caller == caller for lane in self._lanes)
        idle = [lane for lane in self._lanes if lane.held is None]
        if own >= MAX_LANES_OF_CALLER:
            idle = [lane for lane in idle if lane.caller == caller]
        elif len(self._lanes) + len(self._opening) < MAX_LANES:
            return
        if not idle:
            text = "too many of its calls that may ask their caller something are under way"
            raise down("busy", text, retry_after_s=1)
        self._end(idle[0])

    def _rest(self, lane: Lane) -> None:
        lane.held = None
        lane.rests = asyncio.get_running_loop().call_later(REST_S, self._end, lane)

    def _end(self, lane: Lane) -> None:
        if lane.rests is not None:
            lane.rests.cancel()
        if lane.held is not None:
            if lane.held.timer is not None:
                lane.held.timer.cancel()
            lane.held.end()
            lane.held = None
        if lane in self._lanes:
            self._lanes.remove(lane)
            lane.leave()
            self._drop(lane.session)

    def close(self) -> None:
        for lane in list(self._lanes):
            self._end(lane)
        self._held.clear()


def _seen(making: asyncio.Task[Lane]) -> None:
    """Whoever wanted it may have left meanwhile."""
    if not making.cancelled():
        making.exception()
