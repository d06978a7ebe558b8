"""Hearing of changes at an upstream: of its lists, and of the resources that somebody here is subscribed to.

Whoever is subscribed asks again and again (`gate.sessions.watch`), so a resource that nobody asks for any more is let go, and a
connection that was lost is made anew. What may have changed between two connections counts as changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.powers.mcp.failures import Lost, NotSent, RefusedByStatus, SessionGone, Unusable
from toolgate.powers.mcp.health import FIRST_PAUSE_S, LONGEST_PAUSE_S

if TYPE_CHECKING:
    from toolgate.powers.mcp.messages import Notification
    from toolgate.powers.mcp.session import Session

LISTEN_S: Final = 3600.0
"""How long a stream of changes is kept open before it is opened anew."""
MAX_FOLLOWED: Final = 256
"""Resources of one upstream that are followed at once, for all callers together."""
LET_GO_S: Final = 60.0
"""After so long without a question about it, nobody is subscribed to a resource any more."""


class ChangeListener:
    """The stream of changes of one connection."""

    def __init__(self, session: Session, on_gap: Callable[[], None]) -> None:
        """`on_gap`: told when the stream had to be opened anew, and something may have been missed."""
        self._session = session
        self._on_gap = on_gap
        self._task: asyncio.Task[None] | None = None
        self._uris: tuple[str, ...] = ()
        self._heard = asyncio.Event()
        self._is_honoured = False

    def start(self, uris: Sequence[str] = ()) -> None:
        self._uris = tuple(uris)
        self._task = asyncio.get_running_loop().create_task(self._listen(self._uris))

    @property
    def is_over(self) -> bool:
        """The upstream has no such stream, or the connection has ended."""
        return self._task is None or self._task.done()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def cover(self, uris: Sequence[str], seconds: float) -> None:
        """From now on these, too, in the modern era, where one stream names all. The stream before ends when this one has been
        acknowledged. Raises: Unusable."""
        if set(uris) <= set(self._uris):
            return
        before, was = self._task, self._uris
        self._is_honoured = False
        self._heard.clear()
        self.start(uris)
        timer = asyncio.get_running_loop().call_later(seconds, self._heard.set)
        try:
            await self._heard.wait()
        finally:
            timer.cancel()
            dismissed = before if self._is_honoured else self._task
            if not self._is_honoured:
                self._task, self._uris = before, was
            if dismissed is not None:
                dismissed.cancel()
        if not self._is_honoured:
            raise Unusable("not_acknowledged", "the upstream did not acknowledge a subscription")

    def acknowledged(self, note: Notification) -> None:
        """What does not name all of them is about an earlier stream, or a refusal: whoever waits finds that in time."""
        wanted = note.params.get("notifications")
        honoured = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
        if set(self._uris) <= set(honoured if isinstance(honoured, list) else ()):
            self._is_honoured = True
            self._heard.set()

    async def _listen(self, uris: Sequence[str]) -> None:
        """While this connection lasts. One who cannot tell changes is asked when its list's time is up."""
        pause_s = FIRST_PAUSE_S
        while self._session.transport.open:
            with suppress(NotSent, Lost, Unusable, SessionGone):
                try:
                    await self._session.listen(uris, LISTEN_S)
                except RefusedByStatus:
                    return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            self._on_gap()


class _Followed(Struct):
    changes: int = 0
    asked_at: float = 0.0
    on: Session | None = None
    """The connection that it is subscribed on."""


class Following:
    """The resources of one upstream that somebody is subscribed to."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._followed: dict[str, _Followed] = {}
        self._turn = asyncio.Lock()

    async def follow(self, session: Session, listener: ChangeListener | None, uri: str, seconds: float) -> str:
        """A short text that changes when the resource does. Raises: Unusable: the upstream refuses; as `Session.request`."""
        now = self._clock()
        one = self._followed.get(uri)
        if one is not None and one.on is session:
            one.asked_at = now
            return str(one.changes)
        async with self._turn:
            await self._let_go(session, now)
            if one is None and len(self._followed) >= MAX_FOLLOWED:
                raise Unusable("too_many", f"{MAX_FOLLOWED} of its resources are followed already")
            await self._subscribe(session, listener, uri, seconds)
            one = self._followed.setdefault(uri, _Followed())
            one.changes += one.on is not session  # what changed before is known to nobody
            one.asked_at, one.on = now, session
            return str(one.changes)

    def changed(self, uri: str) -> bool:
        """Whether somebody follows it."""
        one = self._followed.get(uri)
        if one is None:
            return False
        one.changes += 1
        return True

    def missed(self) -> None:
        """Something may have changed unheard."""
        for followed in self._followed.values():
            followed.changes += 1

    def uris(self) -> list[str]:
        return sorted(self._followed)

    async def _subscribe(self, session: Session, listener: ChangeListener | None, uri: str, seconds: float) -> None:
        if session.era == "modern":
            if listener is None:
                raise Unusable("not_offered", "the upstream tells of no changes")
            await listener.cover([*self.uris(), uri], seconds)
            return
        answer = await session.request("resources/subscribe", {"uri": uri}, seconds=seconds)
        if answer.error is not None:
            raise Unusable("not_subscribed", f"the upstream answered with error {answer.error.code}")

    async def _let_go(self, session: Session, now: float) -> None:
        for uri, followed in list(self._followed.items()):
            if now - followed.asked_at > LET_GO_S:
                del self._followed[uri]
                if session.era == "handshake" and followed.on is session:
                    with suppress(NotSent, Lost, Unusable, SessionGone, RefusedByStatus):
                        await session.request("resources/unsubscribe", {"uri": uri}, seconds=1.0)
