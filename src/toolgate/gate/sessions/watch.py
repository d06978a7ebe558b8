"""Who hears of changes: open streams, what each of them wants, and how a change is found.

A stream is a connection that a client holds open; all that is known of it ends with it. A change is told by a pack
(`ctx.changed`), or found by looking again at what somebody is subscribed to (`Resource.stamp`), with the eyes of the caller who
subscribed. A client learns that something changed, never what: to read it is a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, field

from toolgate.errors import Ending, Refusal
from toolgate.gate.sessions.seals import MAX_SUBSCRIPTIONS
from toolgate.model import strictjson
from toolgate.model.offers import listed_in, stamp_of
from toolgate.model.threads import in_thread

if TYPE_CHECKING:
    from toolgate.gate.admit import Grant, Permits, Ticket
    from toolgate.gate.keys import Authenticate
    from toolgate.gate.sessions.seals import SealedSession
    from toolgate.model.call import Caller
    from toolgate.model.tool import Context, Level

MAX_STREAMS: Final = 8
"""Open at once for one caller."""
MAX_STREAMS_IN_ALL: Final = 1024
POLL_S: Final = 2.0
"""Between two looks at what is subscribed to."""
LOOK_S: Final = 5.0
"""For one look; one that takes longer has seen nothing."""

ListName = Literal["tools", "prompts", "resources"]
LISTS: Final[tuple[ListName, ...]] = ("tools", "prompts", "resources")


class Watched(Struct):
    """Something to look at again, as its subscriber would see it."""

    ticket: Ticket
    """Of the call that subscribed."""
    stamp: str
    event: str
    """What to tell: an address, or the list `resources`."""


class WatchStream(Struct, eq=False):
    caller: Caller
    credential: bytes | None
    lists: frozenset[str]
    spell: Callable[[str], bytes]
    """A change (an address, or the name of a list) as the client reads it."""
    session: str = ""
    """Of the handshake era: whose stream it is."""
    address: str | None = None
    """Of the client that opened it."""
    level: Level | None = None
    """What the client has said about logging since it opened."""
    uris: dict[str, Watched] = field(default_factory=dict)
    listings: list[Watched] = field(default_factory=list)
    waiting: dict[str, None] = field(default_factory=dict)
    """Changes to tell, each once however often it came: a client that does not read makes nothing grow."""
    is_over: bool = False
    _due: asyncio.Event = field(default_factory=asyncio.Event)

    def wants(self, change: str) -> bool:
        return change in self.lists or change in self.uris

    def tell(self, change: str) -> None:
        if self.wants(change):
            self.waiting[change] = None
            self._due.set()

    def end(self) -> None:
        self.is_over = True
        self._due.set()

    async def next(self, within_s: float) -> bytes | None:
        """The next message; empty if nothing changed for so long; None at the end."""
        if not self.waiting and not self.is_over:
            self._due.clear()
            # Not asyncio.timeout, which wants a task: the first step of an answer has none.
            timer = asyncio.get_running_loop().call_later(within_s, self._due.set)
            await self._due.wait()
            timer.cancel()
        if self.waiting:
            change = next(iter(self.waiting))
            del self.waiting[change]
            return self.spell(change)
        return None if self.is_over else b""


class Watch:
    """The open streams of one server."""

    def __init__(
        self,
        authenticate: Authenticate,
        context_for: Callable[[Grant, Ticket], Context],
        *,
        is_stopped: Callable[[Caller, Grant], bool] = lambda _caller, _grant: False,
        poll_s: float = POLL_S,
    ) -> None:
        self._authenticate, self._context_for, self._is_stopped = authenticate, context_for, is_stopped
        self.poll_s = poll_s
        self._streams: set[WatchStream] = set()
        self._polling: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self, stream: WatchStream) -> None:
        """Raises: Refusal TOO_MANY."""
        self.check(stream.caller)
        self._streams.add(stream)
        if self._polling is None:
            self._loop = asyncio.get_running_loop()
            self._polling = self._loop.create_task(self._poll())

    def open_streams(self) -> int:
        return len(self._streams)

    def check(self, caller: Caller) -> None:
        """Is there room for one more stream of this caller? Raises: Refusal TOO_MANY."""
        own = sum(1 for stream in self._streams if stream.caller.key_id == caller.key_id)
        if own >= MAX_STREAMS:
            raise Refusal(Ending.TOO_MANY, f"{MAX_STREAMS} streams of this key are open; close one.")
        if len(self._streams) >= MAX_STREAMS_IN_ALL:
            raise Refusal(Ending.TOO_MANY, "Too many streams are open on this server; try again later.")

    def close(self, stream: WatchStream) -> None:
        stream.end()
        self._streams.discard(stream)
        if not self._streams and self._polling is not None:
            self._polling.cancel()
            self._polling = None

    def close_all(self) -> None:
        for stream in list(self._streams):
            self.close(stream)

    def changed(self, what: str) -> None:
        """Tell everyone who wants to hear of it. From any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._tell, what)

    def _tell(self, what: str) -> None:
        for stream in list(self._streams):
            stream.tell(what)

    def obey(self, permits: Permits) -> None:
        """Other rules hold: who may no longer read something hears no more of it, and every list may be another one."""
        for stream in self._streams:
            stream.uris = {uri: watched for uri, watched in stream.uris.items() if _is_granted(watched, permits)}
            stream.listings = [watched for watched in stream.listings if _is_granted(watched, permits)]
        for name in LISTS:
            self._tell(name)

    def of_session(self, session: SealedSession) -> list[WatchStream]:
        """A client that keeps the id it got first is served by its open stream all the same."""
        return [
            stream for stream in self._streams if stream.session == session.id and stream.caller.key_id == session.owner
        ]

    def level_of(self, session: SealedSession) -> Level | None:
        """What the client wants to read of logs: as its open stream was told last, or as its id says."""
        return next((stream.level for stream in self.of_session(session) if stream.level is not None), session.level)

    def subscribe(self, streams: Iterable[WatchStream], uri: str, watched: Watched) -> None:
        for stream in streams:
            if len(stream.uris) < MAX_SUBSCRIPTIONS:
                stream.uris[uri] = watched

    def open_count(self) -> int:
        return len(self._streams)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self.poll_s)
            for stream in list(self._streams):
                if self._is_still_held(stream):
                    await self._look(stream)

    def _is_still_held(self, stream: WatchStream) -> bool:
        """A key that was revoked hears no more; one whose role or scopes have changed sees other lists."""
        try:
            caller = self._authenticate(stream.credential, stream.address)
        except Refusal:
            self.close(stream)
            return False
        if (caller.role, caller.bounds) != (stream.caller.role, stream.caller.bounds):
            stream.caller = caller
            for name in LISTS:
                stream.tell(name)
        return True

    async def _look(self, stream: WatchStream) -> None:
        for watched in [*stream.uris.values(), *stream.listings]:
            stamp = await self._stamp(stream, watched)
            if stamp is not None and stamp != watched.stamp:
                watched.stamp = stamp
                stream.tell(watched.event)

    async def _stamp(self, stream: WatchStream, watched: Watched) -> str | None:
        """None: not to be told now, by whatever reason; the next look may do better."""
        grant, ticket = watched.ticket.grant, watched.ticket
        if not grant.is_held_by(stream.caller) or (
            grant.tool.kind == "subscription" and grant.tool.offer.stamp is None
        ):
            return None
        if self._is_stopped(stream.caller, grant):
            return None
        context = self._context_for(grant, ticket)
        try:
            async with asyncio.timeout(LOOK_S):
                return await _looked(grant.tool, context, ticket.call.arguments)
        except Exception:  # noqa: BLE001 (the border: a pack's own function; a reader learns of the fault when it reads)
            return None


def _is_granted(watched: Watched, permits: Permits) -> bool:
    """By the rules of now, which it goes by from here on."""
    grant = permits.known(watched.ticket.grant.tool.name)
    if grant is None:
        return False
    watched.ticket.grant = grant
    return True


async def _looked(tool: Any, context: Context, arguments: dict[str, Any]) -> str:
    if tool.kind == "listing":
        return list_stamp(await in_thread(listed_in, tool.offer, context))
    return await stamp_of(tool.offer, context, arguments)


def list_stamp(items: Any) -> str:
    return sha256(strictjson.dumps(items)).hexdigest()
