"""What a session needs of a transport, and what every transport does with what comes in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from toolgate.model.mcpwire import NOTHING
from toolgate.powers.mcp import messages
from toolgate.powers.mcp.bounds import Allowance, Bounds

if TYPE_CHECKING:
    from toolgate.powers.mcp.messages import Notification, Response, UpstreamRequest

Step = Callable[[messages.Progress], None]
"""Told of each step of a request."""


LogHeard = Callable[[Any, Any], None]
"""(level, data) of something that was logged."""


def nothing() -> None:
    """For those who need not know."""


class Transport(Protocol):
    """One connection to one upstream. Requests on it may overlap."""

    may_ignore_probe: bool
    """Silence after the modern greeting is an answer: true of pipes, where servers of the handshake era may drop what comes
    first. Over HTTP it is a server in trouble."""
    names_calls: bool
    """What is logged in a call comes with that call: true over HTTP, where each has a stream of its own. A pipe is for all."""
    on_note: Callable[[Notification], None]
    """Told of every notification that is not a step of a request."""
    on_ask: Callable[[UpstreamRequest], bytes | None]
    """What a request of the upstream's is answered with; None: it will be, by `send_reply`. Only the handshake era has such."""

    @property
    def open(self) -> bool: ...

    def request(
        self,
        method: str,
        params: dict[str, object],
        *,
        seconds: float,
        step: Step | None = None,
        mirrored: Mapping[str, str] = NOTHING,
        log: LogHeard | None = None,
    ) -> Coroutine[Any, Any, Response]:
        """If it is cancelled, the upstream is told to stop. `mirrored`: headers that repeat arguments, for HTTP. `log`: told of
        what is logged on the stream of this request; a pipe has none, and tells `on_note`.

        Raises: NotSent; Lost: it was sent, and no answer will come; Unusable: its answer breaks the protocol. Over HTTP also
        RefusedByStatus: a status without an answer; SessionGone.
        """
        ...

    async def note(self, method: str) -> None:
        """Raises: as `request`."""
        ...

    async def watch(self, seconds: float, opened: Callable[[], None] = nothing) -> None:
        """In the handshake era: stay for what no request asked for, until the upstream ends it. `opened`: told when it listens.

        Raises: as `request`.
        """
        ...

    def send_reply(self, data: bytes) -> None:
        """The answer to a request of the upstream's. One that cannot be sent is lost: the upstream waits no longer than its
        own call does."""
        ...

    def speak(self, version: str | None) -> None:
        """From now on in this version of the protocol; None: it is about to be agreed upon."""
        ...

    def leave(self) -> None:
        """Before `close`, of a connection that will not be made anew: an upstream need not remember it."""
        ...

    async def close(self) -> None: ...
    async def why(self) -> str:
        """What a person should know about a connection that failed: how a child ended, and its last words."""
        ...


class Deadlines:
    """When each request of a connection has waited for long enough. One timer for all of them, which is set anew only for a
    request that is due before it: a timer for each took as long as writing the request does."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: dict[asyncio.Future[Any], float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    def begin(self, waiting: asyncio.Future[Any], seconds: float) -> float:
        """It fails with TimeoutError when these have passed, unless it is done or `end` was called. Returns when that is."""
        self._due[waiting] = due = self._loop.time() + seconds
        if due < self._timer_at:
            self._set(due)
        return due

    def end(self, waiting: asyncio.Future[Any]) -> None:
        self._due.pop(waiting, None)

    def __len__(self) -> int:
        return len(self._due)

    def close(self) -> None:
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, inf

    def _set(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(due, self._look), due

    def _look(self) -> None:
        self._timer, self._timer_at = None, inf
        now = self._loop.time()
        for waiting in [each for each, due in self._due.items() if due <= now]:
            del self._due[waiting]
            if not waiting.done():
                waiting.set_exception(TimeoutError())
        if self._due:
            self._set(min(self._due.values()))


class Inbox:
    """Reads what comes on a line: answers for who waits, steps, notes; and how many of these there may be."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._allowance = Allowance(bounds.notes_burst, bounds.notes_per_s, monotonic())
        self.steps: dict[int, Step] = {}

    def read(self, data: bytes) -> Response | Notification | UpstreamRequest | None:
        """None: a step of a request, and whoever asked for it has been told. Raises: MalformedMessage."""
        message = messages.read(data, max_bytes=self._bounds.message_bytes, max_values=self._bounds.values)
        if isinstance(message, messages.Response):
            return message
        self.count()
        if not isinstance(message, messages.Notification) or message.method != "notifications/progress":
            return message
        progress = messages.progress_of(message)
        step = self.steps.get(progress.token) if progress is not None else None
        if progress is not None and step is not None:
            step(progress)
        return None

    def count(self) -> None:
        """Something came that is not an answer. Raises: MalformedMessage."""
        if not self._allowance.take(monotonic()):
            raise messages.MalformedMessage(
                "too_many_notes", "more notifications came than a server has reason to send"
            )


def with_token(params: dict[str, object], number: int) -> dict[str, object]:
    """UpstreamRequest for steps: a request's own number is its token."""
    meta = params.get("_meta")
    return {**params, "_meta": {**(meta if isinstance(meta, dict) else {}), "progressToken": number}}


def ignore(_note: Notification) -> None:
    """For a line whose owner does not care."""


def new_future() -> asyncio.Future[Response]:
    return asyncio.get_running_loop().create_future()
