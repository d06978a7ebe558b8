"""One upstream for all callers: connected when a call needs it, checked against its pin, left alone while it fails.

The order of a call: is there room and is it healthy; is there a connection whose list was checked; is this tool as approved;
only then are bytes sent. From that moment on a call that brings no answer is in doubt, and never sent again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, field

from toolgate.errors import ToolError, UpstreamFailed
from toolgate.model.tool import ASKING
from toolgate.powers.mcp import messages
from toolgate.powers.mcp.bounds import STANDARD, Bounds
from toolgate.powers.mcp.failures import (
    Incompatible,
    Lost,
    NotSent,
    RefusedByStatus,
    SessionGone,
    Unusable,
    down,
    drift,
    fault,
    in_doubt,
)
from toolgate.powers.mcp.health import Health
from toolgate.powers.mcp.relay.lanes import Lanes
from toolgate.powers.mcp.relay.listening import ChangeListener, Following
from toolgate.powers.mcp.session import INCONCLUSIVE, Session, greet, shake_hands

if TYPE_CHECKING:
    from toolgate.kit.pins import Offer
    from toolgate.model.mcpwire import Era, RefusedQuestion, RelayedCall
    from toolgate.powers.mcp.messages import Notification, Response, UpstreamRequest
    from toolgate.powers.mcp.transport import Transport

CONNECT_S: Final = 30.0
"""From the start of a program, or of a connection, to a checked list. `npx` may have to fetch a package first."""
LEAST_CHECK_S: Final = 1.0
"""Between two lists. An upstream that says a thousand times a second that its list changed is asked once a second."""
CHANGES: Final = {f"notifications/{name}/list_changed": name for name in ("tools", "prompts", "resources")}
"""What an upstream tells -> the list that changed."""
ASKED: Final = frozenset(ASKING.values())
MAY_HAVE_RUN: Final = "It was sent and may have run: find out before you send it again."

Mismatch = Mapping[str, str]
"""Places of the pin that may not be called, each with the reason: what of it differs from the pin."""
State = Literal["idle", "up", "down"]


class UpstreamEvent(Struct, frozen=True):
    """Something that belongs into the log."""

    kind: Literal["up", "down", "drifted", "unapproved", "question_refused", "question_unanswered"]
    details: Mapping[str, Any] = field(default_factory=dict)


class UpstreamOptions(Struct, frozen=True):
    concurrency: int = 16
    connect_s: float = CONNECT_S
    bounds: Bounds = STANDARD


class Upstream:
    def __init__(
        self,
        name: str,
        connect: Callable[[], Awaitable[Transport]],
        judge: Callable[[Offer], Mismatch],
        *,
        options: UpstreamOptions | None = None,
        on_event: Callable[[UpstreamEvent], None] = lambda _: None,
        on_change: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`on_change`: told of a list of the upstream's (`tools`, `prompts`, `resources`) or a resource of its that changed."""
        self.name = name
        self._connect = connect
        self._judge = judge
        self._options = options or UpstreamOptions()
        self._on_event = on_event
        self._on_change = on_change
        self._following = Following(clock)
        self._lanes = Lanes(self._open_lane, self._drop, self._unanswered)
        self._shakes_hands = True
        """False: it was found to speak the modern era only."""
        self._refused_kinds: set[str] = set()
        """What it has asked on a connection on which nothing may be."""
        self._clock = clock
        self._health = Health(clock, lambda: random.uniform(0.8, 1.2))  # noqa: S311 (spreads retries, hides nothing)
        self._session: Session | None = None
        self._era: Era | None = None
        self._mismatch: Mismatch = {}
        self._stale = False
        self._checked_at = -LEAST_CHECK_S
        self._fresh_until = 0.0
        self._readying: asyncio.Task[Session] | None = None
        self._listener: ChangeListener | None = None
        self._under_way = 0
        self._state: State = "idle"
        self._closed = False
        self._closing: set[asyncio.Task[None]] = set()
        """Connections that are being ended: a child may take seconds."""
        self.reason = ""
        """Why it is down: a stable word."""

    @property
    def state(self) -> State:
        return self._state

    @property
    def mismatch(self) -> Mismatch:
        return self._mismatch

    async def request(self, call: RelayedCall, *, seconds: float) -> Response:
        """The upstream's answer, which may be an error of its own. Raises: UpstreamFailed, ToolError."""
        if self._under_way >= self._options.concurrency:
            text = f"{self.name} is answering {self._under_way} calls already"
            raise down("busy", text, retry_after_s=1)
        self._under_way += 1
        try:
            now = self._clock()
            due, session = now + seconds, self._usable(now)
            for again in (True, False):
                if session is None:
                    session = await self._ready(due - self._clock())
                if not self._health.is_good:
                    self._refuse_failing()
                self._refuse_drift(call.place)
                if call.needs and not session.offers(call.needs):
                    raise lacking(f"{self.name} does not offer {call.needs}")
                left = max(0.01, due - self._clock())
                with self._health.attempt():
                    if call.capabilities and (answered := await self._by_lane(call, session, left)) is not None:
                        return answered
                    try:
                        answered = await session.relay(call, seconds=left)
                    except _CALLING as failure:
                        self._refuse_unless(session, call, failure, again=again)
                    else:
                        self._health.succeeded()
                        return answered
                session = self._usable(self._clock())
            raise AssertionError("the second attempt returns or raises")
        finally:
            self._under_way -= 1

    def _refuse_unless(self, session: Session, call: RelayedCall, failure: Exception, *, again: bool) -> None:
        """Unless nothing was done, and it may be tried `again`. Raises: UpstreamFailed."""
        if isinstance(failure, Lost | Unusable | RefusedByStatus):
            raise self._failure(session, failure) from None
        self._drop(session)
        if isinstance(failure, SessionGone):
            if call.reads and again:
                return
            raise in_doubt("session_gone", f"{self.name} has forgotten the session. {MAY_HAVE_RUN}") from None
        if not again:
            self._failed(_reason(failure))
            raise self._down(_reason(failure), str(failure)) from None

    # Being asked

    async def go_on(
        self, call: RelayedCall, handle: str, result: Any, *, refused: RefusedQuestion | None = None, seconds: float
    ) -> Response:
        """A call that asked something. `refused`: why there is no result. Raises: UpstreamFailed."""

        def data(question: UpstreamRequest) -> bytes:
            if refused is None:
                return messages.answer(question, result)
            self._refuse_question(call.place, question.method, refused.reason)
            return messages.refusal(question, refused.code, refused.text)

        return await self._judged(self._lanes.go_on(call, handle, data, seconds))

    async def _by_lane(self, call: RelayedCall, session: Session, seconds: float) -> Response | None:
        """None: nothing can be asked on the way, or it speaks only the modern era after all. Raises: UpstreamFailed."""
        if session.era != "handshake" and not (call.era == "handshake" and self._shakes_hands):
            return None
        try:
            return await self._judged(self._lanes.begin(call, seconds))
        except Incompatible as fault:
            if session.era == "handshake":
                raise self._down(_reason(fault), f"{self.name}: {fault}") from None
            self._shakes_hands = False
            return None

    async def _judged(self, relaying: Coroutine[Any, Any, Response]) -> Response:
        """Raises: UpstreamFailed, Incompatible."""
        try:
            answered = await relaying
        except NotSent as failure:
            self._failed(failure.reason)
            raise self._down(failure.reason, f"{self.name}: {failure}") from None
        except SessionGone:
            raise in_doubt("session_gone", f"{self.name} has forgotten the session. {MAY_HAVE_RUN}") from None
        except (Lost, Unusable, RefusedByStatus) as failure:
            self._failed(_reason(failure))
            raise self._told(failure) from None
        self._health.succeeded()
        return answered

    async def _open_lane(self, capabilities: Mapping[str, Any]) -> Session:
        """Raises: NotSent, Incompatible."""
        transport = await self._connect()
        try:
            async with asyncio.timeout(self._options.connect_s):
                session = await shake_hands(transport, self._options.connect_s, capabilities)
            if session is None:
                raise Incompatible("it speaks the modern era of the protocol only")
        except RefusedByStatus as refused:
            await transport.close()
            if refused.status in INCONCLUSIVE:
                raise NotSent(_reason(refused), str(refused)) from None
            raise Incompatible(str(refused)) from None
        except (TimeoutError, Lost, Unusable, SessionGone) as failure:
            await transport.close()
            raise NotSent(_reason(failure), str(failure) or "it took too long to shake hands") from None
        except BaseException:
            await transport.close()
            raise
        session.hear(self._on_note)
        return session

    def _refuse_question(self, place: str, method: str, why: str) -> None:
        """For the log: it asked something that its caller is not asked."""
        self._on_event(UpstreamEvent("question_refused", {"tool": place, "method": method, "reason": why}))

    def _unanswered(self, place: str, method: str) -> None:
        self._on_event(UpstreamEvent("question_unanswered", {"tool": place, "method": method}))

    def _unasked(self, question: UpstreamRequest) -> bytes:
        """On a connection that all callers share. The log has one record of it for each kind."""
        method = question.method
        if method in ASKED and method not in self._refused_kinds:
            self._refused_kinds.add(method)
            self._refuse_question("", method, "not_declared")
        return messages.reply(question)

    def _refuse_drift(self, place: str) -> None:
        """Raises: UpstreamFailed."""
        if place in self._mismatch:
            raise drift(self._mismatch[place], f"{place} of {self.name} is not as it was approved")

    async def follow(self, place: str, uri: str, *, caller: str, seconds: float) -> str:
        """A short text that changes when this resource does. Raises: UpstreamFailed."""
        due = self._clock() + seconds
        session = self._usable(self._clock()) or await self._ready(seconds)
        self._refuse_failing()
        self._refuse_drift(place)
        if not session.offers("resources", "subscribe"):
            raise lacking(f"{self.name} tells nobody of changes of its resources")
        session.logs.used_by(caller)
        try:
            return await self._following.follow(session, self._listener, uri, max(0.01, due - self._clock()))
        except (NotSent, SessionGone):
            self._drop(session)
            raise self._down("connection_lost", f"{self.name} has ended the connection") from None
        except (Lost, Unusable, RefusedByStatus) as failure:
            raise self._down(_reason(failure), f"{self.name}: {failure}") from None

    async def describe(self, seconds: float = CONNECT_S) -> Offer:
        """What the upstream offers, on a connection of its own that is closed again. For a person who looks at it.

        Raises: UpstreamFailed: with a child's last words.
        """
        transport: Transport | None = None
        try:
            async with asyncio.timeout(seconds):
                transport = await self._connect()
                session = await greet(transport, seconds=seconds)
                return await session.describe(self._options.bounds, seconds=seconds)
        except TimeoutError:
            raise down("no_answer", f"{self.name} did not describe itself within {seconds:g} s") from None
        except _CONNECTING as failure:
            words = await transport.why() if transport is not None else ""
            raise down(_reason(failure), f"{failure}{': ' if words else ''}{words}") from None
        finally:
            if transport is not None:
                await transport.close()

    async def close(self) -> None:
        """Calls under way fail as in doubt. Side effects: ends the child."""
        self._closed = True
        if self._readying is not None:
            self._readying.cancel()
            with suppress(asyncio.CancelledError, UpstreamFailed):
                await self._readying
        if self._session is not None:
            self._drop(self._session)
        self._lanes.close()
        while self._closing:
            await asyncio.wait(self._closing)

    # Being ready

    def _refuse_failing(self) -> None:
        """Raises: UpstreamFailed."""
        wait_s = self._health.wait_s()
        if wait_s > 0:
            raise self._down("failing", f"{self.name} failed several times in a row", wait_s)

    def _usable(self, now: float) -> Session | None:
        """A connection whose list is checked; None: it has to be made ready."""
        session = self._session
        if session is None or self._readying is not None or self._stale or not session.transport.open:
            return None
        return session if now < self._fresh_until else None

    async def _ready(self, seconds: float) -> Session:
        """Made once, whoever asks. While a check is under way, calls wait for its end: the list before it may not hold any
        more. Raises: UpstreamFailed."""
        if self._readying is None:
            self._begin(self._session)
        assert self._readying is not None
        readying = self._readying
        await asyncio.wait({readying}, timeout=max(0.01, seconds))  # whoever leaves, it goes on for the others
        if not readying.done():
            raise self._down("not_ready", f"{self.name} is not ready yet")
        if readying.cancelled():
            raise self._down("closed", f"{self.name} is being closed")
        return readying.result()

    def _begin(self, session: Session | None) -> None:
        """Raises: UpstreamFailed."""
        if self._closed:
            raise self._down("closed", f"{self.name} is being closed")
        wait_s = self._health.wait_s()
        if wait_s > 0:
            raise self._down(self.reason or "failing", f"{self.name} failed and is not tried again yet", wait_s)
        if session is not None and not session.transport.open:
            self._drop(session)
        self._readying = asyncio.get_running_loop().create_task(self._make_ready())
        self._readying.add_done_callback(self._ended_readying)

    def _ended_readying(self, task: asyncio.Task[Session]) -> None:
        self._readying = None
        if not task.cancelled():
            task.exception()  # seen: every caller may have left meanwhile

    async def _make_ready(self) -> Session:
        transport: Transport | None = self._session.transport if self._session is not None else None
        try:
            async with asyncio.timeout(self._options.connect_s):
                if self._session is None:
                    transport = await self._connect()
                    session = await greet(transport, seconds=self._options.connect_s, era=self._era)
                    session.hear(self._on_note)
                    transport.on_ask = self._unasked
                    self._session, self._era = session, session.era
                    self._shakes_hands = True
                    if session.tells_changes:
                        self._listener = ChangeListener(session, self._missed)
                        self._listener.start()
                session = self._session
                await self._check(session)
        except (TimeoutError, *_CONNECTING) as failure:
            self._forget()
            self._era = None
            if transport is not None:
                await transport.close()
            self._health.connect_failed()
            self._went_down(_reason(failure))
            raise self._down(
                _reason(failure), f"{self.name} cannot be reached: {failure or 'it took too long'}"
            ) from None
        except asyncio.CancelledError:
            self._forget()
            if transport is not None:
                await transport.close()
            raise
        self._came_up(session)
        return session

    async def _check(self, session: Session) -> None:
        """Compare what it offers now with the pin."""
        await asyncio.sleep(max(0.0, self._checked_at + LEAST_CHECK_S - self._clock()) if self._stale else 0)
        self._stale = False
        offer = await session.describe(self._options.bounds, seconds=self._options.connect_s)
        self._checked_at = self._clock()
        self._fresh_until = self._checked_at + offer.ttl_s
        before, self._mismatch = self._mismatch, self._judge(offer)
        if self._mismatch and self._mismatch != before:
            self._on_event(UpstreamEvent("drifted", {"tools": dict(sorted(self._mismatch.items()))}))

    def _missed(self) -> None:
        """What changed meanwhile was told to nobody."""
        self._stale = True
        self._following.missed()

    def _on_note(self, note: Notification) -> None:
        if note.method in CHANGES:
            self._on_change(CHANGES[note.method])
            self._check_soon()
        elif note.method == "notifications/resources/updated":
            uri = note.params.get("uri")
            if isinstance(uri, str) and self._following.changed(uri):
                self._on_change(uri)
        elif note.method == "notifications/subscriptions/acknowledged" and self._listener is not None:
            self._listener.acknowledged(note)

    def _check_soon(self) -> None:
        if not self._stale:
            self._stale = True
            if self._readying is None and not self._closed:
                with suppress(UpstreamFailed):
                    self._begin(self._session)

    # Failing

    def _failure(self, session: Session, failure: Lost | Unusable | RefusedByStatus) -> UpstreamFailed:
        if not session.transport.open:
            self._drop(session)
        self._failed(_reason(failure))
        if self._health.failing:
            self._drop(session)  # the next attempt begins anew: a child that hangs is replaced
        return self._told(failure)

    def _told(self, failure: Lost | Unusable | RefusedByStatus) -> UpstreamFailed:
        if isinstance(failure, RefusedByStatus):
            return self._refused(failure)
        text = f"{self.name}: {failure}. {MAY_HAVE_RUN}"
        return (in_doubt if isinstance(failure, Lost) else fault)(failure.reason, text)

    def _refused(self, refused: RefusedByStatus) -> UpstreamFailed:
        reason, text = _reason(refused), f"{self.name}: {refused}"
        if refused.status in {401, 403, 407, 429, 503}:
            return self._down(reason, text)
        if refused.status in {408, 502, 504}:
            return in_doubt(reason, f"{text}. {MAY_HAVE_RUN}")
        return fault(reason, f"{text}. {MAY_HAVE_RUN}")

    def _failed(self, reason: str) -> None:
        self._health.call_failed()
        if self._health.failing:
            self._went_down(reason)

    def _drop(self, session: Session) -> None:
        if self._session is session:
            self._forget()
        closing = asyncio.get_running_loop().create_task(session.transport.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _forget(self) -> None:
        self._session = None
        if self._listener is not None:
            self._listener.stop()
            self._listener = None

    def _down(self, reason: str, text: str, wait_s: float = 0.0) -> UpstreamFailed:
        return down(reason, text, retry_after_s=max(1, ceil(wait_s)))

    def _came_up(self, session: Session) -> None:
        self._health.connected()
        self.reason = ""
        if self._state != "up":
            self._state = "up"
            self._on_event(UpstreamEvent("up", {"version": session.version}))

    def _went_down(self, reason: str) -> None:
        self.reason = reason
        if self._state != "down":
            self._state = "down"
            self._on_event(UpstreamEvent("down", {"reason": reason}))


def lacking(text: str) -> ToolError:
    """What an upstream says it does not have is not asked of it."""
    return ToolError("UPSTREAM_ERROR", text, elsewhere=True, data={"reason": "not_offered"})


_CALLING: Final = (NotSent, SessionGone, Lost, Unusable, RefusedByStatus)
_CONNECTING: Final = (NotSent, Lost, Unusable, RefusedByStatus, SessionGone, Incompatible)


def _reason(failure: BaseException) -> str:
    match failure:
        case NotSent() | Lost() | Unusable():
            return failure.reason
        case RefusedByStatus():
            return f"status_{failure.status}"
        case Incompatible():
            return "incompatible"
        case SessionGone():
            return "session_gone"
        case _:
            return "no_answer"
